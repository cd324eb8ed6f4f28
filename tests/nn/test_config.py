"""The configs of neurons build what they say, with the neurons' own defaults; SpikeLinear is a Linear."""

import copy
import dataclasses
import inspect

import pytest
import torch
from torch import nn

from resofire.nn import LIF, PRF, LIFConfig, PRFConfig, SpikeLinear
from resofire.ops import Triangle


@pytest.mark.parametrize(("config", "neuron"), [(PRFConfig, PRF), (LIFConfig, LIF)], ids=["prf", "lif"])
def test_settings_and_defaults_are_the_neurons(config, neuron):
    expected = list(inspect.signature(neuron).parameters.values())[1:]
    assert [(f.name, f.default, f.type) for f in dataclasses.fields(config)] == [
        (p.name, p.default, p.annotation) for p in expected
    ]
    assert config() == copy.deepcopy(config())
    assert hash(config()) == hash(config())
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().tau = 3.0


def test_build_hands_every_setting_on():
    settings = {
        "tau": 3.0, "delta": 0.2, "theta": 0.0, "evenly_spaced": True, "train_delta": False, "train_theta": False,
        "train_tau": True, "threshold": 0.7, "reset": "soft", "reset_gradient": "full", "surrogate": Triangle(2.0),
        "backend": "reference", "gain": "unit",
    }  # fmt: skip
    built, expected = PRFConfig(**settings).build(4), PRF(4, **settings)
    x = 3 * torch.randn(2, 20, 4)
    assert repr(built) == repr(expected)
    assert (built.reset_gradient, built.backend) == ("full", "reference")
    assert torch.equal(built(x), expected(x))
    settings = {
        "tau": 3.0, "train_tau": True, "threshold": 0.7, "reset": "hard", "reset_gradient": "full",
        "surrogate": Triangle(2.0), "backend": "reference",
    }  # fmt: skip
    built, expected = LIFConfig(**settings).build(4), LIF(4, **settings)
    assert repr(built) == repr(expected)
    assert built.backend == "reference"
    with pytest.raises(ValueError, match="PRF: tau must be above 0, got -1"):
        PRFConfig(tau=-1).build(3)


@pytest.mark.parametrize("bias", [True, False])
def test_spike_linear_is_a_linear(bias):
    torch.manual_seed(1)
    ours = SpikeLinear(6, 4, bias)
    torch.manual_seed(1)
    theirs = nn.Linear(6, 4, bias)
    spikes = (torch.rand(2, 9, 6) < 0.3).float()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    torch.testing.assert_close(ours(spikes), theirs(spikes))
    one, other = spikes.clone().requires_grad_(), spikes.clone().requires_grad_()
    ours(one).square().sum().backward()
    theirs(other).square().sum().backward()
    torch.testing.assert_close(one.grad, other.grad)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    theirs.load_state_dict(ours.state_dict())
