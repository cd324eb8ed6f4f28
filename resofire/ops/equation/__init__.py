"""Any neuron from the equation of one time step: `dynamics(current, state, c, spike) -> (spikes, next state)`.

`loop` runs the equation step by step under autograd. It is the definition that every faster path is tested against.
"""

from .loop import Dynamics, record, scan, step

__all__ = ["Dynamics", "record", "scan", "step"]
