"""From a trained network to a device: fold it, stream it, round it to integers, export it."""

from .export import ExportError, export
from .fold import fold
from .folded import Folded, Layer, Neurons
from .stream import Stream

__all__ = ["ExportError", "Folded", "Layer", "Neurons", "Stream", "export", "fold"]
