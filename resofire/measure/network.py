"""What our own networks do, layer by layer: `count_ops` walks a model and counts every part of it.

How each part is counted (docs/energy.md has the reasons):

    spike Linear     sums begin at the bias; each input that spikes adds its weights: rate · in · out accumulates
    input, head      dense: in · out MACs, begun at the bias; an embedding is a look-up, which moves bytes only
    PRF              5 multiplications, 3 additions, 1 comparison a channel; LIF 1, 1, 1; a soft reset 1 addition more
    spatial neuron   1 comparison a channel; its size α, like the temporal neuron's, is part of the next weights
    norm             1 multiplication and 1 addition a channel; folded: nothing, it becomes part of its neighbours
    residual         1 addition a channel for each of a block's two shortcuts
    pool             "mean": 1 addition a channel and step, 1 multiplication at the end, then the last norm (it is the
                     same for all steps); "last": nothing, and norm and head run once; "none": they run at every step.
                     The mean of spikes is a counter, which only spikes add to.

Bidirectional: two neurons walk, their spikes stand side by side, one Linear of 2D inputs reads them.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ..models import Classifier, Feedforward, Retrieval
from ..models.encoder import Encoder
from ..nn import LIF, PRF, SDTCM
from .counts import NUMBER, SPIKE, Count, Counts, joined, require_positive, require_rate
from .rates import Model, require_network

OWNER = "count_ops"


def count_ops(model: Model, shape: tuple[float, ...], rates: Mapping[str, float], *, fold_norm: bool = False) -> Counts:
    """Operations and bytes of one inference of `model` at these fire rates.

    shape        of an inference's input, without batch: (steps,) of tokens or (steps, inputs) of values. For a pair of
                 documents, the steps of both together. A mean length need not be whole.
    rates        of every neuron layer by its name, as `fire_rates` gives them; a Fraction gives exact counts
    fold_norm    counts a network whose norms have become part of the layers around them
    """
    require_network(OWNER, model)
    steps = _steps(model, shape)
    rates = dict(rates)
    if isinstance(model, Feedforward):
        parts = _feedforward(model, steps, rates)
    else:
        parts = _encoded(model, steps, rates, fold_norm)
    return joined(type(model).__name__, steps, parts)


def sequences(model: Model) -> int:
    """How many sequences one inference reads."""
    return 2 if isinstance(model, Retrieval) else 1


def widths(model: Model) -> tuple[int, ...]:
    """The channels of each block; of a plain network, of each layer of neurons."""
    if isinstance(model, Feedforward):
        return model.config.sizes[1:-1]
    return (model.encoder.config.features,) * model.encoder.config.depth


def frame(model: Model, steps: float, *, fold_norm: bool = False) -> list[Count]:
    """What stands around blocks that hand on real values: input layer, last norm, pool and head, as a peer has them."""
    if isinstance(model, Feedforward):
        first, last = model.linears[0], model.linears[-1]
        return [_dense(first, "linears.0", "encoder", steps), *_pool(model.config.pool, widths(model)[-1], steps, 1),
                _dense(last, f"linears.{len(model.linears) - 1}", "head", _head_times(model, steps))]  # fmt: skip
    return [_input(model.encoder, steps), *_readout(model, steps, fold_norm)]


def norms(model: Model) -> bool:
    """Whether every block has a norm."""
    return not isinstance(model, Feedforward) and model.encoder.config.norm != "none"


def _encoded(model: Classifier | Retrieval, steps: float, rates: dict[str, float], fold: bool) -> list[Count]:
    encoder = model.encoder
    parts = [_input(encoder, steps)]
    for number, block in enumerate(encoder.blocks):
        assert isinstance(block, SDTCM)
        parts += _block(block, f"encoder.blocks.{number}", steps, rates, fold)
    return [*parts, *_readout(model, steps, fold)]


def _readout(model: Classifier | Retrieval, steps: float, fold: bool) -> list[Count]:
    features, vectors = model.config.features, sequences(model)
    parts = _pool(model.config.pool, features, steps, vectors)
    if model.encoder.norm is not None and not fold:
        # Mean and last leave one vector a sequence behind, for which the norm can wait.
        parts.append(_norm("encoder.norm", features, steps if model.config.pool == "none" else vectors))
    return [*parts, *_head(model, steps)]


def _block(block: SDTCM, name: str, steps: float, rates: dict[str, float], fold: bool) -> list[Count]:
    features = block.features
    norm = [] if block.norm is None or fold else [_norm(f"{name}.norm", features, steps)]
    parts = list(norm) if block.prenorm else []
    active: float = 0
    for neuron in ("token_neuron", "token_neuron_reverse"):
        if getattr(block, neuron) is not None:
            parts.append(count_neuron(getattr(block, neuron), f"{name}.{neuron}", steps))
            active += _rate(rates, f"{name}.{neuron}") * features
    parts += [
        _synapses(block.token_linear, f"{name}.token_linear", "token linear", active, steps),
        _residual(f"{name}.token_shortcut", features, steps),
        Count(layer=f"{name}.channel_neuron", component="spatial neuron", times=steps, compare=features,
              activations_read=NUMBER * features, activations_written=SPIKE * features),
        _synapses(block.channel_linear, f"{name}.channel_linear", "channel linear",
                  _rate(rates, f"{name}.channel_neuron") * features, steps),
        _residual(f"{name}.channel_shortcut", features, steps),
    ]  # fmt: skip
    return parts if block.prenorm else [*parts, *norm]


def _feedforward(model: Feedforward, steps: float, rates: dict[str, float]) -> list[Count]:
    parts = [_dense(model.linears[0], "linears.0", "encoder", steps)]
    for number, neuron in enumerate(model.neurons):
        active = _rate(rates, f"neurons.{number}") * model.config.sizes[number + 1]
        parts.append(count_neuron(neuron, f"neurons.{number}", steps))
        following, name = model.linears[number + 1], f"linears.{number + 1}"
        if number + 1 < len(model.neurons):
            parts.append(_synapses(following, name, "token linear", active, steps))
        elif model.config.pool == "mean":
            parts += _pool("mean", model.config.sizes[-2], steps, 1, active)
            parts.append(_dense(following, name, "head", 1))
        else:
            # With pool "last" the mean rate stands for that of the last step, which is not known by itself.
            parts.append(_synapses(following, name, "head", active, _head_times(model, steps)))
    return parts


def count_neuron(neuron: nn.Module, name: str, steps: float) -> Count:
    """The plain equation of `resofire.ops`, per channel."""
    if isinstance(neuron, PRF):
        multiply, add, coefficients, states = 5, 3, 3, 2
    elif isinstance(neuron, LIF):
        multiply, add, coefficients, states = 1, 1, 1, 1
    else:
        raise ValueError(f"{OWNER}: model has a {type(neuron).__name__} at {name}; only PRF and LIF have a known cost")
    # Subtracting V·s, whatever s is. A hard reset writes a zero, which is no arithmetic.
    add += neuron.reset == "soft"
    features = neuron.features
    return Count(
        layer=name, component="temporal neuron", times=steps, multiply=multiply * features, add=add * features,
        compare=features, weights_read=NUMBER * coefficients * features, state_read=NUMBER * states * features,
        state_written=NUMBER * states * features, activations_read=NUMBER * features,
        activations_written=SPIKE * features,
    )  # fmt: skip


def _synapses(linear: Any, name: str, component: str, active: float, times: float) -> Count:
    """A Linear on spikes, of which `active` are there on average."""
    inputs, outputs = linear.in_features, linear.out_features
    return Count(
        layer=name, component=component, times=times, ac=active * outputs,
        weights_read=NUMBER * (active + (linear.bias is not None)) * outputs, activations_read=SPIKE * inputs,
        activations_written=NUMBER * outputs,
    )  # fmt: skip


def _dense(linear: Any, name: str, component: str, times: float) -> Count:
    inputs, outputs = linear.in_features, linear.out_features
    return Count(
        layer=name, component=component, times=times, mac=inputs * outputs,
        weights_read=NUMBER * (inputs + (linear.bias is not None)) * outputs, activations_read=NUMBER * inputs,
        activations_written=NUMBER * outputs,
    )  # fmt: skip


def _norm(name: str, features: int, times: float) -> Count:
    return Count(
        layer=name, component="norm", times=times, multiply=features, add=features, weights_read=NUMBER * 2 * features,
        activations_read=NUMBER * features, activations_written=NUMBER * features,
    )  # fmt: skip


def _residual(name: str, features: int, steps: float) -> Count:
    return Count(layer=name, component="residual", times=steps, add=features,
                 activations_read=NUMBER * 2 * features, activations_written=NUMBER * features)  # fmt: skip


def _input(encoder: Encoder, steps: float) -> Count:
    if isinstance(encoder.input, nn.Embedding):
        features = encoder.input.embedding_dim
        return Count(layer="encoder.input", component="encoder", times=steps, weights_read=NUMBER * features,
                     activations_read=NUMBER, activations_written=NUMBER * features)  # fmt: skip
    return _dense(encoder.input, "encoder.input", "encoder", steps)


def _pool(how: str, features: int, steps: float, vectors: int, active: float | None = None) -> list[Count]:
    """`active`: how many of the features spike at a step, where they are spikes."""
    if how != "mean":
        return []
    moved = features if active is None else active
    read = NUMBER * features if active is None else SPIKE * features
    every = Count(
        layer="pool.sum", component="pool", times=steps, add=features if active is None else 0, ac=active or 0,
        state_read=NUMBER * moved, state_written=NUMBER * moved, activations_read=read,
    )  # fmt: skip
    last = Count(layer="pool.mean", component="pool", times=vectors, multiply=features, state_read=NUMBER * features,
                 activations_written=NUMBER * features)  # fmt: skip
    return [every, last]


def _head(model: Any, steps: float) -> list[Count]:
    if not isinstance(model, Retrieval):
        return [_dense(model.head, "head", "head", _head_times(model, steps))]
    features = model.config.features
    compared = Count(layer="head.compare", component="head", times=1, add=features, multiply=features,
                     activations_read=NUMBER * 2 * features, activations_written=NUMBER * 2 * features)  # fmt: skip
    gelu = Count(layer="head.1", component="head", times=1, nonlinear=features, activations_read=NUMBER * features,
                 activations_written=NUMBER * features)  # fmt: skip
    return [compared, _dense(model.head[0], "head.0", "head", 1), gelu, _dense(model.head[2], "head.2", "head", 1)]


def _head_times(model: Model, steps: float) -> float:
    return steps if model.config.pool == "none" else 1


def _steps(model: Model, shape: tuple[float, ...]) -> float:
    inputs = model.config.sizes[0] if isinstance(model, Feedforward) else model.encoder.config.inputs
    form = "(steps,)" if inputs is None else f"(steps, {inputs})"
    if not isinstance(shape, tuple) or len(shape) != (1 if inputs is None else 2) or (inputs and shape[1] != inputs):
        raise ValueError(f"{OWNER}: shape must be {form} for this model, got {shape!r}")
    require_positive(OWNER, "shape[0]", shape[0])
    return shape[0]


def _rate(rates: dict[str, float], name: str) -> float:
    if name not in rates:
        raise ValueError(f"{OWNER}: rates must have one for {name!r}, got those of {', '.join(rates) or 'no layer'}")
    require_rate(OWNER, f"rates[{name!r}]", rates[name])
    return rates[name]
