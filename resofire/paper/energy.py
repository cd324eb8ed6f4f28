"""The paper's energy table: as printed, as its arithmetic gives it, and with everything counted."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..plot import figure, hatches, styled
from .pages import table
from .published import compare_published
from .workplace import Workplace

TITLE = "Energy per inference: printed, reproduced, audited"
ACCOUNTS = ("printed", "reproduced", "audited")
# The paper's printed means, in mJ.
MEANS = {"energy": 0.168, "s4": 11.748}


def run(workplace: Workplace) -> dict[str, Any]:
    tasks = compare_published()

    def mean(kind: str, account: str) -> float:
        return sum(float(each[kind][account]) for each in tasks) / len(tasks)

    means = {kind: {account: mean(kind, account) for account in ACCOUNTS} for kind in MEANS}
    savings = {account: mean("saving", account) for account in ("printed", "audited")}
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
    for number, (account, fill) in enumerate(zip(ACCOUNTS, hatches(), strict=False)):
        values = [float(each[kind][account]) for each in tasks]
        panel.bar([place + 0.27 * (number - 1) for place in range(len(names))], values, 0.25, label=account, **fill)
    panel.set_xticks(range(len(names)), names, fontsize=10)
    panel.set(title=title, ylabel="mJ per inference")
    panel.set_ylim(0, room * max(float(each[kind]["audited"]) for each in tasks))
    panel.grid(visible=False, axis="x")
    panel.set_axisbelow(True)


def page(result: dict[str, Any]) -> str:
    means, printed = result["means"], result["means_printed"]
    ours, theirs, saved = [], [], []
    for each in result["tasks"]:
        own, s4, saving, times = (each[key] for key in ("energy", "s4", "saving", "times"))
        needed = "none" if s4["state_size_needed"] is None else f"{s4['state_size_needed']:.1f}"
        ours.append((each["task"], own["printed"], own["reproduced"],
                     f"{own['formula']:.3f} ({100 * own['formula_deviation']:+.1f} %)", f"{own['audited']:.3f}",
                     f"{own['audited_over_printed']:.2f}x"))  # fmt: skip
        theirs.append((each["task"], s4["printed"], s4["reproduced"], "{} x {}".format(*s4["sizes"]),
                       f"{s4['formula']:.3f}", needed, f"{s4['audited']:.3f}"))  # fmt: skip
        saved.append((each["task"], f"{saving['printed']:.2f} %", f"{saving['audited']:.2f} %",
                      *(f"{times[name]:.0f}" for name in ("s4", "s4d", "transformer"))))  # fmt: skip
    reproduced, audited = ({kind: f"{means[kind][account]:.3f}" for kind in MEANS} for account in ACCOUNTS[1:])
    ours.append(("mean", printed["energy"], reproduced["energy"], "", audited["energy"], ""))
    theirs.append(("mean", printed["s4"], reproduced["s4"], "", "", "", audited["s4"]))
    quotient = 100 * (1 - printed["energy"] / printed["s4"])
    return f"""
From the paper's own fire rates, at its lengths. *Reproduced* is the arithmetic that gives its digits; *its formula* is
the printed one, evaluated at the printed rates; *audited* counts everything. The rules are in
[energy.md](../energy.md).

SD-TCM, mJ per inference:

{table(("task", "printed", "reproduced", "its formula", "audited", "audited over printed"), ours)}

The printed formula misses the printed energies. These departures reproduce them: every layer at the task's average
rate, and that average divided by one layer too many of each kind; a PRF's products at the price of MACs; bidirectional
networks (Image, Pathfinder) charged as causal; one of Retrieval's two documents; norm, encoder, pool, head and
comparisons not charged.

S4, mJ per inference. The paper gives neither its sizes nor its state size H. *Needs H* is the H that its formula
requires at the sizes of the network beside it; none: the formula is above the printed energy for every H.

{
        table(
            (
                "task",
                "printed",
                "reproduced",
                "with blocks x width",
                "its formula, H = 64",
                "needs H",
                "audited, H = 64",
            ),
            theirs,
        )
    }

Energy saved against S4, and the energy of peers of equal size as a multiple of ours, audited:

{table(("task", "saved, printed", "saved, audited", "S4", "S4D, diagonal", "Transformer"), saved)}

The paper's 98.57 % is one minus the quotient of its two means ({quotient:.2f} %). The mean of its five savings is
{result["mean_savings"]["printed"]:.2f} %; audited, against an S4 of equal size,
{result["mean_savings"]["audited"]:.2f} %. These are estimates of arithmetic without memory, not measurements.
"""
