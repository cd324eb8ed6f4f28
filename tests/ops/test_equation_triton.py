"""Kernels that Triton compiles from a graph: in its interpreter against the loop, and compiled for GPUs without one.

Run as a program with the name of a target, this file compiles the kernels of every neuron for it and prints their size.
"""

import json
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from resofire import nn
from resofire.ops import ATan, Sigmoid, Surrogate, equation
from resofire.ops.equation import Dynamics, loop

triton = pytest.importorskip("triton", reason="the package triton is not installed")
gpu = pytest.importorskip("resofire.ops.equation.gpu")

TARGETS = {"sm80": ("cuda", 80, 32), "sm90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
NEURONS = {
    "prf": (nn.PRF.config(reset="soft", reset_gradient="full"), 40.0),
    "lif": (nn.LIF.config(reset="hard"), 1.0),
    "plif": (nn.PLIF.config(), 1.5),
    "glif": (nn.GLIF.config(), 1.0),
    "tclif": (nn.TCLIF.config(), 1.0),
    "alif": (nn.ALIF.config(), 2.0),
    "ahp": (nn.AHP.config(train=True), 1.0),
    "brf": (nn.BRF.config(), 3.0),
    "bhrf": (nn.BHRF.config(), 3.0),
    "drf": (nn.DRF.config(resonators=2, history=2), 6.0),
    "sliding psn": (nn.SlidingPSN.config(order=3), 1.0),
}
State, Coefficients = namedtuple("State", "a b"), namedtuple("Coefficients", "p q")


def everything(current, state, c, spike):
    """Every operation that can be compiled."""
    x = torch.tanh(current) + torch.sigmoid(state.a) - torch.exp(-state.b.abs())
    chosen = ((x > 0) & ~(state.a < -1)) | (state.b >= 2)
    y = torch.where(chosen, torch.sqrt(x.abs() + 0.1), -x)
    z = (
        torch.log(1 + y * y)
        + torch.sin(x) * torch.cos(y)
        + (x.abs() + 0.5) ** 1.7
        - torch.minimum(x, y)
        + (x + 0.3) ** 9
    )
    z = z + torch.maximum(x, c.p) + x.clamp(-1, 0.4) / (1 + y.abs()) + c.q * (state.a <= y) + (x == y) + (x != y)
    s = spike(z - 3 - c.p)
    return s, {"a": c.q * state.a + x - s.detach() * spike(y - 0.2), "b": torch.ones_like(x) * 0.1}


class Scan(torch.autograd.Function):
    """The kernels as an operator; the library's own takes them for tensors on a GPU only."""

    @staticmethod
    def forward(ctx, current, coefficients, state, dynamics, cu_seqlens, reverse):
        program = equation.program_of(dynamics)
        spikes, last, checkpoints = gpu.forward(program, "Own", (current, coefficients, cu_seqlens), state, reverse)
        ctx.save_for_backward(current, coefficients, checkpoints)
        ctx.rest = program, cu_seqlens, dynamics.surrogate, reverse
        return spikes, last

    @staticmethod
    def backward(ctx, grad_spikes, grad_state):
        current, coefficients, checkpoints = ctx.saved_tensors
        program, cu_seqlens, surrogate, reverse = ctx.rest
        form, inputs = (surrogate.name, surrogate.numbers), (current, coefficients, cu_seqlens)
        grads = gpu.backward(
            program, "Own", inputs, checkpoints=checkpoints, grads=(grad_spikes, grad_state), surrogate=form,
            reverse=reverse,
        )  # fmt: skip
        return *grads, None, None, None


def assert_same(dynamics, current, **options):
    """Spikes to the bit; states and every gradient to 1e-9; from a state, in float64."""
    torch.manual_seed(1)
    cu_seqlens, reverse = options.get("cu_seqlens"), options.get("reverse", False)
    batch = current.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
    features = current.shape[2]
    rows = [value.detach().expand(features).clone().requires_grad_() for value in dynamics.coefficients]
    state = torch.randn(len(dynamics.state_type._fields), batch, features, dtype=torch.float64).requires_grad_()
    x = current.clone().requires_grad_()
    results = []
    for compiled in (False, True):
        if compiled:
            stacked = torch.stack(rows) if rows else current.new_zeros(0, features)
            spikes, last = Scan.apply(x, stacked, state, dynamics, cu_seqlens, reverse)
        else:
            call = dynamics._replace(coefficients=type(dynamics.coefficients)(*rows))
            spikes, ended = loop.scan(call, x, dynamics.state_type(*state.unbind(0)), cu_seqlens, reverse)
            last = torch.stack(list(ended))
        torch.manual_seed(2)
        # Not randn_like, whose numbers depend on strides.
        total = sum((each * torch.randn(each.shape, dtype=each.dtype)).sum() for each in (spikes, last))
        gradients = torch.autograd.grad(total, [x, state, *rows], allow_unused=True, materialize_grads=True)
        results.append((spikes.detach(), last.detach(), *gradients))
    assert 0.01 < results[0][0].mean() < 0.99
    assert torch.equal(results[0][0], results[1][0])
    for expected, value in zip(results[0], results[1], strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9 * max(1.0, float(expected.abs().max())))


def of_neuron(name, features=3, steps=37):
    config, scale = NEURONS[name]
    torch.manual_seed(0)
    x = scale * torch.randn(1, steps, features, dtype=torch.float64)
    return config.build(features).double()._equation(x), x


def test_one_neuron_in_the_interpreter():
    assert_same(*of_neuron("plif", features=2, steps=5))


@pytest.mark.deep
@pytest.mark.parametrize("name", NEURONS)
def test_every_neuron_agrees_with_the_loop(name):
    assert_same(*of_neuron(name))


@pytest.mark.deep
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_packed_and_reversed_sequences(reverse):
    bounds = torch.tensor([0, 0, 5, 38, 38, 45, 45], dtype=torch.int32)
    dynamics, x = of_neuron("tclif", 2, 45)
    assert_same(dynamics, x, cu_seqlens=bounds, reverse=reverse)


@pytest.mark.deep
@pytest.mark.parametrize("surrogate", [ATan(), Sigmoid(3.0)], ids=["atan", "sigmoid"])
def test_every_operation(surrogate):
    torch.manual_seed(3)
    c = Coefficients(torch.rand(3, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64))
    dynamics = Dynamics("Own", everything, State, c, surrogate)
    assert_same(dynamics, torch.randn(2, 9, 3, dtype=torch.float64).mT.contiguous().mT)


def test_nothing_to_run():
    dynamics, x = of_neuron("alif", 3, 0)
    program = equation.program_of(dynamics)
    state, rows = torch.randn(2, 1, 3, dtype=torch.float64), torch.zeros(6, 3, dtype=torch.float64)
    spikes, last, checkpoints = gpu.forward(program, "ALIF", (x, rows, None), state, False)
    assert spikes.shape == (1, 0, 3)
    assert torch.equal(last, state)
    grads = gpu.backward(
        program, "ALIF", (x, rows, None), checkpoints=checkpoints, grads=(None, state), surrogate=("ATan", [2.0]),
        reverse=False,
    )  # fmt: skip
    assert torch.equal(grads[2], state)
    assert grads[1].abs().sum() == 0


class NoForm(Surrogate):
    def derivative(self, x):
        return torch.ones_like(x)


def test_explain_says_what_would_run_on_a_gpu():
    neuron = nn.ALIF(4)
    assert "triton: it runs on a GPU, and current is on cpu" in neuron.explain(torch.zeros(1, 2, 4))
    on_gpu = torch.zeros(1, 2, 4, device="meta")
    dynamics = neuron._equation(torch.zeros(1, 2, 4))
    assert equation.why_not_triton(dynamics, on_gpu) == "it runs on a GPU, and current is on meta"
    assert "surrogate NoForm has no `triton` form" in str(
        equation.why_not_triton(dynamics._replace(surrogate=NoForm()), None)
    )


def compile_all(target):
    """Run every neuron with the launch of a kernel replaced by its compilation: what is compiled is what would run."""

    class Driver:
        def get_current_device(self):
            return 0

        def get_current_stream(self, device):
            return 0

        def get_current_target(self):
            return triton.backends.compiler.GPUTarget(*TARGETS[target])

    run, binaries = triton.JITFunction.run, []

    def compile_only(self, *args, grid, warmup, **kwargs):
        done = run(self, *args, grid=grid, warmup=True, **kwargs)
        binary = next(done.asm[kind] for kind in ("cubin", "hsaco", "ptx", "amdgcn") if kind in done.asm)
        binaries.append([name, self.__name__, len(binary)])

    triton.runtime.driver.set_active(Driver())
    triton.JITFunction.run = compile_only
    gpu.BLOCK = TARGETS[target][2]
    bounds = torch.tensor([0, 40], dtype=torch.int32)
    cases = {name: of_neuron(name, 64, 40)[0] for name in NEURONS}
    c = Coefficients(torch.rand(64), torch.tensor(0.7))
    cases["everything"] = Dynamics("Own", everything, State, c, ATan())
    for number, (name, dynamics) in enumerate(cases.items()):
        dtype = torch.float64 if number == 1 else torch.float32
        x, program = torch.zeros(1, 40, 64, dtype=dtype), equation.program_of(dynamics)
        inputs = (x, torch.zeros(len(program.coefficients), 64, dtype=dtype), bounds if number % 2 else None)
        state = torch.zeros(len(program.states), 1, 64, dtype=dtype)
        spikes, _, checkpoints = gpu.forward(program, name, inputs, state, number % 3 == 0)
        gpu.backward(
            program, name, inputs, checkpoints=checkpoints, grads=(spikes, None), surrogate=("ATan", [2.0]),
            reverse=number % 3 == 0,
        )  # fmt: skip
    return binaries


@pytest.mark.deep
@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_compiles_without_a_gpu(target, tmp_path):
    # In a process of its own: here, the interpreter has taken the compiler's place.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, __file__, target]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    binaries = json.loads(done.stdout)
    assert all(size > 0 for *_, size in binaries)
    expected = {(name, kernel) for name in [*NEURONS, "everything"] for kernel in ("forward_kernel", "backward_kernel")}
    assert {(name, kernel) for name, kernel, _ in binaries} == expected


if __name__ == "__main__":
    print(json.dumps(compile_all(sys.argv[1])))
