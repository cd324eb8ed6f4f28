"""Neurons: the fused scan against the FFT, loops, the peers (`compiled`) and the memory's own speed.

All times are forward + backward in float32, medians of rounds in which the contenders take turns. A goal is what the
project has set itself; a figure that misses it is marked, not hidden.
"""

import math
import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from resofire.ops import ATan, lif, prf, prf_coefficients
from resofire.ops.lif import reference as lif_reference
from resofire.ops.prf import reference as prf_reference

from . import compiled
from .clock import COPIED, Table, copier, in_fresh_process, medians

SHAPES = [(64, 784, 128), (16, 1024, 256), (8, 4096, 256), (2, 32768, 128)]
# The least traffic of a training step: forward reads c and writes s, backward reads c and ∂s and writes ∂c.
BYTES_PER_ELEMENT = 20


def coefficients(lanes: int) -> tuple[Tensor, Tensor, Tensor]:
    """φ_re, φ_im, Δ as a fresh PRF layer draws them, all asking for gradients."""
    delta = torch.exp(torch.empty(lanes).uniform_(math.log(1e-3), math.log(1e-1)))
    phi_re, phi_im = prf_coefficients(delta, 2 * math.pi * torch.rand(lanes), 2.0)
    return phi_re.requires_grad_(), phi_im.requires_grad_(), delta.requires_grad_()


def training_step(shape: tuple[int, int, int], run: Callable[[Tensor], Tensor]) -> Callable[[], object]:
    """Forward and backward of a neuron that maps a current to spikes."""
    current, grad = torch.randn(shape, requires_grad=True), torch.randn(shape)

    def step() -> None:
        current.grad = None
        run(current).backward(grad)

    return step


def prf_by(backend: str, lanes: int) -> Callable[[Tensor], Tensor]:
    rows = coefficients(lanes)
    return lambda current: prf(current, *rows, backend=backend)[0]


def lif_by(backend: str) -> Callable[[Tensor], Tensor]:
    return lambda current: lif(current, 0.5, backend=backend)[0]


def unbound_loop(op: str, lanes: int) -> Callable[[Tensor], Tensor]:
    """The reference's loop over `unbind`, not slices: no quadratic gradient, the best that a plain loop can do."""
    step: Callable[..., Any] = prf_reference.step if op == "prf" else lif_reference.step
    parameters = coefficients(lanes) if op == "prf" else (torch.full((lanes,), 0.5),)
    rows, reset = torch.stack([*parameters, torch.ones(lanes)]), "none" if op == "prf" else "soft"

    def run(current: Tensor) -> Tensor:
        state = [torch.zeros_like(current[:, 0])] * (2 if op == "prf" else 1)
        spikes = []
        for c in current.unbind(1):
            s, *state = step(c, rows, *state, reset, False, ATan())
            spikes.append(s)
        return torch.stack(spikes, 1)

    return run


def speed_at(table: Table, shape: tuple[int, int, int]) -> None:
    """PRF and LIF scan against the FFT and the memory limit at one shape."""
    elements, (_, length, lanes) = math.prod(shape), shape
    seconds = medians(
        {
            "scan": training_step(shape, prf_by("scan", lanes)),
            "fft": training_step(shape, prf_by("fft", lanes)),
            "lif": training_step(shape, lif_by("scan")),
            "copy": copier(),
        }
    )
    where = f"at {'x'.join(map(str, shape))}"
    limit = seconds["copy"] / (8 * COPIED) * BYTES_PER_ELEMENT * elements
    goal = {1024: 18.0, 32768: 30.0}.get(length)
    table.add(f"PRF scan over fft {where}", seconds["fft"] / seconds["scan"], "x", least=goal)
    table.add(f"PRF scan, share of the memory limit {where}", limit / seconds["scan"], "", least=0.3)
    table.add(f"LIF scan, share of the memory limit {where}", limit / seconds["lif"], "")
    table.add(f"PRF scan, elements per second {where}", elements / seconds["scan"] / 1e9, "G/s")
    table.add(f"copy bandwidth {where}", 8 * COPIED / seconds["copy"] / 1e9, "GB/s")


def against_loops(table: Table, shape: tuple[int, int, int], rounds: int) -> None:
    """PRF scan against the reference and against the best loop."""
    length, lanes = shape[1:]
    seconds = medians(
        {
            "scan": training_step(shape, prf_by("scan", lanes)),
            "reference": training_step(shape, prf_by("reference", lanes)),
            "unbound": training_step(shape, unbound_loop("prf", lanes)),
        },
        rounds,
        warm=rounds > 1,
    )
    note = "" if rounds > 1 else "(timed once)"
    goal = {1024: 150.0, 4096: 2000.0}.get(length)
    table.add(
        f"PRF scan over reference at T={length}", seconds["reference"] / seconds["scan"], "x", least=goal, note=note
    )
    table.add(
        f"PRF scan over the loop without slices at T={length}", seconds["unbound"] / seconds["scan"], "x", note=note
    )


def flatness(table: Table, elements: int) -> None:
    """Cost per element from T = 1,024 to T = 2²⁰ at equal size: an O(L) method is flat."""
    shapes = [(elements // (length * lanes), length, lanes) for length, lanes in
              ((1024, 256), (16384, 256), (131072, 128), (1 << 20, 64))]  # fmt: skip
    shapes = [shape for shape in shapes if shape[0] > 0]
    by_length = medians({str(shape[1]): training_step(shape, prf_by("scan", shape[2])) for shape in shapes})
    for length, seconds in by_length.items():
        table.add(f"PRF scan, ns per element at T={length}", seconds / elements * 1e9, "ns")
    table.add(
        "PRF scan, dearest over cheapest length", max(by_length.values()) / min(by_length.values()), "x", most=1.25
    )


def law(table: Table, lengths: list[int]) -> None:
    """The paper's law: parallel (FFT) over sequential training grows like L / (log L + 1); ours beside it."""
    for length in lengths:
        shape = (8, length, 64)
        seconds = medians(
            {
                "loop": training_step(shape, lif_by("reference")),
                "fft": training_step(shape, lif_by("fft")),
                "scan": training_step(shape, lif_by("scan")),
            },
            rounds=3 if length > 256 else 5,
        )
        predicted = length / (math.log2(length) + 1)
        note = f"fft {seconds['loop'] / seconds['fft']:.2f}x, the paper's law L/(log L + 1) = {predicted:.1f}"
        table.add(f"LIF scan over the loop at T={length}", seconds["loop"] / seconds["scan"], "x", note=note)


PEAK = """
import math, torch
from resofire.ops import prf
def peak():
    return int(next(x for x in open("/proc/self/status") if x.startswith("VmHWM")).split()[1]) * 1024
rows = [torch.full((128,), x, requires_grad=True) for x in (0.9, 0.1, 0.1)]
def step(shape):
    current = torch.zeros(shape, requires_grad=True)
    current.data.normal_()
    grad = torch.ones(shape)
    open("/proc/self/clear_refs", "w").write("5")
    before = peak()
    prf(current, *rows)[0].backward(grad)
    return (peak() - before) / 4 / math.prod(shape)
step((2, 64, 128))
print(step((64, 1024, 128)) - 2)
"""

FIRST_CALL = """
import time, torch
from resofire.ops import prf
x = torch.randn(4, 100, 64, requires_grad=True)
start = time.perf_counter()
prf(x, 0.9, 0.1, 0.1)[0].sum().backward()
print(time.perf_counter() - start)
"""

IMPORT = """
import time, torch
start = time.perf_counter()
import resofire, resofire.ops, resofire.nn
print(time.perf_counter() - start)
"""


def memory_and_start(table: Table) -> None:
    if os.path.exists("/proc/self/clear_refs"):
        extra = float(in_fresh_process(PEAK))
        table.add("PRF training step, extra float32 per element", extra, "", most=0.5)
    with tempfile.TemporaryDirectory() as folder:
        cold = float(in_fresh_process(FIRST_CALL, NUMBA_CACHE_DIR=folder))
        warm = float(in_fresh_process(FIRST_CALL, NUMBA_CACHE_DIR=folder))
    table.add("first call, cold cache", cold, "s", most=30)
    table.add("first call, warm cache", warm, "s", most=3)
    table.add("import resofire beyond torch", float(in_fresh_process(IMPORT)), "s", most=2)


def run(quick: bool = False) -> dict[str, Any]:
    """Measures and prints; returns all figures with the machine they come from."""
    from resofire import doctor

    torch.manual_seed(0)
    table = Table()
    print("forward + backward, float32, medians; goals are the project's own\n")
    for shape in SHAPES[:2] if quick else SHAPES:
        speed_at(table, shape)
    against_loops(table, (16, 1024, 256), rounds=1 if quick else 5)
    compiled.against_peers(table, rounds=1 if quick else 5)
    compiled.every_neuron(table, 1 if quick else 5, list(compiled.NEURONS)[:2] if quick else compiled.NEURONS)
    if not quick:
        compiled.feedback(table, rounds=5)
        against_loops(table, (8, 4096, 256), rounds=5)
        flatness(table, 1 << 26)
        law(table, [4, 16, 64, 256, 1024, 4096])
        memory_and_start(table)
    command = "resofire bench neurons" + (" --quick" if quick else "")
    return {"command": command, "machine": doctor.examine(), "figures": table.rows}
