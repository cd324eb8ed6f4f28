"""Error of the discrete PRF against its differential equation, dũ/dt = (-1/τ + iθ) ũ + c(t), over the step Δ.

The step ũ_t = e^{Δγ} ũ_{t-1} + Δ c_t rotates the old potential exactly. Its error depends on the input:

    impulses   c is an impulse of area Δ c_t at the step: exact for every Δ
    smooth     c_t is c at the end of the step, as a network provides it
    held       c_t is the mean of c over the step, as in the paper's derivation. Exact would be (e^{Δγ} - 1)/γ · c_t
               instead of Δ c_t: "held, exact". The paper simplifies that factor to Δ for a real γ, then makes γ complex
"""

import math
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from ..nn import PRF
from ..plot import figure, lines, styled
from .pages import percent, table
from .workplace import Workplace

TITLE = "The discrete PRF against its differential equation"
TAU, THETA, END = 2.0, 3.0, 12.8
DELTAS = tuple(0.4 / 2**i for i in range(7))
# Amplitude, frequency and phase of the sinusoids of the input.
WAVES = ((1.0, 0.7, 0.3), (0.6, 2.6, 1.1), (0.3, 5.1, 2.0))
KINDS = {"smooth": "Δ c at the step's end", "held": "Δ · mean of c (the paper)", "held_exact": "exact for a held c",
         "impulses": "impulses"}  # fmt: skip
# Largest Δ and θ of the paper's tables; τ = 2.
RANGES = {"ListOps": (0.1, math.pi / 6), "Text": (0.1, math.pi / 8), "Retrieval": (0.1, math.pi / 7),
          "Image": (0.1, 2 * math.pi / 0.25), "Pathfinder": (0.1, 2 * math.pi / 0.6)}  # fmt: skip
Array = NDArray[Any]


def run(workplace: Workplace) -> dict[str, Any]:
    solved = solve_ivp(
        lambda t, y: [-y[0] / TAU - THETA * y[1] + _input(t), THETA * y[0] - y[1] / TAU],
        (0, END), [0.0, 0.0], method="DOP853", rtol=1e-12, atol=1e-12,
    )  # fmt: skip
    end = exact(np.array([END]))[0]
    rows = [{"delta": delta, **_errors(delta)} for delta in DELTAS]
    logs = np.log([row["delta"] for row in rows])
    return {
        "steps": round(END / DELTAS[-1]), "tau": TAU, "theta": THETA, "end": END,
        "solver_apart": float(abs(end - complex(solved.y[0, -1], solved.y[1, -1]))),
        "size": float(np.abs(exact(np.linspace(0, END, 1000)).real).max()),
        "rows": rows,
        "slopes": {kind: float(np.polyfit(logs, np.log([row[kind] for row in rows]), 1)[0]) for kind in KINDS},
        "factors": [_factor(task, *range_) for task, range_ in RANGES.items()],
    }  # fmt: skip


def _gamma() -> complex:
    return complex(-1 / TAU, THETA)


def _input(time: Any) -> Any:
    return sum(size * np.sin(omega * time + phase) for size, omega, phase in WAVES)


def exact(time: Array) -> Array:
    """The solution from rest: a sinusoid is two phasors, and the response to each has a closed form."""
    gamma, total = _gamma(), np.zeros(len(time), complex)
    for size, omega, phase in WAVES:
        for sign in (1, -1):
            pointer = sign * size * np.exp(1j * sign * phase) / 2j
            total += pointer * (np.exp(1j * sign * omega * time) - np.exp(gamma * time)) / (1j * sign * omega - gamma)
    return total


def _errors(delta: float) -> dict[str, float]:
    """Largest error of the real part over all steps, by kind of input."""
    count, gamma = round(END / delta), _gamma()
    time = delta * np.arange(1, count + 1)
    mean = sum(
        size * (np.cos(omega * (time - delta) + phase) - np.cos(omega * time + phase)) / (omega * delta)
        for size, omega, phase in WAVES
    )
    neuron = PRF(1, tau=TAU, delta=delta, theta=THETA, train_delta=False, train_theta=False, threshold=math.inf)
    neuron.double()
    # The module has stored Δ in float32, in which 0.4/2^i is not exact.
    neuron.get_buffer("delta").fill_(delta)
    traced = neuron.trace(torch.from_numpy(np.stack([_input(time), mean])[:, :, None]))
    smooth, held = torch.complex(traced.u, traced.r)[:, :, 0].numpy()
    # The input's factor is constant, so another one only scales and rotates the whole potential.
    better = (np.exp(delta * gamma) - 1) / (delta * gamma)
    solution = exact(time)
    # Impulses of area Δ c at the steps: the solution is a sum of free oscillations.
    lag = time[:, None] - time[None, :]
    pulses = (np.where(lag > -delta / 2, np.exp(gamma * np.maximum(lag, 0)), 0) * (delta * _input(time))).sum(1)
    answers = {
        "smooth": smooth - solution, "held": held - solution, "held_exact": better * held - solution,
        "impulses": smooth - pulses,
    }  # fmt: skip
    return {kind: float(np.abs(each.real).max()) for kind, each in answers.items()}


def _factor(task: str, delta: float, theta: float) -> dict[str, Any]:
    """Δ against the exact factor of a held input, at the ends of the paper's ranges."""
    gamma = complex(-1 / TAU, theta)
    better = complex((np.exp(delta * gamma) - 1) / (delta * gamma))
    return {
        "task": task, "delta": delta, "theta": theta, "angle": delta * theta, "size": abs(better),
        "degrees": math.degrees(math.atan2(better.imag, better.real)), "off": abs(1 / better - 1),
    }  # fmt: skip


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (panel,) = figure(height=4.2)
    deltas = [row["delta"] for row in result["rows"]]
    for kind, style in zip(KINDS, lines(), strict=False):
        label = KINDS[kind] if kind == "impulses" else f"{KINDS[kind]}: slope {result['slopes'][kind]:.2f}"
        panel.plot(deltas, [row[kind] for row in result["rows"]], label=label, **style)
    panel.set(title="error of the discrete potential", xlabel="step Δ", ylabel="largest error", xscale="log",
              yscale="log", ylim=(1e-17, 1e7), yticks=[1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 1])  # fmt: skip
    panel.legend(loc="upper left")
    return drawn


def page(result: dict[str, Any]) -> str:
    rows = [(f"{row['delta']:g}", *(f"{row[kind]:.1e}" for kind in KINDS)) for row in result["rows"]]
    rows.append(("slope", *("" if kind == "impulses" else f"{result['slopes'][kind]:.2f}" for kind in KINDS)))
    factors = [
        (each["task"], f"{each['theta']:.2f}", f"{each['angle']:.2f}", f"{each['size']:.2f}", f"{each['degrees']:.0f}°",
         percent(each["off"], 0))
        for each in result["factors"]
    ]  # fmt: skip
    return f"""
τ = {result["tau"]:g}, θ = {result["theta"]:g}, an input of three sinusoids, from rest to t = {result["end"]:g}; the
potential reaches {result["size"]:.2f}. Largest error of the real part over all steps against the closed solution
(confirmed by a Runge-Kutta method of order 8 to {result["solver_apart"]:.0e}).

{table(("Δ", *KINDS.values()), rows)}

The paper gives the derivation without errors. Measured: its step is of first order. The rotation is exact; the error is
in the factor Δ of the input. (exp(Δγ) - 1)/γ would make the step exact for a held input, and of second order for the
mean of a smooth one. For impulses the step is exact as it is.

The paper simplifies the factor for a real γ, where Δ ≪ τ suffices, and then makes γ complex. That requires Δθ ≪ 1 as
well, which its own ranges violate. At their ends (τ = {result["tau"]:g}, Δ = 0.1), the exact factor for a held input,
divided by Δ:

{table(("task", "largest θ", "Δθ", "size", "angle", "Δ is off by"), factors)}

The factor is the same at all steps, so for the neuron it is a gain, which the weights before it can absorb, and a
constant phase. Such a neuron works as well; it is only no longer the sampled differential equation.
"""
