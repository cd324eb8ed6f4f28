"""The fused block as an operator: when it runs, what it refuses, what torch does with it."""

import re
from dataclasses import dataclass, replace

import pytest
import torch
from fused_blocks import LEAKY, QUICK, SOFT, Plain, twins

from resofire.models import Classifier, ClassifierConfig
from resofire.nn import PRF, SDTCM, LIFConfig, PRFConfig, SpatialNeuron
from resofire.ops import Surrogate, check_finite, equation
from resofire.ops import sdtcm as op

U = torch.zeros(2, 5, 4)
REASONS = {
    "events": (lambda: SDTCM(4, backend="events"), U, "backend='events' composes the block from its parts"),
    "reference": (lambda: SDTCM(4, backend="reference"), U, "backend='reference' composes the block from its parts"),
    "another neuron": (
        lambda: SDTCM(4, neuron=lambda n: SpatialNeuron(amplitude=False)), U,
        "its temporal neuron, a SpatialNeuron, has its own `scan`",
    ),
    "a neuron's backend": (
        lambda: SDTCM(4, neuron=PRFConfig(backend="fft")), U, "its temporal neuron has backend='fft'",
    ),
    "surrogate": (lambda: SDTCM(4, surrogate=Plain()), U, "surrogate Plain has no `numba` form"),
    "a neuron's surrogate": (
        lambda: SDTCM(4, neuron=LIFConfig(surrogate=Plain())), U, "surrogate Plain has no `numba` form",
    ),
    "device": (lambda: SDTCM(4).to("meta"), U.to("meta"), "it runs on the CPU, and u is on meta"),
    "half precision": (lambda: SDTCM(4).half(), U.half(), "it takes float32 and float64, and u is float16"),
}  # fmt: skip


def test_why_not(subtests):
    for case, (make, u, pattern) in REASONS.items():
        with subtests.test(case):
            made = make()
            reason = made.why_not_fused(u)
            assert re.fullmatch(pattern, reason)
            assert made(u).shape == u.shape
            if made.backend == "auto":
                made.backend = "fused"
                with pytest.raises(RuntimeError, match=f"SDTCM: backend 'fused' cannot run this call: {pattern}"):
                    made(u)


def test_why_not_depends_on_what_is_switched_on(monkeypatch):
    made = SDTCM(4)
    assert made.why_not_fused(U) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert made.why_not_fused(U) == "autocast is on, which works on the parts"
    with check_finite():
        assert made.why_not_fused(U) == "check_finite() is on, which looks at what goes into each part"
        with pytest.raises(ValueError, match=r"is nan at \[0, 0, 0\]"):
            SDTCM(4, norm="none")(U * torch.nan)
    assert made.why_not_fused(U) is None
    monkeypatch.setattr(op, "HAVE_NUMBA", False)
    assert made.why_not_fused(U) == "not available: the package numba is not installed"


def test_the_fused_block_is_what_auto_takes():
    u = torch.zeros(2, 5, 4, requires_grad=True)
    assert "sdtcm" in SDTCM(4)(u).grad_fn.name()
    assert "sdtcm" not in SDTCM(4, backend="reference")(u).grad_fn.name()


def two_kinds(features: int = 5, backend: str = "auto") -> SDTCM:
    """Its second direction resets, its first does not."""
    kinds = iter((QUICK, SOFT))
    return SDTCM(features, neuron=lambda n: PRF(n, **vars(next(kinds))), bidirectional=True, backend=backend)


def without_bias(backend: str = "auto") -> SDTCM:
    made = SDTCM(5, neuron=QUICK, backend=backend)
    made.token_linear.bias = None
    return made


UNUSUAL = {
    "two kinds of neurons": lambda backend: two_kinds(backend=backend),
    "a Linear without bias": without_bias,
    "a threshold for each channel": lambda backend: SDTCM(
        5, neuron=QUICK, spatial_threshold=torch.linspace(-1, 1, 5), backend=backend
    ),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_auto_runs_whatever_the_parts_run(case):
    made, twin = UNUSUAL[case]("auto"), UNUSUAL[case]("reference")
    twin.load_state_dict(made.state_dict())
    u = 3 * torch.randn(2, 40, 5)
    torch.testing.assert_close(made(u), twin(u), rtol=1e-4, atol=1e-4)


def cu(*bounds: int) -> torch.Tensor:
    return torch.tensor(bounds, dtype=torch.int32)


BARE = SDTCM(4, norm="none")
BAD = {
    "another type": (lambda: BARE(U.double()), TypeError, "must be float.*, got float"),
    "a batch packed": (lambda: BARE(U, cu_seqlens=cu(0, 5)), ValueError, r"packed.*, got \[2, 5, 4\]"),
    "int64": (lambda: BARE(U[:1], cu_seqlens=cu(0, 5).long()), TypeError, "cu_seqlens must be an int32 tensor.*int64"),
    "a list": (lambda: BARE(U[:1], cu_seqlens=[0, 5]), TypeError, "cu_seqlens must be an int32 tensor.*got list"),
    "no bounds": (lambda: BARE(U[:1], cu_seqlens=cu()), ValueError, "cu_seqlens must hold at least one boundary"),
    "falling": (lambda: BARE(U[:1], cu_seqlens=cu(0, 4, 2, 5)), ValueError, "cu_seqlens must not fall, got 4 then 2"),
    "too short": (lambda: BARE(U[:1], cu_seqlens=cu(0, 4)), ValueError, "cu_seqlens must run from 0 to 5, got 0 to 4"),
    "falling, normed": (lambda: SDTCM(4)(U[:1], cu_seqlens=cu(0, 4, 2, 5)), ValueError, "cu_seqlens must not fall"),
}  # fmt: skip


def test_one_sentence(subtests):
    for case, (call, error, pattern) in BAD.items():
        with subtests.test(case):
            with pytest.raises(error, match=pattern) as caught:
                call()
            assert "\n" not in str(caught.value)


def test_a_second_derivative_is_refused():
    u = torch.randn(2, 5, 4, requires_grad=True)
    (first,) = torch.autograd.grad(SDTCM(4)(u).square().sum(), u, create_graph=True)
    with pytest.raises(RuntimeError, match=r"a second derivative .* of an SD-TCM block does not exist"):
        first.sum().backward()


def operands(dtype: torch.dtype, packed: bool, bidirectional: bool, resonant: bool) -> tuple:
    """The arguments of the operator itself."""
    neuron = QUICK if resonant else LEAKY
    made = SDTCM(5, neuron=neuron, bidirectional=bidirectional, amplitude="both").to(dtype)
    u = 2 * torch.randn(1 if packed else 2, 12, 5, dtype=dtype)
    rows = torch.stack([each.rows() for each in made._token_neurons()])
    mean, inverse = u.mean((0, 1)), torch.rsqrt(u.var((0, 1), correction=0) + 1e-5)
    trained = [
        u, rows, made.norm.weight, made.norm.bias, made.token_linear.weight, made.token_linear.bias,
        made.channel_linear.weight, made.channel_linear.bias, made.log_amplitude, made.channel_neuron.log_amplitude,
    ]  # fmt: skip
    keep = (torch.rand(2, u.shape[0] * 12) > 0.3).to(torch.uint8) if packed else None
    key = equation.block_key(made.token_neuron._equation(u), u)
    rest = (True, 1.5, key, [True] * (rows.shape[1] - 1) + [False], "ATan", [2.0], 0.5, "Triangle", [1.0])
    leaves = [x.detach().requires_grad_() for x in trained]
    return (*leaves, mean, inverse, keep, cu(0, 4, 4, 12) if packed else None, *rest)


# Half of the combinations have every pair of settings; the others are deep.
OPCHECKS = [
    pytest.param(
        *(dtype, packed, strided),
        marks=pytest.mark.deep if (dtype.itemsize == 8) ^ packed ^ strided else (),
        id=f"{dtype}, {'LIF, packed' if packed else 'PRF'}, {'strided' if strided else 'contiguous'}",
    )
    for dtype in (torch.float32, torch.float64)
    for packed in (False, True)
    for strided in (False, True)
]


@pytest.mark.parametrize(("dtype", "packed", "strided"), OPCHECKS)
def test_opcheck(dtype, packed, strided):
    """A PRF; or, packed, LIFs in both directions with dropout."""
    args = operands(dtype, packed, bidirectional=packed, resonant=not packed)
    if strided:
        turned = (x.detach().mT.contiguous().mT if x.dim() > 1 else x.detach() for x in args[:10])
        args = (*(x.requires_grad_() for x in turned), *args[10:])
    torch.library.opcheck(torch.ops.resofire.sdtcm, args)
    out, rates, *kept = (x.detach() for x in torch.ops.resofire.sdtcm(*args))
    detached = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
    for grads in ((torch.randn_like(out), torch.ones_like(rates)), (torch.randn_like(out), None)):
        torch.library.opcheck(torch.ops.resofire.sdtcm_backward, (*grads, *kept, *detached))


SMALL = ClassifierConfig(features=12, depth=2, inputs=3, classes=4, neuron=QUICK)


@pytest.mark.parametrize("pool", ["mean", "last", "none"])
def test_a_classifier_compiles_in_one_graph(pool):
    model, x = Classifier(replace(SMALL, pool=pool)).eval(), torch.randn(2, 20, 3)
    expected = model(x)
    grads = torch.autograd.grad(expected.square().sum(), model.parameters())
    got = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(got, expected)
    for ours, theirs in zip(torch.autograd.grad(got.square().sum(), model.parameters()), grads, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_classifier_exports_with_its_fused_blocks():
    model, x = Classifier(SMALL).eval(), torch.randn(2, 20, 3)
    length = torch.export.Dim("length", min=2)
    program = torch.export.export(model, (x,), dynamic_shapes={"x": {1: length}})
    assert str(program.graph).count("resofire.sdtcm") == 2
    longer = torch.randn(2, 57, 3)
    torch.testing.assert_close(program.module()(longer), model(longer))


def test_what_is_kept_for_the_backward_pass():
    """Of the size of the stream: the stream itself and R. Spikes are bits, and the normed stream is not kept."""
    made, _ = twins(64, torch.float32, bidirectional=True, amplitude="both", dropout=0.2)
    u, kept = torch.randn(4, 320, 64, requires_grad=True), {}
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.setdefault(x.data_ptr(), x), lambda x: x):
        out = made(u)
    parameters = {value.data_ptr() for value in made.parameters()}
    large = [x for at, x in kept.items() if x.numel() > u.numel() // 8 and at not in parameters]
    assert all(x.is_floating_point() and x.shape == u.shape for x in large)
    assert len(large) == 2
    assert u.data_ptr() in kept
    bits = [x for x in kept.values() if x.dtype == torch.int64]
    assert sorted(x.numel() for x in bits) == [4 * 320 * 2, 4 * 320 * 4]
    out.sum().backward()
    assert torch.isfinite(u.grad).all()


def test_works_without_gradients():
    made, _ = twins(5, torch.float32)
    u = torch.randn(2, 33, 5)
    expected = made.eval()(u).detach()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(made(u), expected)


def test_hooks_on_the_parts_are_run():
    made, called = SDTCM(4), []
    made.token_linear.register_full_backward_pre_hook(lambda *_: called.append(True))
    made(torch.randn(2, 5, 4)).sum().backward()
    assert called
    assert "hooks on its SpikeLinear" in made.why_not_fused(torch.randn(2, 5, 4))


def test_a_surrogate_need_not_be_hashable():
    @dataclass(frozen=True)
    class Loose(Surrogate):
        def derivative(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ones_like(x)

        __hash__ = None

    made = SDTCM(4, neuron=PRFConfig(surrogate=Loose()))
    assert "Loose has no `numba` form" in made.why_not_fused(torch.randn(2, 5, 4))


def test_the_default_device_does_not_matter():
    made, u = SDTCM(4), torch.randn(2, 5, 4)
    with torch.device("meta"):
        out = made(u)
    assert out.device.type == "cpu"


@pytest.mark.parametrize("which", ["r", "token_bits", "checkpoints", "grad"])
def test_the_operator_refuses_what_another_one_kept(which):
    args = operands(torch.float32, False, False, True)
    _, _, *kept = op.block_op(*args)
    names = ("grad", "grad_rates", "r", "token_bits", "channel_bits", "checkpoints")
    values = dict(zip(names, [torch.ones_like(args[0]), None, *kept], strict=True))
    op.block_backward_op(*values.values(), *args)
    values[which] = values[which].double()
    with pytest.raises(ValueError, match=f"{which} must be"):
        op.block_backward_op(*values.values(), *args)
