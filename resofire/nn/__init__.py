"""Modules: parameters and their initialisation around the operators of `resofire.ops`."""

from .config import Config, Configurable, NeuronConfig
from .firing import FireRates, fire_rates
from .lif import LIF, LIFConfig
from .linear import SpikeLinear
from .neuron import Neuron, Trace
from .neurons import AHP, ALIF, BHRF, BRF, DRF, GLIF, PLIF, PSN, TCLIF, Recurrent, SlidingPSN
from .norm import BatchNorm
from .prf import PRF, PRFConfig
from .sdtcm import SDTCM
from .spatial import SpatialNeuron
from .sync import summed, synchronise

__all__ = [
    "AHP",
    "ALIF",
    "BHRF",
    "BRF",
    "DRF",
    "GLIF",
    "LIF",
    "PLIF",
    "PRF",
    "PSN",
    "SDTCM",
    "TCLIF",
    "BatchNorm",
    "Config",
    "Configurable",
    "FireRates",
    "LIFConfig",
    "Neuron",
    "NeuronConfig",
    "PRFConfig",
    "Recurrent",
    "SlidingPSN",
    "SpatialNeuron",
    "SpikeLinear",
    "Trace",
    "fire_rates",
    "summed",
    "synchronise",
]
