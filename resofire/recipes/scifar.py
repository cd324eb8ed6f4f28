"""Colour CIFAR-10 pixel by pixel. As Image, but pre-norm and with the release's τ = 4 for sequential CIFAR."""

from dataclasses import replace

from ..nn import PRFConfig
from ..train import RunConfig
from .image import MODEL, SMALL, image, image_small

NEURON = PRFConfig(tau=4.0, delta=(1e-3, 1e-1))


def scifar() -> RunConfig:
    model = replace(MODEL, inputs=3, neuron=NEURON, prenorm=True)
    return replace(image(), name="scifar", task="scifar", model=model)


def scifar_small() -> RunConfig:
    """Three blocks of 96 channels, 10 epochs."""
    model = replace(SMALL, inputs=3, neuron=NEURON, prenorm=True)
    return replace(image_small(), name="scifar-small", task="scifar", model=model)
