"""Image (Long Range Arena): grey CIFAR-10 pixel by pixel, both ways, post-norm; θ and warm-up the release's.

Without augmentation, which the paper does not mention and the release's run has.
"""

import math
from dataclasses import replace

from ..models import ClassifierConfig
from ..nn import PRFConfig
from ..train import RunConfig

NEURON = PRFConfig(tau=2.0, delta=(1e-3, 1e-1), theta=(0.0, 2 * math.pi / 0.25))
MODEL = ClassifierConfig(
    inputs=1, classes=10, features=512, depth=6, neuron=NEURON, bidirectional=True, prenorm=False, dropout=0.1
)
SMALL = replace(MODEL, features=96, depth=3, dropout=0.0)


def image() -> RunConfig:
    return RunConfig(name="image", task="image", model=MODEL, batch=50, epochs=200, weight_decay=0.05)


def image_small() -> RunConfig:
    """Three blocks of 96 channels, 10 epochs."""
    return replace(image(), name="image-small", model=SMALL, epochs=10)
