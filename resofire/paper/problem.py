"""The paper's picture of the problem, in numbers: fast decay forgets, slow decay blurs, resonance discriminates.

Two inputs of size 1 arrive. How does the potential at the second depend on the first? Case 1 has the first input at t0.
Case 2 has none (the paper's test of forgetting), or has it a little later (its test of ambiguity).
"""

import math
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..nn import LIF, PRF
from ..plot import figure, styled
from .pages import plain_lines, rounded, short, table
from .workplace import Workplace

TITLE = "What a neuron remembers of a distant input: fast decay, slow decay, resonance"
STEPS, SECOND, FIRST, SHIFT, PERIOD = 240, 200, 40, 10, 40
FAST, SLOW = 8.0, 600.0
TITLES = {"fast": "fast decay", "slow": "slow decay", "prf": "slow decay with resonance"}


def run(workplace: Workplace) -> dict[str, Any]:
    neurons: dict[str, LIF | PRF] = {
        "fast": LIF(1, tau=FAST, reset="none", threshold=math.inf),
        "slow": LIF(1, tau=SLOW, reset="none", threshold=math.inf),
        # The decay of "slow", with a rotation.
        "prf": PRF(1, tau=SLOW, delta=1.0, theta=2 * math.pi / PERIOD, train_delta=False, train_theta=False,
                   threshold=math.inf),
    }  # fmt: skip
    shifts = range(PERIOD + 1)
    results = {}
    for name, neuron in neurons.items():
        neuron.double()
        u, r = _potentials(neuron, [None, *(FIRST + shift for shift in shifts)])
        at = u[:, SECOND]
        left = math.hypot(float(at[1] - at[0]), float(r[1, SECOND] - r[0, SECOND]))
        results[name] = {
            "tau": FAST if name == "fast" else SLOW,
            "left": left,
            "with_and_without": float(at[1] - at[0]),
            "shifted": float(at[1 + SHIFT] - at[1]),
            "over_shifts": [short(float((value - at[1]).abs())) for value in at[1:]],
            "whole_over_shifts": [
                short(math.hypot(float(a), float(b)))
                for a, b in zip(at[1:] - at[1], r[1:, SECOND] - r[1, SECOND], strict=True)
            ],
            "potentials": [rounded(u[row], 3) for row in (1, 1 + SHIFT)],
        }
    return {
        "steps": STEPS, "first": FIRST, "second": SECOND, "shift": SHIFT, "period": PERIOD, "shifts": list(shifts),
        "neurons": results,
    }  # fmt: skip


def _potentials(neuron: LIF | PRF, firsts: list[int | None]) -> tuple[Tensor, Tensor]:
    """Potential and imaginary part (0 for a LIF), one row per time of the first input."""
    current = torch.zeros(len(firsts), STEPS, 1, dtype=torch.float64)
    current[:, SECOND] = 1.0
    for row, first in enumerate(firsts):
        if first is not None:
            current[row, first] = 1.0
    traced = neuron.trace(current)
    u = traced.u[:, :, 0]
    return u, traced.r[:, :, 0] if "r" in traced.states else torch.zeros_like(u)


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, panels = figure(1, 4, height=1.95)
    styles = plain_lines(3)
    for (name, each), panel in zip(result["neurons"].items(), panels, strict=False):
        for case, potential in enumerate(each["potentials"]):
            first = result["first"] + case * result["shift"]
            panel.plot(potential, label=f"first input at {first}", **styles[case])
        panel.axvline(result["second"], color="#6b6b6b", linestyle=":", linewidth=1.4)
        panel.set(title=f"{TITLES[name]}: differ by {abs(each['shifted']):.2g}", xlim=(0, result["steps"]))
    panels[0].legend(loc="upper left", bbox_to_anchor=(0.28, 1.0))
    panels[2].set_xlabel("time step (second input at the dotted line)")
    last = panels[3]
    for (name, each), style in zip(result["neurons"].items(), styles, strict=True):
        # A logarithm has no zero.
        seen = [max(value, 1e-10) for value in each["over_shifts"]]
        last.plot(result["shifts"][1:], seen[1:], label=name.upper() if name == "prf" else name, **style)
    last.set(title="difference at the second input", xlabel="first input later by, steps", yscale="log",
             ylim=(1e-10, 1e4), yticks=[1e-9, 1e-6, 1e-3, 1])  # fmt: skip
    last.legend(loc="upper center", ncols=3)
    return drawn


def page(result: dict[str, Any]) -> str:
    rows = [
        (f"{TITLES[name]} (τ = {each['tau']:g})", f"{each['left']:.2g}", f"{each['with_and_without']:.2g}",
         f"{abs(each['shifted']):.2g}")
        for name, each in result["neurons"].items()
    ]  # fmt: skip
    slow, prf, period = result["neurons"]["slow"], result["neurons"]["prf"], result["period"]
    head = ("neuron", "left of the first", "difference: with a first or without",
            f"first {result['shift']} steps later or not")  # fmt: skip
    return f"""
Inputs of 1 at steps {result["first"]} and {result["second"]}, no reset, no threshold; the resonating neuron has the
slow decay and a period of {period} steps.

At the second input:

{table(head, rows)}

The paper draws this without numbers; the numbers confirm it. With fast decay cases 1 and 2 agree to
{result["neurons"]["fast"]["with_and_without"]:.0e}. With slow decay the first input is still present, but its time
changes the potential by only {100 * abs(slow["shifted"]):.1f} % of an input; resonance makes that
{abs(prf["shifted"] / slow["shifted"]):.0f} times as much, at the same decay.

Not in the drawing: the difference depends on the shift. It is largest at half a period
({prf["over_shifts"][period // 2]:.2f}), and after a whole period ({period} steps) it is back at
{prf["over_shifts"][period]:.3f}, close to the slow LIF's {slow["over_shifts"][period]:.3f}: a single resonating neuron
is ambiguous by its period. A layer resolves this with neurons of several θ.
"""
