"""The paper's run time of LIF training: over the sequence length, by forward and backward, and by torch.profiler.

What is measured, and how, is that of `resofire bench peers`. There the loop is extrapolated beyond 4,096 steps; here
each way is measured as far as the budget lets it go, and nothing is extrapolated.
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
from ..plot.bench import PAPER
from .training_equivalence import BACKENDS
from .workplace import Workplace

TITLE = "Training time of the LIF: loop, decoupled by FFT, fused scan"
LENGTHS = tuple(2**power for power in range(2, 16))
BATCH, FEATURES, ROUNDS = 4, 64, 3
# The short ones are noisy, and cost little.
SHORT, SHORT_ROUNDS = 256, 15
CASE = (64, 784)
HALVES = ("forward", "backward")
# What the paper says in words beside its figure.
FASTER_BEYOND = 4


def run(workplace: Workplace) -> dict[str, Any]:
    begun = time.monotonic()
    retain_buffers()
    torch.manual_seed(0)
    peers = benchmark("peers")
    return {
        "batch": BATCH,
        "features": FEATURES,
        "rounds": ROUNDS,
        "short": {"longest": SHORT, "rounds": SHORT_ROUNDS},
        "threads": torch.get_num_threads(),
        "case": _case(peers),
        "lengths": LENGTHS,
        "seconds": _sweep(peers, begun + 60 * workplace.minutes),
        "paper": {
            "speedups": {str(length): ratio for length, ratio in peers.PAPER_SPEEDUPS.items()},
            "halves": peers.PAPER_HALVES,
        },
    }


def _case(peers: Any) -> dict[str, Any]:
    """The paper's case, sMNIST's form through Linear(1 -> 10) and a LIF: both halves, and where the time goes."""
    x, labels = torch.rand(*CASE, 1), torch.randint(10, CASE[:1])
    nets = {backend: peers.Digits(LIF(10, backend=backend), labels) for backend in BACKENDS}
    # These name their parts to the profiler.
    told = {
        "reference": ("sequential", peers.LoopLIF()),
        "fft": ("parallel", peers.FourierLIF()),
        "scan": ("fused", LIF(10, backend="scan")),
    }
    return {
        "shape": [*CASE, 10],
        "seconds": peers.halves(nets, x, torch.tensor(1.0), ROUNDS),
        "profile": {
            backend: peers.profiled(kind, peers.Digits(neuron, labels), x) for backend, (kind, neuron) in told.items()
        },
    }


def _sweep(peers: Any, deadline: float) -> dict[str, dict[str, list[float]]]:
    """Seconds of both halves of each way, from the first of LENGTHS to the last that there was time for."""
    layers = {backend: LIF(FEATURES, backend=backend) for backend in BACKENDS}
    found: dict[str, dict[str, list[float]]] = {backend: {half: [] for half in HALVES} for backend in BACKENDS}
    for length in LENGTHS:
        rounds = SHORT_ROUNDS if length <= SHORT else ROUNDS
        left = deadline - time.monotonic()
        layers = {backend: layer for backend, layer in layers.items() if _foreseen(found[backend], rounds) < left}
        x = torch.randn(BATCH, length, FEATURES, requires_grad=True)
        timed = peers.halves(layers, x, torch.randn(x.shape), rounds)
        for backend in layers:
            for half in HALVES:
                found[backend][half].append(timed[backend][half])
    return found


def _foreseen(found: dict[str, list[float]], rounds: int) -> float:
    """What the next length, twice as long, may take: quadratic in it, and once to warm up. The first is free."""
    return 4 * (rounds + 1) * sum(found[half][-1] for half in HALVES) if found["forward"] else float("-inf")


def _times(result: dict[str, Any], backend: str) -> list[float]:
    """Seconds of a training step at each length that was measured."""
    return [sum(both) for both in zip(*(result["seconds"][backend][half] for half in HALVES), strict=True)]


def _speedups(result: dict[str, Any], backend: str) -> list[float]:
    """The loop's time over that of another, at each length where both were measured."""
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
    case = result["case"]
    shape, short = " x ".join(map(str, case["shape"])), result["short"]
    profiles = "\n\n".join(_profile(label, case["profile"][backend]) for backend, label in BACKENDS.items())
    return f"""
Forward and backward of one layer of LIF with reset (τ = 2), {result["batch"]} x T x {result["features"]}, float32,
{result["threads"]} CPU thread{"s" * (result["threads"] > 1)}; medians of {result["rounds"]} rounds
({short["rounds"]} up to T = {short["longest"]}) in which the three take turns. All was measured, nothing extrapolated.

{_length_table(result)}

{_seen(result)}

Forward and backward apart, the paper's small case (sMNIST's shape, {shape}, a Linear and a LIF; random pixels):

{_half_table(result)}

The paper's are of one RTX 4090; of its sweep over T it gives neither layer nor batch. Where its
step goes by torch.profiler and where ours does, shares of the whole step in brackets; the fused scan is not in the
paper:

{profiles}

SpikingJelly, snnTorch, S4D and a Transformer, measured in the same manner, are in [Beside the peers](../peers.md); that
three ways of training come to the same is in [training-equivalence](training-equivalence.md).
"""


def _length_table(result: dict[str, Any]) -> str:
    columns = [_times(result, backend) for backend in BACKENDS]
    ratios = [_speedups(result, backend) for backend in ("fft", "scan")]
    rows = [f"| T | {' | '.join(BACKENDS.values())} | speed-up by FFT | the paper's | by the scan |", "|---" * 7 + "|"]
    for row in range(max(map(len, columns))):
        length = result["lengths"][row]
        cells = [_ms(column[row]) if row < len(column) else "not measured" for column in columns]
        fft, scan = (_ratio(column[row]) if row < len(column) else "" for column in ratios)
        paper = result["paper"]["speedups"].get(str(length))
        rows.append(f"| {length:,} | {' | '.join(cells)} | {fft} | {f'{paper}x' if paper else ''} | {scan} |")
    return "\n".join(rows)


def _seen(result: dict[str, Any]) -> str:
    """In words: from where on parallel training is faster, and how the loop grows."""
    lengths, ratios = result["lengths"], _speedups(result, "fft")
    slower = [row for row, ratio in enumerate(ratios) if ratio <= 1]
    first = slower[-1] + 1 if slower else 0
    text = f"The paper's parallel training is faster than its loop beyond {FASTER_BEYOND} steps; here the FFT "
    if first < len(ratios):
        text += f"is at all lengths measured from T = {lengths[first]:,} on."
    else:
        text += f"is not yet at T = {lengths[first - 1]:,}."
    times = _times(result, "reference")
    if len(times) > 1:
        grown = times[-1] / times[-2]
        text += (
            f" From T = {lengths[len(times) - 2]:,} to {lengths[len(times) - 1]:,} the loop's time grows {grown:.1f} "
            f"times (2 is linear, 4 quadratic)."
        )
    return text


def _half_table(result: dict[str, Any]) -> str:
    seconds, profile = result["case"]["seconds"], result["case"]["profile"]
    rows = [
        "| | loop | FFT | speed-up | the paper's | from its tables | fused scan | speed-up |",
        "|---" * 8 + "|",
    ]
    for half in HALVES:
        loop, fft, scan = (seconds[backend][half] for backend in BACKENDS)
        tables = _in_paper(profile["reference"], half) / _in_paper(profile["fft"], half)
        rows.append(
            f"| {half} | {_ms(loop)} | {_ms(fft)} | {_ratio(loop / fft)} | "
            f"{result['paper']['halves'][half]}x | {tables:.2f}x | {_ms(scan)} | {_ratio(loop / scan)} |"
        )
    return "\n".join(rows)


def _in_paper(parts: list[dict[str, Any]], half: str) -> float:
    return sum(part["paper"] or 0 for part in parts if part["half"] == half)


def _profile(label: str, parts: list[dict[str, Any]]) -> str:
    ours, theirs = (sum(part[key] or 0 for part in parts) for key in ("seconds", "paper"))
    rows = [f"| {label} | calls | here | the paper |", "|---" * 4 + "|"]
    for part in parts:
        name = part["name"] if part["half"] == "other" else f"{part['half']}: {part['name']}"
        rows.append(
            f"| {name} | {part['calls'] or ''} | {_share(part['seconds'], ours)} | {_share(part['paper'], theirs)} |"
        )
    return "\n".join([*rows, f"| all | | {_share(ours, ours)} | {_share(theirs, theirs)} |"])


def _share(seconds: float | None, whole: float) -> str:
    return f"{1e3 * seconds:,.1f} ms ({100 * seconds / whole:.0f} %)" if seconds else ""


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f} ms" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"


def _ratio(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.3g}x"
