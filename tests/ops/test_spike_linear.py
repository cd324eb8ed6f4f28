"""The synapse: every backend against torch's Linear, what "auto" chooses, and the operators as torch sees them."""

# ruff: noqa: E501 - tables of cases read best with one case a line

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from looped import loop_over

from resofire.ops import check_finite, explain, spike_linear
from resofire.ops.registry import names
from resofire.ops.spike_linear import events

BACKENDS = names("spike_linear")
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
# The reference is torch's Linear itself: to compare the two would test nothing.
FAST = pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "reference"])
EVERY = pytest.mark.parametrize("backend", BACKENDS)


def spike_train(*shape: int, density: float = 0.3, amplitude: float = 1.0) -> torch.Tensor:
    """Spikes in float64, whose amplitude float32 holds exactly."""
    size = torch.tensor(amplitude, dtype=torch.float32).double()
    return (torch.rand(shape) < density).double() * size


def assert_agrees(
    backend: str, spikes: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype,
    grad: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """Holds a backend to torch's Linear in float64 on the same numbers: output and every gradient.

    Each is a sum of products; what rounding is relative to is the largest sum of their absolute values."""

    def leaf(x: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
        # Strides are part of the case: `detach` keeps them where `clone` might not.
        return None if x is None else x.detach().to(dtype).requires_grad_()

    tensors = {"spikes": spikes, "weight": weight, "bias": bias}
    narrow = {name: leaf(x, dtype) for name, x in tensors.items()}
    wide = {name: leaf(x, torch.float64) for name, x in tensors.items()}
    out, expected = spike_linear(**narrow, backend=backend), F.linear(*wide.values())
    assert out.dtype == dtype
    assert out.shape == expected.shape
    grad = torch.randn(out.shape, dtype=torch.float64) if grad is None else grad
    out.backward(grad.to(dtype))
    expected.backward(grad)

    steps, size = out.numel() // weight.shape[0], weight.double().abs()
    flat, pull = spikes.double().abs().reshape(steps, weight.shape[1]), grad.abs().reshape(steps, weight.shape[0])
    sums = {
        "output": flat @ size.T + (0 if bias is None else bias.abs()),
        "spikes": pull @ size, "weight": pull.T @ flat, "bias": pull.sum(0),
    }  # fmt: skip
    pairs = {"output": (out, expected)} | {
        name: (x.grad, wide[name].grad) for name, x in narrow.items() if x is not None
    }
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    for name, (ours, theirs) in pairs.items():
        bound = tolerance * (sums[name].max() if sums[name].numel() else 0)
        error = (ours.double() - theirs).abs()
        assert error.shape == theirs.shape, name
        assert (error <= bound).all(), f"{name}: off by {error.max():.1e}, allowed {bound:.1e}"


# Every size in each place, every density and amplitude: not all of their combinations.
SIZES = [1, 5, 63, 64, 65, 128, 130, 200, 256]
DENSITIES, AMPLITUDES = [0.0, 0.02, 0.3, 1.0], [1.0, 0.37, -2.0]
SHAPES = [
    (steps, inputs, out, density, amplitude)
    for (i, inputs), density, amplitude, (steps, out) in zip(
        enumerate(2 * SIZES), itertools.cycle(DENSITIES), itertools.cycle(AMPLITUDES),
        zip(SIZES[4:] + SIZES + SIZES[:4], SIZES[::-1] + SIZES[3:] + SIZES[:3], strict=True), strict=False,
    )
]  # fmt: skip


@DTYPES
@loop_over("case", SHAPES)
@FAST
def test_output_and_gradients_are_those_of_a_linear(backend, case, dtype):
    steps, inputs, out, density, amplitude = case
    spikes = spike_train(steps, inputs, density=density, amplitude=amplitude)
    assert_agrees(backend, spikes, torch.randn(out, inputs), torch.randn(out), dtype)


def test_the_table_has_every_value():
    for column, values in zip(zip(*SHAPES, strict=True), (SIZES, SIZES, SIZES, DENSITIES, AMPLITUDES), strict=True):
        assert set(column) == set(values)


@loop_over("biased", [True, False])
@loop_over("shape", [(70,), (33, 70), (3, 33, 70), (2, 3, 7, 70)])
@FAST
def test_any_leading_dimensions(backend, shape, biased):
    assert_agrees(backend, spike_train(*shape), torch.randn(9, 70), torch.randn(9) if biased else None, torch.float64)


@loop_over("shape", [(0, 70), (3, 0, 70), (0, 4, 70), (5, 0)])
@FAST
def test_nothing_in_nothing_out(backend, shape):
    """No time steps, or no inputs: then the output is the bias."""
    assert_agrees(backend, spike_train(*shape), torch.randn(9, shape[-1]), torch.randn(9), torch.float64)


@FAST
def test_more_steps_than_a_thread_gets_at_once(backend):
    spikes = spike_train(3, 1500, 65, density=0.1, amplitude=0.37)
    assert_agrees(backend, spikes, torch.randn(70, 65), torch.randn(70), torch.float32)


@DTYPES
@loop_over("layout", ["time first", "lane first", "every other", "expanded"])
@FAST
def test_any_strides(backend, layout, dtype):
    spikes, weight, bias = spike_train(3, 40, 37), torch.randn(70, 37), torch.randn(140)[::2]
    spikes, weight = {
        "time first": lambda: (spikes.transpose(0, 1).contiguous().transpose(0, 1), weight.T.contiguous().T),
        "lane first": lambda: (spikes.mT.contiguous().mT, weight.T.contiguous().T),
        "every other": lambda: (spikes.repeat_interleave(2, 2)[:, :, ::2], weight.repeat_interleave(2, 0)[::2]),
        "expanded": lambda: (spikes[:1].expand(3, 40, 37), weight[:1].expand(70, 37)),
    }[layout]()
    assert_agrees(backend, spikes, weight, bias, dtype)


@loop_over("layout", ["every other", "time first", "one number", "one row"])
@FAST
def test_any_strides_of_the_gradient(backend, layout):
    shape = (2, 40, 70)
    grad = {
        "every other": lambda: torch.randn(2, 40, 140, dtype=torch.float64)[:, :, ::2],
        "time first": lambda: torch.randn(40, 2, 70, dtype=torch.float64).transpose(0, 1),
        "one number": lambda: torch.randn(1, 1, 1, dtype=torch.float64).expand(shape),  # what .sum() sends back
        "one row": lambda: torch.randn(1, 1, 70, dtype=torch.float64).expand(shape),
    }[layout]()
    assert_agrees(backend, spike_train(2, 40, 37), torch.randn(70, 37), torch.randn(70), torch.float64, grad)


@given(st.integers(1, 300), st.integers(1, 140), st.integers(1, 140), st.floats(0, 1), st.floats(-3, 3), st.integers(0))
def test_any_size_density_and_amplitude(steps, inputs, out, density, amplitude, seed):
    torch.manual_seed(seed % 2**32)
    spikes = spike_train(steps, inputs, density=density, amplitude=amplitude)
    assert_agrees("events", spikes, torch.randn(out, inputs), torch.randn(out), torch.float64)


@loop_over("asked", ["spikes", "weight", "bias"])
@FAST
def test_a_gradient_asked_for_alone(backend, asked):
    tensors = {"spikes": spike_train(40, 37), "weight": torch.randn(70, 37).double(), "bias": torch.randn(70).double()}
    tensors[asked].requires_grad_()
    spike_linear(**tensors, backend=backend).square().sum().backward()
    got, tensors[asked].grad = tensors[asked].grad, None
    F.linear(*tensors.values()).square().sum().backward()
    torch.testing.assert_close(got, tensors[asked].grad, rtol=1e-9, atol=1e-9)


@FAST
def test_a_trained_amplitude_gets_its_gradient(backend):
    fired, weight = spike_train(2, 50, 37), torch.randn(70, 37, dtype=torch.float64)
    results = []
    for run in (lambda s: spike_linear(s, weight, backend=backend), lambda s: F.linear(s, weight)):
        log = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
        run(fired * log.exp()).square().sum().backward()
        results.append(log.grad)
    torch.testing.assert_close(*results, rtol=1e-9, atol=0)


@EVERY
def test_the_same_bits_again(backend):
    spikes, grad = spike_train(2, 3000, 70, density=0.1).float(), torch.randn(2, 3000, 70)
    weight, bias = torch.randn(70, 70), torch.randn(70)

    def once():
        leaves = [x.clone().requires_grad_() for x in (spikes, weight, bias)]
        out = spike_linear(*leaves, backend=backend)
        out.backward(grad)
        return [out, *(x.grad for x in leaves)]

    before = torch.get_num_threads()
    results = {}
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results[threads] = once(), once()
    finally:
        torch.set_num_threads(before)
    for first, second in results.values():
        assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
    if backend == "events":
        # A row of the output is one sum, whoever adds it up; a weight's gradient is put together from the threads'.
        assert torch.equal(results[1][0][0], results[3][0][0])
    for ours, theirs in zip(results[1][0], results[3][0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_large_outputs_written_past_the_caches_are_the_same(monkeypatch):
    from resofire.ops.neuron_scan import cpu

    spikes, weight = spike_train(200, 70).float(), torch.randn(256, 70)
    kept = spike_linear(spikes, weight, backend="events")
    monkeypatch.setattr(cpu, "STREAM_BYTES", 0)
    assert torch.equal(spike_linear(spikes, weight, backend="events"), kept)


def test_what_is_kept_for_the_backward_pass():
    """Bits in place of the spikes: 1 / 32 of them in float32."""
    spikes = spike_train(2, 600, 256, density=0.1).float().requires_grad_()
    weight, bias = torch.randn(64, 256, requires_grad=True), torch.randn(64, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        out = spike_linear(spikes, weight, bias)
    assert "spike_linear" in out.grad_fn.name()
    assert [x.shape for x in kept if x.dtype == torch.int64] == [(1200, 256 // 64)]
    assert sum(x.numel() * x.element_size() for x in kept if x is not weight and x.dtype != torch.int64) <= 8
    out.sum().backward()
    assert spikes.grad.shape == spikes.shape


STEPS, COLUMNS, SHARE = events.FEWEST_STEPS, events.FEWEST_COLUMNS, f"{100 * events.BREAK_EVEN:.0f} %"
SMALL = f"events: the dense product is faster below {STEPS} time steps or {COLUMNS} columns"
MIXED = "events: spikes holds other values than 0 and one amplitude"
LATER = "reference: can run it, but comes later"
SPARSE = (torch.arange(STEPS * 64).view(STEPS, 64) % 10 == 0).float()
WEIGHT = torch.ones(COLUMNS, 64)
CHOICES = {
    "sparse": (SPARSE, WEIGHT, "events", LATER),
    "silent": (0 * SPARSE, WEIGHT, "events", LATER),
    "dense": (SPARSE + (SPARSE == 0), WEIGHT, "reference", f"events: 100 % of the inputs are active, and above {SHARE} dense is faster"),
    "no spike train": (SPARSE.cumsum(0), WEIGHT, "reference", MIXED),
    "two amplitudes": (torch.cat([SPARSE, 2 * SPARSE]), WEIGHT, "reference", MIXED),
    "few steps": (SPARSE[1:], WEIGHT, "reference", SMALL),
    "few columns": (SPARSE, WEIGHT[1:], "reference", SMALL),
    "half precision": (SPARSE.half(), WEIGHT.half(), "reference", "events: it takes float32 and float64, and spikes is float16"),
}  # fmt: skip


@loop_over("case", CHOICES)
def test_auto_chooses_from_the_data_and_says_why(case):
    spikes, weight, taken, reason = CHOICES[case]
    lines = explain("spike_linear", spikes, weight).splitlines()
    assert lines[0] == f"spike_linear: auto takes '{taken}' for spikes {list(spikes.shape)} {spikes.dtype}"
    assert any(reason in line for line in lines[1:]), lines
    out = spike_linear(spikes, weight.clone().requires_grad_())
    assert ("spike_linear" in out.grad_fn.name()) == (taken == "events")


def test_auto_without_numba(monkeypatch):
    monkeypatch.setattr(events, "HAVE_NUMBA", False)
    text = explain("spike_linear", SPARSE, WEIGHT)
    assert "auto takes 'reference'" in text
    assert "events: not available: the package numba is not installed" in text


S, W, B = torch.zeros(5, 3), torch.zeros(4, 3), torch.zeros(4)
BAD = {
    "no tensor": (lambda: spike_linear([1.0], W), TypeError, "spike_linear: spikes must be a tensor, got list"),
    "integers": (lambda: spike_linear(S.int(), W), TypeError, "spikes must be float32.*got int32"),
    "truth values": (lambda: spike_linear(S.bool(), W), TypeError, "spikes must be float32.*got bool"),
    "a number": (lambda: spike_linear(S[0, 0], W), ValueError, r"spikes must have shape \[\.\.\., 3\].*got \[\]"),
    "another width": (lambda: spike_linear(S[:, :2], W), ValueError, r"spikes must have shape \[\.\.\., 3\] to go with weight \[4, 3\], got \[5, 2\]"),
    "weight is no tensor": (lambda: spike_linear(S, 1.0), TypeError, "weight must be a tensor, got float"),
    "weight of one dimension": (lambda: spike_linear(S, W[0]), ValueError, r"weight must have shape \[out, in\], got \[3\]"),
    "weight of another type": (lambda: spike_linear(S, W.double()), TypeError, "weight must be torch.float32 on cpu like spikes, got torch.float64 on cpu"),
    "weight elsewhere": (lambda: spike_linear(S, W.to("meta")), TypeError, "weight must be torch.float32 on cpu like spikes, got torch.float32 on meta"),
    "bias is no tensor": (lambda: spike_linear(S, W, 0.0), TypeError, "bias must be a tensor, got float"),
    "bias of another length": (lambda: spike_linear(S, W, B[:3]), ValueError, r"bias must have shape \[4\], got \[3\]"),
    "bias of another type": (lambda: spike_linear(S, W, B.double()), TypeError, "bias must be torch.float32 on cpu like spikes, got torch.float64"),
    "sparse spikes": (lambda: spike_linear(S.to_sparse(), W), TypeError, "spikes must be a dense tensor, got layout torch.sparse_coo"),
    "unknown backend": (lambda: spike_linear(S, W, backend="event"), ValueError, r"backend must be one of .*did you mean 'events'\?\), got 'event'"),
    "no spike train": (lambda: spike_linear(S + torch.arange(3.0), W, backend="events"), RuntimeError, "backend 'events' cannot run this call: spikes holds other values than 0 and one amplitude"),
    "a NaN": (lambda: spike_linear(S + torch.nan, W, backend="events"), RuntimeError, "backend 'events' cannot run this call: spikes holds other values"),
    "events in half precision": (lambda: spike_linear(S.half(), W.half(), backend="events"), RuntimeError, "backend 'events' cannot run this call: it takes float32 and float64, and spikes is float16"),
    "explain an unknown argument": (lambda: explain("spike_linear", S, W, theta=1), TypeError, "explain: the arguments must be those of spike_linear"),
}  # fmt: skip


@loop_over("case", BAD)
def test_one_sentence(case):
    call, error, pattern = BAD[case]
    with pytest.raises(error, match=pattern) as caught:
        call()
    assert "\n" not in str(caught.value)


@EVERY
def test_check_finite_names_what_is_not(backend):
    tensors = {"spikes": spike_train(5, 3, density=1.0).float(), "weight": torch.ones(4, 3), "bias": torch.zeros(4)}
    with check_finite():
        spike_linear(**tensors, backend=backend)
        for name, at in (("spikes", (4, 2)), ("weight", (1, 2)), ("bias", (3,))):
            bad = tensors | {name: tensors[name].clone()}
            bad[name][at] = torch.inf
            with pytest.raises(ValueError, match=rf"spike_linear: {name} is inf at \[{', '.join(map(str, at))}\]"):
                spike_linear(**bad, backend=backend)


def test_a_second_derivative_is_refused():
    spikes, weight = spike_train(40, 37), torch.randn(70, 37, dtype=torch.float64, requires_grad=True)
    out = spike_linear(spikes, weight, backend="events")
    (first,) = torch.autograd.grad(out.square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match=r"a second derivative .* of spike_linear does not exist"):
        first.sum().backward()


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
@DTYPES
def test_opcheck(dtype, layout):
    spikes, weight = spike_train(2, 20, 70).to(dtype), torch.randn(9, 70, dtype=dtype)
    if layout == "strided":
        spikes, weight = spikes.mT.contiguous().mT, weight.T.contiguous().T
    check = torch.library.opcheck
    check(torch.ops.resofire.pack_spikes, (spikes,))
    bits, amplitude = torch.ops.resofire.pack_spikes(spikes)
    check(torch.ops.resofire.count_bits, (bits,))
    assert torch.ops.resofire.count_bits(bits) == spikes.count_nonzero()
    for bias in (None, torch.randn(9, dtype=dtype, requires_grad=True)):
        leaves = (spikes.detach().requires_grad_(), bits, amplitude, weight.detach().requires_grad_(), bias)
        check(torch.ops.resofire.spike_linear, leaves)
    grad = torch.randn(2, 20, 9, dtype=dtype)
    check(torch.ops.resofire.spike_linear_backward, (grad, bits, amplitude, weight))


def test_the_operator_refuses_what_is_no_spike_train():
    """An exported graph calls it without the public function before it."""
    spikes = torch.rand(20, 70)
    bits, amplitude = torch.ops.resofire.pack_spikes(spikes)
    with pytest.raises(ValueError, match="spikes must all be 0 or one amplitude for backend 'events'"):
        torch.ops.resofire.spike_linear(spikes, bits, amplitude, torch.randn(9, 70), None)


@DTYPES
@pytest.mark.parametrize("backend", ["auto", "events"])
def test_compiles_in_one_graph(backend, dtype):
    def layer(potential, weight, bias):
        return spike_linear((potential > 1).to(dtype) * 0.37, weight, bias, backend=backend).square()

    tensors = [torch.randn(600, 70, dtype=dtype), torch.randn(40, 70, dtype=dtype), torch.randn(40, dtype=dtype)]
    for leaf in tensors[1:]:
        leaf.requires_grad_()
    expected = layer(*tensors)
    grads = torch.autograd.grad(expected.sum(), tensors[1:])
    got = torch.compile(layer, fullgraph=True, backend="aot_eager")(*tensors)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(torch.autograd.grad(got.sum(), tensors[1:]), grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("backend", "within"), [("auto", "aten.linear"), ("events", "resofire.spike_linear")])
def test_exports_with_a_free_length(backend, within):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(40, 70))

        def forward(self, spikes):
            return spike_linear(spikes, self.weight, backend=backend)

    layer, length = Layer(), torch.export.Dim("length", min=2)
    program = torch.export.export(layer, (spike_train(2, 40, 70).float(),), dynamic_shapes={"spikes": {1: length}})
    assert within in str(program.graph)
    longer = spike_train(2, 97, 70).float()
    torch.testing.assert_close(program.module()(longer), layer(longer))


def test_works_in_inference_mode():
    spikes, weight = SPARSE, torch.randn(64, 64)
    expected = spike_linear(spikes, weight, backend="events")
    with torch.inference_mode():
        assert torch.equal(spike_linear(spikes, weight, backend="events"), expected)


@pytest.mark.parametrize("columns", [128, 200])
def test_rows_that_begin_anywhere_are_not_written_past_the_caches(columns, monkeypatch):
    """Of four dimensions, only the last but one tells where rows begin; 200 columns are no multiple of 64 bytes."""
    monkeypatch.setattr("resofire.ops.neuron_scan.cpu.STREAM_BYTES", 0)
    spikes, weight = spike_train(9, 16, 16, 64, density=0.05).float(), torch.randn(columns, 64)
    torch.testing.assert_close(spike_linear(spikes, weight, backend="events"), F.linear(spikes, weight))


def test_auto_is_dense_where_more_than_half_is_active():
    weight = torch.randn(64, 64)
    assert "auto takes 'reference'" in explain("spike_linear", spike_train(4096, 64, density=0.6).float(), weight)
    assert "auto takes 'events'" in explain("spike_linear", spike_train(4096, 64, density=0.3).float(), weight)


def test_the_operator_refuses_another_type():
    spikes = spike_train(6, 5).float()
    bits, amplitude = events.pack_spikes(spikes)
    with pytest.raises(ValueError, match=r"weight must be torch.float32 \[3, in\], got torch.float64"):
        events.event_linear(spikes, bits, amplitude, torch.randn(3, 5).double(), None)
    with pytest.raises(ValueError, match=r"bits must be int64 \[6, 2\]"):
        events.event_linear(spikes, bits[:3], amplitude, torch.randn(3, 5), None)


def test_many_threads_share_few_rooms():
    assert events.most_rooms(2, 128, 128, 4) == 8
    assert events.most_rooms(64, 1024, 512, 4) == 64
    assert len(events.shares(10_000, 64, 128, 64)) <= 64
