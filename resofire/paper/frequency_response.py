"""The resonance of a PRF, measured: the operator is driven with sinusoids until it answers steadily.

With A = e^{Δ(-1/τ + iθ)} the complex potential answers e^{iωt} with H(ω) = Δ / (1 - A e^{-iωΔ}), the real part, which
fires, answers a cosine with (H(ω) + conj H(-ω)) / 2. The paper has the first for Δ → 0: 1 / |1/τ + i(ω - θ)|.
"""

import math
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..ops import prf, prf_coefficients
from ..plot import figure, lines, styled
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
        "steps": _length(DELTA, 4.0),
        "delta": DELTA,
        "omega": [round(value, 4) for value in _frequencies().tolist()],
        "curves": [_curve(theta, tau) for theta, tau in SHOWN],
        "heights": {"theta": HEIGHT_THETA, "tau": HEIGHT_TAU, "rows": heights},
    }


def measured(omega: Tensor, delta: float, theta: float, tau: float) -> tuple[Tensor, Tensor]:
    """Steady amplitude of the complex potential under e^{iωt}, and of the real part under cos ωt. A lane per ω."""
    phi = prf_coefficients(delta, theta, torch.tensor(tau, dtype=torch.float64))
    time = delta * torch.arange(_length(delta, tau), dtype=torch.float64)[:, None]
    found = []
    for wave in (torch.cos, torch.sin):
        # No spike: an infinite threshold leaves the potential alone.
        _, state = prf(wave(omega * time)[None], *phi, delta, threshold=math.inf)
        found.append(torch.complex(state.u, state.r)[0])
    # The op is real in its input, so e^{iωt} is put together from its cosine and its sine. The two answers of the real
    # part are a quarter of a period apart: together they give its amplitude.
    return (found[0] + 1j * found[1]).abs(), torch.complex(found[0].real, found[1].real).abs()


def closed(omega: Tensor, delta: float, theta: float, tau: float) -> tuple[Tensor, Tensor]:
    """The same by formula."""

    def answer(frequency: Tensor) -> Tensor:
        return delta / (1 - torch.exp(delta * torch.complex(torch.full_like(omega, -1 / tau), theta - frequency)))

    return answer(omega).abs(), (answer(omega) + answer(-omega).conj()).abs() / 2


def _curve(theta: float, tau: float) -> dict[str, Any]:
    omega = _frequencies()
    found, wanted = measured(omega, DELTA, theta, tau), closed(omega, DELTA, theta, tau)
    paper = 1 / torch.sqrt(1 / tau**2 + (omega - theta) ** 2)
    fine = torch.linspace(0, 20, 20_001, dtype=torch.float64)
    peaks = closed(fine, DELTA, theta, tau)
    return {
        "theta": theta,
        "tau": tau,
        "whole": [round(value, 5) for value in found[0].tolist()],
        "real": [round(value, 5) for value in found[1].tolist()],
        "error": [float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True)],
        "paper_off": float((found[0] / paper - 1).abs().max()),
        "peak": [{"omega": round(float(fine[each.argmax()]), 3), "height": float(each.max())} for each in peaks],
    }


def _frequencies() -> Tensor:
    return torch.linspace(0, 10, POINTS, dtype=torch.float64)


def _length(delta: float, tau: float) -> int:
    """Steps until what is left of the beginning is e^-25."""
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
    panels[1].axhline(2.0, color="#6b6b6b", linestyle=":", linewidth=1.5)
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
    rows = []
    for curve in result["curves"]:
        whole, real = curve["peak"]
        rows.append(
            f"| {curve['theta']:g} | {curve['tau']:g} | {whole['omega']:.2f} | {whole['height']:.3f} | "
            f"{real['omega']:.2f} | {real['height']:.3f} | {curve['error'][0]:.0e} | {curve['error'][1]:.0e} | "
            f"{100 * curve['paper_off']:.1f} % |"
        )
    heights = [
        f"| {row['delta']:g} | {row['measured']:.4f} | {row['closed']:.4f} | {row['paper']:g} |"
        for row in result["heights"]["rows"]
    ]
    slow = result["curves"][-1]
    return f"""
Each frequency drives the neuron (threshold ∞, Δ = {result["delta"]:g}) until the beginning has faded. Peaks are of the
closed forms, which the measured amplitudes meet to the errors in the table.

| θ | τ | complex: peak at ω | height | real part: peak at ω | height | error, complex | error, real | off the paper's |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

The paper finds the resonance at ω = θ with height τ. So it is, for the complex potential and Δ → 0. What decides
about spikes is the real part, and its answer to a real input is about half, τ/2, because a cosine is half a turn
forwards and half backwards. Where the neuron hardly turns before it forgets (θτ = {slow["theta"] * slow["tau"]:g} in
the last row) the two halves overlap, and its peak is at {slow["peak"][1]["omega"]:.2f}, not at θ.

With a step that is not small the height at ω = θ is Δ/(1 - exp(-Δ/τ)), here for τ = {result["heights"]["tau"]:g},
θ = {result["heights"]["theta"]:g}:

| Δ | measured | closed form | the paper |
|---|---|---|---|
{chr(10).join(heights)}
"""
