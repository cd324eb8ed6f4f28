"""Retrieval (Long Range Arena): does one paper cite the other? The paper's table, θ and warm-up the release's."""

import math
from dataclasses import replace

from ..models import RetrievalConfig
from ..nn import PRFConfig
from ..train import RunConfig

NEURON = PRFConfig(tau=2.0, delta=(1e-3, 1e-1), theta=(0.0, 2 * math.pi / 14))
MODEL = RetrievalConfig(vocabulary=98, features=256, depth=6, neuron=NEURON)


def retrieval() -> RunConfig:
    return RunConfig(name="retrieval", task="retrieval", model=MODEL, batch=32, epochs=20, weight_decay=0.05)


def retrieval_small() -> RunConfig:
    """Two blocks of 64 channels, 4,000 steps: a bit less than an epoch."""
    model = replace(MODEL, features=64, depth=2)
    return replace(retrieval(), name="retrieval-small", model=model, steps=4_000, validate_every=1_000)
