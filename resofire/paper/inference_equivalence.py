"""The paper's check that a LIF run in parallel fires like the sequential one, on many random inputs instead of one.

Every backend that runs here is compared with the plain loop in the same precision. Where a sequence differs, the
distance of the loop's potential from the threshold at the first difference tells why: the additions are in another
order, so a potential within rounding of the threshold may fall on the other side. From there on the two diverge.

The decoupled form compares u' with d, both larger than their difference. The library's `fft` computes them in float64
for that reason; ALL_SINGLE is the same algorithm in float32 throughout, as a direct implementation of the paper has it.
"""

import time
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..nn import LIF
from ..ops import lif
from ..ops.convolution import convolve, powers, reset_scan
from ..ops.registry import names, prepare, why_not
from ..plot import figure, styled
from .pages import plain_lines, rounded, table
from .workplace import Workplace

TITLE = "Sequential and decoupled LIF fire the same spikes"
BETAS = (0.5, 0.9, 0.99, 0.999)
MEAN, DEVIATION, BATCH = 0.2, 0.5, 64
# Time steps, and how many batches of that length at most.
LENGTHS = {1024: 16, 8192: 2}
DTYPES = {"float64": torch.float64, "float32": torch.float32}
SHOWN = 100
ALL_SINGLE = "fft, float32 throughout"


def run(workplace: Workplace) -> dict[str, Any]:
    start = time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    beta = torch.tensor(BETAS, dtype=torch.float64, device=device)
    left_out = _left_out(beta)
    compared = [name for name in names("lif") if name not in left_out and name != "reference"]
    ways = {"float64": compared, "float32": [*compared, ALL_SINGLE]}
    counted = {kind: {name: _nothing() for name in these} for kind, these in ways.items()}
    sequences = steps = fired = 0
    for number, length in enumerate(length for length, most in LENGTHS.items() for _ in range(most)):
        # At least one batch, whatever the budget.
        if number and time.monotonic() - start > 60 * workplace.minutes:
            break
        noise = torch.randn(BATCH, length, len(BETAS), dtype=torch.float64, generator=_seeded(number)).to(device)
        for kind, dtype in DTYPES.items():
            current = (MEAN + DEVIATION * noise).to(dtype)
            expected, _ = lif(current, beta.to(dtype), backend="reference")
            for name in ways[kind]:
                _compare(counted[kind][name], current, _spikes(current, beta.to(dtype), name), expected)
        sequences, steps, fired = sequences + BATCH * len(BETAS), steps + noise.numel(), fired + int(expected.sum())
    return {
        "steps": steps, "sequences": sequences, "spikes": fired, "betas": BETAS, "lengths": list(LENGTHS),
        "input": {"mean": MEAN, "deviation": DEVIATION}, "differing": counted, "not_run": left_out,
        "drawing": _drawing(),
    }  # fmt: skip


def _left_out(beta: Tensor) -> dict[str, str]:
    """The backends that cannot run here, and why."""
    call = prepare("lif", torch.zeros(1, 2, len(BETAS), device=beta.device), beta.float())
    reasons = {name: reason for name in names("lif") if (reason := why_not("lif", name, call))}
    # Its interpreter could run without a GPU, thousands of times slower.
    return reasons if beta.is_cuda else {**reasons, "triton": "it needs a GPU"}


def _spikes(current: Tensor, beta: Tensor, way: str) -> Tensor:
    if way != ALL_SINGLE:
        return lif(current, beta, backend=way)[0]
    potential = convolve(current, powers(beta, current.shape[1]))
    return reset_scan(potential, beta, torch.ones_like(beta)).to(current.dtype)


def _nothing() -> dict[str, Any]:
    return {"sequences": 0, "spikes": 0, "margin": 0.0, "by_beta": [0] * len(BETAS)}


def _compare(counted: dict[str, Any], current: Tensor, spikes: Tensor, expected: Tensor) -> None:
    """Add the sequences and spikes that differ, and the distance from the threshold at the first difference."""
    differs = spikes != expected
    for row, lane in differs.any(1).nonzero().tolist():
        first = int(differs[row, :, lane].nonzero()[0])
        beta = torch.tensor(BETAS[lane], dtype=current.dtype, device=current.device)
        _, before = lif(current[row : row + 1, :first, lane : lane + 1], beta)
        potential = float(beta * before.u + current[row, first, lane])
        counted["margin"] = max(counted["margin"], abs(potential - 1.0))
        counted["sequences"] += 1
        counted["by_beta"][lane] += 1
    counted["spikes"] += int(differs.sum())


def _drawing() -> dict[str, Any]:
    """One input: the same neuron with reset and with a moving threshold, step by step."""
    current = MEAN + DEVIATION * torch.randn(1, SHOWN, 1, dtype=torch.float64, generator=_seeded(0))
    sequential = LIF(1, tau=10.0).double().trace(current)
    free = LIF(1, tau=10.0, reset="none").double().trace(current).u
    decoupled, _ = lif(current, 0.9, backend="fft")
    threshold, bias = [], 0.0
    for fires in decoupled.flatten().tolist():
        threshold.append(1 + bias)
        bias = 0.9 * (bias + fires)
    return {
        "beta": 0.9, "potential": rounded(sequential.argument + 1.0), "potential_without_reset": rounded(free),
        "threshold": rounded(threshold), "sequential": sequential.spikes.flatten().nonzero().flatten().tolist(),
        "decoupled": decoupled.flatten().nonzero().flatten().tolist(),
    }  # fmt: skip


def _seeded(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


@styled
def draw(result: dict[str, Any]) -> Figure:
    shown = result["drawing"]
    drawn, (above, middle, below) = figure(1, 3, height=2.15)
    style = plain_lines(2)
    above.plot(shown["potential"], label="potential u", **style[0])
    above.axhline(1.0, label="threshold V", color=style[1]["color"], linestyle="--")
    middle.plot(shown["potential_without_reset"], label="without reset, u'", **style[0])
    middle.plot(shown["threshold"], label="threshold d", **style[1])
    for panel, title in ((above, "sequential: reset the potential"), (middle, "decoupled: raise the threshold")):
        # Room for the legend above the curves.
        bottom, top = panel.get_ylim()
        panel.set_ylim(bottom, top + 0.35 * (top - bottom))
        panel.set(title=title, xlim=(0, len(shown["potential"])))
        panel.legend(loc="upper center", ncols=2)
    rows = [shown["sequential"], shown["decoupled"]]
    below.eventplot(rows, lineoffsets=[1, 0], linelengths=0.7, colors=[each["color"] for each in style], linewidths=2)
    below.set_yticks([1, 0], ["sequential", "decoupled"])
    below.set(title="spikes", xlabel="time step", xlim=(0, len(shown["potential"])))
    below.grid(visible=False, axis="y")
    return drawn


def page(result: dict[str, Any]) -> str:
    rows = [
        (kind, name, f"{each['sequences']:,}", f"{each['spikes']:,}",
         f"{each['margin']:.1e}" if each["sequences"] else "")
        for kind, ways in result["differing"].items()
        for name, each in ways.items()
    ]  # fmt: skip
    double, single = (result["differing"][kind] for kind in ("float64", "float32"))
    in_double = sum(each["sequences"] for each in double.values())
    in_single = sum(each["sequences"] for name, each in single.items() if name != ALL_SINGLE)
    naive = single[ALL_SINGLE]
    missing = "".join(f" `{name}` was left out: {reason}." for name, reason in result["not_run"].items())
    by_beta = ", ".join(
        f"{count} at β = {beta:g}" for beta, count in zip(result["betas"], naive["by_beta"], strict=True)
    )
    head = ("precision", "way", "sequences that differ", "spikes that differ",
            "farthest from the threshold at a first difference")  # fmt: skip
    return f"""
{result["sequences"]:,} random inputs of {" or ".join(f"{length:,}" for length in result["lengths"])} time steps
(normal, mean {result["input"]["mean"]:g}, deviation {result["input"]["deviation"]:g}),
β = {", ".join(f"{beta:g}" for beta in result["betas"])}; {result["spikes"]:,} spikes
in {result["steps"]:,} neuron steps. Each backend against the plain loop in the same precision; `fft` is the paper's
algorithm (its threshold scan in float64), `scan` the fused kernel.{missing}

{table(head, rows)}

The paper draws one random input and finds the same spikes. Here {in_double or "none"} of the sequences in float64 and
{in_single or "none"} in float32 differ with the library's backends: the method is exact.

In float32 throughout, the same algorithm differs from the loop in {naive["sequences"]:,} sequences
({100 * naive["sequences"] / result["sequences"]:.1f} %), each time first where the potential is next to the threshold:
{by_beta}. The slower the decay, the larger the potential
without reset and its threshold, and the more digits their difference loses. The paper attributes a small difference in
accuracy between its two ways of training to numerical error; this is one, and it can be avoided.
"""
