"""The linear layer on real values against torch's: output, gradients, and what torch asks of an operator."""

import pytest
import torch
import torch.nn.functional as F
from looped import loop_over

from resofire.nn.linear import DenseLinear
from resofire.ops import dense_linear as module
from resofire.ops.dense_linear import _linear, _linear_backward, dense_linear

# The operator itself runs on every CPU whose torch has oneDNN; only whether it is chosen depends on the machine.
needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="torch was built without oneDNN",
)


def sample(*shape, out=7):
    x, w, b = torch.randn(shape), torch.randn(out, shape[-1]), torch.randn(out)
    return [each.requires_grad_() for each in (x, w, b)]


@needs_onednn
@loop_over("size", [((1, 300, 5), 7), ((2, 500, 64), 33), ((1000, 121), 242), ((1, 1), 1), ((0, 4), 3)])
def test_it_is_torchs_linear(size):
    shape, out = size
    tensors = sample(*shape, out=out)
    result, expected = _linear(*tensors), F.linear(*(each.double() for each in tensors))
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-4)
    grad = torch.randn_like(result)
    grads = torch.autograd.grad(result, tensors, grad)
    for ours, theirs in zip(grads, torch.autograd.grad(expected, tensors, grad.double()), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=2e-4)
        assert ours.is_contiguous()


@needs_onednn
def test_any_strides():
    x = torch.randn(3, 20, 400).transpose(1, 2)
    _, w, b = sample(3, 400, 20)
    grad = torch.randn(7, 400, 3).permute(2, 1, 0)
    result = _linear(x.requires_grad_(), w, b)
    expected = F.linear(x, w, b)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(
        torch.autograd.grad(result, (x, w, b), grad), torch.autograd.grad(expected, (x, w, b), grad), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@needs_onednn
def test_weights_that_are_part_of_a_larger_matrix():
    x, wide, b = torch.randn(300, 6), torch.randn(7, 11), torch.randn(7)
    for w in (wide[:, :6], wide[:, 5:], wide[:6, :7].t()[:, :6]):
        torch.testing.assert_close(_linear(x, w, b), F.linear(x, w, b), rtol=1e-5, atol=1e-5)
    grad = torch.randn(300, 11)[:, 2:9]
    ours, theirs = _linear_backward(grad, x, wide[:, :6])[1], grad.t() @ x
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@needs_onednn
def test_opcheck():
    x, w, b = sample(2, 6, 5)
    torch.library.opcheck(_linear, (x, w, b))
    torch.library.opcheck(_linear_backward, (torch.randn(2, 6, 7), x.detach(), w.detach()))


@needs_onednn
def test_it_is_chosen_for_many_rows_of_float32_where_it_is_faster(monkeypatch):
    x, w, b = sample(1, module.LEAST_ROWS, 5)
    chosen = []
    monkeypatch.setattr(module, "_linear", lambda *tensors: chosen.append(None) or F.linear(*tensors))
    for faster in (True, False):
        monkeypatch.setattr(module, "onednn_is_faster", lambda faster=faster: faster)
        dense_linear(x, w, b)
        assert len(chosen) == 1
    monkeypatch.setattr(module, "onednn_is_faster", lambda: True)
    for others in ((x[:, 1:], w, b), (x.double(), w.double(), b.double()), (x, w, None)):
        torch.testing.assert_close(dense_linear(*others), F.linear(*others))
    with torch.autocast("cpu", torch.bfloat16):
        assert DenseLinear(5, 7)(x).dtype == torch.bfloat16
    assert len(chosen) == 1


# torch scripts its own formulas at the first use of forward mode.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@needs_onednn
def test_second_and_forward_derivatives_are_refused(monkeypatch):
    monkeypatch.setattr(module, "onednn_is_faster", lambda: True)
    x, w, b = sample(module.LEAST_ROWS, 5)
    (grad,) = torch.autograd.grad(dense_linear(x, w, b).square().sum(), w, create_graph=True)
    with pytest.raises(RuntimeError, match=r"second derivative .* dense_linear"):
        grad.sum().backward()
    with pytest.raises(RuntimeError, match=r"forward-mode .* dense_linear"):
        torch.func.jvp(lambda x: dense_linear(x, w, b), (x.detach(),), (torch.ones_like(x),))
