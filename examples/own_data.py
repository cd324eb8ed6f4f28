"""Data of your own: noisy chirps that rise or fall, once as a registered data set, once as arrays in memory.

    resofire train examples.own_data:registered --out runs/chirps
    resofire evaluate runs/chirps --import examples.own_data

    resofire train examples.own_data:in_memory --out runs/chirps-arrays
    resofire export runs/chirps-arrays --to c --out chirps-c

A registered set is found by its name, so commands import the module that registers it. Arrays are saved in the run
folder (up to 64 MB), so commands need nothing else.
"""

import numpy as np

from resofire import data
from resofire.models import ClassifierConfig
from resofire.nn import PRFConfig
from resofire.train import RunConfig

CLASSES = ("falling", "rising")


def chirps(count: int, noise: float, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Sequences [T_i, 1] of 60 to 120 steps whose frequency rises or falls, and their labels."""
    generator = np.random.default_rng(seed)
    rising = generator.integers(0, 2, count)
    sequences = []
    for up in rising:
        length = int(generator.integers(60, 121))
        frequency = np.linspace(0.02, 0.2, length)
        phase = 2 * np.pi * np.cumsum(frequency if up else frequency[::-1]) + generator.uniform(0, 2 * np.pi)
        sequences.append((np.sin(phase) + noise * generator.standard_normal(length))[:, None].astype(np.float32))
    return sequences, np.array(CLASSES)[rising]


@data.dataset("chirps", about="synthetic chirps, rising or falling (examples/own_data.py)")
def load(*, noise: float = 0.5) -> data.Task:
    """The data set; `--task-settings.noise` changes its setting."""
    return data.from_arrays(*chirps(1_000, noise, seed=0), test=chirps(500, noise, seed=1), name="chirps")


def registered() -> RunConfig:
    """A causal network on the registered set."""
    neuron = PRFConfig(tau=5.0, delta=(0.02, 1.0), theta=(0.0, 3.1416))
    model = ClassifierConfig(inputs=1, classes=2, features=32, depth=2, neuron=neuron)
    return RunConfig(
        name="chirps", task="chirps", task_settings={"noise": 0.5}, model=model, batch=32, epochs=5, weight_decay=0.01
    )


def in_memory() -> tuple[RunConfig, data.Task]:
    """The same network on arrays: the function returns the task as well."""
    return registered(), data.from_arrays(*chirps(1_000, 0.5, seed=0), test=chirps(500, 0.5, seed=1))
