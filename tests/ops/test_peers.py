"""SpikingJelly's LIFNode and ours are the same neuron: spikes and gradient."""

import importlib
import warnings

import pytest
import torch
from looped import loop_over

from resofire.ops import ATan, lif

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it uses what newer releases of torch deprecate
    pytest.importorskip("spikingjelly", reason="SpikingJelly is not installed")
    neuron = importlib.import_module("spikingjelly.activation_based.neuron")
    surrogate = importlib.import_module("spikingjelly.activation_based.surrogate")


@pytest.mark.parametrize("detach", [True, False], ids=["detached", "full"])
@pytest.mark.parametrize("reset", ["soft", "hard"])
@loop_over("tau", [1.5, 2.0, 20.0])
def test_spikes_and_gradient(tau, reset, detach):
    current = torch.randn(3, 200, 17) + 0.3
    ours, theirs = current.clone().requires_grad_(), current.clone().requires_grad_()
    node = neuron.LIFNode(
        tau, decay_input=False, v_threshold=1.0, v_reset=None if reset == "soft" else 0.0,
        surrogate_function=surrogate.ATan(2.0), detach_reset=detach, step_mode="m",
    )  # fmt: skip
    expected = node(theirs.transpose(0, 1)).transpose(0, 1)
    gradient = "detached" if detach else "full"
    spikes, state = lif(ours, 1 - 1 / tau, reset=reset, reset_gradient=gradient, surrogate=ATan(2.0))
    assert 0.05 < spikes.mean() < 0.95
    assert torch.equal(spikes, expected)
    torch.testing.assert_close(state.u, node.v)
    grad = torch.randn_like(current)
    expected.backward(grad)
    spikes.backward(grad)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=2e-6)
