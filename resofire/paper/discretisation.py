"""How far the discrete PRF is from the equation that it comes from, dũ/dt = (-1/τ + iθ) ũ + c(t), over the step Δ.

The step ũ_t = e^{Δγ} ũ_{t-1} + Δ c_t turns the old potential exactly. What it does to the input depends on the input:

    impulses   c is Δ c_t at once, at the step: nothing is lost, whatever Δ
    smooth     c_t is c at the step's end, as a network hands it over
    held       c_t is the mean of c over the step, as the paper derives it. Exact would be (e^{Δγ} - 1)/γ · c_t for
               Δ c_t: "held, exact". The paper shortens that factor to Δ with a real γ, then lets γ be complex.
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
from .workplace import Workplace

TITLE = "The discrete PRF against its differential equation"
TAU, THETA, END = 2.0, 3.0, 12.8
DELTAS = tuple(0.4 / 2**i for i in range(7))
# The input: sizes, frequencies and phases of its sinusoids.
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
        "steps": round(END / DELTAS[-1]),
        "tau": TAU,
        "theta": THETA,
        "end": END,
        "solver_apart": float(abs(end - complex(solved.y[0, -1], solved.y[1, -1]))),
        "size": float(np.abs(exact(np.linspace(0, END, 1000)).real).max()),
        "rows": rows,
        "slopes": {kind: float(np.polyfit(logs, np.log([row[kind] for row in rows]), 1)[0]) for kind in KINDS},
        "factors": [_factor(task, *range_) for task, range_ in RANGES.items()],
    }


def _gamma() -> complex:
    return complex(-1 / TAU, THETA)


def _input(time: Any) -> Any:
    return sum(size * np.sin(omega * time + phase) for size, omega, phase in WAVES)


def exact(time: Array) -> Array:
    """The solution from rest: each sinusoid is two turning pointers, which the equation answers in closed form."""
    gamma, total = _gamma(), np.zeros(len(time), complex)
    for size, omega, phase in WAVES:
        for sign in (1, -1):
            pointer = sign * size * np.exp(1j * sign * phase) / 2j
            total += pointer * (np.exp(1j * sign * omega * time) - np.exp(gamma * time)) / (1j * sign * omega - gamma)
    return total


def _errors(delta: float) -> dict[str, float]:
    """Largest error of the real part over all steps."""
    count, gamma = round(END / delta), _gamma()
    time = delta * np.arange(1, count + 1)
    mean = sum(
        size * (np.cos(omega * (time - delta) + phase) - np.cos(omega * time + phase)) / (omega * delta)
        for size, omega, phase in WAVES
    )
    neuron = PRF(1, tau=TAU, delta=delta, theta=THETA, train_delta=False, train_theta=False, threshold=math.inf)
    neuron.double()
    # The module keeps float32; 0.4/2^i is not one.
    neuron.get_buffer("delta").fill_(delta)
    traced = neuron.trace(torch.from_numpy(np.stack([_input(time), mean])[:, :, None]))
    smooth, held = torch.complex(traced.u, traced.r)[:, :, 0].numpy()
    # The input's factor is the same at all steps, so a better one only scales and turns the whole potential.
    better = (np.exp(delta * gamma) - 1) / (delta * gamma)
    wanted = exact(time)
    # Impulses of area Δ c at the steps: the solution is a sum of free oscillations.
    lag = time[:, None] - time[None, :]
    pulses = (np.where(lag > -delta / 2, np.exp(gamma * np.maximum(lag, 0)), 0) * (delta * _input(time))).sum(1)
    answers = {
        "smooth": smooth - wanted, "held": held - wanted, "held_exact": better * held - wanted,
        "impulses": smooth - pulses,
    }  # fmt: skip
    return {kind: float(np.abs(each.real).max()) for kind, each in answers.items()}


def _factor(task: str, delta: float, theta: float) -> dict[str, Any]:
    """Of Δ against the exact factor of a held input, at the ends of the paper's ranges."""
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
    rows = [
        f"| {row['delta']:g} | " + " | ".join(f"{row[kind]:.1e}" for kind in KINDS) + " |" for row in result["rows"]
    ]
    slopes = " | ".join("" if kind == "impulses" else f"{result['slopes'][kind]:.2f}" for kind in KINDS)
    factors = [
        f"| {each['task']} | {each['theta']:.2f} | {each['angle']:.2f} | {each['size']:.2f} | {each['degrees']:.0f}° | "
        f"{100 * each['off']:.0f} % |"
        for each in result["factors"]
    ]
    return f"""
τ = {result["tau"]:g}, θ = {result["theta"]:g}, an input of three sinusoids from rest to t = {result["end"]:g}; the
potential is up to {result["size"]:.2f}. Largest error of the real part over all steps, against the closed solution
(which a Runge-Kutta of order 8 meets to {result["solver_apart"]:.0e}).

| Δ | {" | ".join(KINDS.values())} |
|---|---|---|---|---|
{chr(10).join(rows)}
| slope | {slopes} |

The paper gives the derivation and no errors. Measured: its step is of first order. The turning itself is exact; the
error is in the factor Δ of the input, where (exp(Δγ) - 1)/γ would make the step exact for a held input and of second
order for the mean of a smooth one. For an input of impulses the step is exact as it stands.

The paper shortens the factor with a real γ, where Δ ≪ τ is enough, and puts the complex γ in afterwards. Then Δθ ≪ 1 is
needed as well, which its own ranges do not keep. At their ends (τ = {result["tau"]:g}, Δ = 0.1), the factor for a held
input, over Δ:

| task | largest θ | Δθ | size | angle | Δ is off by |
|---|---|---|---|---|---|
{chr(10).join(factors)}

It is the same at all steps, so to the neuron it is another gain, which the weights before it can take up, and a fixed
turn of its phase. Nothing is wrong with such a neuron; only it is no longer the differential equation, sampled.
"""
