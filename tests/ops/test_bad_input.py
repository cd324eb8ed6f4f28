"""Wrong input gets one clear sentence that names the argument and its value, from every backend."""

import pytest
import torch
from looped import loop_over
from neurons import BACKENDS, IDS, make

from resofire.ops import ATan, LIFState, PRFState, check_finite, explain, lif, lif_step, prf, prf_coefficients

X = torch.zeros(2, 5, 3)
PACKED = torch.zeros(1, 5, 3)


def cu(*bounds: int) -> torch.Tensor:
    return torch.tensor(bounds, dtype=torch.int32)


BAD = {
    "no tensor": (lambda: lif([1.0], 0.5), TypeError, r"lif: current must be a tensor \[B, T, N\], got list"),
    "two dimensions": (lambda: lif(X[0], 0.5), ValueError, r"current must have shape \[B, T, N\], got \[5, 3\]"),
    "integers": (lambda: lif(X.int(), 0.5), TypeError, r"current must be float32.*got int32"),
    "beta of another length": (lambda: lif(X, torch.zeros(4)), ValueError, r"beta must have shape \[\] or \[3\], got \[4\]"),
    "beta of another type": (lambda: lif(X, torch.zeros(3).double()), TypeError, "beta must be float32.*got float64"),
    "beta is text": (lambda: lif(X, "0.5"), TypeError, "beta must be a number or a tensor, got '0.5'"),
    "threshold of another length": (lambda: lif(X, 0.5, threshold=torch.ones(2)), ValueError, r"threshold must have shape"),
    "unknown reset": (lambda: lif(X, 0.5, reset="sotf"), ValueError, r"reset must be one of .*did you mean 'soft'\?\), got 'sotf'"),
    "hard reset of a PRF": (lambda: prf(X, 0.5, 0.1, 0.1, reset="hard"), ValueError, "prf: reset must be one of 'none', 'soft', got 'hard'"),
    "unknown reset gradient": (lambda: lif(X, 0.5, reset_gradient="half"), ValueError, "reset_gradient must be one of.*got 'half'"),
    "unknown backend": (lambda: lif(X, 0.5, backend="skan"), ValueError, r"backend must be one of .*did you mean 'scan'\?\), got 'skan'"),
    "no surrogate": (lambda: lif(X, 0.5, surrogate="atan"), TypeError, r"surrogate must be a Surrogate such as ATan\(\), got 'atan'"),
    "state of another shape": (lambda: lif(X, 0.5, state=LIFState(torch.zeros(1, 3))), ValueError, r"state.u must have shape \[2, 3\], got \[1, 3\]"),
    "state of another type": (lambda: lif(X, 0.5, state=LIFState(torch.zeros(2, 3).double())), TypeError, "state.u must be float32, got float64"),
    "half a state": (lambda: prf(X, 0.5, 0.1, 0.1, state=(torch.zeros(2, 3),)), TypeError, r"state must be a tuple of tensors \(u, r\)"),
    "cu_seqlens of int64": (lambda: lif(PACKED, 0.5, cu_seqlens=cu(0, 5).long()), TypeError, "cu_seqlens must be an int32 tensor of one dimension, got int64"),
    "cu_seqlens as a list": (lambda: lif(PACKED, 0.5, cu_seqlens=[0, 5]), TypeError, "cu_seqlens must be an int32 tensor.*got list"),
    "cu_seqlens without a value": (lambda: lif(PACKED, 0.5, cu_seqlens=cu()), ValueError, "cu_seqlens must hold at least one boundary"),
    "cu_seqlens and a batch": (lambda: lif(X, 0.5, cu_seqlens=cu(0, 5)), ValueError, r"current must be packed as \[1, S, N\].*got \[2, 5, 3\]"),
    "tau of zero": (lambda: prf_coefficients(0.1, 1.0, 0.0), ValueError, "tau must be positive, got 0"),
    "tau below zero": (lambda: prf_coefficients(0.1, 1.0, torch.tensor([1.0, -2.0])), ValueError, "tau must be positive, got -2.0"),
    "delta of zero": (lambda: prf_coefficients(torch.zeros(2), 1.0, 1.0), ValueError, "delta must be positive, got 0.0"),
    "a step with time": (lambda: lif_step(X, 0.5, None), ValueError, r"lif_step: current must have shape \[B, N\], got \[2, 5, 3\]"),
    "explain an unknown op": (lambda: explain("prff", X), ValueError, r"op must be one of .*did you mean 'prf'\?\), got 'prff'"),
    "a sparse current": (lambda: lif(X.to_sparse(), 0.5), TypeError, "current must be a dense tensor, got layout torch.sparse_coo"),
    "reverse as text": (lambda: lif(X, 0.5, reverse="no"), TypeError, "reverse must be True or False, got 'no'"),
    "backend as a list": (lambda: lif(X, 0.5, backend=["scan"]), ValueError, "backend must be one of"),
    "integer frequencies": (lambda: prf_coefficients(0.1, torch.arange(3), 2.0), TypeError, "theta must be a number or a floating-point tensor, got int64"),
    "theta is text": (lambda: prf_coefficients(0.1, "a", 2.0), TypeError, "theta must be a number or a tensor, got 'a'"),
    "a step's beta": (lambda: lif_step(X[:, 0], torch.zeros(4), None), ValueError, r"lif_step: beta must have shape"),
    "explain without arguments": (lambda: explain("prf"), TypeError, "explain: the arguments must be those of prf: missing a required argument: 'current'"),
    "explain another backend": (lambda: explain("lif", X, 0.5, backend="skan"), ValueError, "lif: backend must be one of"),
    "a surrogate that is flat": (lambda: ATan(0.0), ValueError, "alpha must be a positive number, got 0.0"),
}  # fmt: skip


@loop_over("case", BAD)
def test_one_sentence(case):
    call, error, pattern = BAD[case]
    with pytest.raises(error, match=pattern) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("op", "backend"), BACKENDS, ids=IDS)
@loop_over(
    "case",
    [
        ((0, 4, 2, 5), "^(prf|lif): cu_seqlens must not fall, got 4 then 2 at position 1"),
        ((0, 4), "cu_seqlens must run from 0 to 5, got 0 to 4"),
        ((1, 5), "cu_seqlens must run from 0 to 5, got 1 to 5"),
        ((0, 9), "cu_seqlens must run from 0 to 5, got 0 to 9"),
    ],
)
def test_values_of_cu_seqlens(op, backend, case):
    bounds, pattern = case
    inputs = make(op, 1, 5, 3, sequences=len(bounds) - 1)
    with pytest.raises(ValueError, match=pattern):
        inputs.run(backend, cu_seqlens=cu(*bounds))


@pytest.mark.parametrize(("op", "backend"), BACKENDS, ids=IDS)
def test_a_second_derivative_is_refused(op, backend):
    inputs = make(op, 1, 4, 2)
    spikes, _ = inputs.run(backend)
    (first,) = torch.autograd.grad(spikes.sum(), inputs.current, create_graph=True)
    with pytest.raises(RuntimeError, match=r"a second derivative .* does not exist"):
        first.sum().backward()


@loop_over("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("op", "backend"), BACKENDS, ids=IDS)
def test_nan_and_infinity_pass_unless_checked(op, backend, value):
    inputs = make(op, 2, 40, 3).to(torch.float32)
    with torch.no_grad():
        inputs.current[1, 2, 0] = value
    spikes, _ = inputs.run(backend)
    spikes.sum().backward()
    clean = ~torch.isnan(spikes)
    assert set(spikes[clean].unique().tolist()) <= {0.0, 1.0}
    if backend != "fft":  # an FFT spreads a NaN over its whole sequence, but not beyond
        assert torch.isfinite(inputs.current.grad[1, :, 1:]).all()
    assert torch.isfinite(inputs.current.grad[0]).all()
    with check_finite(), pytest.raises(ValueError, match=r"current is -?(nan|inf) at \[1, 2, 0\]"):
        inputs.run(backend)
    inputs.run(backend)


@pytest.mark.parametrize("backend", [name for op, name in BACKENDS if op == "lif" and name != "fft"])
def test_an_infinite_potential_fires_and_a_hard_reset_clears_it(backend):
    current = torch.zeros(1, 4, 2)
    current[0, 1, 0] = torch.inf
    spikes, state = lif(current, 0.5, reset="hard", backend=backend)
    assert spikes[0].tolist() == [[0, 0], [1, 0], [0, 0], [0, 0]]
    assert torch.equal(state.u, torch.zeros(1, 2))


def test_check_finite_looks_at_coefficients_and_state():
    bad = torch.tensor([1.0, float("nan"), 1.0])
    with check_finite():
        with pytest.raises(ValueError, match=r"beta is nan at \[1\]"):
            lif(X, bad)
        with pytest.raises(ValueError, match="threshold is nan; check_finite"):
            lif(X, 0.5, threshold=float("nan"))
        with pytest.raises(ValueError, match=r"theta is inf at"):
            prf_coefficients(0.1, torch.tensor([1.0, float("inf")]), 1.0)
        with pytest.raises(ValueError, match=r"state.r is nan at \[0, 1\]"):
            prf(X, 0.5, 0.1, 0.1, state=PRFState(torch.zeros(2, 3), bad.expand(2, 3)))


def test_the_fft_says_what_it_cannot_do():
    with pytest.raises(RuntimeError, match="backend 'fft' cannot run this call: reset='hard'"):
        lif(X, 0.5, reset="hard", backend="fft")
    for call in (lambda **k: lif(X, 0.5, **k), lambda **k: prf(X, 0.5, 0.1, 0.1, reset="soft", **k)):
        with pytest.raises(RuntimeError, match="reset_gradient='full' makes the adjoint vary in time"):
            call(reset_gradient="full", backend="fft")


def test_explain_names_the_choice_and_the_reasons(monkeypatch):
    from resofire.ops import neuron_scan

    text = explain("lif", X, 0.5, reset="hard")
    assert text.splitlines()[0] == "lif: auto takes 'scan' for current [2, 5, 3] torch.float32"
    assert "fft: reset='hard' multiplies the potential" in text
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "triton: it runs on a GPU" in explain("prf", X, 0.5, 0.1, 0.1)
    monkeypatch.setattr(neuron_scan, "HAVE_NUMBA", False)
    text = explain("prf", X, 0.5, 0.1, 0.1)
    assert "auto takes 'fft'" in text
    assert "scan: not available: the package numba is not installed" in text
    assert "reference: can run it, but comes later" in text
