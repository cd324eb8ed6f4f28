"""A network as a stream, one step after another on one core: ours against PyTorch's module and against onnxruntime.

Networks are those of sMNIST and Text, one sequence, at the fire rates of trained ones. Times are per time step, medians
of rounds in which the contenders take turns. "chunk" hands over many steps in one call, the others one step a call; a
step's latency is also given as its median and 99th percentile over single calls. The last part feeds one small network
for very long, in float32 and float64 side by side: memory must not grow, and the two must not drift apart.
"""

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from resofire.deploy import Folded, Stream, fold
from resofire.deploy.formats import onnx
from resofire.deploy.formats.onnxruntime import StepSession
from resofire.models import Classifier, ClassifierConfig
from resofire.nn import PRFConfig

from .clock import Table, medians
from .networks import SMNIST_TRAINED, TEXT_TRAINED, Case, evaluated, set_rates, smnist, text

# Steps of a chunk and of a round of single calls; PyTorch's module takes fewer.
CHUNK, CALLS, FEW = 784, 784, 40
LATENCIES = 20_000
LONG = 100_000_000


def trained(case: Case, rates: list[tuple[float, float]]) -> Classifier:
    """The network of a case in evaluation, firing at these rates."""
    torch.manual_seed(0)
    model = evaluated(case)
    set_rates(model, case, rates)
    return model


def sequence(case: Case, steps: int) -> Any:
    """One sequence of the case, as a stream takes it, [1, steps, 1] or [1, steps]."""
    x = case.x.reshape(1, -1, 1) if case.x.is_floating_point() else case.x.reshape(1, -1)
    return x[:, :steps].numpy()


def steps_of_module(model: Classifier, x: Any) -> Callable[[], object]:
    tensor = torch.from_numpy(x)

    def run() -> None:
        state = None
        with torch.no_grad():
            for t in range(FEW):
                _, state = model.step(tensor[:, t], state)

    return run


def single_calls(step: Callable[[Any], object], x: Any) -> Callable[[], object]:
    pieces = [np.ascontiguousarray(x[:, t]) for t in range(CALLS)]

    def run() -> None:
        for piece in pieces:
            step(piece)

    return run


def latency(step: Callable[[Any], object], x: Any, calls: int) -> tuple[float, float]:
    """Median and 99th percentile of the seconds of a single call."""
    pieces = [np.ascontiguousarray(x[:, t]) for t in range(CALLS)]
    taken = np.empty(calls)
    for number in range(calls):
        piece = pieces[number % CALLS]
        start = time.perf_counter()
        step(piece)
        taken[number] = time.perf_counter() - start
    middle, late = np.percentile(taken, [50, 99])
    return float(middle), float(late)


def compare(case: Case, rates: list[tuple[float, float]], rounds: int, calls: int, table: Table) -> dict[str, Any]:
    model = trained(case, rates)
    folded, x = fold(model), sequence(case, CHUNK)
    whole, single = Stream(folded), Stream(folded)
    session = StepSession(onnx.step(folded).SerializeToString())
    seconds = medians(
        {
            "chunk": lambda: whole.feed(x),
            "step": single_calls(single.step, x),
            "onnxruntime": single_calls(session.step, x),
            "module": steps_of_module(model, x),
        },
        rounds,
    )
    per_step = {name: taken / (FEW if name == "module" else CHUNK) for name, taken in seconds.items()}
    for name, value in per_step.items():
        table.add(f"{case.name}: time of a step, {name}", 1e6 * value, "us")
    table.add(
        f"{case.name}: PyTorch's module over ours, a step a call", per_step["module"] / per_step["step"], "x", least=20
    )
    table.add(
        f"{case.name}: onnxruntime over ours, a step a call", per_step["onnxruntime"] / per_step["step"], "x", least=3
    )
    table.add(f"{case.name}: onnxruntime over ours in chunks", per_step["onnxruntime"] / per_step["chunk"], "x")
    late = {name: latency(step, x, calls) for name, step in (("step", single.step), ("onnxruntime", session.step))}
    for name, (middle, high) in late.items():
        table.add(f"{case.name}: latency of {name}, p50", 1e6 * middle, "us")
        table.add(f"{case.name}: latency of {name}, p99", 1e6 * high, "us")
    return {
        "name": case.name,
        "fire_rates": whole.fire_rates()[0].tolist(),
        "seconds_per_step": per_step,
        "latency": late,
        "state_bytes": len(whole.save()),
    }


def small() -> Folded:
    """One block of 16 channels with long memories, folded in float64."""
    torch.manual_seed(0)
    config = ClassifierConfig(inputs=1, features=16, depth=1, classes=4, neuron=PRFConfig(tau=100.0, delta=(0.01, 1.0)))
    case = Case("small", config, torch.rand(8, 1000, 1), torch.empty(0), {}, 8000)
    return fold(trained(case, [(0.1, 0.2)]), "float64")


def for_long(steps: int, table: Table) -> dict[str, Any]:
    """How far float32 is from float64 along the way, and what memory does."""
    exact = small()
    streams = {name: Stream(exact, dtype=name) for name in ("float32", "float64")}
    generator = np.random.default_rng(0)
    piece = 100_000
    resident, apart = [], []
    start = time.perf_counter()
    for number in range(steps // piece):
        # Values that float32 holds exactly, so that both are given the same.
        x = (generator.integers(0, 256, (1, piece, 1)) / 256).astype(np.float32)
        scores = {name: stream.feed(x) for name, stream in streams.items()}
        if number in (0, steps // piece // 2, steps // piece - 1):
            resident.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            apart.append(float(np.abs(scores["float32"] - scores["float64"]).max()))
    seconds = time.perf_counter() - start
    rates = {name: stream.fire_rates()[0] for name, stream in streams.items()}
    off = float(np.abs(rates["float32"] / rates["float64"] - 1).max())
    size = float(np.abs(scores["float64"]).max())
    table.add("long: steps", steps, "")
    table.add("long: memory at the end over that at the middle", resident[-1] / resident[1], "x", most=1.01)
    table.add("long: scores of float32 and float64 apart, of the largest score", apart[-1] / size, "", most=1e-3)
    table.add("long: fire rates of float32 and float64 apart, relatively", off, "", most=1e-3)
    return {
        "steps": steps, "seconds": seconds, "kilobytes": resident, "scores_apart": apart, "largest_score": size,
        "fire_rates": {name: rate.tolist() for name, rate in rates.items()}, "fire_rates_apart": off,
    }  # fmt: skip


def run(quick: bool = False) -> dict[str, Any]:
    table, threads = Table(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rounds, calls = (3, 500) if quick else (15, LATENCIES)
        cases = [(smnist(), SMNIST_TRAINED), *([] if quick else [(text(), TEXT_TRAINED)])]
        return {
            "command": f"resofire bench stream{' --quick' if quick else ''}",
            "threads": 1,
            "cases": [compare(case, rates, rounds, calls, table) for case, rates in cases],
            "long": for_long(300_000 if quick else LONG, table),
            "figures": table.rows,
        }
    finally:
        torch.set_num_threads(threads)
