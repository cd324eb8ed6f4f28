"""Spoken digits as raw waves of about 3,500 samples; the paper does not have them, so the settings are ours."""

from dataclasses import replace

from ..models import ClassifierConfig
from ..nn import PRFConfig
from ..train import RunConfig

NEURON = PRFConfig(tau=10.0, delta=(1e-3, 1.0))
MODEL = ClassifierConfig(inputs=1, classes=10, features=128, depth=4, neuron=NEURON, dropout=0.05)


def speech() -> RunConfig:
    return RunConfig(name="speech", task="speech", model=MODEL, batch=32, epochs=100, weight_decay=0.05, ema=0.99)


def speech_small() -> RunConfig:
    """Three blocks of 64 channels, 30 epochs."""
    return replace(speech(), name="speech-small", model=replace(MODEL, features=64, depth=3), epochs=30)
