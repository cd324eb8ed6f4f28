"""From a trained network to a device: fold it, stream it, round it to integers, export it."""

from .fold import fold
from .folded import Folded, Layer, Neurons
from .stream import Stream

__all__ = ["Folded", "Layer", "Neurons", "Stream", "fold"]
