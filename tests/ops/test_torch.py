"""The operators as torch sees them: opcheck, compile without graph breaks, export."""

import shutil

import pytest
import torch
from looped import loop_over
from neurons import OPTIONS, make

from resofire.nn import PRF
from resofire.ops import ATan, equation, lif, prf
from resofire.ops.equation import operator
from resofire.ops.neuron_scan import triton_op

CU = torch.tensor([0, 4, 4, 12], dtype=torch.int32)


# The operators of the backend `scan` are checked in test_equation.py.
@pytest.mark.parametrize("op", ["prf", "lif"])
@loop_over("packed", [False, True])
@loop_over("dtype", [torch.float32, torch.float64])
def test_opcheck(op, packed, dtype):
    for options in OPTIONS[op][int(packed) : int(packed) + 1]:
        inputs = make(op, 1 if packed else 2, 12, 3, sequences=3 if packed else None).to(dtype)
        rows = torch.stack(list(inputs.coefficients.values())).detach().requires_grad_()
        state = torch.stack(inputs.state).detach().requires_grad_()
        rest = (CU if packed else None, options["reset"], False, "ATan", [2.0], packed)
        torch.library.opcheck(triton_op.forward, (inputs.current, rows, state, *rest))
        spikes, last, kept = triton_op.forward(inputs.current, rows, state, *rest)
        args = (torch.ones_like(spikes), torch.ones_like(last), inputs.current, rows, kept)
        torch.library.opcheck(triton_op.backward, tuple(x.detach() for x in args) + rest)


# torch's own compiler still goes through what torch itself deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("engine", ["aot_eager", "inductor"])
@pytest.mark.parametrize("op", ["prf", "lif"])
def test_compiles_in_one_graph(op, engine):
    if engine == "inductor" and shutil.which("g++") is None:
        pytest.skip("torch's inductor needs g++")
    for options, dtype in zip(OPTIONS[op][:2], (torch.float32, torch.float64), strict=True):
        inputs = make(op, 1, 12, 5, sequences=3, cu_seqlens=CU, **options).to(dtype)
        function = prf if op == "prf" else lif

        def layer(current, rows, function=function, inputs=inputs):
            spikes, state = function(2 * current, *rows, **inputs.kwargs)
            return spikes.mean(1) + state[0].sum()

        rows = [x for name, x in inputs.coefficients.items() if name != "threshold"]
        expected = layer(inputs.current, rows)
        grads = torch.autograd.grad(expected.sum(), [inputs.current, *rows])
        got = torch.compile(layer, fullgraph=True, backend=engine)(inputs.current, rows)
        torch.testing.assert_close(got, expected)
        for ours, theirs in zip(torch.autograd.grad(got.sum(), [inputs.current, *rows]), grads, strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("op", ["prf", "lif"])
def test_exports_with_a_free_length(op):
    class Layer(torch.nn.Module):
        def forward(self, x):
            if op == "prf":
                return prf(x, 0.9, 0.3, 0.1, surrogate=ATan(3.0))[0]
            return lif(x, 0.9)[0]

    x = 5 * torch.randn(2, 40, 6)
    length = torch.export.Dim("length", min=2)
    program = torch.export.export(Layer(), (x,), dynamic_shapes={"x": {1: length}})
    assert "resofire.equation" in str(program.graph)
    longer = 5 * torch.randn(2, 97, 6)
    assert torch.equal(program.module()(longer), Layer()(longer))


def test_works_under_autocast_and_inference_mode():
    x = 3 * torch.randn(2, 20, 4)
    expected = lif(x, 0.8)[0]
    with torch.inference_mode():
        assert torch.equal(lif(x, 0.8)[0], expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(lif(x, 0.8)[0], expected)


def test_the_triton_operator_checks_its_own_shapes():
    """An exported graph calls it without the public functions before it."""
    neuron = triton_op
    current, rows, rest = torch.randn(4, 64, 8), torch.rand(4, 8), (None, "none", False, "ATan", [2.0], False)
    with pytest.raises(ValueError, match=r"neuron: state must be torch.float32 \[2, 4, 8\], got .* \[2, 1, 8\]"):
        neuron.forward(current, rows, torch.zeros(2, 1, 8), *rest)
    with pytest.raises(ValueError, match=r"neuron: coefficients must have shape \[2 or 4, 8\], got \[4, 3\]"):
        neuron.forward(current, rows[:, :3], torch.zeros(2, 4, 8), *rest)
    with pytest.raises(ValueError, match=r"neuron: checkpoints must be .* got .* \[2, 1, 8\]"):
        neuron.backward(current, None, current, rows, torch.zeros(2, 1, 8), *rest)


def test_the_scan_operator_checks_its_own_shapes():
    key = equation.block_key(PRF(8)._equation(torch.randn(1, 1, 8)), torch.randn(1, 1, 8))
    current, rows = torch.randn(4, 64, 8), torch.rand(4, 8)
    rest = (None, key, "ATan", [2.0], False, [True] * 4)
    with pytest.raises(ValueError, match=r"prf: state must be torch.float32 \[2, 4, 8\], got .* \[2, 1, 8\]"):
        operator.forward(current, rows, torch.zeros(2, 1, 8), *rest)
    with pytest.raises(ValueError, match=r"prf: coefficients must be torch.float32 \[4, 8\], got .* \[4, 3\]"):
        operator.forward(current, rows[:, :3], torch.zeros(2, 4, 8), *rest)
    with pytest.raises(ValueError, match=r"prf: checkpoints must be .* got .* \[2, 1, 8\]"):
        operator.backward(current, None, current, rows, torch.zeros(2, 1, 8), *rest)
    kept = operator.forward(current, rows, torch.zeros(2, 4, 8), *rest)[2]
    with pytest.raises(ValueError, match=r"prf: grad_spikes must be .* got .* \[4, 64, 7\]"):
        operator.backward(current[..., :7], None, current, rows, kept, *rest)
