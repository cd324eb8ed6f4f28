"""The synapse: a linear layer whose input is a spike train.

    out = spikes Wᵀ + b        spikes [..., in], each 0 or one amplitude a; W [out, in]; b [out]

With the backend `events` the forward pass adds only the weight rows of active inputs, and the gradient of W only sums
over the time steps at which an input was active. The gradient of the spikes is a dense product. `reference` is the
dense product throughout and accepts any input. The two differ where W or the output's gradient is not finite: a dense
product spreads it from inactive inputs too, as 0 · ∞ is NaN.

Backends, in the order in which "auto" tries them: `events` (CPU), `reference`. "auto" takes `events` if the input is a
sparse spike train and the product is large enough. That depends on the input alone, so the same input always runs the
same way. While torch compiles, values are unknown and "auto" stays dense.
"""

import torch.nn.functional as F
from torch import Tensor

from ..registry import register, register_op, resolve
from . import events
from .call import LinearCall, prepare


def spike_linear(spikes: Tensor, weight: Tensor, bias: Tensor | None = None, *, backend: str = "auto") -> Tensor:
    """Apply a linear layer to spikes: `torch.nn.functional.linear` up to rounding, faster for a sparse input.

    Args:
        spikes: Input [..., in], each element 0 or one common amplitude; other values run dense.
        weight: Weights [out, in], of the type and on the device of `spikes`.
        bias: Bias [out], or None.
        backend: "auto", "events" or "reference"; see `explain`.

    Returns:
        The output [..., out].

    Raises:
        RuntimeError: If the named backend cannot run this call, such as "events" on other values than spikes.

    Example:
        >>> spikes, _ = lif(torch.randn(8, 1000, 64), 0.9)
        >>> current = spike_linear(spikes, torch.randn(128, 64))
    """
    call = prepare(spikes, weight, bias)
    return resolve("spike_linear", call, backend).run(call)


def _dense(call: LinearCall) -> Tensor:
    """The definition: a dense product, for any input."""
    return F.linear(call.spikes, call.weight, call.bias)


def _describe(call: LinearCall) -> str:
    return f"spikes {list(call.spikes.shape)} {call.spikes.dtype}"


register_op("spike_linear", prepare, _describe)
register("spike_linear", "events", events.run, events.why_not, events.why_slow)
register("spike_linear", "reference", _dense, lambda call: None)
