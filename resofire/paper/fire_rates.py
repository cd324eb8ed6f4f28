"""The paper's fire rates, layer by layer, with the averages that follow from them; and those of a shipped network."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .. import pretrained
from ..measure import fire_rates
from ..models import Classifier
from ..plot import figure, lines, styled
from .published import TASKS, compare_published
from .workplace import Workplace

TITLE = "Fire rates of each layer, and their true averages"
OURS = "digits"


def run(workplace: Workplace) -> dict[str, Any]:
    averages = {each["task"]: each["average"] for each in compare_published()}
    tasks = {
        task.name: {
            "temporal": [float(rate) for rate in task.temporal],
            "spatial": [float(rate) for rate in task.spatial],
            "average": averages[task.name],
        }
        for task in TASKS
    }
    model = pretrained(OURS)
    assert isinstance(model, Classifier)
    rates = fire_rates(model, workplace.task(OURS)["test"].batches(64))
    kinds = {kind: [100 * rate for name, rate in rates.items() if name.endswith(kind)]
             for kind in ("token_neuron", "channel_neuron")}  # fmt: skip
    return {
        "unit": "per cent of neurons and time steps",
        "tasks": tasks,
        "ours": {"network": OURS, "temporal": kinds["token_neuron"], "spatial": kinds["channel_neuron"],
                 "average": sum(100 * rate for rate in rates.values()) / len(rates)},
    }  # fmt: skip


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, panels = figure(2, 3, width=3.1, height=2.2)
    ours = result["ours"]
    shown = {**result["tasks"], f"ours: {ours['network']}": ours}
    for (name, each), panel in zip(shown.items(), panels, strict=True):
        style = lines()
        layers = range(1, len(each["temporal"]) + 1)
        panel.plot(layers, each["temporal"], label="temporal", **next(style))
        panel.plot(layers, each["spatial"], label="spatial", **next(style))
        average = each["average"]["true"] if isinstance(each["average"], dict) else each["average"]
        panel.axhline(average, color="#6b6b6b", linestyle=":", label="true average")
        top = 1.15 * max(*each["temporal"], *each["spatial"])
        panel.set(title=f"{name}, {average:.2f} %", xlim=(0.7, len(each["temporal"]) + 0.3), ylim=(0, top))
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=2))
    for panel in panels[4:]:
        panel.set_xlabel("block")
    for panel in panels[::2]:
        panel.set_ylabel("fire rate, %")
    handles, labels = panels[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=3)
    return drawn


def page(result: dict[str, Any]) -> str:
    averages = []
    for name, each in result["tasks"].items():
        average = each["average"]
        more = "spatial" if average["spatial"] > average["temporal"] else "temporal"
        averages.append(
            f"| {name} | {average['printed']} | {average['reproduced']} | {average['true']:.2f} | "
            f"{average['temporal']:.2f} | {average['spatial']:.2f} | {more} |"
        )
    layers = [
        f"| {name} | {kind} | "
        + " | ".join([f"{rate:.2f}" for rate in each[kind]] + [""] * (8 - len(each[kind])))
        + " |"
        for name, each in result["tasks"].items()
        for kind in ("temporal", "spatial")
    ]
    ours = result["ours"]
    against = [
        name for name, each in result["tasks"].items() if each["average"]["temporal"] > each["average"]["spatial"]
    ]
    return f"""
All rates in per cent, those of the paper's five networks as it prints them:

| task | neuron | block 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |
|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(layers)}

| task | average, printed | reproduced | true | temporal neurons | spatial neurons | who fires more |
|---|---|---|---|---|---|---|
{chr(10).join(averages)}

*Reproduced* divides the sum over the 2L layers of neurons by 2(L + 1), which gives every printed digit; *true* divides
by 2L. So all five printed averages are too low, by the factor L/(L + 1). The paper says that spatial neurons fire more
on average; on {" and ".join(against)} its tables say otherwise.

Ours, measured: the network `{ours["network"]}` that ships with the package fires {ours["average"]:.2f} % on its test
set (temporal {", ".join(f"{rate:.2f}" for rate in ours["temporal"])} %, spatial
{", ".join(f"{rate:.2f}" for rate in ours["spatial"])} %). It is small and its task another, so it is no
comparison; there the spatial neurons fire {"more" if sum(ours["spatial"]) > sum(ours["temporal"]) else "less"}.
"""
