"""From a trained network to a device: fold it, stream it, round it to integers, export it."""

from .export import ExportError, VerificationError, export
from .fold import fold
from .folded import Folded, Layer, Neurons
from .quantize import quantize
from .quantized import Quantized
from .simulate import Simulation
from .stream import Stream

__all__ = [
    "ExportError",
    "Folded",
    "Layer",
    "Neurons",
    "Quantized",
    "Simulation",
    "Stream",
    "VerificationError",
    "export",
    "fold",
    "quantize",
]
