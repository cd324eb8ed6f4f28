"""The SD-TCM block as one operator against the same composed of its parts: output, gradients, rates, statistics."""

import copy
import itertools
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from resofire.models import Classifier, ClassifierConfig
from resofire.nn import PRF, SDTCM, LIFConfig, PRFConfig, SpatialNeuron, fire_rates
from resofire.ops import ATan, Rectangle, Sigmoid, Surrogate, Triangle, check_finite
from resofire.ops import sdtcm as op
from resofire.ops.sdtcm import fused as host
from resofire.ops.surrogate import like

QUICK = PRFConfig(delta=(0.1, 0.5), threshold=0.5)
SOFT = replace(QUICK, reset="soft")
LEAKY = LIFConfig(tau=(2.0, 8.0), threshold=0.5)
CU = torch.tensor([0, 7, 7, 8, 40, 41, 41, 90], dtype=torch.int32)


@dataclass(frozen=True)
class Lorentz(Surrogate):
    """A user's own, with a form for Numba."""

    width: float = 1.0

    def derivative(self, x):
        return 1 / (1 + (x / self.width) ** 2)

    @staticmethod
    def numba(x, width):
        y = x / width
        return like(x, 1) / (like(x, 1) + y * y)


@dataclass(frozen=True)
class Plain(Surrogate):
    """A user's own, in torch only."""

    def derivative(self, x):
        return torch.exp(-x.abs())


def twins(features: int, dtype: torch.dtype, neuron: Any = QUICK, parts: str = "reference", **settings: Any) -> tuple:
    """A fused block in which nothing is at its tidy initial value, and the same composed of parts.

    `parts` is the backend of the composed block's neuron."""
    made = SDTCM(features, neuron=neuron, backend="fused", **settings).double()
    with torch.no_grad():
        for name, value in (*made.named_parameters(), *made.named_buffers()):
            if name.endswith("log_amplitude"):
                value.fill_(0.4 if "channel" in name else -0.3)
            if name.startswith("norm.") and value.is_floating_point():
                value.uniform_(0.5, 1.5)
        if made.norm is not None:
            made.norm.weight[::3] *= -1
    twin = SDTCM(features, neuron=replace(neuron, backend=parts), backend="reference", **settings)
    # In float64 at first, so that both begin with the same numbers in any type.
    twin.double().load_state_dict(made.float().double().state_dict())
    return made.to(dtype), twin


def run(made: SDTCM, u: torch.Tensor, grad: torch.Tensor, cu_seqlens: torch.Tensor | None, penalty: float) -> dict:
    """What a block gives and sends back; with a penalty on its fire rates if that is not 0."""
    u = u.detach().clone().requires_grad_()
    torch.manual_seed(5)  # dropout
    with fire_rates(made, gradient=penalty > 0) as watched:
        out = made(u, cu_seqlens=cu_seqlens)
    loss = (out * grad).sum()
    if penalty:
        loss = loss + penalty * sum((rate - 0.1) ** 2 for rate in watched.tensors().values())
    loss.backward()
    return {
        "output": out.detach(), "gradient of u": u.grad,
        **{f"gradient of {name}": value.grad for name, value in made.named_parameters()},
        **{name: value for name, value in made.named_buffers() if "running" in name}, "rates": watched.as_dict(),
    }  # fmt: skip


def assert_same(got: dict, wanted: dict, dtype: torch.dtype, nought: tuple[str, ...] = ()) -> None:
    """Each to 1e-9 or 1e-4 of its largest magnitude. `nought` are gradients that are 0 but for rounding."""
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        if name == "rates":
            assert got[name] == pytest.approx(value, rel=1e-12)
            continue
        assert got[name] is not None, name
        assert got[name].shape == value.shape, name
        size, error = value.abs().max(), (got[name].double() - value).abs().max()
        if name in nought:
            # What it is made of is the sum of the output's gradients, each of about 1.
            assert max(size, error) <= tolerance, f"{name} should be 0, got {got[name].abs().max():.1e}"
            continue
        assert size > 1e-9, f"{name} is 0: nothing is tested"
        assert error <= tolerance * size, f"{name}: off by {error / size:.1e} relative"


def has_tie(twin: SDTCM, u: torch.Tensor, cu_seqlens: torch.Tensor | None) -> bool:
    """Whether any potential lies so near its threshold that float32 may rightly decide otherwise: DESIGN's tie zone."""
    probe, seen = copy.deepcopy(twin), []
    with torch.no_grad():
        current = copy.deepcopy(twin)._before(u)
        bounds = [0, u.shape[1]] if cu_seqlens is None else cu_seqlens.tolist()
        for neuron, back in ((probe.token_neuron, False), (probe.token_neuron_reverse, True)):
            pieces = [current[:, a:b] for a, b in itertools.pairwise(bounds) if a < b and neuron is not None]
            seen += [(neuron.trace(piece.flip(1) if back else piece).u, neuron.threshold) for piece in pieces]
        threshold = probe.channel_neuron.threshold
        probe.channel_neuron.register_forward_pre_hook(lambda _, given: seen.append((given[0], threshold)))
        torch.manual_seed(5)
        probe(u, cu_seqlens=cu_seqlens)
    return any(bool(((x - v).abs() < 1e-5 * (abs(v) + x.abs().amax(1, keepdim=True))).any()) for x, v in seen)


def compare(
    features: int, dtype: torch.dtype, *, shape: tuple[int, int] = (3, 33), cu_seqlens: torch.Tensor | None = None,
    training: bool = True, penalty: float = 0.0, parts: str = "reference", neuron: Any = QUICK,
    nought: tuple[str, ...] = (), **settings: Any,
) -> dict:  # fmt: skip
    """Holds the fused block, in some type, to the composed one in float64."""
    torch.manual_seed(0)
    made, twin = twins(features, dtype, neuron, parts, **settings)
    made.train(training), twin.train(training)
    generator = torch.Generator().manual_seed(3)
    u, grad = (scale * torch.randn(*shape, features, generator=generator) for scale in (2, 1))
    while dtype != torch.float64 and has_tie(twin, u.double(), cu_seqlens):
        u = 2 * torch.randn(u.shape, generator=generator)
    wanted = run(twin, u.double(), grad.double(), cu_seqlens, penalty)
    got = run(made, u.to(dtype), grad.to(dtype), cu_seqlens, penalty)
    assert all(0.02 < rate < 0.98 for rate in wanted["rates"].values()), wanted["rates"]
    assert_same(got, wanted, dtype, nought)
    return got


# In training a batch norm takes the bias in front of it away, unless dropout gives it to some time steps only.
NO_BIAS = ("gradient of channel_linear.bias",)
# Each option beside several others: not all of their combinations.
CASES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "eval": {"training": False},
    "against the scan": {"parts": "scan", "bidirectional": True},
    "5 features, both ways": {"features": 5, "bidirectional": True, "amplitude": "both"},
    "64 features, post-norm": {"features": 64, "prenorm": False, "amplitude": "tn", "nought": NO_BIAS},
    "128 features, packed": {"features": 128, "cu_seqlens": CU},
    "100 features, both ways, packed": {"features": 100, "bidirectional": True, "cu_seqlens": CU, "amplitude": "none"},
    "128 features, both ways, eval": {"features": 128, "bidirectional": True, "training": False, "amplitude": "both"},
    "no norm": {"norm": "none", "amplitude": "none", "features": 64},
    "post-norm, both ways, eval": {"prenorm": False, "bidirectional": True, "training": False, "features": 64},
    "soft reset": {"neuron": SOFT, "amplitude": "tn"},
    "soft reset, full gradient": {"neuron": replace(SOFT, reset_gradient="full"), "bidirectional": True},
    "soft reset, full, no norm, packed": {
        "neuron": replace(SOFT, reset_gradient="full", train_tau=True), "norm": "none", "cu_seqlens": CU, "features": 5,
    },
    "LIF": {"neuron": LEAKY},
    "LIF, trained tau, both ways": {"neuron": replace(LEAKY, train_tau=True), "bidirectional": True, "features": 5},
    "LIF, hard reset, full gradient": {
        "neuron": replace(LEAKY, reset="hard", reset_gradient="full", train_tau=True), "prenorm": False,
        "nought": NO_BIAS,
    },
    "LIF, hard reset, packed": {"neuron": replace(LEAKY, reset="hard"), "cu_seqlens": CU, "norm": "none"},
    "LIF, no reset, eval": {"neuron": replace(LEAKY, reset="none"), "training": False, "features": 64},
    "dropout": {"dropout": 0.3, "features": 64},
    "dropout, both ways, packed": {"dropout": 0.5, "bidirectional": True, "amplitude": "both", "cu_seqlens": CU},
    "dropout, post-norm": {"dropout": 0.2, "prenorm": False, "amplitude": "tn", "neuron": LEAKY},
    "dropout in eval does nothing": {"dropout": 0.5, "training": False},
    "penalty on rates": {"penalty": 30.0},
    "penalty on rates, both ways, dropout, packed": {
        "penalty": 30.0, "bidirectional": True, "dropout": 0.3, "cu_seqlens": CU, "amplitude": "both", "features": 5,
    },
    "penalty on rates, LIF": {"penalty": 30.0, "neuron": replace(LEAKY, reset_gradient="full"), "training": False},
    "sigmoid and triangle": {"neuron": replace(QUICK, surrogate=Sigmoid(3.0)), "surrogate": Triangle(2.0)},
    "triangle and sigmoid, full gradient": {
        "neuron": replace(LEAKY, surrogate=Triangle(1.5), reset_gradient="full"), "surrogate": Sigmoid(),
    },
    "rectangle and a user's own": {"neuron": replace(SOFT, surrogate=Rectangle(2.0)), "surrogate": Lorentz(0.5)},
    "a user's own and another ATan": {"neuron": replace(QUICK, surrogate=Lorentz()), "surrogate": ATan(3.0)},
    "another spatial threshold": {"spatial_threshold": -0.25, "features": 5},
    # The first step knows nothing of φ, which decays and turns what was before.
    "one step": {"shape": (40, 1), "nought": ("gradient of token_neuron.log_theta",)},
    "longer than a chunk": {"shape": (2, 300), "features": 5, "neuron": SOFT},
    "one feature": {"features": 1, "shape": (20, 30), "bidirectional": True},
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("case", CASES)
def test_the_fused_block_is_the_composed_one(case, dtype):
    settings = {"features": 37, **CASES[case]}
    if settings.get("cu_seqlens") is not None:
        settings["shape"] = (1, 90)
    features = settings.pop("features")
    compare(features, dtype, **settings)


@pytest.mark.parametrize("limit", [1, 40_000], ids=["a sequence at a time", "some sequences"])
@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
def test_in_spans_it_is_the_same(packed, limit, monkeypatch):
    settings = {"shape": (1, 90), "cu_seqlens": CU} if packed else {"shape": (7, 33)}
    settings |= {"bidirectional": True, "amplitude": "both", "dropout": 0.3, "penalty": 30.0}
    whole = compare(64, torch.float64, **settings)
    assert host.SPAN_BYTES > 90 * 7 * 64 * 8
    monkeypatch.setattr(host, "SPAN_BYTES", limit)
    apart = compare(64, torch.float64, **settings)
    assert torch.equal(apart["output"], whole["output"])
    assert apart["rates"] == whole["rates"]


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
def test_the_same_bits_again_with_one_thread_and_two(packed, threads):
    """The output does not depend on the number of threads; gradients are put together from the threads' sums."""
    bounds = torch.tensor([0, 0, 700, 701, 1200], dtype=torch.int32) if packed else None
    settings = {"shape": (1, 1200) if packed else (4, 300), "cu_seqlens": bounds, "features": 40, "dropout": 0.2}
    settings |= {"bidirectional": True, "penalty": 30.0, "parts": "scan", "dtype": torch.float64}
    found = []
    for count in (1, 2, 2):
        threads(count)
        found.append(compare(**settings))
    for name, value in found[2].items():
        assert torch.equal(found[1][name], value) if name != "rates" else found[1][name] == value, name
    assert torch.equal(found[0]["output"], found[2]["output"])


@pytest.mark.parametrize("layout", ["time first", "lane first", "every other", "expanded"])
def test_any_strides(layout):
    made, twin = twins(37, torch.float64)
    u = torch.randn(3, 33, 37, dtype=torch.float64)
    u = {
        "time first": lambda: u.transpose(0, 1).contiguous().transpose(0, 1),
        "lane first": lambda: u.mT.contiguous().mT,
        "every other": lambda: u.repeat_interleave(2, 2)[:, :, ::2],
        "expanded": lambda: u[:1].expand(3, 33, 37),
    }[layout]()
    found = []
    for block in (made, twin):
        leaf = u.detach().requires_grad_()
        block(leaf).sum().backward()  # a gradient that is one number, expanded
        found.append(leaf.grad)
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_a_norm_may_be_frozen_alone():
    """As in fine-tuning: the block trains, its norm keeps its running statistics."""
    made, twin = twins(5, torch.float64)
    u, grad = torch.randn(2, 3, 33, 5, dtype=torch.float64)
    found = []
    for block in (made, twin):
        block.norm.eval()
        found.append(run(block, 2 * u, grad, None, 0.0))
    assert_same(*found, torch.float64)


def test_only_what_is_asked_for_gets_a_gradient():
    made, twin = twins(5, torch.float64, amplitude="both", bidirectional=True)
    u = 2 * torch.randn(2, 33, 5, dtype=torch.float64)
    for block in (made, twin):
        block.requires_grad_(False)
        block.norm.bias.requires_grad_(True)
        block(u).square().sum().backward()
    torch.testing.assert_close(made.norm.bias.grad, twin.norm.bias.grad, rtol=1e-9, atol=1e-9)
    assert [name for name, value in made.named_parameters() if value.grad is not None] == ["norm.bias"]


@pytest.mark.parametrize("loss", ["rates", "output"])
def test_a_loss_of_one_result_alone(loss):
    made, twin = twins(5, torch.float64, norm="none")
    for block in (made, twin):
        torch.manual_seed(1)
        u = 2 * torch.randn(2, 33, 5, dtype=torch.float64)
        with fire_rates(block, gradient=True) as rates:
            out = block(u)
        (rates.tensors()["token_neuron"] if loss == "rates" else out.sum()).backward()
    wanted = twin.token_neuron.log_delta.grad
    assert wanted.abs().max() > 1e-6
    torch.testing.assert_close(made.token_neuron.log_delta.grad, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 0, 5), (0, 7, 5)], ids=str)
def test_an_empty_stream_sends_back_zeros(shape):
    made, _ = twins(5, torch.float32, bidirectional=True, amplitude="both", dropout=0.5)
    before = made.norm.running_mean.clone()
    u = torch.zeros(shape, requires_grad=True)
    made(u).sum().backward()
    assert u.grad.shape == shape
    assert torch.equal(made.norm.running_mean, before)
    for name, value in made.named_parameters():
        assert torch.equal(value.grad, torch.zeros_like(value)), name


def test_packed_sequences_do_not_see_each_other():
    made, _ = twins(5, torch.float64, bidirectional=True)
    u = 2 * torch.randn(1, 90, 5, dtype=torch.float64)
    together = made.eval()(u, cu_seqlens=CU)
    for a, b in itertools.pairwise(CU.tolist()):
        assert torch.equal(together[:, a:b], made(u[:, a:b]))


U = torch.zeros(2, 5, 4)
REASONS = {
    "events": (lambda: SDTCM(4, backend="events"), U, r"the block was told to compose its parts \(backend='events'\)"),
    "reference": (lambda: SDTCM(4, backend="reference"), U, "the block was told to compose its parts .*reference.*"),
    "another neuron": (
        lambda: SDTCM(4, neuron=lambda n: SpatialNeuron(amplitude=False)), U,
        "its temporal neuron is a SpatialNeuron, neither a PRF nor a LIF",
    ),
    "a neuron's backend": (
        lambda: SDTCM(4, neuron=PRFConfig(backend="fft")), U, "its temporal neuron was told to run on backend 'fft'",
    ),
    "surrogate": (lambda: SDTCM(4, surrogate=Plain()), U, "surrogate Plain has no `numba` form"),
    "a neuron's surrogate": (
        lambda: SDTCM(4, neuron=LIFConfig(surrogate=Plain())), U, "surrogate Plain has no `numba` form",
    ),
    "device": (lambda: SDTCM(4).to("meta"), U.to("meta"), "it runs on the CPU, and u is on meta"),
    "half precision": (lambda: SDTCM(4).half(), U.half(), "it takes float32 and float64, and u is float16"),
}  # fmt: skip


@pytest.mark.parametrize("case", REASONS)
def test_why_not(case):
    make, u, pattern = REASONS[case]
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


@pytest.mark.parametrize("case", BAD)
def test_one_sentence(case):
    call, error, pattern = BAD[case]
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
    rest = (True, 1.5, "none" if resonant else "soft", not resonant, "ATan", [2.0], 0.5, "Triangle", [1.0])
    leaves = [x.detach().requires_grad_() for x in trained]
    return (*leaves, mean, inverse, keep, cu(0, 4, 4, 12) if packed else None, *rest)


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
@pytest.mark.parametrize("packed", [False, True], ids=["prf", "lif, packed, both ways, dropout"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
def test_opcheck(dtype, packed, layout):
    args = operands(dtype, packed, bidirectional=packed, resonant=not packed)
    if layout == "strided":
        turned = (x.detach().mT.contiguous().mT if x.dim() > 1 else x.detach() for x in args[:10])
        args = (*(x.requires_grad_() for x in turned), *args[10:])
    torch.library.opcheck(torch.ops.resofire.sdtcm, args)
    out, rates, *kept = (x.detach() for x in torch.ops.resofire.sdtcm(*args))
    given = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
    for grads in ((torch.randn_like(out), torch.ones_like(rates)), (torch.randn_like(out), None)):
        torch.library.opcheck(torch.ops.resofire.sdtcm_backward, (*grads, *kept, *given))


SMALL = ClassifierConfig(features=12, depth=2, inputs=3, classes=4, neuron=QUICK)


@pytest.mark.parametrize("pool", ["mean", "last", "none"])
def test_a_classifier_compiles_in_one_graph(pool):
    model, x = Classifier(replace(SMALL, pool=pool)).eval(), torch.randn(2, 20, 3)
    wanted = model(x)
    grads = torch.autograd.grad(wanted.square().sum(), model.parameters())
    got = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(got, wanted)
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
    wanted = made.eval()(u).detach()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(made(u), wanted)


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
    given = operands(torch.float32, False, False, True)
    _, _, *kept = op.block(*given)
    names = ("grad", "grad_rates", "r", "token_bits", "channel_bits", "checkpoints")
    values = dict(zip(names, [torch.ones_like(given[0]), None, *kept], strict=True))
    op.block_backward(*values.values(), *given)
    values[which] = values[which].double()
    with pytest.raises(ValueError, match=f"{which} must be"):
        op.block_backward(*values.values(), *given)
