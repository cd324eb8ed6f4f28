"""Why a LIF fails on long sequences: four neurons in one plain network, 1-64-256-256-10, without norms or shortcuts.

ablation-lif            the LIF with its reset, trained in parallel
ablation-lif-no-reset   the LIF without one
ablation-plif           the LIF with a trained time constant
ablation-prf            the PRF, with Δ, θ and τ trained: 86,858 parameters, the paper's 87k
decay                   a PRF in which nothing is trained, Δ = 1, on psMNIST: β = exp(-1 / τ) and θ are for you to vary

There are no norms, so the first weights decide whether deep layers fire at all. They are drawn as usual and multiplied
by 3, for the PRF with its small Δ (which scales the current) by 10: then every layer of every network fires in 4 to
30 % of its steps at first. For `decay` it is 3 over the norm of the kernel, so that potentials begin as large
with every β.

τ = 2 and batches of 256 are the paper's; the epochs are too (200 and 50), which two cores do not finish: give --epochs.
"""

import cmath
import math
from dataclasses import replace

from ..models import FeedforwardConfig
from ..nn import LIFConfig, PRFConfig
from ..train import RunConfig

SIZES = (1, 64, 256, 256, 10)


def _run(
    name: str, neuron: PRFConfig | LIFConfig, task: str = "smnist", epochs: int = 200, gain: float = 3.0
) -> RunConfig:
    model = FeedforwardConfig(sizes=SIZES, neuron=neuron, gain=gain)
    return RunConfig(name=name, task=task, model=model, batch=256, epochs=epochs, weight_decay=0.01)


def ablation_lif() -> RunConfig:
    return _run("ablation-lif", LIFConfig(tau=2.0))


def ablation_lif_no_reset() -> RunConfig:
    return _run("ablation-lif-no-reset", LIFConfig(tau=2.0, reset="none"))


def ablation_plif() -> RunConfig:
    return _run("ablation-plif", LIFConfig(tau=2.0, train_tau=True))


def ablation_prf() -> RunConfig:
    return _run("ablation-prf", PRFConfig(tau=2.0, delta=(1e-2, 1.0), train_tau=True), gain=10.0)


def decay(beta: float = 0.9, theta: float = math.pi / 2) -> RunConfig:
    """`beta` is what is left of a potential after one step; `theta` = 0 takes the oscillation away."""
    if not 0 < beta < 1:
        raise ValueError(f"decay: beta must be above 0 and below 1, got {beta!r}")
    neuron = PRFConfig(tau=-1 / math.log(beta), delta=1.0, theta=theta, train_delta=False, train_theta=False)
    run = _run("decay", neuron, "psmnist-bitrev", 50, gain=3.0 / _kernel_norm(beta, theta))
    # A slow decay adds up what comes in, so a step of the weights goes far: the recipes' rate is too high for it.
    return replace(run, lr=1e-3)


def _kernel_norm(beta: float, theta: float) -> float:
    """√Σ_k (β^k cos kθ)²: how large potentials get from currents of size 1 that have nothing to do with each other."""
    squares = 1 / (1 - beta**2) + (1 / (1 - beta**2 * cmath.exp(2j * theta))).real
    return math.sqrt(squares / 2)
