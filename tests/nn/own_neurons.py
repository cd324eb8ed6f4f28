"""Neurons of a user's own, as a package outside the library would define them."""

import math
from dataclasses import dataclass

import torch
from torch import nn

import resofire.nn
from resofire.ops import ATan


class ALIF(resofire.nn.Neuron):
    """Adaptive LIF: each spike raises the threshold, which relaxes back."""

    states = ("u", "a")

    def __init__(self, features, *, tau=20.0, tau_adapt=200.0, kappa=1.8, surrogate=ATan()):  # noqa: B008 - frozen
        super().__init__(features, surrogate=surrogate)
        self.log_tau = nn.Parameter(torch.full((features,), math.log(tau)))
        self.tau_adapt, self.kappa = tau_adapt, kappa

    def coefficients(self):
        rho = math.exp(-1 / self.tau_adapt)
        return {
            "beta": torch.exp(-torch.exp(-self.log_tau)),
            "rho": self.log_tau.new_tensor(rho),
            "kappa": self.log_tau.new_tensor(self.kappa),
        }

    @staticmethod
    def dynamics(current, state, c, spike):
        u = c.beta * state.u + current
        s = spike(u - 1 - c.kappa * state.a)
        return s, {"u": u - s.detach(), "a": c.rho * state.a + s}


class Threshold(resofire.nn.Neuron):
    """No state and no settings at all."""

    @staticmethod
    def dynamics(current, state, c, spike):
        return spike(current - 1), {}


class Gate(nn.Module):
    """A block without streaming, folding or counting: a causal mean, gated."""

    def __init__(self, features, width):
        super().__init__()
        self.gate, self.value = nn.Linear(features, width), nn.Linear(width, features)

    def forward(self, u, *, cu_seqlens=None):
        return u + self.value(torch.relu(self.gate(u)))


@dataclass(frozen=True)
class GateConfig(resofire.nn.Config):
    """The settings of a `Gate`."""

    width: int = 8

    def build(self, features):
        return Gate(features, self.width)
