"""The paper's energy table: what it prints, what its arithmetic gives, and what everything counted gives."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..plot import figure, hatches, styled
from .published import compare_published
from .workplace import Workplace

TITLE = "Energy per inference: printed, reproduced, audited"
# The means that the paper prints, in mJ.
MEANS = {"energy": 0.168, "s4": 11.748}


def run(workplace: Workplace) -> dict[str, Any]:
    tasks = compare_published()
    means = {
        kind: {account: sum(float(each[kind][account]) for each in tasks) / len(tasks)
               for account in ("printed", "reproduced", "audited")}
        for kind in MEANS
    }  # fmt: skip
    savings = {
        account: sum(each["saving"][account] for each in tasks) / len(tasks) for account in ("printed", "audited")
    }
    return {"tasks": tasks, "means": means, "means_printed": MEANS, "mean_savings": savings}


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (ours, theirs) = figure(1, 2, height=2.9)
    _bars(ours, result["tasks"], "energy", "SD-TCM", 1.45)
    _bars(theirs, result["tasks"], "s4", "S4, state size 64", 1.3)
    ours.legend(loc="upper center", ncols=3, columnspacing=1.0, handlelength=1.5)
    return drawn


def _bars(panel: Axes, tasks: list[dict[str, Any]], kind: str, title: str, room: float) -> None:
    names = [each["task"] for each in tasks]
    for number, (account, fill) in enumerate(zip(("printed", "reproduced", "audited"), hatches(), strict=False)):
        values = [float(each[kind][account]) for each in tasks]
        panel.bar([place + 0.27 * (number - 1) for place in range(len(names))], values, 0.25, label=account, **fill)
    panel.set_xticks(range(len(names)), names, fontsize=10)
    panel.set(title=title, ylabel="mJ per inference")
    panel.set_ylim(0, room * max(float(each[kind]["audited"]) for each in tasks))
    panel.grid(visible=False, axis="x")
    panel.set_axisbelow(True)


def page(result: dict[str, Any]) -> str:
    ours = [
        f"| {each['task']} | {each['energy']['printed']} | {each['energy']['reproduced']} | "
        f"{each['energy']['formula']:.3f} ({100 * each['energy']['formula_deviation']:+.1f} %) | "
        f"{each['energy']['audited']:.3f} | {each['energy']['audited_over_printed']:.2f}x |"
        for each in result["tasks"]
    ]
    theirs = [
        f"| {each['task']} | {each['s4']['printed']} | {each['s4']['reproduced']} | "
        f"{each['s4']['sizes'][0]} x {each['s4']['sizes'][1]} | {each['s4']['formula']:.3f} | "
        f"{'none' if each['s4']['state_size_needed'] is None else format(each['s4']['state_size_needed'], '.1f')} | "
        f"{each['s4']['audited']:.3f} |"
        for each in result["tasks"]
    ]
    saved = [
        f"| {each['task']} | {each['saving']['printed']:.2f} % | {each['saving']['audited']:.2f} % | "
        f"{each['times']['s4']:.0f} | {each['times']['s4d']:.0f} | {each['times']['transformer']:.0f} |"
        for each in result["tasks"]
    ]
    means, printed = result["means"], result["means_printed"]
    quotient = 100 * (1 - printed["energy"] / printed["s4"])
    return f"""
From the paper's own fire rates, at its lengths. *Reproduced* is the arithmetic that gives its digits; *its formula* is
the one it prints, fed with the rates it prints; *audited* counts everything. All rules are in
[energy.md](../energy.md).

SD-TCM, mJ per inference:

| task | printed | reproduced | its formula | audited | audited over printed |
|---|---|---|---|---|---|
{chr(10).join(ours)}
| mean | {printed["energy"]} | {means["energy"]["reproduced"]:.3f} | | {means["energy"]["audited"]:.3f} | |

The printed formula misses the printed energies. What gives them: every layer at the task's average rate, and that
average divided by one layer too many of each kind; a PRF's products at the price of MACs; bidirectional networks
(Image, Pathfinder) charged as causal; one document of Retrieval's two; norm, encoder, pool, head and comparisons not
charged.

S4, mJ per inference. Its sizes and its state size H are not in the paper. *Needs H* is what its formula would need at
the sizes of the network beside it; none: it is above the printed energy at any H.

| task | printed | reproduced | with blocks x width | its formula, H = 64 | needs H | audited, H = 64 |
|---|---|---|---|---|---|---|
{chr(10).join(theirs)}
| mean | {printed["s4"]} | {means["s4"]["reproduced"]:.3f} | | | | {means["s4"]["audited"]:.3f} |

Energy saved against S4, and how many times as much others of the same size take, audited:

| task | saved, printed | saved, audited | S4 | S4D, diagonal | Transformer |
|---|---|---|---|---|---|
{chr(10).join(saved)}

The paper's 98.57 % is one less the quotient of its two means ({quotient:.2f} %). The mean of its five savings is
{result["mean_savings"]["printed"]:.2f} %; audited, against an S4 of equal size,
{result["mean_savings"]["audited"]:.2f} %. These are estimates of arithmetic, without memory: none is a measurement.
"""
