"""The synapse: a linear layer whose input is a spike train.

    out = spikes Wᵀ + b        spikes [..., in], each 0 or one amplitude a; W [out, in]; b [out]

With the backend `events` the forward product adds only the weight rows of active inputs, and the gradient of W only the
output's gradients at which an input was active; the gradient of the spikes is a dense product, as every spike has one.
`reference` is the dense product, and takes any input. (What is not finite in W or in the output's gradient spreads
through a dense product even from inputs that are not active, as 0 · ∞ is NaN; through `events` it does not.)

Backends, in the order in which "auto" tries them: `events` (CPU), `reference`. "auto" takes `events` where the input is
a spike train, few enough of it are active and the product is large enough to be worth it: from the input alone, so that
the same input always goes the same way. While torch compiles there is no input to look at: "auto" then stays dense.
"""

from torch import Tensor

from ..registry import register, register_op, resolve
from . import events, reference
from .call import LinearCall, prepare


def spike_linear(spikes: Tensor, weight: Tensor, bias: Tensor | None = None, *, backend: str = "auto") -> Tensor:
    """Like `torch.nn.functional.linear`, to rounding, for an input that is mostly 0.

    spikes [..., in], weight [out, in], bias [out] or None
    """
    call = prepare(spikes, weight, bias)
    return resolve("spike_linear", call, backend).run(call)


def _describe(call: LinearCall) -> str:
    return f"spikes {list(call.spikes.shape)} {call.spikes.dtype}"


register_op("spike_linear", prepare, _describe)
register("spike_linear", "events", events.run, events.why_not, events.why_slow)
register("spike_linear", "reference", reference.run, reference.why_not)
