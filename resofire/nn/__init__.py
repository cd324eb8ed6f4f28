"""Modules: parameters and their initialisation around the operators of `resofire.ops`."""

from .config import LIFConfig, PRFConfig
from .lif import LIF
from .neuron import FireRates, Neuron, Trace, fire_rates
from .norm import BatchNorm
from .prf import PRF
from .sdtcm import SDTCM
from .spatial import SpatialNeuron
from .spike_linear import SpikeLinear
from .sync import summed, synchronise

__all__ = [
    "LIF",
    "PRF",
    "SDTCM",
    "BatchNorm",
    "FireRates",
    "LIFConfig",
    "Neuron",
    "PRFConfig",
    "SpatialNeuron",
    "SpikeLinear",
    "Trace",
    "fire_rates",
    "summed",
    "synchronise",
]
