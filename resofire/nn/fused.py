"""An SD-TCM block as one operator, `resofire.ops.sdtcm`: when it can run like that, and the call."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..ops import equation
from ..ops import sdtcm as block_operator
from ..ops.checks import checks_finite, sequence_count
from .lif import LIF
from .linear import SpikeLinear
from .neuron import Neuron, autocast_on
from .norm import BatchNorm
from .prf import PRF
from .spatial import SpatialNeuron

if TYPE_CHECKING:
    from .sdtcm import SDTCM

# Where torch keeps the hooks of a module. Global module hooks are not called on the fused path.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def why_not(block: "SDTCM", u: Tensor) -> str | None:
    """Why the block does not run as one operator for this stream; None if it does."""
    if block.backend in ("events", "reference"):
        return f"backend={block.backend!r} composes the block from its parts"
    neurons, spatial = block._token_neurons(), block.channel_neuron
    if spatial is None or block.channel_linear is None:
        return "it has no spatial neuron"
    for part in (block.norm, block.token_linear, spatial, block.channel_linear):
        if type(part) not in (type(None), BatchNorm, SpikeLinear, SpatialNeuron):
            return f"one of its parts is a {type(part).__name__}"
        if part is not None and any(getattr(part, name) for name in HOOKS):
            return f"there are hooks on its {type(part).__name__}"
    if block.token_linear.bias is None or block.channel_linear.bias is None:
        return "one of its Linears has no bias"
    if isinstance(spatial.threshold, Tensor):
        return "the threshold of its spatial neuron is a tensor"
    for neuron in neurons:
        kind = type(neuron)
        if kind not in (PRF, LIF) and getattr(kind, "scan", None) is not Neuron.scan:
            return f"its temporal neuron, a {kind.__name__}, has its own `scan`"
        if getattr(neuron, "backend", "auto") not in ("auto", "scan"):
            return f"its temporal neuron has backend={neuron.backend!r}"
        if isinstance(neuron, PRF | LIF) and isinstance(neuron.threshold, Tensor):
            return "the threshold of its temporal neuron is a tensor"
    if spatial.surrogate.numba is None:
        return f"surrogate {type(spatial.surrogate).__name__} has no `numba` form"
    if autocast_on(u):
        return "autocast is on, which works on the parts"
    if checks_finite():
        return "check_finite() is on, which looks at what goes into each part"
    reason = block_operator.why_not(u)
    if reason is not None:
        return reason
    equations = [each._equation(u) for each in neurons]
    reason = next(filter(None, (equation.why_not_in_block(each, u) for each in equations)), None)
    if reason is None and len({(equation.block_key(each, u), each.surrogate) for each in equations}) > 1:
        return "its two temporal neurons differ in more than their numbers"
    return reason


def run(block: "SDTCM", u: Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """Run the block as one operator, where `why_not` has no reason against it."""
    sequence_count("SDTCM", u, cu_seqlens)
    if u.dtype != block.token_linear.weight.dtype:
        expected, got = (str(each.dtype).removeprefix("torch.") for each in (block.token_linear.weight, u))
        raise TypeError(f"SDTCM: u must be {expected} like the weights, got {got}")
    neurons, spatial, channel_linear = block._token_neurons(), block.channel_neuron, block.channel_linear
    # See `why_not`.
    assert spatial is not None
    assert channel_linear is not None
    gamma = beta = mean = inverse = keep = None
    if block.norm is not None and block.prenorm:
        gamma, beta = block.norm.weight, block.norm.bias
        mean, inverse = block.norm.statistics(u, cu_seqlens)
    dropping = block.training and block.dropout > 0
    if dropping:
        keep = torch.stack([block._dropout_mask(u).flatten() for _ in range(2)]).ne(0).to(torch.uint8)
    equations = [each._equation(u) for each in neurons]
    pairs = zip(*(each.coefficients for each in equations), strict=True)
    surrogate = equations[0].surrogate
    out, rates = block_operator.run(
        block_operator.Block(
            u=u,
            coefficients=torch.stack([each.rows(block.features) for each in equations]),
            gamma=gamma,
            beta=beta,
            token_weight=block.token_linear.weight,
            token_bias=block.token_linear.bias,
            channel_weight=channel_linear.weight,
            channel_bias=channel_linear.bias,
            token_amplitude=None if block.log_amplitude is None else block.log_amplitude.exp(),
            channel_amplitude=None if spatial.log_amplitude is None else spatial.log_amplitude.exp(),
            mean=mean,
            inverse=inverse,
            keep=keep,
            cu_seqlens=cu_seqlens,
            training=block.norm is not None and block.norm.training,
            keep_scale=1 / (1 - block.dropout) if dropping else 1.0,
            neuron=equation.block_key(equations[0], u),
            trained=[any(value.requires_grad for value in pair) for pair in pairs],
            token_surrogate=surrogate.name,
            token_numbers=surrogate.numbers,
            threshold=spatial.threshold,
            channel_surrogate=spatial.surrogate.name,
            channel_numbers=spatial.surrogate.numbers,
            group="" if block.norm is None else block.norm.group,
            gradient_dtype=block.gradient_dtype,
        )
    )
    for i, each in enumerate((*neurons, spatial)):
        each._report_rate(rates[i], u.numel())
    return block.norm(out) if block.norm is not None and not block.prenorm else out
