"""The resonance of a PRF, measured: the operator is driven by sinusoids until the response is steady.

With A = e^{Δ(-1/τ + iθ)} the response of the complex potential to e^{iωt} is H(ω) = Δ / (1 - A e^{-iωΔ}); that of the
real part, which fires, to a cosine is (H(ω) + conj H(-ω)) / 2. The paper has the first for Δ → 0: 1 / |1/τ + i(ω - θ)|.
"""

import math
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..ops import prf, prf_coefficients
from ..plot import figure, lines, styled
from .pages import DOTTED, percent, rounded, table
from .workplace import Workplace

TITLE = "The frequency response: a PRF resonates at θ"
DELTA, POINTS = 0.02, 81
# (θ, τ): three frequencies at one τ, three τ at one frequency.
SHOWN = ((2.0, 4.0), (5.0, 4.0), (8.0, 4.0), (5.0, 2.0), (5.0, 1.0), (0.5, 1.0))
# Heights at ω = θ, over the step.
DELTAS, HEIGHT_THETA, HEIGHT_TAU = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0), 1.0, 4.0


def run(workplace: Workplace) -> dict[str, Any]:
    heights = []
    for delta in DELTAS:
        at = torch.tensor([HEIGHT_THETA], dtype=torch.float64)
        whole, _ = measured(at, delta, HEIGHT_THETA, HEIGHT_TAU)
        closed = delta / (1 - math.exp(-delta / HEIGHT_TAU))
        heights.append({"delta": delta, "measured": float(whole), "closed": closed, "paper": HEIGHT_TAU})
    return {
        "steps": _length(DELTA, 4.0), "delta": DELTA, "omega": rounded(_frequencies()),
        "curves": [_curve(theta, tau) for theta, tau in SHOWN],
        "heights": {"theta": HEIGHT_THETA, "tau": HEIGHT_TAU, "rows": heights},
    }  # fmt: skip


def measured(omega: Tensor, delta: float, theta: float, tau: float) -> tuple[Tensor, Tensor]:
    """Steady amplitude of the complex potential for e^{iωt}, and of the real part for cos ωt; one channel per ω."""
    phi = prf_coefficients(delta, theta, torch.tensor(tau, dtype=torch.float64))
    time = delta * torch.arange(_length(delta, tau), dtype=torch.float64)[:, None]
    responses = []
    for wave in (torch.cos, torch.sin):
        # No spike: an infinite threshold leaves the potential alone.
        _, state = prf(wave(omega * time)[None], *phi, delta, threshold=math.inf)
        responses.append(torch.complex(state.u, state.r)[0])
    # The operator takes real input, so the response to e^{iωt} is combined from cosine and sine. The two responses of
    # the real part are a quarter of a period apart: together they give its amplitude.
    cosine, sine = responses
    return (cosine + 1j * sine).abs(), torch.complex(cosine.real, sine.real).abs()


def closed(omega: Tensor, delta: float, theta: float, tau: float) -> tuple[Tensor, Tensor]:
    """The same by formula."""

    def answer(frequency: Tensor) -> Tensor:
        return delta / (1 - torch.exp(delta * torch.complex(torch.full_like(omega, -1 / tau), theta - frequency)))

    return answer(omega).abs(), (answer(omega) + answer(-omega).conj()).abs() / 2


def _curve(theta: float, tau: float) -> dict[str, Any]:
    omega = _frequencies()
    whole, real = measured(omega, DELTA, theta, tau)
    errors = zip((whole, real), closed(omega, DELTA, theta, tau), strict=True)
    paper = 1 / torch.sqrt(1 / tau**2 + (omega - theta) ** 2)
    fine = torch.linspace(0, 20, 20_001, dtype=torch.float64)
    peaks = closed(fine, DELTA, theta, tau)
    return {
        "theta": theta, "tau": tau, "whole": rounded(whole, 5), "real": rounded(real, 5),
        "error": [float((a - b).abs().max()) for a, b in errors], "paper_off": float((whole / paper - 1).abs().max()),
        "peak": [{"omega": round(float(fine[each.argmax()]), 3), "height": float(each.max())} for each in peaks],
    }  # fmt: skip


def _frequencies() -> Tensor:
    return torch.linspace(0, 10, POINTS, dtype=torch.float64)


def _length(delta: float, tau: float) -> int:
    """Steps until the transient has decayed to e^-25."""
    return math.ceil(25 * tau / delta)


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, panels = figure(1, 3, height=2.6)
    for panel, kind, title in (
        (panels[0], "whole", "complex potential"), (panels[1], "real", "real part, which fires")
    ):  # fmt: skip
        for curve, style in zip(result["curves"][:5], lines(), strict=False):
            label = f"θ {curve['theta']:g}, τ {curve['tau']:g}"
            panel.plot(result["omega"], curve[kind], label=label, **{**style, "markevery": 8})
        panel.set(title=f"|H(ω)| of the {title}", xlabel="ω", ylabel="amplitude")
        top = panel.get_ylim()[1]
        panel.set_ylim(0, 1.55 * top if kind == "whole" else 1.35 * top)
    panels[0].legend(loc="upper center", ncols=3, columnspacing=0.9, handletextpad=0.4, handlelength=1.9)
    panels[1].axhline(2.0, **DOTTED)
    panels[1].text(3.5, 2.3, "τ/2 of τ = 4 dotted", ha="center", fontsize=10, color="#444444")
    rows, looks = result["heights"]["rows"], lines()
    deltas = [row["delta"] for row in rows]
    panels[2].plot(deltas, [row["measured"] for row in rows], label="measured", **next(looks))
    panels[2].plot(deltas, [row["paper"] for row in rows], label="paper: τ", **{**next(looks), "marker": ""})
    panels[2].set(title="height at ω = θ, τ = 4", xlabel="Δ", xscale="log", ylim=(3.5, 5.5))
    panels[2].set_xticks(deltas, [f"{delta:g}" for delta in deltas])
    panels[2].minorticks_off()
    panels[2].legend(loc="upper left")
    return drawn


def page(result: dict[str, Any]) -> str:
    rows = [
        (f"{curve['theta']:g}", f"{curve['tau']:g}",
         *(text for peak in curve["peak"] for text in (f"{peak['omega']:.2f}", f"{peak['height']:.3f}")),
         *(f"{error:.0e}" for error in curve["error"]), percent(curve["paper_off"]))
        for curve in result["curves"]
    ]  # fmt: skip
    heights = [
        (f"{row['delta']:g}", f"{row['measured']:.4f}", f"{row['closed']:.4f}", f"{row['paper']:g}")
        for row in result["heights"]["rows"]
    ]
    slow = result["curves"][-1]
    head = ("θ", "τ", "complex: peak at ω", "height", "real part: peak at ω", "height", "error, complex", "error, real",
            "off the paper's")  # fmt: skip
    return f"""
Each frequency drives the neuron (threshold ∞, Δ = {result["delta"]:g}) until the transient has decayed. Peaks are those
of the closed forms; the errors are of the measured amplitudes against them.

{table(head, rows)}

The paper finds the resonance at ω = θ with height τ. This holds for the complex potential and Δ → 0. Spikes are decided
by the real part, whose response to a real input is about half, τ/2, because a cosine is half a forward and half a
backward rotation. Where the neuron decays before it turns (θτ = {slow["theta"] * slow["tau"]:g} in the last row) the
two halves overlap, and its peak is at {slow["peak"][1]["omega"]:.2f}, not at θ.

For larger steps the height at ω = θ is Δ/(1 - exp(-Δ/τ)), here for τ = {result["heights"]["tau"]:g},
θ = {result["heights"]["theta"]:g}:

{table(("Δ", "measured", "closed form", "the paper"), heights)}
"""
