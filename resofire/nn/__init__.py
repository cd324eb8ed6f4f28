"""Modules: parameters and their initialisation around the operators of `resofire.ops`."""

from .lif import LIF
from .neuron import FireRates, Neuron, Trace, fire_rates
from .prf import PRF
from .spatial import SpatialNeuron

__all__ = ["LIF", "PRF", "FireRates", "Neuron", "SpatialNeuron", "Trace", "fire_rates"]
