"""Neurons of the literature, each an equation of one time step (`resofire.nn.Neuron`) with its original settings.

The surrogate derivative is a setting everywhere; its default is the library's, ATan, whatever the paper used.
"""

from .adaptive import AHP, ALIF
from .dendritic import DRF
from .integrate import GLIF, PLIF, TCLIF
from .parallel import PSN, SlidingPSN
from .recurrent import Recurrent
from .resonate import BHRF, BRF

__all__ = ["AHP", "ALIF", "BHRF", "BRF", "DRF", "GLIF", "PLIF", "PSN", "TCLIF", "Recurrent", "SlidingPSN"]
