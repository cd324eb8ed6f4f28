"""What is special to the GPU kernels: that they compile for GPUs this machine does not have, the walk over all chunks
at once, surrogates of one's own, half precision, and bounds that nobody has looked at.

Run as a program with the name of a target, this file compiles every kernel for it and prints what it got.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from looped import loop_over
from neurons import Inputs as Neuron
from neurons import make

from resofire.ops import ATan, Rectangle, Sigmoid, Surrogate, Triangle
from resofire.ops.neuron_scan import Grads, Inputs, Options

triton = pytest.importorskip("triton", reason="the package triton is not installed")
tl = pytest.importorskip("triton.language")
gpu = pytest.importorskip("resofire.ops.neuron_scan.gpu")

TARGETS = {"sm80": ("cuda", 80, 32), "sm90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}


@triton.jit
def bump(x, width, height):
    y = x / width
    return height / (1.0 + y * y)


@dataclass(frozen=True)
class Bump(Surrogate):
    width: float = 0.7
    height: float = 0.9
    triton = bump

    def derivative(self, x):
        return self.height / (1 + (x / self.width) ** 2)


@triton.jit
def flat(x):
    return tl.zeros_like(x) + 0.3


@dataclass(frozen=True)
class Flat(Surrogate):
    triton = flat

    def derivative(self, x):
        return torch.full_like(x, 0.3)


# One call each: operator, reset, whether its spike carries a gradient, dtype, surrogate, and what else is special.
CALLS = [
    ("prf", "none", False, torch.float32, ATan(), {"walk at once"}),
    ("prf", "none", False, torch.float64, Triangle(), set()),
    ("prf", "soft", True, torch.bfloat16, Sigmoid(), {"packed"}),
    ("prf", "soft", False, torch.float32, ATan(), {"reverse"}),
    ("lif", "soft", False, torch.float32, Rectangle(), {"time last"}),
    ("lif", "hard", True, torch.float16, Bump(), {"packed", "reverse"}),
    ("lif", "soft", True, torch.float64, Flat(), {"reverse"}),
    ("lif", "none", False, torch.bfloat16, ATan(), {"walk at once", "packed", "reverse"}),
]


def compile_all(target: str) -> list[dict[str, object]]:
    """Runs every call with the launch of a kernel replaced by its compilation: what is compiled is what would run."""

    class Driver:
        def get_current_device(self):
            return 0

        def get_current_stream(self, device):
            return 0

        def get_current_target(self):
            return triton.backends.compiler.GPUTarget(*TARGETS[target])

    run, binaries = triton.JITFunction.run, []

    def compile_only(self, *args, grid, warmup, **kwargs):
        compiled = run(self, *args, grid=grid, warmup=True, **kwargs)
        binary = next(compiled.asm[kind] for kind in ("cubin", "hsaco", "ptx", "amdgcn") if kind in compiled.asm)
        binaries.append({"call": call, "kernel": self.__name__, "bytes": len(binary)})

    triton.runtime.driver.set_active(Driver())
    triton.JITFunction.run = compile_only
    gpu.BLOCK = TARGETS[target][2]
    for call in range(len(CALLS)):
        op, reset, full, dtype, surrogate, special = CALLS[call]
        gpu.force_time_parallel = "walk at once" in special
        current = torch.zeros(1, 96, 64, dtype=dtype)
        if "time last" in special:
            current = current.mT.contiguous().mT
        rows, wide = (2, 4) if op == "prf" else (1, 2), torch.promote_types(dtype, torch.float32)
        coefficients, state = torch.zeros(rows[1], 64, dtype=wide), torch.zeros(rows[0], 1, 64, dtype=wide)
        cu_seqlens = torch.tensor([0, 96], dtype=torch.int32) if "packed" in special else None
        reverse = "reverse" in special
        inputs = Inputs(current, coefficients, cu_seqlens)
        options = Options(reset, full, surrogate.name, surrogate.numbers, reverse)
        spikes, _, checkpoints = gpu.forward(inputs, state, options)
        gpu.backward(inputs, checkpoints, Grads(spikes, None), options)
    return binaries


@pytest.mark.parametrize(
    "target", ["sm90", *(pytest.param(name, marks=pytest.mark.deep) for name in ("sm80", "gfx942"))]
)
def test_every_kernel_compiles_without_a_gpu(target, tmp_path):
    # In a process of its own: here, the interpreter has taken the compiler's place.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, __file__, target]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    binaries = json.loads(done.stdout)
    assert all(entry["bytes"] > 0 for entry in binaries)
    for call, (*_, special) in enumerate(CALLS):
        walks = 2 if "walk at once" in special else 1
        for name, times in (("forward_kernel", walks), ("backward_kernel", walks), ("carry_kernel", 2 * walks - 2)):
            assert sum(entry["call"] == call and entry["kernel"] == name for entry in binaries) == times


def assert_same(inputs: Neuron, **kwargs) -> None:
    """Triton against the reference, in float64: spikes to the bit, state and gradients to 1e-9."""
    results = []
    torch.manual_seed(1)
    grad = torch.randn(inputs.current.shape, dtype=torch.float64)
    for backend in ("reference", "triton"):
        call = inputs.to(torch.float64)
        spikes, state = call.run(backend, **kwargs)
        ((spikes * grad).sum() + sum((i + 1) * x.cos().sum() for i, x in enumerate(state))).backward()
        results.append((spikes, state, call.leaves()))
    (spikes, state, leaves), (spikes2, state2, leaves2) = results
    assert torch.equal(spikes, spikes2)
    for expected, got in zip(state, state2, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    for name in leaves:
        torch.testing.assert_close(leaves2[name].grad, leaves[name].grad, rtol=1e-9, atol=1e-9)


@pytest.fixture(params=[False, True], ids=["one-by-one", "at-once"])
def at_once(request, monkeypatch):
    monkeypatch.setattr(gpu, "force_time_parallel", request.param)
    return request.param


@loop_over("length", [1, 31, 70])
@pytest.mark.parametrize("op", ["prf", "lif"])
def test_without_a_reset_chunks_may_be_walked_at_once(op, length, at_once):
    assert_same(make(op, 2, length, 5, reset="none"))


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("op", ["prf", "lif"])
def test_packed_sequences_walked_at_once(op, reverse, at_once):
    # Empty ones first, last and in between; one of a whole chunk; boundaries inside a chunk and on its edge.
    cu_seqlens = torch.tensor([0, 0, 5, 37, 37, 64, 105, 105], dtype=torch.int32)
    assert_same(make(op, 1, 105, 3, sequences=7, reset="none", cu_seqlens=cu_seqlens, reverse=reverse))


def test_strides_are_taken_as_they_come(at_once):
    inputs = make("prf", 2, 40, 5, reset="none", reverse=True)
    inputs.current = inputs.current.detach().mT.contiguous().mT
    assert_same(inputs)
    inputs.current = inputs.current.detach()[:1, :, :1].expand(2, 40, 5)
    assert_same(inputs)


def test_more_lanes_than_a_block(at_once):
    assert_same(make("prf", 1, 3, gpu.BLOCK + 2, reset="none"))


def test_chunks_walked_at_once_keep_float32_accurate(monkeypatch):
    """Neurons that forget slowly, where an error in φ^CHUNK would come back at each of many chunks."""
    monkeypatch.setattr(gpu, "force_time_parallel", True)
    inputs, angle = make("prf", 1, 1000, 32, reset="none"), torch.linspace(0, 0.6, 32, dtype=torch.float64)
    inputs.coefficients |= {"phi_re": 0.9999 * angle.cos(), "phi_im": 0.9999 * angle.sin()}
    narrow = inputs.to(torch.float32)
    with torch.no_grad():
        _, expected = narrow.to(torch.float64).run("reference")
        _, state = narrow.run("triton")
    size = torch.stack(expected).norm(dim=0)
    for x, y in zip(state, expected, strict=True):
        assert ((x.double() - y).abs() <= 4e-6 * size).all()


@pytest.mark.parametrize("op", ["prf", "lif"])
def test_nothing_to_walk(op, at_once):
    for shape in ((2, 0, 3), (0, 4, 3), (2, 4, 0)):
        inputs = make(op, *shape, reset="none")
        spikes, state = inputs.run("triton")
        (spikes.sum() + sum(x.sum() for x in state)).backward()
        assert spikes.shape == shape
        if shape[1] == 0:
            assert all(torch.equal(x, y) for x, y in zip(state, inputs.state, strict=True))
            assert all(torch.equal(x.grad, torch.ones_like(x)) for x in inputs.state)


SURROGATES = [ATan(1.3), Triangle(2.1), Sigmoid(2.3), Rectangle(1.7), Bump(0.6, 1.1), Flat()]


@pytest.mark.deep
@pytest.mark.parametrize("surrogate", SURROGATES, ids=lambda surrogate: surrogate.name)
def test_surrogates_bring_their_numbers(surrogate, at_once):
    assert_same(make("lif", 1, 4, 5, reset="none", surrogate=surrogate))
    assert_same(make("lif", 1, 4, 5, reset="hard", reset_gradient="full", surrogate=surrogate))


@pytest.mark.deep
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])
def test_half_precision_is_read_and_written_as_it_is(dtype, at_once):
    wide = make("prf", 1, 40, 3, reset="none").to(torch.float32)
    wide.current = wide.current.detach().to(dtype).float().requires_grad_()
    half = wide.to(torch.float32)
    half.current = wide.current.detach().to(dtype).requires_grad_()
    results = [call.run("triton") for call in (wide, half)]
    for spikes, state in results:
        (spikes.float().sum() + state[0].sum()).backward()
    (spikes, state), (spikes2, state2) = results
    assert spikes2.dtype == half.current.grad.dtype == dtype
    assert torch.equal(spikes2.float(), spikes)
    assert all(torch.equal(x, y) for x, y in zip(state, state2, strict=True))
    torch.testing.assert_close(half.current.grad, wide.current.grad.to(dtype))
    for name in wide.coefficients:
        assert torch.equal(half.coefficients[name].grad, wide.coefficients[name].grad)


def test_a_nan_does_not_fire(at_once):
    inputs = make("lif", 1, 20, 2, reset="none")
    inputs.current.data[0, 5, 0] = torch.nan
    spikes, state = inputs.run("triton")
    assert spikes[0, 5:, 0].sum() == 0
    assert state[0].isnan().tolist() == [[True, False]]


def test_nothing_is_read_outside_of_the_current(at_once, monkeypatch):
    """On a GPU nobody looks at cu_seqlens before the kernels do: bounds that are wrong must be harmless."""
    monkeypatch.setattr(gpu, "require_bounds", lambda *_: None)
    # Around the current lies NaN, and reading any of it would show.
    around = torch.full((1, 120, 2), torch.nan)
    around[:, 40:80] = torch.randn(40, 2)
    current, coefficients, state = around[:, 40:80], torch.tensor([[0.9, 0.8], [1.0, 1.0]]), torch.zeros(1, 3, 2)
    for bounds in ([0, 200, -7, 40], [-50, 30, 500, 20]):
        cu_seqlens = torch.tensor(bounds, dtype=torch.int32)
        for reverse in (False, True):
            inputs = Inputs(current, coefficients, cu_seqlens)
            options = Options("none", False, "ATan", [2.0], reverse)
            _, final, checkpoints = gpu.forward(inputs, state, options)
            assert final.isfinite().all()
            grads = gpu.backward(inputs, checkpoints, Grads(None, final), options)
            assert grads[2].isfinite().all()


def test_the_choice_goes_by_shapes():
    few, many = gpu.PROGRAMS_PER_PROCESSOR * 100 - 1, gpu.PROGRAMS_PER_PROCESSOR * 100
    assert gpu.time_parallel(sequences=few, blocks=1, rows=few * 50, processors=100)
    assert not gpu.time_parallel(sequences=many, blocks=1, rows=many * 50, processors=100)
    assert not gpu.time_parallel(sequences=few, blocks=2, rows=few * 50, processors=100)
    assert not gpu.time_parallel(sequences=few, blocks=1, rows=few * 2, processors=100)
    # In the interpreter all is one after the other anyway.
    assert not gpu.time_parallel(sequences=1, blocks=1, rows=1000, processors=0)


if __name__ == "__main__":
    print(json.dumps(compile_all(sys.argv[1])))
