"""A LIF and a PRF of the same decay on one input: kernel, potential and spikes.

The input is three trains of pulses, of which the middle one has the PRF's own period. The LIF adds up pulses, however
they come; the PRF adds up those that come in its rhythm and lets the others cancel.
"""

import math
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..nn import LIF, PRF
from ..plot import figure, lines, styled
from .workplace import Workplace

TITLE = "Kernel, potential and spikes of a LIF and a PRF"
TAU, PERIOD, PULSE, COUNT, GAP, LAGS = 60.0, 20, 0.45, 8, 180, 121
# Periods of the three trains, in time steps.
TRAINS = (30, 20, 14)


def run(workplace: Workplace) -> dict[str, Any]:
    current, spans = _trains()
    neurons: dict[str, LIF | PRF] = {
        "lif": LIF(1, tau=TAU),
        "prf": PRF(1, tau=TAU, delta=1.0, theta=2 * math.pi / PERIOD, train_delta=False, train_theta=False),
    }
    impulse = torch.zeros(1, LAGS, 1, dtype=torch.float64)
    impulse[0, 0] = 1.0
    found = {}
    for name, neuron in neurons.items():
        neuron.double()
        traced = neuron.trace(current)
        # The kernel is the answer to one small pulse, too small for a spike and a reset.
        kernel = 10 * neuron.trace(0.1 * impulse).u.flatten()
        fired = traced.spikes.flatten()
        free = (neuron if isinstance(neuron, PRF) else LIF(1, tau=TAU, reset="none").double()).trace(current).u
        found[name] = {
            "kernel": _rounded(kernel),
            "potential": _rounded(traced.argument + neuron.threshold),
            "spikes": fired.nonzero().flatten().tolist(),
            "spikes_per_train": [int(fired[begin:end].sum()) for begin, end in spans],
            "highest_per_train": [round(float(free.flatten()[begin:end].max()), 4) for begin, end in spans],
            "kernel_at_periods": [round(float(kernel[period]), 4) for period in TRAINS],
            "convolution_error": float((free.flatten() - _convolved(current, neuron)).abs().max()),
        }
    pulses = current.flatten().nonzero().flatten().tolist()
    return {
        "steps": current.shape[1], "tau": TAU, "period": PERIOD, "pulse": PULSE, "pulses_per_train": COUNT,
        "trains": TRAINS, "pulses": pulses, "neurons": found,
    }  # fmt: skip


def _trains() -> tuple[Tensor, list[tuple[int, int]]]:
    """The current [1, T, 1], and where each train with its silence behind it begins and ends."""
    pieces, spans, begin = [], [], 0
    for period in TRAINS:
        piece = torch.zeros(COUNT * period + GAP, dtype=torch.float64)
        piece[: COUNT * period : period] = PULSE
        pieces.append(piece)
        spans.append((begin, begin + len(piece)))
        begin += len(piece)
    return torch.cat(pieces)[None, :, None], spans


def _convolved(current: Tensor, neuron: LIF | PRF) -> Tensor:
    """The potential without reset by its closed form, a sum of kernels at the pulses."""
    time = torch.arange(current.shape[1], dtype=torch.float64)
    total = torch.zeros_like(time)
    for pulse in current.flatten().nonzero().flatten().tolist():
        lag = time - pulse
        if isinstance(neuron, PRF):
            kernel = torch.exp(-lag / TAU) * torch.cos(neuron.get_buffer("theta") * lag)
        else:
            kernel = (1 - 1 / TAU) ** lag
        total += PULSE * torch.where(lag >= 0, kernel, 0.0)
    return total


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 3) for value in values.flatten().tolist()]


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (kernels, lif, prf, spikes) = figure(1, 4, height=1.95)
    styles = {
        name: {**style, "marker": ""} for name, style in zip(("lif", "prf"), lines(), strict=False)
    }  # fmt: skip
    for name, each in result["neurons"].items():
        kernels.plot(each["kernel"], label=name.upper(), **styles[name])
    kernels.set(title="kernel", xlabel="steps after a pulse", ylim=(-1.0, 1.1))
    kernels.legend(loc="upper right", ncols=2)
    for name, panel in (("lif", lif), ("prf", prf)):
        panel.plot(result["neurons"][name]["potential"], **{**styles[name], "linestyle": "-", "linewidth": 1.3})
        panel.axhline(1.0, color="#6b6b6b", linestyle=":", linewidth=1.5)
        panel.set(title=f"potential of the {name.upper()}, threshold dotted", xlim=(-15, result["steps"]))
    rows = [result["pulses"], result["neurons"]["lif"]["spikes"], result["neurons"]["prf"]["spikes"]]
    colours = ["#6b6b6b", styles["lif"]["color"], styles["prf"]["color"]]
    spikes.eventplot(rows, lineoffsets=[2, 1, 0], linelengths=0.7, colors=colours, linewidths=1.6)
    spikes.set_yticks([2, 1, 0], ["input", "LIF", "PRF"])
    spikes.set(title="spikes", xlabel="time step", xlim=(-15, result["steps"]), ylim=(-0.6, 2.6))
    spikes.grid(visible=False, axis="y")
    return drawn


def page(result: dict[str, Any]) -> str:
    lif, prf = result["neurons"]["lif"], result["neurons"]["prf"]
    rows = [
        f"| {period} | {lif['spikes_per_train'][i]} | {prf['spikes_per_train'][i]} | "
        f"{lif['highest_per_train'][i]:.2f} | {prf['highest_per_train'][i]:.2f} | "
        f"{lif['kernel_at_periods'][i]:.2f} | {prf['kernel_at_periods'][i]:.2f} |"
        for i, period in enumerate(result["trains"])
    ]
    error = max(lif["convolution_error"], prf["convolution_error"])
    return f"""
τ = {result["tau"]:g} steps for both, the PRF turns once in {result["period"]} steps (Δ = 1, no reset), the LIF has a
soft reset, threshold 1. The input is {result["pulses_per_train"]} pulses of {result["pulse"]:g} at each of three
periods, with a silence behind each train.

| period of the pulses | spikes, LIF | PRF | highest u without reset, LIF | PRF | kernel one period later, LIF | PRF |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

The LIF answers every train, whatever its rhythm. The PRF answers only pulses in its own rhythm, and needs no
reset for it: what it has added up turns and comes back. Without reset both potentials are the input convolved with the
kernel, here to {error:.0e}.

The paper draws such kernels and potentials without numbers or settings, so there is nothing to compare digit by digit;
the shapes agree. What a drawing of one PRF does not say: pulses at two, three, … times its period reach it as well.
"""
