"""Why a LIF fails on long sequences: four neurons in one plain network, 1-64-256-256-10, without norms or shortcuts.

ablation-lif            the LIF with its reset, trained in parallel
ablation-lif-no-reset   the LIF without reset
ablation-plif           the LIF with a trained time constant
ablation-prf            the PRF with trained Δ, θ and τ: 86,858 parameters, the paper's 87k
decay                   a PRF without trained parameters, Δ = 1, on psMNIST, for sweeps over β = exp(-1 / τ) and θ

Without norms, the initial weights decide whether deep layers fire at all. They are sampled as usual and multiplied by
3, for the PRF with its small Δ (which scales the current) by 10: then every layer of every network starts at a fire
rate of 4 to 30 %. For `decay` the factor is 3 over the norm of the kernel: initial potentials do not depend on β.

τ = 2, batches of 256 and the epochs (200 and 50) are the paper's; on two cores, give fewer --epochs.
"""

import cmath
import math
from dataclasses import replace

from ..models import FeedforwardConfig
from ..nn import LIFConfig, PRFConfig
from ..recipes import image_paper, listops_paper, pathfinder_paper, recipe, text_paper
from ..recipes.arena import IMAGE, LISTOPS, PATHFINDER, TEXT
from ..train import RunConfig

SIZES = (1, 64, 256, 256, 10)


def _run(
    name: str, neuron: PRFConfig | LIFConfig, task: str = "smnist", epochs: int = 200, gain: float = 3.0
) -> RunConfig:
    model = FeedforwardConfig(sizes=SIZES, neuron=neuron, gain=gain)
    return RunConfig(name=name, task=task, model=model, batch=256, epochs=epochs, weight_decay=0.01)


@recipe
def ablation_lif() -> RunConfig:
    """LIF with soft reset."""
    return _run("ablation-lif", LIFConfig(tau=2.0))


@recipe
def ablation_lif_no_reset() -> RunConfig:
    """LIF without reset."""
    return _run("ablation-lif-no-reset", LIFConfig(tau=2.0, reset="none"))


@recipe
def ablation_plif() -> RunConfig:
    """LIF with a trained time constant."""
    return _run("ablation-plif", LIFConfig(tau=2.0, train_tau=True))


@recipe
def ablation_prf() -> RunConfig:
    """PRF with trained Δ, θ and τ."""
    return _run("ablation-prf", PRFConfig(tau=2.0, delta=(1e-2, 1.0), train_tau=True), gain=10.0)


@recipe
def decay(beta: float = 0.9, theta: float = math.pi / 2) -> RunConfig:
    """PRF without trained parameters: a potential decays by `beta` per step and turns by `theta` (0: no oscillation).

    Raises:
        ValueError: `beta` is not between 0 and 1.
    """
    if not 0 < beta < 1:
        raise ValueError(f"decay: beta must be above 0 and below 1, got {beta!r}")
    neuron = PRFConfig(tau=-1 / math.log(beta), delta=1.0, theta=theta, train_delta=False, train_theta=False)
    run = _run("decay", neuron, "psmnist-bitrev", 50, gain=3.0 / _kernel_norm(beta, theta))
    # A slow decay sums its input, so a step of the weights goes far: the default learning rate is too high.
    return replace(run, lr=1e-3)


def text_small_paper() -> RunConfig:
    """`text-paper` with three blocks of 128 channels and 10 epochs, for ablations of the paper's settings."""
    return replace(text_paper(), name="text-small", model=replace(TEXT, features=128, depth=3), batch=32, epochs=10)


def listops_small_paper() -> RunConfig:
    """`listops-paper` with four blocks of 64 channels and 8 epochs."""
    model = replace(LISTOPS, features=64, depth=4)
    return replace(listops_paper(), name="listops-small", model=model, epochs=8, warmup=0.05)


def image_small_paper() -> RunConfig:
    """`image-paper` with three blocks of 96 channels and 10 epochs."""
    model = replace(IMAGE, features=96, depth=3, dropout=0.0)
    return replace(image_paper(), name="image-small", model=model, epochs=10)


def _kernel_norm(beta: float, theta: float) -> float:
    """√Σ_k (β^k cos kθ)²: the standard deviation of the potential for white input of unit variance."""
    squares = 1 / (1 - beta**2) + (1 / (1 - beta**2 * cmath.exp(2j * theta))).real
    return math.sqrt(squares / 2)


def pathfinder_small_paper() -> RunConfig:
    """Pathfinder with the paper's neuron: three blocks of 64 channels, 5 epochs."""
    model = replace(PATHFINDER, features=64, depth=3, dropout=0.0)
    return replace(pathfinder_paper(), name="pathfinder-small-paper", model=model, epochs=5, warmup=0.05)
