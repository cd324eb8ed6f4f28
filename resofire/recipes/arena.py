"""The Long Range Arena, and films: pairs of reviews in place of its pairs of papers.

The `-paper` recipes have the hyperparameters of the paper's table; the ranges of θ, and the warm-up, are those of the
authors' release. Image is trained without augmentation (`image-medium` with), which the paper does not mention and the
release has. Path-X is unsolved in the paper; τ and θ are the release's attempt. The `-small` and `-medium` ones suit
two CPU cores; the `-sparse` ones train the shipped network of that name on, to lower fire rates.
"""

import math
from dataclasses import replace

from ..models import ClassifierConfig, RetrievalConfig
from ..nn import PRFConfig
from ..train import RunConfig
from .registry import recipe


def _neuron(divisor: float, tau: float = 2.0, delta: float = 0.1, gain: str = "delta") -> PRFConfig:
    """Δ from 0.001 to `delta`, θ from 0 to 2π / `divisor`."""
    return PRFConfig(tau=tau, delta=(1e-3, delta), theta=(0.0, 2 * math.pi / divisor), gain=gain)


LISTOPS = ClassifierConfig(vocabulary=18, classes=10, features=128, depth=8, neuron=_neuron(12), prenorm=False)
# π to as many digits as on the command line of the first shipped network: docs/experiments/arena-initialisation.md.
LISTOPS_WIDE = replace(LISTOPS, neuron=PRFConfig(tau=2.0, delta=(1e-3, 1.0), theta=(0.0, 3.14159265), gain="unit"))
TEXT = ClassifierConfig(vocabulary=134, classes=2, features=256, depth=6, neuron=_neuron(16))
TEXT_WIDE = replace(TEXT, neuron=_neuron(16, delta=1.0), dropout=0.1)
RETRIEVAL = RetrievalConfig(vocabulary=98, features=256, depth=6, neuron=_neuron(14))
IMAGE = ClassifierConfig(
    inputs=1, classes=10, features=512, depth=6, neuron=_neuron(0.25), bidirectional=True, prenorm=False, dropout=0.1
)
IMAGE_UNIT = replace(IMAGE, neuron=_neuron(0.25, gain="unit"))
PATHFINDER = ClassifierConfig(
    vocabulary=256, classes=2, features=256, depth=6, neuron=_neuron(0.6), bidirectional=True, dropout=0.05
)
# Frequencies at the first harmonics of a row of 32 pixels: docs/experiments/arena-pathfinder.md.
PATHFINDER_ROWS = replace(
    PATHFINDER, neuron=PRFConfig(tau=(4.0, 1_000.0), delta=1.0, theta=(0.0, 0.88), gain="unit", period=32)
)
FILMS = replace(RETRIEVAL, vocabulary=134, features=128, depth=4)
PATHX = replace(PATHFINDER, neuron=_neuron(10, tau=100.0))


def _sparse(config: RunConfig, limit: float, epochs: int) -> RunConfig:
    """Train a shipped network on, at a lower learning rate, with a penalty on mean fire rates above `limit`."""
    return replace(
        config, name=f"{config.name}-sparse", init=config.name, epochs=epochs, lr=0.002, neuron_lr=0.0004, ema=0.998,
        warmup=0.05, model=replace(config.model, rate_limit=limit),
    )  # fmt: skip


@recipe
def listops_paper() -> RunConfig:
    """ListOps: nested operations. Post-norm."""
    return RunConfig(
        name="listops-paper", task="listops", model=LISTOPS, batch=50, epochs=40, weight_decay=0.05, warmup=1 / 80
    )


@recipe
def listops() -> RunConfig:
    """ListOps, with memories from two steps on, 4 epochs.

    From random weights it learns slowly: examples/curriculum.py trains it (docs/experiments/arena-listops.md).
    """
    return replace(
        listops_paper(), name="listops", model=LISTOPS_WIDE, epochs=4, warmup=0.05, ema=0.999, recalibrate=64,
        gradient_dtype="auto",
    )  # fmt: skip


@recipe
def listops_small() -> RunConfig:
    """Four blocks of 64 channels, 8 epochs, from random weights."""
    return replace(listops(), name="listops-small", model=replace(LISTOPS_WIDE, features=64, depth=4), epochs=8)


@recipe
def text_paper() -> RunConfig:
    """Text: the sentiment of a film review, by characters."""
    return RunConfig(name="text-paper", task="text", model=TEXT, batch=16, epochs=32, weight_decay=0.05, warmup=0.1)


@recipe
def text() -> RunConfig:
    """Text, with memories from two characters on (Δ up to 1), and regularised: see docs/experiments/arena-text.md."""
    return replace(text_paper(), name="text", model=TEXT_WIDE, ema=0.999, recalibrate=64, label_smoothing=0.05)


@recipe
def text_medium() -> RunConfig:
    """Three bidirectional blocks of 152 channels, 10 epochs, more dropout and smoothing."""
    model = replace(TEXT_WIDE, features=152, depth=3, bidirectional=True, dropout=0.2)
    return replace(text_small(), name="text-medium", model=model, label_smoothing=0.1, gradient_dtype="auto")


@recipe
def text_small() -> RunConfig:
    """Three blocks of 128 channels, 10 epochs."""
    return replace(text(), name="text-small", model=replace(TEXT_WIDE, features=128, depth=3), batch=32, epochs=10)


@recipe
def text_small_sparse() -> RunConfig:
    """text-small trained on for 3 epochs, with a penalty on mean fire rates above 5 %."""
    return _sparse(text_small(), 0.05, epochs=3)


@recipe
def text_medium_sparse() -> RunConfig:
    """text-medium trained on for 3 epochs, with a penalty on mean fire rates above 5 %."""
    return _sparse(text_medium(), 0.05, epochs=3)


@recipe
def retrieval_paper() -> RunConfig:
    """Retrieval: does one paper cite the other?"""
    return RunConfig(name="retrieval-paper", task="retrieval", model=RETRIEVAL, batch=32, epochs=20, weight_decay=0.05)


@recipe
def retrieval() -> RunConfig:
    """Retrieval."""
    return replace(retrieval_paper(), name="retrieval")


@recipe
def retrieval_small() -> RunConfig:
    """Two blocks of 64 channels, 4,000 steps: a bit less than an epoch."""
    model = replace(RETRIEVAL, features=64, depth=2)
    return replace(retrieval(), name="retrieval-small", model=model, steps=4_000, validate_every=1_000)


@recipe
def films() -> RunConfig:
    """Films: are two reviews about the same film? As Retrieval, with four blocks of 128 channels."""
    return replace(retrieval(), name="films", task="films", model=FILMS)


@recipe
def films_small() -> RunConfig:
    """Two blocks of 64 channels, 4,000 steps."""
    model = replace(FILMS, features=64, depth=2)
    return replace(films(), name="films-small", model=model, steps=4_000, validate_every=1_000)


@recipe
def image_paper() -> RunConfig:
    """Image: grey CIFAR-10 pixel by pixel. Bidirectional, post-norm."""
    return RunConfig(name="image-paper", task="image", model=IMAGE, batch=50, epochs=200, weight_decay=0.05)


@recipe
def image() -> RunConfig:
    """Image, with potentials of unit variance: see docs/experiments/arena-initialisation.md."""
    return replace(image_paper(), name="image", model=IMAGE_UNIT)


@recipe
def image_medium() -> RunConfig:
    """Six blocks of 128 channels, 20 epochs; training images are shifted by up to four pixels and mirrored."""
    return replace(
        image(), name="image-medium", model=replace(IMAGE_UNIT, features=128), epochs=20, ema=0.999, recalibrate=64,
        label_smoothing=0.05, gradient_dtype="auto", task_settings={"shift": 4.0, "mirror": True},
    )  # fmt: skip


@recipe
def image_small() -> RunConfig:
    """Three blocks of 96 channels, 10 epochs."""
    model = replace(IMAGE_UNIT, features=96, depth=3, dropout=0.0)
    return replace(
        image(), name="image-small", model=model, epochs=10, ema=0.999, recalibrate=64, gradient_dtype="auto"
    )


@recipe
def pathfinder_paper() -> RunConfig:
    """Pathfinder: are two discs joined by a path? Grey levels as tokens. Bidirectional."""
    return RunConfig(
        name="pathfinder-paper", task="pathfinder", model=PATHFINDER, batch=64, epochs=200, weight_decay=0.03,
        warmup=0.005,
    )  # fmt: skip


@recipe
def pathfinder() -> RunConfig:
    """Pathfinder."""
    return replace(pathfinder_paper(), name="pathfinder")


@recipe
def pathfinder_medium() -> RunConfig:
    """Four blocks of 128 channels, 3 epochs, by a curriculum as pathfinder-small."""
    model = replace(PATHFINDER_ROWS, features=128, depth=4, dropout=0.0)
    return replace(pathfinder_small(), name="pathfinder-medium", model=model, epochs=3)


@recipe
def pathfinder_small() -> RunConfig:
    """Four blocks of 64 channels, 4 epochs.

    From random weights it stays at chance: examples/curriculum.py trains it.
    """
    model = replace(PATHFINDER_ROWS, features=64, depth=4, dropout=0.0)
    return replace(
        pathfinder(), name="pathfinder-small", model=model, epochs=4, warmup=0.05, ema=0.999, recalibrate=64,
        gradient_dtype="auto",
    )  # fmt: skip


@recipe
def pathx() -> RunConfig:
    """Path-X: Pathfinder of 16,384 pixels."""
    return replace(pathfinder_paper(), name="pathx", task="pathx", model=PATHX, batch=16, epochs=50)


@recipe
def pathx_small() -> RunConfig:
    """Two blocks of 64 channels, 3,000 steps."""
    model = replace(PATHX, features=64, depth=2, dropout=0.0)
    return replace(pathx(), name="pathx-small", model=model, steps=3_000, validate_every=1_500, warmup=0.05)
