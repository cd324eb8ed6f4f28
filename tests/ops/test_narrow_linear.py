"""The linear layer with few inputs against torch's: output, gradients, and what torch asks of an operator."""

import pytest
import torch
import torch.nn.functional as F
from looped import loop_over

from resofire.nn.linear import InputLinear
from resofire.ops.narrow_linear import MOST_INPUTS, _linear, _linear_backward, narrow_linear

SIZES = [(7, 1, 5), (1, 1, 1), (300, 3, 130), (1000, 8, 128), (65, 2, 64), (0, 2, 3), (40, MOST_INPUTS + 1, 6)]


def sample(steps, inputs, columns, dtype):
    x, w, b = torch.randn(steps, inputs), torch.randn(columns, inputs), torch.randn(columns)
    return [each.to(dtype).requires_grad_() for each in (x, w, b)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@loop_over("size", SIZES)
def test_it_is_torchs_linear(size, dtype):
    tensors = sample(*size, dtype)
    out, expected = narrow_linear(*tensors), F.linear(*tensors)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)
    grad = torch.randn_like(out)
    for ours, theirs in zip(
        torch.autograd.grad(out, tensors, grad), torch.autograd.grad(expected, tensors, grad), strict=True
    ):
        # Sums over the steps: rounding grows with the terms, not with what they cancel to.
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * max(1.0, size[0] ** 0.5))


def test_any_strides_and_leading_dimensions():
    x = torch.randn(2, 30, 20, dtype=torch.float64).transpose(1, 2)[..., ::10]
    layer = InputLinear(3, 7).double()
    assert x.shape == (2, 20, 3)
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
    (layer(x).sum() * 3).backward()
    torch.testing.assert_close(layer.weight.grad, 3 * x.sum((0, 1)).expand(7, 3))
    torch.testing.assert_close(layer.bias.grad, torch.full((7,), 120.0, dtype=torch.float64))


def test_half_precision_and_autocast_are_torchs():
    layer, x = InputLinear(1, 4), torch.randn(5, 1)
    assert layer.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert InputLinear(1, 4)(x).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_opcheck(dtype):
    x, w, b = sample(6, 2, 5, dtype)
    torch.library.opcheck(_linear, (x, w, b))
    torch.library.opcheck(_linear_backward, (torch.randn(6, 5, dtype=dtype), x.detach(), w.detach()))


def test_a_wrong_shape_is_named_before_memory_is_touched():
    x, w, b = (each.detach() for each in sample(6, 2, 5, torch.float32))
    with pytest.raises(ValueError, match=r"weight must be torch.float32 \[5, 2\] .* got torch.float32 \[5, 3\]"):
        _linear(x, torch.randn(5, 3), b)
    with pytest.raises(ValueError, match=r"grad must go with x torch.float32 \[6, 2\], got torch.float32 \[4, 5\]"):
        _linear_backward(torch.randn(4, 5), x, w)


def test_double_backward_is_refused():
    x, w, b = sample(6, 2, 5, torch.float64)
    (grad,) = torch.autograd.grad(narrow_linear(x, w, b).square().sum(), w, create_graph=True)
    with pytest.raises(RuntimeError, match=r"second derivative .* narrow_linear"):
        grad.sum().backward()
