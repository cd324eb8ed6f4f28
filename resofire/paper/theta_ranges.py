"""The paper's tables of the initial range of θ on each task of the Long Range Arena, with our smaller networks."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from ..data import DataError
from ..models import ClassifierConfig, RetrievalConfig
from ..nn import PRFConfig
from ..plot import figure, lines, styled
from ..recipes import retrieval_small
from ..train import RunConfig
from .pages import percent, table
from .recipes import image_small_paper, listops_small_paper, pathfinder_small_paper, text_small_paper
from .workplace import Trained, Workplace, by_chance

TITLE = "The initial range of θ: five ranges for each task of the Long Range Arena"
BATCH = 16
# Below this budget, in minutes, only the first, the paper's best and the last range are tried.
WHOLE = 4.0


class Ablation(NamedTuple):
    """One of the paper's tables: accuracy in % with θ from 0 to `tops` times π, and the labels of `tops`."""

    title: str
    recipe: Callable[[], RunConfig]
    labels: tuple[str, ...]
    tops: tuple[float, ...]
    accuracy: tuple[float, ...]
    chance: float


FRACTIONS = ("π/4", "π/5", "π/6", "π/7", "π/8"), (1 / 4, 1 / 5, 1 / 6, 1 / 7, 1 / 8)
TABLES = {
    "listops": Ablation("ListOps", listops_small_paper, *FRACTIONS, (56.85, 55.60, 59.20, 58.05, 54.55), 10.0),
    "text": Ablation(
        "Text", text_small_paper, ("π", "π/2", "π/4", "π/8", "π/16"), (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16),
        (81.27, 83.28, 84.94, 86.33, 85.32), 50.0,
    ),
    "retrieval": Ablation("Retrieval", retrieval_small, *FRACTIONS, (89.64, 89.52, 89.75, 89.88, 89.72), 50.0),
    "image": Ablation(
        "Image", image_small_paper, ("2π/0.15", "2π/0.2", "2π/0.25", "2π/0.3", "2π/0.35"),
        (2 / 0.15, 2 / 0.2, 2 / 0.25, 2 / 0.3, 2 / 0.35), (84.36, 84.43, 84.77, 84.54, 84.38), 10.0,
    ),
    "pathfinder": Ablation(
        "Pathfinder", pathfinder_small_paper, ("2π", "2π/0.8", "2π/0.6", "2π/0.4", "2π/0.2"),
        (2, 2 / 0.8, 2 / 0.6, 2 / 0.4, 2 / 0.2), (91.14, 91.19, 91.76, 89.87, 90.97), 50.0,
    ),
}  # fmt: skip


def run(workplace: Workplace) -> dict[str, Any]:
    absent = {task: reason for task in TABLES if (reason := _why_absent(workplace, task))}
    there = [task for task in TABLES if task not in absent]
    if not there:
        raise DataError(f"theta-ranges: none of its data sets is available; the first: {next(iter(absent.values()))}")
    results = {}
    for task in there:
        ablation = TABLES[task]
        labels = ablation.labels if workplace.minutes >= WHOLE else _fewer(ablation)
        configs = {_folder(label): _config(ablation, label) for label in labels}
        trained = workplace.train(configs, validations=2, part=task, share=1 / len(there), thin=True)
        results[task] = _outcome({label: trained[_folder(label)] for label in labels})
    return {"batch": BATCH, "tasks": results, "absent": list(absent)}


def _why_absent(workplace: Workplace, task: str) -> str:
    try:
        workplace.task(task)
    except DataError as error:
        return str(error)
    return ""


def _fewer(ablation: Ablation) -> tuple[str, ...]:
    kept = {0, ablation.accuracy.index(max(ablation.accuracy)), len(ablation.labels) - 1}
    return tuple(label for place, label in enumerate(ablation.labels) if place in kept)


def _folder(label: str) -> str:
    return label.replace("π", "pi").replace("/", "-over-")


def _config(ablation: Ablation, label: str) -> RunConfig:
    recipe = ablation.recipe()
    model = recipe.model
    assert isinstance(model, ClassifierConfig | RetrievalConfig)
    assert isinstance(model.neuron, PRFConfig)
    top = math.pi * ablation.tops[ablation.labels.index(label)]
    return replace(recipe, model=replace(model, neuron=replace(model.neuron, theta=(0.0, top))), batch=BATCH)


def _outcome(trained: dict[str, Trained]) -> dict[str, Any]:
    first = next(iter(trained.values()))
    assert isinstance(first.config.model, ClassifierConfig | RetrievalConfig)
    return {
        "network": f"{first.config.model.depth} x {first.config.model.features}",
        "parameters": first.result["parameters"],
        **first.scale,
        "accuracy": {label: done.result["accuracy"] for label, done in trained.items()},
    }


@styled
def draw(result: dict[str, Any]) -> Figure:
    # One panel more, for the legend.
    drawn, panels = figure(3, -(-(len(TABLES) + 1) // 3), width=3.4, height=2.9)
    ours, paper = (style for style, _ in zip(lines(), range(2), strict=False))
    for (task, ablation), panel in zip(TABLES.items(), panels, strict=False):
        panel.plot(range(len(ablation.labels)), ablation.accuracy, label="paper", **paper)
        if task in result["tasks"]:
            accuracy = result["tasks"][task]["accuracy"]
            places = [ablation.labels.index(label) for label in accuracy]
            panel.plot(places, [100 * each["test"] for each in accuracy.values()], label="here", **ours)
        else:
            panel.text(0.5, 0.25, "no data", transform=panel.transAxes, ha="center")
        panel.axhline(ablation.chance, color="#6b6b6b", linestyle=":", label="chance")
        panel.set_xticks(range(len(ablation.labels)), ablation.labels, rotation=45)
        panel.set(title=ablation.title, ylim=(0, 100))
    for panel in panels[len(TABLES) :]:
        panel.set_axis_off()
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center", fontsize=13)
    drawn.supxlabel("largest initial θ")
    drawn.supylabel("test accuracy, %")
    return drawn


def page(result: dict[str, Any]) -> str:
    rows = [
        (TABLES[task].title, each["network"], f"{each['parameters']:,}", f"{each['steps']:,}", f"{each['tested']:,}",
         f"{TABLES[task].chance:g} %")
        for task, each in result["tasks"].items()
    ]  # fmt: skip
    head = ("task", "blocks x channels", "parameters", "steps", "test sequences", "chance")
    return f"""
Each neuron's θ is sampled uniformly from 0 to the given value, then trained. Ours are the `-small` recipes with batches
of {result["batch"]}, one seed and the same number of steps for all ranges of a task. Accuracy of the weights that are
best on validation; validation and test use evenly spaced sequences of their splits.

{table(head, rows)}

{chr(10).join(_ranges(task, result) for task in TABLES)}
{chr(10).join(_conclusion(task, each) for task, each in result["tasks"].items())}

{_gaps(result["absent"])}
"""


def _ranges(task: str, result: dict[str, Any]) -> str:
    ablation = TABLES[task]
    accuracy = result["tasks"].get(task, {"accuracy": {}})["accuracy"]
    ours = [percent(accuracy[label]["test"]) if label in accuracy else "" for label in ablation.labels]
    paper = [f"{share:.2f} %" for share in ablation.accuracy]
    return table((f"{ablation.title}, θ up to", *ablation.labels), [("here", *ours), ("paper", *paper)]) + "\n"


def _conclusion(task: str, result: dict[str, Any]) -> str:
    ablation = TABLES[task]
    shares = {label: 100 * each["test"] for label, each in result["accuracy"].items()}
    best = max(shares, key=lambda label: result["accuracy"][label]["validation"])
    paper = ablation.labels[ablation.accuracy.index(max(ablation.accuracy))]
    same = "as in the paper" if best == paper else f"the paper's best is {paper}"
    spread = max(shares.values()) - min(shares.values())
    chance = by_chance(shares.values(), result["tested"])
    verdict = "a significant difference" if spread > chance else "not a significant difference"
    above = shares[best] > ablation.chance + by_chance((ablation.chance, shares[best]), result["tested"])
    return (
        f"- {ablation.title}: best on validation with θ up to {best} ({shares[best]:.1f} % on test); {same}. On test "
        f"the ranges are within {spread:.1f} points, {verdict} (limit {chance:.1f}); the paper's are within "
        f"{max(ablation.accuracy) - min(ablation.accuracy):.1f}."
        + ("" if above else " It is not yet significantly above chance.")
    )


def _gaps(absent: list[str]) -> str:
    if not absent:
        return "All five data sets were available."
    titles = ", ".join(TABLES[task].title for task in absent)
    return f"Left empty because the data is missing: {titles}. `resofire data prepare` tells where to get it."
