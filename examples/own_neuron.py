"""A neuron of your own: the adaptive LIF, trained, evaluated, measured, streamed and exported like a built-in one.

    resofire train examples.own_neuron:alif --out runs/alif
    resofire evaluate runs/alif --import examples.own_neuron
    resofire measure runs/alif --import examples.own_neuron
    resofire export runs/alif --to c --numbers float --import examples.own_neuron

Commands that load the network need `--import`, because loading never imports code by itself.
"""

import math

import torch
from torch import Tensor

from resofire import nn
from resofire.models import ClassifierConfig
from resofire.ops import ATan, Surrogate
from resofire.train import RunConfig


class ALIF(nn.Neuron):
    """Adaptive LIF: each spike raises the threshold, which relaxes back.

    u_t = β u_{t-1} + c_t,  s_t = [u_t ≥ 1 + κ a_{t-1}],  a_t = ρ a_{t-1} + s_t,  reset u_t - s_t
    """

    states = ("u", "a")

    def __init__(
        self, features: int, *, tau: float = 20.0, tau_adapt: float = 200.0, kappa: float = 1.8,
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        super().__init__(features, surrogate=surrogate)
        # Trained per channel, in log space so that τ stays positive.
        self.log_tau = torch.nn.Parameter(torch.full((features,), math.log(tau)))
        self.log_tau_adapt = torch.nn.Parameter(torch.full((features,), math.log(tau_adapt)))
        self.kappa = kappa

    def coefficients(self) -> dict[str, Tensor]:
        return {
            "beta": torch.exp(-torch.exp(-self.log_tau)),
            "rho": torch.exp(-torch.exp(-self.log_tau_adapt)),
            "kappa": self.log_tau.new_tensor(self.kappa),
        }

    @staticmethod
    def dynamics(current, state, c, spike):  # type: ignore[no-untyped-def, override]
        u = c.beta * state.u + current
        s = spike(u - 1 - c.kappa * state.a)
        return s, {"u": u - s.detach(), "a": c.rho * state.a + s}


def alif() -> RunConfig:
    """Two SD-TCM blocks of adaptive LIFs on the embedded digits; `--model.neuron.tau 10` changes a setting."""
    model = ClassifierConfig(inputs=1, classes=10, features=32, depth=2, neuron=ALIF.config(tau=10.0, kappa=0.5))
    return RunConfig(name="alif", task="digits", model=model, batch=32, epochs=3, weight_decay=0.01)
