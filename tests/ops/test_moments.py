"""Moments of a stream against plain torch in float64: means, spread and their gradients."""

import importlib
import itertools

import pytest
import torch
from looped import loop_over

from resofire.ops import check_finite, moments
from resofire.ops.checks import state_dtype

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
# Longer than a piece, just a piece, one step, none: packed end to end.
BOUNDS = [0, 0, 1100, 1101, 1101, 1102, 2126, 5126, 5126]


def cu(*bounds: int) -> torch.Tensor:
    return torch.tensor(bounds, dtype=torch.int32)


def by_hand(x: torch.Tensor, bounds: list[int] | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The definition, sequence by sequence."""
    sequences = list(x) if bounds is None else [x[0, a:b] for a, b in itertools.pairwise(bounds)]
    means = [part.mean(0) if len(part) else torch.zeros_like(x[0, 0]) for part in sequences]
    flat = x.reshape(-1, x.shape[2])
    return torch.stack(means), (flat - flat.mean(0)).square().sum(0)


def off_by(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest error, relative to the largest value."""
    assert got.shape == expected.shape
    return ((got.double() - expected).abs().max() / expected.abs().max()).item()


SIZES = {
    "one step": ((1, 1, 5), None),
    "one lane": ((2, 70, 1), None),
    "5 lanes": ((3, 31, 5), None),
    "whole tiles": ((2, 64, 128), None),
    "130 lanes": ((2, 33, 130), None),
    "long": ((2, 3000, 5), None),
    "many": ((70, 3, 17), None),
    "packed": ((1, BOUNDS[-1], 5), BOUNDS),
    "packed, 130 lanes": ((1, 40, 130), [0, 10, 10, 11, 40]),
    "one packed": ((1, 40, 128), [0, 40]),
}


@DTYPES
@loop_over("case", SIZES)
def test_means_spread_and_gradients(case, dtype):
    shape, bounds = SIZES[case]
    x = (2 * torch.randn(shape) + torch.linspace(-3, 3, shape[2])).to(dtype).requires_grad_()
    wide = x.detach().double().requires_grad_()
    mean, spread = moments(x, None if bounds is None else cu(*bounds))
    means, spreads = by_hand(wide, bounds)
    assert mean.dtype == spread.dtype == dtype
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    assert off_by(mean, means) < tolerance
    if case == "one step":
        assert torch.equal(spread, torch.zeros_like(spread))
    else:
        assert off_by(spread, spreads) < tolerance
    weights = torch.randn_like(means), torch.randn_like(spreads)
    for parts in ((0,), (1,), (0, 1)):
        ours, theirs = (sum((pair[i] * weights[i]).sum() for i in parts)
                        for pair in ((mean.double(), spread.double()), (means, spreads)))  # fmt: skip
        (got,) = torch.autograd.grad(ours, x, retain_graph=True)
        (expected,) = torch.autograd.grad(theirs, wide, retain_graph=True)
        if case == "one step" and parts == (1,):
            assert got.abs().max() < tolerance  # x is its own mean
        else:
            assert off_by(got, expected) < tolerance, f"gradient through {parts}"


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
def test_an_offset_does_not_drown_the_spread(packed):
    """x + 10⁴ in float32: its squares have 8 digits in front of the spread's first."""
    x = torch.randn(1, 6000, 33) * torch.linspace(0.5, 2, 33) + 1e4
    bounds = [0, 3000, 3000, 6000] if packed else None
    mean, spread = moments(x, cu(*bounds) if packed else None)
    means, spreads = by_hand(x.double(), bounds)
    assert off_by(mean, means) < 1e-6
    assert ((spread - spreads).abs() / spreads).max() < 1e-3


def test_a_constant_has_no_spread():
    _, spread = moments(torch.full((3, 2000, 5), 0.1))
    assert torch.equal(spread, torch.zeros(5))


@DTYPES
@loop_over("layout", ["time first", "lane first", "every other", "expanded"])
def test_any_strides(layout, dtype):
    x = torch.randn(3, 40, 37, dtype=dtype)
    x = {
        "time first": lambda: x.transpose(0, 1).contiguous().transpose(0, 1),
        "lane first": lambda: x.mT.contiguous().mT,
        "every other": lambda: x.repeat_interleave(2, 2)[:, :, ::2],
        "expanded": lambda: x[:1].expand(3, 40, 37),
    }[layout]().requires_grad_()
    results = []
    for leaf in (x, x.detach().contiguous().requires_grad_()):
        mean, spread = moments(leaf)
        (mean.sum() + spread.sum()).backward()  # gradients that are one number, expanded
        results.append((mean, spread, leaf.grad))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*results, strict=True))


@loop_over("case", [((2, 0, 5), None), ((0, 3, 5), None), ((1, 0, 5), [0, 0, 0])])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=["f64", "f32", "f16"])
def test_no_time_steps(case, dtype):
    shape, bounds = case
    x = torch.zeros(shape, dtype=dtype, requires_grad=True)
    mean, spread = moments(x, None if bounds is None else cu(*bounds))
    assert mean.dtype == spread.dtype == state_dtype(x)
    assert torch.equal(mean, torch.zeros_like(mean))
    assert mean.shape == (shape[0] if bounds is None else len(bounds) - 1, 5)
    assert torch.equal(spread, torch.zeros_like(spread))
    assert spread.shape == (5,)
    (mean.sum() + spread.sum()).backward()
    assert x.grad.shape == shape


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])
def test_half_precision_is_added_up_in_float32(dtype, packed):
    """And stays float32: 3000 numbers around 1 have a sum that float16 could not hold."""
    x = (torch.rand(1, 3000, 5) + 0.5).to(dtype).requires_grad_()
    bounds = [0, 1000, 1000, 3000] if packed else None
    mean, spread = moments(x, cu(*bounds) if packed else None)
    means, spreads = by_hand(x.detach().double(), bounds)
    assert mean.dtype == spread.dtype == torch.float32
    assert off_by(mean, means) <= 1e-6
    assert off_by(spread, spreads) <= 1e-6
    (mean.sum() + spread.sum()).backward()
    assert x.grad.dtype == dtype
    assert torch.isfinite(x.grad).all()


def test_without_numba_it_is_the_same(monkeypatch):
    module = importlib.import_module("resofire.ops.moments")  # `resofire.ops` has the function under this name
    x, bounds = torch.randn(1, BOUNDS[-1], 5, dtype=torch.float64), cu(*BOUNDS)
    expected = moments(x, bounds)
    monkeypatch.setattr(module, "HAVE_NUMBA", False)
    for ours, theirs in zip(moments(x, bounds), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_the_same_bits_again_and_with_any_number_of_threads():
    x = torch.randn(3, 5000, 70)

    def once():
        leaf = x.clone().requires_grad_()
        mean, spread = moments(leaf)
        (mean.square().sum() + spread.square().sum()).backward()
        return mean, spread, leaf.grad

    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 3, 3):
            torch.set_num_threads(threads)
            results.append(once())
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(results[0], other, strict=True))


X = torch.zeros(1, 5, 3)
BAD = {
    "no tensor": (lambda: moments([1.0]), TypeError, "moments: x must be a tensor.*got list"),
    "integers": (lambda: moments(X.int()), TypeError, "x must be float32.*got int32"),
    "two dimensions": (lambda: moments(X[0]), ValueError, r"x must have shape \[B, T, N\], got \[5, 3\]"),
    "a batch packed": (lambda: moments(X.expand(2, 5, 3), cu(0, 5)), ValueError, r"x must be packed as \[1, S, N\]"),
    "int64": (lambda: moments(X, cu(0, 5).long()), TypeError, "cu_seqlens must be an int32 tensor .* got int64"),
    "a list": (lambda: moments(X, [0, 5]), TypeError, "cu_seqlens must be an int32 tensor .* got list"),
    "no bounds": (lambda: moments(X, cu()), ValueError, "cu_seqlens must hold at least one boundary"),
}


@loop_over("case", BAD)
def test_one_sentence(case):
    call, error, pattern = BAD[case]
    with pytest.raises(error, match=f"^moments: .*{pattern.removeprefix('moments: ')}") as caught:
        call()
    assert "\n" not in str(caught.value)


@loop_over("dtype", [torch.float32, torch.float16])
@loop_over(
    "case",
    [
        ((0, 4, 2, 5), "moments: cu_seqlens must not fall, got 4 then 2 at position 1"),
        ((0, 4), "moments: cu_seqlens must run from 0 to 5, got 0 to 4"),
        ((1, 5), "moments: cu_seqlens must run from 0 to 5, got 1 to 5"),
    ],
)
def test_values_of_cu_seqlens(case, dtype):
    bounds, pattern = case
    with pytest.raises(ValueError, match=pattern):
        moments(X.to(dtype), cu(*bounds))


def test_check_finite_says_where():
    x = torch.zeros(2, 5, 3)
    x[1, 4, 2] = torch.nan
    mean, spread = moments(x)
    assert torch.isnan(mean[1, 2])
    assert torch.isnan(spread[2])
    assert torch.isfinite(mean[:, :2]).all()
    with check_finite(), pytest.raises(ValueError, match=r"moments: x is nan at \[1, 4, 2\]"):
        moments(x)


def test_a_second_derivative_is_refused():
    x = torch.randn(2, 5, 3, requires_grad=True)
    (first,) = torch.autograd.grad(moments(x)[1].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"a second derivative .* of moments does not exist"):
        first.sum().backward()


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
@DTYPES
def test_opcheck(dtype, packed):
    x = torch.randn(1 if packed else 2, 12, 5, dtype=dtype).mT.contiguous().mT
    bounds = cu(0, 4, 4, 12) if packed else None
    torch.library.opcheck(torch.ops.resofire.moments, (x.detach().requires_grad_(), bounds))
    mean, spread = torch.ops.resofire.moments(x, bounds)
    for grads in ((mean, spread), (None, spread), (mean, None)):
        torch.library.opcheck(torch.ops.resofire.moments_backward, (*grads, x, bounds, mean))


def test_compiles_in_one_graph():
    def pool(x, bounds):
        mean, spread = moments(2 * x, bounds)
        return mean.sum(0) / spread.sqrt()

    x, bounds = torch.randn(1, 12, 5, requires_grad=True), cu(0, 4, 4, 12)
    expected = pool(x, bounds)
    got = torch.compile(pool, fullgraph=True, backend="aot_eager")(x, bounds)
    torch.testing.assert_close(got, expected)
    ours, theirs = (torch.autograd.grad(out.sum(), x)[0] for out in (got, expected))
    torch.testing.assert_close(ours, theirs)


def test_one_step_far_out_does_not_spoil_the_spread():
    for row in (0, 3000):
        x = torch.randn(8, 1000, 4)
        x.view(-1, 4)[row] = 100.0
        expected = (x.double() - x.double().mean((0, 1))).square().sum((0, 1))
        torch.testing.assert_close(moments(x)[1].double(), expected, rtol=1e-5, atol=0)
