"""The paper's table of the Long Range Arena, with the networks trained so far. Nothing is trained for this page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ..models.storage import SHIPPED
from ..plot import figure, hatches, styled
from .arena_energy import energies
from .arena_energy import section as energy_section
from .equal_budget import comparisons, section
from .pages import table
from .workplace import Workplace, finished

TITLE = "The Long Range Arena: ours, the paper's and the best published"
TASKS = {
    "listops": "ListOps", "text": "Text", "retrieval": "Retrieval", "image": "Image", "pathfinder": "Pathfinder",
    "pathx": "Path-X",
}  # fmt: skip
CHANCE = (10.0, 50.0, 50.0, 10.0, 50.0, 50.0)
# The paper's table in %, in the order of TASKS without Path-X, and its printed average.
PAPER = {
    "Transformer": ((36.37, 64.27, 57.46, 42.44, 71.40), 54.39),
    "S4 (both ways)": ((59.60, 86.82, 90.90, 88.65, 94.20), 84.03),
    "Binary S4D": ((54.80, 82.50, 85.03, 82.00, 82.60), 77.39),
    "Binary S4D, GSU and GELU": ((59.60, 86.50, 90.22, 85.00, 91.30), 82.52),
    "Stochastic SpikingS4": ((55.70, 77.62, 88.48, 80.10, 83.41), 77.06),
    "SpikingSSMs": ((60.23, 80.41, 88.77, 88.21, 93.51), 82.23),
    "Spiking LMU": ((37.30, 65.80, 79.76, 55.65, 72.68), 62.23),
    "ELM neuron": ((44.55, 75.40, 84.93, 49.62, 71.15), 69.25),
    "PRF, SD-TCM (the paper)": ((59.20, 86.33, 89.88, 84.77, 91.76), 82.39),
}
THEIRS, S4 = "PRF, SD-TCM (the paper)", "S4 (both ways)"
# The best published spiking network of each task, in the order of TASKS.
BEST = (60.23, 86.52, 90.22, 88.21, 93.68, 94.82)


def run(workplace: Workplace) -> dict[str, Any]:
    # Where `resofire train` and where these experiments put their runs.
    folders = Path("runs"), workplace.runs
    return {
        "shipped": collected(SHIPPED),
        "trained": collected(*folders),
        "energy": energies(TASKS, dict(zip(TASKS.values(), PAPER[THEIRS][0], strict=False))),
        "equal_budget": comparisons(TASKS, *folders),
    }


def collected(*folders: Path) -> dict[str, dict[str, Any]]:
    """Find a finished run of each task: of those tested on most sequences, the best on validation."""
    best: dict[str, dict[str, Any]] = {}
    for _, row in finished(TASKS, *folders):
        if row["task"] not in best or _rank(row) > _rank(best[row["task"]]):
            best[row["task"]] = row
    return best


def _rank(row: dict[str, Any]) -> tuple[int, float]:
    return row["tested"], row["validation"]


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (panel,) = figure(width=7.6, height=4.2)
    rows = {"S4": PAPER[S4][0], "best spiking": BEST, "paper": PAPER[THEIRS][0], "here": _ours(result)}
    for number, ((label, shares), style) in enumerate(zip(rows.items(), hatches(), strict=False)):
        places = [place + (number - 1.5) * 0.2 for place, share in enumerate(shares) if share is not None]
        panel.bar(places, [share for share in shares if share is not None], width=0.19, label=label, **style)
    for place, share in enumerate(CHANCE):
        panel.plot([place - 0.42, place + 0.42], [share, share], color="black", label="chance" if place == 0 else None)
    panel.set_xticks(range(len(TASKS)), TASKS.values())
    panel.set(ylabel="test accuracy, %", ylim=(0, 100))
    panel.set_axisbelow(True)
    panel.grid(visible=False, axis="x")
    drawn.legend(loc="outside upper center", ncols=len(rows) + 1)
    return drawn


def _ours(result: dict[str, Any]) -> list[float | None]:
    """Test accuracy in % of the shipped networks, otherwise of the trained ones."""
    return _tests({**result["trained"], **result["shipped"]})


def _tests(rows: dict[str, Any]) -> list[float | None]:
    return [100 * rows[task]["test"] if task in rows else None for task in TASKS]


def page(result: dict[str, Any]) -> str:
    kinds = {"Resofire, shipped": result["shipped"], "Resofire, trained here": result["trained"]}
    rows = [_row(label, _tests(each)) for label, each in kinds.items()]
    rows.append(_row("best published spiking", BEST))
    rows += [_row(label, (*shares, None)) for label, (shares, _) in reversed(PAPER.items())]
    rows.append(_row("chance", CHANCE))
    return f"""
Test accuracy in %. A cell is empty where nothing is published or trained; runs cut to a number of steps, like those of
the other pages here, do not count. The average is over the five tasks without Path-X, which the paper leaves unsolved.

{table(("network", *TASKS.values(), "average"), rows)}

{_runs(kinds)}

Runs that begin with the weights of a curriculum (`examples/curriculum.py`: `listops`, `pathfinder-small` and
`pathfinder-medium`) have seen shorter expressions and paths, which the Long Range Arena does not have. ListOps and
Pathfinder are generated here by its rules, unless the user has its files.

{_compared(result)} Best published is the best spiking network of each task that we know of. {_averages()}

{energy_section(result.get("energy", ()))}
{section(result.get("equal_budget", ()))}
"""


def _row(label: str, shares: Sequence[float | None]) -> list[str]:
    return [label, *("" if share is None else f"{share:.2f}" for share in shares), _average(shares)]


def _average(shares: Sequence[float | None]) -> str:
    five = [share for share in shares[:5] if share is not None]
    return f"{sum(five) / 5:.2f}" if len(five) == 5 else ""


def _runs(kinds: dict[str, dict[str, Any]]) -> str:
    rows = [
        (title, f"`{each['recipe']}` in `{each['run']}`", f"{each['parameters']:,}",
         f"{each['epochs']:,} epochs, batches of {each['batch']}", f"{each['tested']:,}")
        for of_kind in kinds.values()
        for task, title in TASKS.items()
        if (each := of_kind.get(task))
    ]  # fmt: skip
    if not rows:
        return "Nothing has been trained yet: no network is shipped for these tasks and no finished run was found."
    text = "Our runs. Of several runs of a task, the best on validation among those tested on most sequences:"
    return f"{text}\n\n{table(('task', 'recipe and run', 'parameters', 'trained', 'test sequences'), rows)}"


def _compared(result: dict[str, Any]) -> str:
    differences = [
        f"{title} {ours - theirs:+.1f}"
        for title, ours, theirs in zip(TASKS.values(), _ours(result), (*PAPER[THEIRS][0], None), strict=True)
        if ours is not None and theirs is not None
    ]
    if not differences:
        return "There is no result here to compare with the paper's."
    return f"Ours minus the paper's, in points: {', '.join(differences)}."


def _averages() -> str:
    """Which of the paper's printed averages do not follow from its numbers."""
    wrong = [
        f"{label} {_average(shares)}, not {printed:.2f}"
        for label, (shares, printed) in PAPER.items()
        if abs(float(_average(shares)) - printed) > 0.02
    ]
    return f"Averages are recomputed; the paper's differ for: {', '.join(wrong)}." if wrong else ""
