"""The paper's picture of the problem: fast decay forgets, slow decay blurs, resonance tells apart. As numbers.

Two inputs of size 1 arrive; how does the potential at the second depend on the first? Case 1 has the first input at t0.
Case 2 has none at all (the paper's test of forgetting), or has it a little later (its test of ambiguity).
"""

import math
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..nn import LIF, PRF
from ..plot import figure, lines, styled
from .workplace import Workplace

TITLE = "What a neuron knows of an input long ago: fast decay, slow decay, resonance"
STEPS, SECOND, FIRST, SHIFT, PERIOD = 240, 200, 40, 10, 40
FAST, SLOW = 8.0, 600.0
TITLES = {"fast": "fast decay", "slow": "slow decay", "prf": "slow decay with resonance"}


def run(workplace: Workplace) -> dict[str, Any]:
    neurons: dict[str, LIF | PRF] = {
        "fast": LIF(1, tau=FAST, reset="none", threshold=math.inf),
        "slow": LIF(1, tau=SLOW, reset="none", threshold=math.inf),
        # The decay of "slow": only the rotation is new.
        "prf": PRF(1, tau=SLOW, delta=1.0, theta=2 * math.pi / PERIOD, train_delta=False, train_theta=False,
                   threshold=math.inf),
    }  # fmt: skip
    shifts = range(PERIOD + 1)
    found = {}
    for name, neuron in neurons.items():
        neuron.double()
        u, r = _potentials(neuron, [None, *(FIRST + shift for shift in shifts)])
        at = u[:, SECOND]
        left = math.hypot(float(at[1] - at[0]), float(r[1, SECOND] - r[0, SECOND]))
        found[name] = {
            "tau": FAST if name == "fast" else SLOW,
            "left": left,
            "with_and_without": float(at[1] - at[0]),
            "shifted": float(at[1 + SHIFT] - at[1]),
            "over_shifts": [_short(float((value - at[1]).abs())) for value in at[1:]],
            "whole_over_shifts": [
                _short(math.hypot(float(a), float(b)))
                for a, b in zip(at[1:] - at[1], r[1:, SECOND] - r[1, SECOND], strict=True)
            ],
            "potentials": [[round(value, 3) for value in u[row].tolist()] for row in (1, 1 + SHIFT)],
        }
    return {
        "steps": STEPS, "first": FIRST, "second": SECOND, "shift": SHIFT, "period": PERIOD, "shifts": list(shifts),
        "neurons": found,
    }  # fmt: skip


def _potentials(neuron: LIF | PRF, firsts: list[int | None]) -> tuple[Tensor, Tensor]:
    """Potential and its imaginary part (0 for a LIF), a row for each time of the first input."""
    current = torch.zeros(len(firsts), STEPS, 1, dtype=torch.float64)
    current[:, SECOND] = 1.0
    for row, first in enumerate(firsts):
        if first is not None:
            current[row, first] = 1.0
    traced = neuron.trace(current)
    u = traced.argument[:, :, 0] + neuron.threshold
    return u, traced.r[:, :, 0] if "r" in traced.states else torch.zeros_like(u)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, panels = figure(1, 4, height=1.95)
    styles = [{**each, "marker": ""} for each, _ in zip(lines(), range(3), strict=False)]
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
        f"| {TITLES[name]} (τ = {each['tau']:g}) | {each['left']:.2g} | {each['with_and_without']:.2g} | "
        f"{abs(each['shifted']):.2g} |"
        for name, each in result["neurons"].items()
    ]
    slow, prf = result["neurons"]["slow"], result["neurons"]["prf"]
    gain = abs(prf["shifted"] / slow["shifted"])
    period = result["period"]
    half = prf["over_shifts"][period // 2]
    return f"""
Inputs of 1 at steps {result["first"]} and {result["second"]}, no reset, no threshold; the resonating neuron is the slow
one and turns once in {period} steps.

At the second input:

| neuron | left of the first | difference: with a first or without | first {result["shift"]} steps later or not |
|---|---|---|---|
{chr(10).join(rows)}

The paper draws this without numbers. They say what it says: with fast decay cases 1 and 2 are the same to
{result["neurons"]["fast"]["with_and_without"]:.0e}; with slow decay the first input is there, but when it came changes
the potential by {100 * abs(slow["shifted"]):.1f} % of an input; resonance makes that {gain:.0f} times as much, at the
same decay.

What the drawing does not show: the difference depends on the shift, largest at half a turn ({half:.2f}), and after a
whole turn ({period} steps) it is back at {prf["over_shifts"][period]:.3f}, close to the slow LIF's
{slow["over_shifts"][period]:.3f}: a single resonating neuron is ambiguous again, one period apart. It takes neurons of
several θ, which is what a layer has.
"""
