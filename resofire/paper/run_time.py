"""The paper's run time of LIF training: over the sequence length, by forward and backward, and by torch.profiler.

The measurement is that of `resofire bench peers`. There the loop is extrapolated beyond 4,096 steps; here each way is
measured as far as the budget allows, without extrapolation.
"""

import time
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..clone import benchmark
from ..nn import LIF
from ..ops import retain_buffers
from ..plot import figure, hatches, lines, styled
from ..plot.style import PAPER
from .pages import table
from .training_equivalence import BACKENDS
from .workplace import Workplace

TITLE = "Training time of the LIF: loop, decoupled by FFT, fused scan"
LENGTHS = tuple(2**power for power in range(2, 16))
BATCH, FEATURES, ROUNDS = 4, 64, 3
# Short ones are noisy and cheap.
SHORT, SHORT_ROUNDS = 256, 15
CASE = (64, 784)
HALVES = ("forward", "backward")
# From the text beside the paper's figure.
FASTER_BEYOND = 4


def run(workplace: Workplace) -> dict[str, Any]:
    start = time.monotonic()
    retain_buffers()
    torch.manual_seed(0)
    peers = benchmark("peers")
    speedups = {str(length): ratio for length, ratio in peers.PAPER_SPEEDUPS.items()}
    return {
        "batch": BATCH, "features": FEATURES, "rounds": ROUNDS, "threads": torch.get_num_threads(),
        "short": {"longest": SHORT, "rounds": SHORT_ROUNDS}, "case": _case(peers), "lengths": LENGTHS,
        "seconds": _sweep(peers, start + 60 * workplace.minutes),
        "paper": {"speedups": speedups, "halves": peers.PAPER_HALVES},
    }  # fmt: skip


def _case(peers: Any) -> dict[str, Any]:
    """The paper's case, an input of sMNIST's shape through Linear(1 -> 10) and a LIF: both halves, and a profile."""
    x, labels = torch.rand(*CASE, 1), torch.randint(10, CASE[:1])
    nets = {backend: peers.Digits(LIF(10, backend=backend), labels) for backend in BACKENDS}
    # These label their parts for the profiler.
    labelled = {
        "reference": ("sequential", peers.LoopLIF()),
        "fft": ("parallel", peers.FourierLIF()),
        "scan": ("fused", LIF(10, backend="scan")),
    }
    return {
        "shape": [*CASE, 10],
        "seconds": peers.halves(nets, x, torch.tensor(1.0), ROUNDS),
        "profile": {
            backend: peers.profiled(kind, peers.Digits(neuron, labels), x)
            for backend, (kind, neuron) in labelled.items()
        },
    }


def _sweep(peers: Any, deadline: float) -> dict[str, dict[str, list[float]]]:
    """Seconds of both halves of each way, for as many LENGTHS as the time allows."""
    layers = {backend: LIF(FEATURES, backend=backend) for backend in BACKENDS}
    seconds: dict[str, dict[str, list[float]]] = {backend: {half: [] for half in HALVES} for backend in BACKENDS}
    for length in LENGTHS:
        rounds = SHORT_ROUNDS if length <= SHORT else ROUNDS
        left = deadline - time.monotonic()
        layers = {backend: layer for backend, layer in layers.items() if _expected(seconds[backend], rounds) < left}
        x = torch.randn(BATCH, length, FEATURES, requires_grad=True)
        timed = peers.halves(layers, x, torch.randn(x.shape), rounds)
        for backend in layers:
            for half in HALVES:
                seconds[backend][half].append(timed[backend][half])
    return seconds


def _expected(seconds: dict[str, list[float]], rounds: int) -> float:
    """Upper estimate for the next length, twice as long: quadratic growth, and one round to warm up."""
    return 4 * (rounds + 1) * sum(seconds[half][-1] for half in HALVES) if seconds["forward"] else float("-inf")


def _times(result: dict[str, Any], backend: str) -> list[float]:
    """Seconds of a training step at each measured length."""
    return [sum(both) for both in zip(*(result["seconds"][backend][half] for half in HALVES), strict=True)]


def _speedups(result: dict[str, Any], backend: str) -> list[float]:
    """The loop's time over another's, at each length where both were measured."""
    pairs = zip(_times(result, "reference"), _times(result, backend), strict=False)
    return [loop / other for loop, other in pairs]


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (above, middle, below) = figure(1, 3, height=2.9)
    styles = dict(zip(BACKENDS, lines(), strict=False))
    for backend, style in styles.items():
        times = [1e3 * seconds for seconds in _times(result, backend)]
        above.plot(result["lengths"][: len(times)], times, label=BACKENDS[backend], **style)
        if backend != "reference":
            ratios = _speedups(result, backend)
            middle.plot(result["lengths"][: len(ratios)], ratios, label=BACKENDS[backend], **style)
    paper = {int(length): ratio for length, ratio in result["paper"]["speedups"].items()}
    middle.plot(list(paper), list(paper.values()), label="FFT, the paper", **PAPER)
    middle.axhline(1, color="black", linewidth=0.8)
    above.set(title="training step", ylabel=f"ms ({result['batch']} x T x {result['features']})")
    middle.set(title="faster than the loop", ylabel="times", xlabel="sequence length T")
    for panel in (above, middle):
        panel.set_xscale("log", base=2)
        panel.set(yscale="log", xlim=(result["lengths"][0] / 1.3, result["lengths"][-1] * 1.3))
        panel.legend(loc="upper left")
    _bars(below, result["case"])
    return drawn


def _bars(panel: Axes, case: dict[str, Any]) -> None:
    for side, (half, style) in enumerate(zip(HALVES, hatches(), strict=False)):
        times = [1e3 * case["seconds"][backend][half] for backend in BACKENDS]
        drawn = panel.bar([place + 0.4 * side - 0.2 for place in range(len(times))], times, 0.4, label=half, **style)
        panel.bar_label(drawn, fmt="%.3g", padding=2)
    panel.set_xticks(range(len(BACKENDS)), [label.replace("decoupled, ", "") for label in BACKENDS.values()])
    panel.grid(False, axis="x")
    panel.set_axisbelow(True)
    panel.margins(y=0.2)
    panel.set(title=f"the paper's case, {' x '.join(map(str, case['shape']))}", ylabel="ms", yscale="log")
    panel.legend(loc="upper right")


def page(result: dict[str, Any]) -> str:
    case, short = result["case"], result["short"]
    profiles = "\n\n".join(_profile(label, case["profile"][backend]) for backend, label in BACKENDS.items())
    return f"""
Forward and backward of one layer of LIF with reset (τ = 2), {result["batch"]} x T x {result["features"]}, float32,
{result["threads"]} CPU thread{"s" * (result["threads"] > 1)}; medians of {result["rounds"]} interleaved rounds
({short["rounds"]} up to T = {short["longest"]}). Nothing is extrapolated.

{_length_table(result)}

{_growth(result)}

Forward and backward separately, the paper's small case (sMNIST's shape, {" x ".join(map(str, case["shape"]))}, a Linear
and a LIF; random pixels):

{_half_table(result)}

The paper's numbers are from one RTX 4090; its sweep over T specifies neither layer nor batch. The step by
torch.profiler, the paper's and ours, shares of the whole step in brackets; the fused scan is not in the paper:

{profiles}

SpikingJelly, snnTorch, S4D and a Transformer, measured in the same way, are on [a page of their own](../peers.md); that
the three ways of training agree is shown in [training-equivalence](training-equivalence.md).
"""


def _length_table(result: dict[str, Any]) -> str:
    columns = [_times(result, backend) for backend in BACKENDS]
    ratios = [_speedups(result, backend) for backend in ("fft", "scan")]
    rows = []
    for row in range(max(map(len, columns))):
        length = result["lengths"][row]
        cells = [_ms(column[row]) if row < len(column) else "not measured" for column in columns]
        fft, scan = (_ratio(column[row]) if row < len(column) else "" for column in ratios)
        paper = result["paper"]["speedups"].get(str(length))
        rows.append((f"{length:,}", *cells, fft, f"{paper}x" if paper else "", scan))
    return table(("T", *BACKENDS.values(), "speed-up by FFT", "the paper's", "by the scan"), rows)


def _growth(result: dict[str, Any]) -> str:
    """From which length on parallel training is faster, and how the loop's time grows."""
    lengths, ratios = result["lengths"], _speedups(result, "fft")
    slower = [row for row, ratio in enumerate(ratios) if ratio <= 1]
    first = slower[-1] + 1 if slower else 0
    text = f"The paper's parallel training is faster than its loop beyond {FASTER_BEYOND} steps; here the FFT is "
    if first < len(ratios):
        text += f"faster at all measured lengths from T = {lengths[first]:,} on."
    else:
        text += f"not yet faster at T = {lengths[first - 1]:,}."
    times = _times(result, "reference")
    if len(times) > 1:
        text += (
            f" From T = {lengths[len(times) - 2]:,} to {lengths[len(times) - 1]:,} the loop's time grows "
            f"{times[-1] / times[-2]:.1f} times (2 is linear, 4 quadratic)."
        )
    return text


def _half_table(result: dict[str, Any]) -> str:
    seconds, profile, rows = result["case"]["seconds"], result["case"]["profile"], []
    for half in HALVES:
        loop, fft, scan = (seconds[backend][half] for backend in BACKENDS)
        tables = _in_paper(profile["reference"], half) / _in_paper(profile["fft"], half)
        rows.append((half, _ms(loop), _ms(fft), _ratio(loop / fft), f"{result['paper']['halves'][half]}x",
                     f"{tables:.2f}x", _ms(scan), _ratio(loop / scan)))  # fmt: skip
    return table(("", "loop", "FFT", "speed-up", "the paper's", "from its tables", "fused scan", "speed-up"), rows)


def _in_paper(parts: list[dict[str, Any]], half: str) -> float:
    return sum(part["paper"] or 0 for part in parts if part["half"] == half)


def _profile(label: str, parts: list[dict[str, Any]]) -> str:
    ours, theirs = (sum(part[key] or 0 for part in parts) for key in ("seconds", "paper"))
    rows = [
        (part["name"] if part["half"] == "other" else f"{part['half']}: {part['name']}", part["calls"] or "",
         _share(part["seconds"], ours), _share(part["paper"], theirs))
        for part in parts
    ]  # fmt: skip
    rows.append(("all", "", _share(ours, ours), _share(theirs, theirs)))
    return table((label, "calls", "here", "the paper"), rows)


def _share(seconds: float | None, whole: float) -> str:
    return f"{1e3 * seconds:,.1f} ms ({100 * seconds / whole:.0f} %)" if seconds else ""


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f} ms" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"


def _ratio(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.3g}x"
