"""From a trained network to a folded one: norms, amplitudes, biases, Δ, τ and θ are merged into the arrays of `folded`.

The stream of a residual network is written as u = c z + d with constants c, d for each channel. A bias goes into d; a
weight row is divided by c; a norm γ(u - μ)/√(σ² + ε) + β on the stream only changes c and d; whoever looks at u looks
at z with another threshold, from the other side where c is negative. Where γ = 0 the norm has forgotten the stream: z
is cleared, c begins anew at 1.

A temporal neuron that sees a z + b has its state divided by |a| (and Δ), which leaves σ = sign(a), a constant current
b/|a| and the threshold V/(Δ|a|); where a = 0 there is nothing to divide by, σ = 0, and the current is b.

A gain below what is left of the numbers' range (1e-19 in float32) counts as γ = 0: what it lets through is far below
rounding, and dividing by it would leave the range. All of this is worked out in float64 and rounded once; φ is taken as
the network computes it, in its own precision.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..models import Classifier, Feedforward
from ..models.encoder import Encoder
from ..nn import LIF, PRF, SDTCM, BatchNorm
from .folded import Array, Folded, Layer, Neurons, wrong


def fold(model: nn.Module, dtype: Any = None) -> Folded:
    """The folded network of a `Classifier`, a `Feedforward`, or an `Encoder` (whose scores are then its features).

    `dtype` is that of the weights if not given. The model is not changed; it is taken as it is in evaluation.
    """
    wanted = _dtype(model, dtype)
    floor = float(np.sqrt(np.finfo(wanted).tiny))
    if isinstance(model, Classifier):
        folded = _encoder(model.encoder, _array(model.head.weight), _array(model.head.bias), floor)
    elif isinstance(model, Encoder):
        size = model.config.features
        folded = _encoder(model, np.eye(size), np.zeros(size), floor)
    elif isinstance(model, Feedforward):
        folded = _feedforward(model)
    else:
        raise TypeError(
            f"fold: model must be a Classifier, a Feedforward or an Encoder, got {type(model).__name__}"
            + (" (fold its encoder, and keep the head for pairs)" if hasattr(model, "encoder") else "")
        )
    with np.errstate(over="ignore"):
        folded = folded.astype(wanted)
    fault = wrong(folded)
    if fault:
        raise ValueError(f"fold: the network cannot be folded in {wanted}: {fault}")
    return folded


def _dtype(model: nn.Module, dtype: Any) -> np.dtype[Any]:
    """What was asked for, else that of the weights; half precision becomes float32, as everywhere."""
    if dtype is None:
        found = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        dtype = "float64" if found == torch.float64 else "float32"
    wanted = np.dtype(dtype)
    if wanted not in (np.float32, np.float64):
        raise ValueError(f"fold: dtype must be float32 or float64, got {dtype}")
    return wanted


def _encoder(encoder: Encoder, head: Array, bias: Array, floor: float) -> Folded:
    weight = _array(encoder.input.weight)
    tokens = encoder.config.vocabulary is not None
    table = weight if tokens else weight.T
    c = np.ones(encoder.config.features)
    d = np.zeros_like(c) if tokens else _array(encoder.input.get_parameter("bias"))
    layers: list[Layer] = []
    for block in encoder.blocks:
        assert isinstance(block, SDTCM)
        made, c, d = _block(block, c, d, floor)
        layers += made
    if encoder.norm is not None:
        gain, offset = _affine(encoder.norm)
        c, d = gain * c, gain * d + offset
    return Folded(
        np.ascontiguousarray(table), tokens, tuple(layers), encoder.config.pool, (head * c).T.copy(), bias + head @ d
    )


def _block(block: SDTCM, c: Array, d: Array, floor: float) -> tuple[list[Layer], Array, Array]:
    """The two layers of a block on the stream c z + d, and the c and d behind it."""
    gain, offset = (np.ones_like(c), np.zeros_like(c))
    if block.norm is not None and block.prenorm:
        gain, offset = _affine(block.norm, floor)
    modules = [block.token_neuron, block.token_neuron_reverse] if block.bidirectional else [block.token_neuron]
    temporal = tuple(_temporal(neuron, gain * c, gain * d + offset) for neuron in modules)
    token = Layer(temporal, _rows(block.token_linear.weight, block.log_amplitude) / c)
    d = d + _array(block.token_linear.bias)
    spatial = block.channel_neuron
    zero = np.zeros_like(c)
    looking = Neurons(
        "spatial", np.sign(c).astype(np.int8), (float(spatial.threshold) - d) / np.abs(c), zero, zero, zero
    )
    rows = _rows(block.channel_linear.weight, spatial.log_amplitude) / c
    d = d + _array(block.channel_linear.bias)
    clear = None
    if block.norm is not None and not block.prenorm:
        gain, offset = _affine(block.norm, floor)
        c, d = gain * c, gain * d + offset
        if (c == 0).any():
            clear = c == 0
            c = np.where(clear, 1.0, c)
    return [token, Layer((looking,), rows, clear=clear)], c, d


def _feedforward(model: Feedforward) -> Folded:
    first, *linears = (linear for linear in model.linears)
    bias = _array(first.get_parameter("bias"))
    table = np.ascontiguousarray(_array(first.get_parameter("weight")).T)
    layers = []
    for neuron, linear in zip(model.neurons, linears, strict=True):
        groups = (_temporal(neuron, np.ones_like(bias), bias),)
        layers.append(Layer(groups, _rows(linear.get_parameter("weight"), None), fresh=True))
        bias = _array(linear.get_parameter("bias"))
    return Folded(table, False, tuple(layers), model.config.pool, np.eye(len(bias)), bias)


def _temporal(neuron: nn.Module, a: Array, b: Array) -> Neurons:
    """A neuron that is given a z + b."""
    if isinstance(neuron, PRF):
        with torch.no_grad():
            phi_re, phi_im, delta = (_array(neuron.coefficients()[name]) for name in ("phi_re", "phi_im", "gain"))
        kind = "prf"
    elif isinstance(neuron, LIF):
        with torch.no_grad():
            phi_re = _array(neuron.beta())
        kind, phi_im, delta = "lif", np.zeros_like(phi_re), np.ones_like(phi_re)
    else:
        raise TypeError(f"fold: the temporal neuron must be a PRF or a LIF, got {type(neuron).__name__}")
    threshold = np.broadcast_to(np.asarray(_number(neuron.threshold), np.float64), a.shape)
    size = np.where(a == 0, 1.0, np.abs(a))
    return Neurons(
        kind, np.sign(a).astype(np.int8), threshold / (delta * size), b / size, phi_re, phi_im, str(neuron.reset)
    )


def _affine(norm: BatchNorm, floor: float = 0.0) -> tuple[Array, Array]:
    """A norm in evaluation is gain u + offset; a gain below `floor` is none."""
    gain = _array(norm.weight) / np.sqrt(_array(norm.running_var) + norm.eps)
    gain = np.where(np.abs(gain) < floor, 0.0, gain)
    return gain, _array(norm.bias) - gain * _array(norm.running_mean)


def _rows(weight: Tensor, log_amplitude: Tensor | None) -> Array:
    rows = np.ascontiguousarray(_array(weight).T)
    return rows if log_amplitude is None else rows * np.exp(_array(log_amplitude))


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().double().numpy()


def _number(value: float | Tensor) -> Any:
    return _array(value) if isinstance(value, Tensor) else value
