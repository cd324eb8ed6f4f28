"""The paper's three theorems in numbers: where they hold, and how far they are off where they do not.

1. A LIF with a soft reset is a LIF without one whose threshold 1 + β a_t rises with each spike, a_{t+1} = ρ a_t + s_t.
2. A PRF with Δ = 1, θ = 0 is a LIF without reset.
3. Under white noise of variance σ² the stationary variance of a PRF's potential is τΔσ²/2.
"""

import math
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..ops import lif, prf, prf_coefficients
from ..plot import figure, lines, styled
from .pages import percent, percentages, rounded, short, table
from .workplace import Workplace

TITLE = "The three theorems in numbers"
BETAS, RHOS = (0.3, 0.75, 0.95), tuple(round(0.05 * i, 2) for i in range(21))
STEPS, LANES, NOISES = 500, 100, 20_000
TAUS = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
TAU, DELTA, SIGMA = 2.0, 0.1, 1.5
THETAS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
DELTAS = (0.05, 0.1, 0.5, 1.0, 2.0)


def run(workplace: Workplace) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {
        "steps": STEPS, "adaptive_threshold": _adaptive(generator), "without_resonance": _without_resonance(generator),
        "variance": {"tau": TAU, "sigma": SIGMA, "neurons": NOISES, "rows": _variances(generator)},
    }  # fmt: skip


def _adaptive(generator: torch.Generator) -> list[dict[str, Any]]:
    """Theorem 1: the share of neuron steps that differ, over ρ."""
    current = torch.randn(1, STEPS, LANES, dtype=torch.float64, generator=generator) + 0.3
    rows = []
    for beta in BETAS:
        expected, _ = lif(current, beta)
        # All ρ side by side: channels are independent.
        rhos = torch.tensor((*RHOS, beta), dtype=torch.float64).repeat_interleave(LANES)
        spikes = adaptive_lif(current.repeat(1, 1, len(RHOS) + 1), beta, rhos)
        differs = (spikes != expected.repeat(1, 1, len(RHOS) + 1)).view(STEPS, -1, LANES)
        rates = spikes.view(STEPS, -1, LANES).mean((0, 2))
        rows.append({
            "beta": beta, "neuron_steps": expected.numel(), "fire_rate": round(float(expected.mean()), 4),
            "differ_at_beta": int(differs[:, -1].sum()), "rhos": RHOS,
            "share_differing": rounded(differs[:, :-1].double().mean((0, 2)), 5),
            "fire_rate_at_1": round(float(rates[-2]), 4),
        })  # fmt: skip
    return rows


def adaptive_lif(current: Tensor, beta: float, rho: float | Tensor) -> Tensor:
    """Spikes of the LIF without reset, with threshold 1 + β a_t."""
    u = a = torch.zeros_like(current[:, 0])
    spikes = []
    for c in current.unbind(1):
        u = beta * u + c
        s = (u >= 1 + beta * a).to(u.dtype)
        a = rho * a + s
        spikes.append(s)
    return torch.stack(spikes, 1)


def _without_resonance(generator: torch.Generator) -> list[dict[str, Any]]:
    """Theorem 2, against β = e^{-1/τ} and against the paper's β = 1 - 1/τ."""
    current = torch.randn(1, STEPS, LANES, dtype=torch.float64, generator=generator)
    rows = []
    for tau in TAUS:
        phi = prf_coefficients(1.0, 0.0, torch.tensor(tau, dtype=torch.float64))
        spikes, state = prf(current, *phi, 1.0)
        row: dict[str, Any] = {"tau": tau, "decay_off": short(math.exp(-1 / tau) - (1 - 1 / tau))}
        for name, beta in (("exact", math.exp(-1 / tau)), ("first_order", 1 - 1 / tau)):
            other, last = lif(current, beta, reset="none")
            size = (state.u**2).mean().sqrt()
            row[name] = {
                "spikes_differing": int((other != spikes).sum()),
                "share_differing": short(float((other != spikes).double().mean())),
                "potential_off": short(float(((last.u - state.u) ** 2).mean().sqrt() / size)),
            }
        rows.append(row)
    return rows


def _variances(generator: torch.Generator) -> list[dict[str, float]]:
    """Theorem 3: variances over many noise sequences, beside the closed forms."""
    return [_variance(DELTA, theta, generator) for theta in THETAS] + [
        _variance(delta, 1.0, generator) for delta in DELTAS if delta != DELTA
    ]


def _variance(delta: float, theta: float, generator: torch.Generator) -> dict[str, float]:
    length, lanes = max(8, math.ceil(6 * TAU / delta)), NOISES
    phi = prf_coefficients(delta, theta, torch.tensor(TAU, dtype=torch.float64))
    noise = SIGMA * torch.randn(1, length, lanes, dtype=torch.float64, generator=generator)
    _, state = prf(noise, *phi, delta)
    a = complex(*phi)
    whole = delta**2 * SIGMA**2 / (1 - abs(a) ** 2)
    return {
        "delta": delta,
        "theta": theta,
        "paper": TAU * delta * SIGMA**2 / 2,
        "whole": whole,
        "real": (whole + (delta**2 * SIGMA**2 / (1 - a * a)).real) / 2,
        "whole_measured": float((state.u**2 + state.r**2).mean()),
        "real_measured": float((state.u**2).mean()),
        # Of the real part, which is normal; that of the complex potential is not larger.
        "sampling_error": math.sqrt(2 / lanes),
    }


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (first, second, third) = figure(1, 3, height=2.7)
    for each, style in zip(result["adaptive_threshold"], lines(), strict=False):
        first.plot(each["rhos"], percentages(each["share_differing"]), label=f"β = {each['beta']:g}", **style)
    first.set(title="1: spikes unlike the soft reset's", xlabel="ρ of the adaptive threshold", ylabel="%")
    top = first.get_ylim()[1]
    first.set_ylim(-0.03 * top, 1.3 * top)
    first.legend(loc="upper center", ncols=3, columnspacing=1.2)
    looks, rows = lines(), result["without_resonance"]
    taus = [row["tau"] for row in rows]
    for label, values in (
        ("decay", [row["decay_off"] for row in rows]),
        ("potential, relative", [row["first_order"]["potential_off"] for row in rows]),
    ):
        second.plot(taus, values, label=label, **next(looks))
    second.set(title="2: what 1 − 1/τ misses of e^(−1/τ)", xlabel="τ", xscale="log", yscale="log")
    second.set_xticks(taus[1:], [f"{tau:g}" for tau in taus[1:]])
    second.minorticks_off()
    second.legend(loc="lower left")
    rows = [row for row in result["variance"]["rows"] if row["delta"] == DELTA]
    looks = lines()
    for kind, label in (("whole", "complex"), ("real", "real part")):
        look, theta = next(looks), [row["theta"] for row in rows]
        third.plot(theta, [row[kind] / row["paper"] for row in rows], **{**look, "marker": ""})
        measured = [row[f"{kind}_measured"] / row["paper"] for row in rows]
        third.plot(theta, measured, label=f"{label}, measured", **{**look, "linestyle": "none"})
    third.axhline(1.0, color="#6b6b6b", linestyle=":", label="paper")
    third.set(title="3: variance over the paper's τΔσ²/2", xlabel="θ", ylim=(0.4, 1.45))
    third.legend(loc="upper center", ncols=3, columnspacing=0.8, handletextpad=0.4, handlelength=1.4)
    return drawn


def page(result: dict[str, Any]) -> str:
    noise = result["variance"]
    ones = [
        (f"{each['beta']:g}", f"{each['fire_rate']:.3f}", f"{each['differ_at_beta']} of {each['neuron_steps']:,}",
         percent(each["share_differing"][-1]), f"{each['fire_rate_at_1']:.3f}")
        for each in result["adaptive_threshold"]
    ]  # fmt: skip
    twos = [
        (f"{row['tau']:g}", row["exact"]["spikes_differing"], f"{row['exact']['potential_off']:.0e}",
         f"{row['decay_off']:.2e}", f"{row['first_order']['potential_off']:.2e}",
         percent(row["first_order"]["share_differing"], 2))
        for row in result["without_resonance"]
    ]  # fmt: skip
    kinds = ("paper", "whole", "whole_measured", "real", "real_measured")
    threes = [
        (f"{row['delta']:g}", f"{row['theta']:g}", *(f"{row[kind]:.4f}" for kind in kinds)) for row in noise["rows"]
    ]
    heads = (
        ("β", "fire rate of the soft reset", "spikes that differ, ρ = β", "steps that differ, ρ = 1",
         "fire rate, ρ = 1"),
        ("τ", "exp(-1/τ): spikes that differ", "potential off", "1 - 1/τ: decay off", "potential off, relative",
         "steps that differ"),
        ("Δ", "θ", "the paper", r"complex, Δ²σ²/(1 - \|A\|²)", "measured", "real part", "measured"),
    )  # fmt: skip
    return f"""
**Theorem 1**: a soft reset is an adaptive threshold. Random input of {result["steps"]} steps, V = 1. The paper sets
ρ = 1; the last step of its proof requires a to decay like the reset, ρ = β.

{table(heads[0], ones)}

With ρ = β it is exact. With ρ = 1 the threshold never falls and the neuron becomes almost silent.

**Theorem 2**: a PRF with Δ = 1 and θ = 0 is a LIF without reset. Exact for β = exp(-1/τ); the paper continues with
β = 1 - 1/τ, the first-order approximation. The decay is then off by about 1/(2τ²), the potential, which accumulates it,
by about 1/(√8 τ) of its size.

{table(heads[1], twos)}

**Theorem 3**: the variance under noise (τ = {noise["tau"]:g}, σ = {noise["sigma"]:g}; measured over
{noise["neurons"]:,} neurons, accurate to {100 * noise["rows"][0]["sampling_error"]:.1f} %). The paper's τΔσ²/2 is, for
Δ ≪ τ, the mean of |ũ|², of the complex potential. The paper states it for the real part, which fires; its variance is
Δ²σ²/2 · (1/(1 - |A|²) + Re 1/(1 - A²)), A = exp(Δ(-1/τ + iθ)): all of it at θ = 0, about half for fast oscillation.

{table(heads[2], threes)}

The theorem's purpose, that the potential is bounded in probability, is not affected.
"""
