"""From a trained network to a device: fold it, stream it, round it to fixed point, export it."""

from ..nn.folded import Folded, FoldError, Layer, Neurons
from .export import export
from .fold import fold
from .formats import FORMATS, ExportError, FloatFormat, Format, VerificationError, register
from .formats.safetensors import holds_folded, load, save
from .operations import operations
from .quantize import quantize
from .quantized import Quantized
from .simulate import Simulation
from .stream import Stream

__all__ = [
    "FORMATS",
    "ExportError",
    "FloatFormat",
    "FoldError",
    "Folded",
    "Format",
    "Layer",
    "Neurons",
    "Quantized",
    "Simulation",
    "Stream",
    "VerificationError",
    "export",
    "fold",
    "holds_folded",
    "load",
    "operations",
    "quantize",
    "register",
    "save",
]
