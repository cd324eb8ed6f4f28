"""Batch norm over time steps: against torch's, on any shape, empty batches, running statistics."""

import pytest
import torch
from torch import nn

from resofire.nn import BatchNorm


def pair(features: int) -> tuple[BatchNorm, nn.BatchNorm1d]:
    ours, theirs = BatchNorm(features).double(), nn.BatchNorm1d(features).double()
    with torch.no_grad():
        theirs.weight.uniform_(0.5, 2)
        theirs.bias.normal_()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("shape", [(7, 5), (2, 9, 5), (1, 12, 5), (2, 3, 4, 5)], ids=str)
def test_it_is_torchs_over_all_positions(shape):
    ours, theirs = pair(5)
    for training in (True, True, False):
        ours.train(training), theirs.train(training)
        x = (3 * torch.randn(shape, dtype=torch.float64) + 1).requires_grad_()
        y = x.detach().reshape(-1, 5).requires_grad_()
        out, target = ours(x), theirs(y)
        torch.testing.assert_close(out, target.view(shape))
        weight = torch.randn(shape, dtype=torch.float64)
        (out * weight).sum().backward()
        (target * weight.view(-1, 5)).sum().backward()
        torch.testing.assert_close(x.grad.view(-1, 5), y.grad)
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)


def test_affine_is_what_it_does_outside_of_training():
    norm, _ = pair(4)
    norm(torch.randn(50, 4, dtype=torch.float64) * 2 + 3)
    norm.eval()
    scale, shift = norm.affine()
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    assert torch.equal(norm(x), x * scale + shift)
    assert torch.equal(norm(x[:, 0]), norm(x)[:, 0])


@pytest.mark.parametrize("training", [True, False])
def test_an_empty_batch_passes_and_leaves_the_statistics_alone(training):
    norm = BatchNorm(3).train(training)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    x = torch.zeros(1, 0, 3)
    assert torch.equal(norm(x), x)
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name])


def test_one_time_step_cannot_be_trained_on():
    norm = BatchNorm(3)
    with pytest.raises(ValueError, match="BatchNorm: training needs at least two time steps in a batch, got 1"):
        norm(torch.zeros(1, 1, 3))
    assert norm.num_batches_tracked == 0
    assert norm.eval()(torch.zeros(1, 1, 3)).shape == (1, 1, 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_back_as_it_came(dtype):
    norm = BatchNorm(3).to(dtype)
    x = torch.randn(40, 3)
    assert norm(x.to(dtype)).dtype == dtype
    out = norm.eval()(x.to(dtype))
    assert out.dtype == dtype
    scale, shift = norm.affine()
    torch.testing.assert_close(out.float(), x * scale + shift, atol=0.05, rtol=0.05)


BAD = {
    "no features": (lambda: BatchNorm(0), "BatchNorm: features must be a positive integer, got 0"),
    "eps": (lambda: BatchNorm(2, eps=0), "BatchNorm: eps must be positive, got 0"),
    "momentum": (lambda: BatchNorm(2, momentum=2), "BatchNorm: momentum must be from 0 to 1, got 2"),
    "width": (lambda: BatchNorm(2)(torch.zeros(4, 3)), r"x must have shape \[..., 2\], got \[4, 3\]"),
}


def test_bad_settings_are_named(subtests):
    for case, (call, pattern) in BAD.items():
        with subtests.test(case), pytest.raises(ValueError, match=pattern):
            call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_pooled_is_the_mean_of_what_it_norms(dtype):
    """With more steps than float16 can count, and a mean that is not 0."""
    x = (torch.randn(64, 784, 5) + 3).to(dtype)
    one, other = BatchNorm(5).to(dtype), BatchNorm(5).to(dtype)
    one(x)
    target = BatchNorm(5).double()(x.double()).mean(1)
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-5)
    torch.testing.assert_close(other.pooled(x).double(), target, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(other.running_mean, one.running_mean, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(other.running_var, one.running_var, rtol=tolerance, atol=tolerance)
    assert other.pooled(x).dtype == dtype


@pytest.mark.parametrize("packed", [False, True])
def test_statistics_of_few_steps_are_torchs(packed):
    """So few that the variance of a sample differs from that of the running statistics."""
    x, theirs = 2 * torch.randn(2, 3, 5, dtype=torch.float64) + 1, nn.BatchNorm1d(5).double()
    expected = theirs(x.view(6, 5)).view(2, 3, 5)
    bounds = torch.tensor([0, 3, 6], dtype=torch.int32) if packed else None
    ours = x.view(1, 6, 5) if packed else x
    for use in ("statistics", "pooled"):
        norm = BatchNorm(5).double()
        result = getattr(norm, use)(ours, bounds)
        if use == "pooled":
            torch.testing.assert_close(result, expected.mean(1))
        else:
            torch.testing.assert_close((x - result[0]) * result[1], expected)
        for name, value in theirs.state_dict().items():
            torch.testing.assert_close(norm.state_dict()[name], value)
