"""The loop of an ELM neuron against the same loop under autograd, and what torch asks of an operator."""

import pytest
import torch
from looped import loop_over

from resofire.models.baselines import ELMConfig
from resofire.models.baselines.elm import memories
from resofire.models.baselines.padded import in_groups
from resofire.ops.leaky_memory import Weights, _loop, _loop_backward, leaky_memory

LENGTHS = (1, 63, 0, 1000, 2)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


def make(steps, hidden, size, batch=1):
    """x, κ, F, G, g and λ in float64: memories that move by as much as their input, and half of all units active."""
    kappa = 1 - 10 ** (-3 * torch.rand(size).double())
    x = torch.randn(batch, steps, hidden).double()
    feedback, update = torch.randn(hidden, size).double(), torch.randn(size, hidden).double() / hidden
    return [x, kappa, feedback / size, update, torch.randn(size).double(), 5 * (1 - kappa)]


def results(function, tensors, dtype, cu_seqlens):
    x, *weights = leaves = [each.to(dtype).requires_grad_() for each in tensors]
    m = function(x, Weights(*weights), cu_seqlens)
    noise = torch.randn(m.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    return [m.detach(), *torch.autograd.grad(m, leaves, noise)]


def looped(x, weights, cu_seqlens):
    return in_groups(lambda group: memories(group, weights), x, cu_seqlens, together=True)


@dtypes
@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
@loop_over("size", [(5, 3), (70, 33), (32, 32), (1, 1)])
def test_it_is_the_loop_under_autograd(size, packed, dtype):
    steps, batch, bounds = 150, 3, None
    if packed:
        steps, batch, bounds = sum(LENGTHS), 1, torch.tensor([0, *LENGTHS]).cumsum(0).int()
    tensors = make(steps, *size, batch=batch)
    expected = results(looped, tensors, torch.float64, bounds)
    for ours, theirs in zip(results(leaky_memory, tensors, dtype, bounds), expected, strict=True):
        scale = theirs.abs().max().clamp(min=1e-30)
        torch.testing.assert_close(ours.double() / scale, theirs / scale, rtol=0, atol=TOLERANCE[dtype])
    assert expected[2].abs().max() > 0


def test_results_do_not_depend_on_the_number_of_threads():
    tensors, threads, outcomes = make(3000, 6, 4, batch=5), torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            outcomes.append(results(leaky_memory, tensors, torch.float64, None)[:3])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, three) for one, three in zip(*outcomes, strict=True))


@dtypes
def test_opcheck(dtype):
    x, *weights = (each.to(dtype).requires_grad_() for each in make(9, 5, 3))
    bounds = torch.tensor([0, 4, 4, 9], dtype=torch.int32)
    torch.library.opcheck(_loop, (x, *weights, bounds))
    kappa, feedback, update, bias, gain = (each.detach() for each in weights)
    m, a, c = _loop(x.detach(), kappa, feedback, update, bias, gain, bounds)
    torch.library.opcheck(_loop_backward, (torch.ones_like(m), m, a, c, kappa, feedback, update, gain, bounds))


def test_a_block_without_the_kernels_is_the_same(monkeypatch):
    block, u = ELMConfig(longest=50.0).build(4).double().eval(), torch.randn(1, 40, 4).double()
    bounds = torch.tensor([0, 17, 17, 40], dtype=torch.int32)
    expected = block(u, cu_seqlens=bounds)
    for name in ("why_not_scan", "why_not_compiled"):
        monkeypatch.setattr(f"resofire.models.baselines.elm.{name}", lambda x: "not now")
    torch.testing.assert_close(block(u, cu_seqlens=bounds), expected, rtol=0, atol=1e-12)


def test_wrong_shapes_are_named_before_memory_is_touched():
    x, kappa, feedback, *rest = make(9, 5, 3)
    with pytest.raises(ValueError, match=r"leaky_memory: feedback must be torch.float64 \[5, 3\], got .* \[3, 5\]"):
        leaky_memory(x, Weights(kappa, feedback.t(), *rest))
    m, a, c = _loop(x, kappa, feedback, *rest, None)
    with pytest.raises(ValueError, match=r"leaky_memory: grad must be .* \[1, 9, 3\], got .* \[1, 8, 3\]"):
        _loop_backward(m[:, 1:], m, a, c, kappa, feedback, rest[0], rest[2], None)


def test_a_second_derivative_is_refused():
    x, *weights = make(9, 5, 3)
    x.requires_grad_()
    (grad,) = torch.autograd.grad(leaky_memory(x, Weights(*weights)).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"second derivative .* leaky_memory"):
        grad.sum().backward()
