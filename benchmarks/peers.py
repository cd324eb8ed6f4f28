"""PRF and LIF against SpikingJelly, snnTorch, S4D and Transformer layers, and against the paper's figures.

Times are forward and backward in float32, each the median of rounds in which the contenders take turns; what is
compared is their ratio in this run. The layers are those of `peer_layers`. Those that are quadratic in T are measured
up to their longest length only; beyond it they are extrapolated, and marked.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from resofire.nn import LIF

from .clock import Table, in_fresh_process, medians
from .peer_layers import PEERS, FourierLIF, LoopLIF, Peer, installed

BATCH, FEATURES = 4, 64
LENGTHS = [4, 16, 64, 256, 1024, 4096, 16384, 32768]
MEMORY_LENGTH = 4096
CLEAR_REFS = "/proc/self/clear_refs"
# The paper, section "The Parallel Process": training time of the loop over that of its parallel method.
PAPER_SPEEDUPS = {1024: 6.57, 16384: 9.35, 32768: 16.50}
PAPER_HALVES = {"forward": 1.77, "backward": 132.55}
# Its two tables of torch.profiler, in microseconds: sMNIST, 64 x 784, Linear(1 -> 10) and LIF, on an RTX 4090. The
# fused scan is ours; 0 stands for a row that the paper has not.
PAPER_PROFILE: dict[str, dict[str, dict[str, int]]] = {
    "sequential": {
        "forward": {"Charge": 146_725, "Reset": 150_120, "Fire": 91_398},
        "backward": {"GraphBackward": 250_161, "AtanBackward": 186_086, "SelectBackward": 91_438,
                     "SubBackward": 20_124, "StackBackward": 19_436, "MmBackward": 1_404},
        "other": {"Other": 244_358},
    },
    "parallel": {
        "forward": {"Scan Kernel": 45_634, "FFT Conv Op.": 14_627, "Scan Dynamic Thr.": 158_774, "Fire": 459},
        "backward": {"FftR2CBackward": 1_099, "AtanBackward": 762, "MulBackward": 582, "FftC2RBackward": 235,
                     "MmBackward": 1_615},
        "other": {"Other": 113_863},
    },
    "fused": {"forward": {"Scan": 0}, "backward": {"ScanBackward": 0, "MmBackward": 0}, "other": {"Other": 0}},
}  # fmt: skip
# Autograd's nodes by the paper's names. What a table does not name is the graph's own, or part of "Other".
NODES = {
    "_SpikeBackward": "AtanBackward", "AddmmBackward0": "MmBackward",
    "GeneratedBackwardFor_resofire_equation_defaultBackward": "ScanBackward",
}  # fmt: skip
RANGES = {"resofire::equation": "Scan"}
EVALUATED = "autograd::engine::evaluate_function: "


def halves(layers: dict[str, nn.Module], x: Tensor, grad: Tensor, rounds: int, warm: bool = True) -> dict[str, Any]:
    """Seconds of the forward and of the backward pass of each layer, which takes x to something shaped like `grad`."""
    contenders: dict[str, Callable[[], object]] = {}
    for name, layer in layers.items():
        outputs: list[Tensor] = []

        def forward(layer: nn.Module = layer, outputs: list[Tensor] = outputs) -> None:
            layer.zero_grad()
            x.grad = None
            outputs.append(layer(x))

        def backward(outputs: list[Tensor] = outputs) -> None:
            outputs.pop().backward(grad)

        contenders[f"{name} forward"], contenders[f"{name} backward"] = forward, backward
    seconds = medians(contenders, rounds, warm)
    return {name: {half: seconds[f"{name} {half}"] for half in ("forward", "backward")} for name in layers}


def sweep(peers: dict[str, Peer], lengths: list[int], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Each peer at each length, measured or extrapolated."""
    points: dict[str, list[dict[str, Any]]] = {name: [] for name in peers}
    layers = {name: peer.build(FEATURES) for name, peer in peers.items()}
    for length in lengths:
        x = torch.randn(BATCH, length, FEATURES, requires_grad=True)
        grad, able = torch.randn(x.shape), {name: layers[name] for name in peers if length <= peers[name].longest}
        # The long ones take seconds each, and all has run before, at another length.
        long = length > 4096
        timed = halves(able, x, grad, min(rounds, 3) if long else rounds if length > 256 else 3 * rounds, warm=not long)
        for name in peers:
            point = timed.get(name) or extrapolated([each for each in points[name] if not each["extrapolated"]], length)
            point = {"length": length, **point, "extrapolated": name not in timed}
            points[name].append(point)
            if name in timed:
                seconds = point["forward"] + point["backward"]
                print(f"T={length:<6} {name:<22} {1e3 * seconds:>10.3f} ms", flush=True)
    return points


def extrapolated(points: list[dict[str, Any]], length: int) -> dict[str, float]:
    """Each half as a T + b T² through its last two points, with a, b ≥ 0."""
    (first, last), seconds = points[-2:], {}
    for half in ("forward", "backward"):
        near, far = (each[half] / each["length"] for each in (first, last))
        square = min(max(0.0, (far - near) / (last["length"] - first["length"])), far / last["length"])
        seconds[half] = (far - square * last["length"]) * length + square * length**2
    return seconds


def seconds_at(points: list[dict[str, Any]], length: int) -> tuple[float, bool]:
    """Forward + backward, and whether it is extrapolated."""
    point = next(each for each in points if each["length"] == length)
    return point["forward"] + point["backward"], point["extrapolated"]


def compare(table: Table, points: dict[str, list[dict[str, Any]]], lengths: list[int]) -> list[dict[str, Any]]:
    """Ours over every peer at the longest lengths; and the loop over both parallel methods, beside the paper's."""
    for length in lengths[-4:]:
        for name in points:
            ours = "SD-TCM block" if PEERS[name].group == "layer" else "LIF"
            if name != ours:
                (theirs, guessed), (own, _) = seconds_at(points[name], length), seconds_at(points[ours], length)
                table.add(f"{ours} over {name} at T={length}", theirs / own, "x", note="extrapolated" * guessed)
    speedups = []
    for length in lengths:
        loop, guessed = seconds_at(points["LIF loop"], length)
        parallel, fused = (seconds_at(points[name], length)[0] for name in ("LIF by FFT", "LIF"))
        paper = PAPER_SPEEDUPS.get(length)
        speedups.append(
            {"length": length, "parallel": loop / parallel, "fused": loop / fused, "paper": paper,
             "extrapolated": guessed}
        )  # fmt: skip
        note = f"the paper's: {paper:g}x" if paper else ""
        note += ", the loop is extrapolated" * guessed
        table.add(f"LIF by FFT over the loop at T={length}", loop / parallel, "x", note=note.lstrip(", "))
    return speedups


class Digits(nn.Module):
    """The paper's case for the profiler: sMNIST's form through Linear(1 -> 10) and a LIF, to a loss."""

    def __init__(self, neuron: nn.Module, labels: Tensor) -> None:
        super().__init__()
        self.linear, self.neuron, self.labels = nn.Linear(1, 10), neuron, labels

    def forward(self, x: Tensor) -> Tensor:
        return F.cross_entropy(self.neuron(self.linear(x)).mean(1), self.labels)


def paper_case(table: Table, shape: tuple[int, int], rounds: int) -> dict[str, Any]:
    """Forward and backward of the loop over both parallel methods, and where torch's profiler sees the time go."""
    x, labels, one = torch.rand(*shape, 1), torch.randint(10, (shape[0],)), torch.tensor(1.0)
    named = {"sequential": "reference", "parallel": "fft", "fused": "scan"}
    timed = halves({kind: Digits(LIF(10, backend=named[kind]), labels) for kind in named}, x, one, rounds)
    for half, paper in PAPER_HALVES.items():
        for kind in ("parallel", "fused"):
            note = f"the paper's: {paper:g}x" if kind == "parallel" else ""
            ratio = timed["sequential"][half] / timed[kind][half]
            table.add(f"{half}, {kind} over sequential at {shape[0]}x{shape[1]}x10", ratio, "x", note=note)
    neurons = {"sequential": LoopLIF(), "parallel": FourierLIF(), "fused": LIF(10, backend="scan")}
    profiles = {kind: profiled(kind, Digits(neuron, labels), x) for kind, neuron in neurons.items()}
    return {"shape": [*shape, 10], "seconds": timed, "profile": profiles}


def profiled(kind: str, net: nn.Module, x: Tensor) -> list[dict[str, Any]]:
    """One training step by the categories of the paper's table: seconds, calls, and what the paper has."""
    net(x).backward()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        net(x).backward()
    spent: dict[str, tuple[float, int]] = {}
    named = {name for half in PAPER_PROFILE[kind].values() for name in half}
    events = seen.key_averages()
    for event in events:
        name = RANGES.get(event.key, event.key)
        if name.startswith(EVALUATED):
            node = name.removeprefix(EVALUATED)
            name = NODES.get(node, node.removesuffix("0").removesuffix("1"))
            if name not in named and name in ("AddBackward", "MulBackward"):
                name = "GraphBackward"
        if name in named:
            seconds, calls = spent.get(name, (0.0, 0))
            spent[name] = seconds + event.cpu_time_total / 1e6, calls + event.count
    # Times of an operator alone, without what it calls, add up to the whole.
    rest = sum(event.self_cpu_time_total for event in events) / 1e6 - sum(seconds for seconds, _ in spent.values())
    spent["Other"] = rest, 0
    rows = []
    for half, names in PAPER_PROFILE[kind].items():
        for name, paper in names.items():
            seconds, calls = spent.get(name, (0.0, 0))
            rows.append({"half": half, "name": name, "seconds": seconds, "calls": calls, "paper": paper / 1e6 or None})
    return rows


def forget_high_water() -> None:
    """From here on VmHWM begins at what is in memory now; an OSError where the kernel does not let us."""
    with open(CLEAR_REFS, "w") as forget:
        forget.write("5")


def _high_water() -> int:
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024


def peak(name: str, length: int) -> float:
    """By how many MB a training step of one peer raises the memory of this process, its input and gradient aside.

    Only a fresh process tells: room that an earlier step has left behind is taken again without a rise."""
    layer = PEERS[name].build(FEATURES)
    x, grad = (torch.randn(BATCH, length, FEATURES) for _ in range(2))
    x.requires_grad_()
    # What only a first call needs; on a tensor of its own, as a slice's gradient would leave room as large as x behind.
    layer(torch.randn(BATCH, 16, FEATURES, requires_grad=True)).sum().backward()
    layer.zero_grad()
    forget_high_water()
    before = _high_water()
    layer(x).backward(grad)
    return (_high_water() - before) / 1e6


PEAK = """
from benchmarks import peers
from resofire.ops import retain_buffers
retain_buffers()
print(peers.peak({name!r}, {length}))
"""


def memory(table: Table, names: list[str], length: int) -> dict[str, float]:
    """The peak of each peer, in a process of its own."""
    try:
        forget_high_water()
    except OSError as error:
        print(f"peak memory is not measured: {CLEAR_REFS} cannot be written: {error.strerror}")
        return {}
    peaks = {name: float(in_fresh_process(PEAK.format(name=name, length=length))) for name in names}
    for name, megabytes in peaks.items():
        table.add(f"peak memory of a step at T={length}: {name}", megabytes, "MB")
    return peaks


def table(result: dict[str, Any]) -> str:
    """The tables of docs/peers.md: peers, the paper's speed-ups, its profile."""
    return "\n\n".join((peer_table(result), paper_table(result), profile_table(result)))


def peer_table(result: dict[str, Any]) -> str:
    """How many times ours each peer takes, by length; in italics what is extrapolated."""
    peers, (batch, features) = result["peers"], result["shape"].values()
    all_lengths = [point["length"] for point in peers["LIF"]["points"]]
    lengths = [length for length in (1024, 4096, 32768) if length in all_lengths] or all_lengths[-3:]
    length, megabytes = result["memory"]["length"], result["memory"]["megabytes"]
    rows = [[f"training step, {batch} x T x {features}", *(f"T = {length:,}" for length in lengths)]]
    rows[0].append(f"peak memory, T = {length:,}")
    for group, ours in (("neuron", "LIF"), ("layer", "SD-TCM block")):
        for name in sorted((name for name in peers if peers[name]["group"] == group), key=lambda name: name != ours):
            cells = []
            for length in lengths:
                seconds, guessed = seconds_at(peers[name]["points"], length)
                ratio = seconds / seconds_at(peers[ours]["points"], length)[0]
                cells.append(f"1 ({1e3 * seconds:.3g} ms)" if name == ours else times(ratio, guessed))
            cells.append(f"{megabytes[name]:.3g} MB" if name in megabytes else "")
            rows.append([f"{name}: {peers[name]['what']}", *cells])
    return markdown(rows)


def paper_table(result: dict[str, Any]) -> str:
    rows = [["training, the loop's time over that of", "T", "FFT, the paper", "FFT, here", "fused scan, here"]]
    for each in result["speedups"]:
        paper = f"{each['paper']:g}x" if each["paper"] else ""
        cells = [times(each[kind], each["extrapolated"]) for kind in ("parallel", "fused")]
        rows.append(["forward + backward", f"{each['length']:,}", paper, *cells])
    case = result["paper"]["case"]
    shape = " x ".join(map(str, case["shape"]))
    for half, paper in result["paper"]["halves"].items():
        loop = case["seconds"]["sequential"][half]
        cells = [times(loop / case["seconds"][kind][half]) for kind in ("parallel", "fused")]
        rows.append([f"{half} alone, {shape}", f"{case['shape'][1]}", f"{paper:g}x", *cells])
    return markdown(rows)


def profile_table(result: dict[str, Any]) -> str:
    """The paper's two tables of torch.profiler and a third for the fused scan, with our times beside them."""
    rows = [["one training step", "part", "calls", "here", "the paper"]]
    for kind, parts in result["paper"]["case"]["profile"].items():
        paper = sum(part["paper"] or 0 for part in parts)
        total = {"half": "all", "name": "", "calls": 0, "paper": paper, "seconds": sum(p["seconds"] for p in parts)}
        for part in (*parts, total):
            theirs = f"{1e3 * part['paper']:,.1f} ms" if part["paper"] else ""
            name = f"{kind}, {part['half']}"
            rows.append([name, part["name"], str(part["calls"] or ""), f"{1e3 * part['seconds']:,.1f} ms", theirs])
    return markdown(rows)


def times(ratio: float, guessed: bool = False) -> str:
    shown = f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.2g}x" if ratio < 10 else f"{ratio:.1f}x"
    return f"*{shown}*" if guessed else shown


def markdown(rows: list[list[str]]) -> str:
    """A table, its head first."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def run(quick: bool = False) -> dict[str, Any]:
    """Measures and prints; returns all figures with the machine they come from."""
    from resofire import doctor

    torch.manual_seed(0)
    table, lengths = Table(), [4, 64, 256] if quick else LENGTHS
    peers, missing = installed()
    print(*missing, f"forward + backward, float32, {BATCH} x T x {FEATURES}, medians", sep="\n")
    points = sweep(peers, lengths, rounds=1 if quick else 5)
    speedups = compare(table, points, lengths)
    case = paper_case(table, (16, 196) if quick else (64, 784), rounds=3 if quick else 5)
    peaks = {} if quick else memory(table, list(peers), MEMORY_LENGTH)
    return {
        "command": "resofire bench peers" + (" --quick" if quick else ""),
        "machine": doctor.examine(),
        "missing": missing,
        "shape": {"batch": BATCH, "features": FEATURES},
        "peers": {
            name: {"group": peers[name].group, "what": peers[name].what, "points": points[name]} for name in peers
        },
        "speedups": speedups,
        "paper": {"halves": PAPER_HALVES, "case": case},
        "memory": {"length": MEMORY_LENGTH, "megabytes": peaks},
        "figures": table.rows,
    }
