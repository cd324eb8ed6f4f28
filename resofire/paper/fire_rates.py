"""The paper's fire rates, layer by layer, with the averages that follow from them; and those of a shipped network."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .. import pretrained
from ..measure import fire_rates
from ..plot import figure, lines, styled
from .pages import percentages, table
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
    rates = fire_rates(pretrained(OURS), workplace.task(OURS)["test"].batches(64))
    temporal, spatial = (percentages(rate for name, rate in rates.items() if name.endswith(kind))
                         for kind in ("token_neuron", "channel_neuron"))  # fmt: skip
    average = sum(percentages(rates.values())) / len(rates)
    return {
        "unit": "per cent of neurons and time steps", "tasks": tasks,
        "ours": {"network": OURS, "temporal": temporal, "spatial": spatial, "average": average},
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
    averages = {name: each["average"] for name, each in result["tasks"].items()}
    more = {name: max(("spatial", "temporal"), key=each.__getitem__) for name, each in averages.items()}
    means = [
        (name, each["printed"], each["reproduced"], *(f"{each[kind]:.2f}" for kind in ("true", "temporal", "spatial")),
         more[name])
        for name, each in averages.items()
    ]  # fmt: skip
    layers = [
        (name, kind, *([f"{rate:.2f}" for rate in each[kind]] + [""] * (8 - len(each[kind]))))
        for name, each in result["tasks"].items()
        for kind in ("temporal", "spatial")
    ]
    ours = result["ours"]
    temporal, spatial = (", ".join(f"{rate:.2f}" for rate in ours[kind]) for kind in ("temporal", "spatial"))
    head = ("task", "average, printed", "reproduced", "true", "temporal neurons", "spatial neurons", "who fires more")
    return f"""
All rates in per cent. The paper's five networks, as printed:

{table(("task", "neuron", "block 1", *map(str, range(2, 9))), layers)}

{table(head, means)}

*Reproduced* divides the sum over the 2L layers of neurons by 2(L + 1), which gives every printed digit; *true* divides
by 2L. So all five printed averages are too low, by the factor L/(L + 1). The paper states that spatial neurons fire
more on average; on {" and ".join(name for name, kind in more.items() if kind == "temporal")} its tables say otherwise.

Ours, measured: the shipped network `{ours["network"]}` fires {ours["average"]:.2f} % on its test set
(temporal {temporal} %, spatial {spatial} %). It is small and solves another task, so this is no comparison; its spatial
neurons fire {"more" if sum(ours["spatial"]) > sum(ours["temporal"]) else "less"}.
"""
