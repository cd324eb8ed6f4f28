"""Accuracy and spikes of fixed point compared with float, for each width in bits."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..nn.folded import Array, Folded
from .quantize import observe_samples, quantize_observed
from .quantized import STATE_BITS, WEIGHT_BITS, Quantized
from .reference import Result, run
from .simulate import Simulation
from .stream import Stream


@dataclass(frozen=True)
class Comparison:
    """A fixed-point network against the folded one, on the same sequences."""

    weight_bits: int
    state_bits: int
    sequences: int
    float_accuracy: float
    """Accuracy of the folded network; with scores at every step, over steps."""
    accuracy: float
    """Accuracy of the fixed-point network."""
    agreement: float
    """The share of predictions on which both networks agree, right or wrong."""
    divergence: tuple[float, ...]
    """For each layer: of all neurons and steps at which either network fires, the share at which only one does."""


def compare(
    folded: Folded, quantized: Quantized | Sequence[Quantized], x: Sequence[Array], labels: Array
) -> list[Comparison]:
    """Run sequences through the float network and one or several fixed-point versions of it.

    Args:
        folded: The float network.
        quantized: The fixed-point networks.
        x: Sequences, values [T, inputs] or tokens [T].
        labels: [S], or [S, T] with scores at every step.
    """
    networks = [quantized] if isinstance(quantized, Quantized) else list(quantized)
    if not len(x) or len(x) != len(labels):
        raise ValueError(f"compare: x and labels must have the same length, at least 1, got {len(x)} and {len(labels)}")
    stream = Stream(folded) if folded.causal else None
    simulations = [Simulation(each) for each in networks]
    predictions = correct = 0
    integer_correct, agreed = np.zeros((2, len(networks)), np.int64)
    different, either = np.zeros((2, len(networks), len(folded.layers)), np.int64)
    for sequence, label in zip(x, labels, strict=True):
        scores, spikes = _run_float(folded, stream, np.asarray(sequence))
        prediction = scores.argmax(-1)
        predictions += prediction.size
        correct += int((prediction == label).sum())
        for i, simulation in enumerate(simulations):
            result = simulation.run(sequence)
            integer_correct[i] += (result.scores.argmax(-1) == label).sum()
            agreed[i] += (result.scores.argmax(-1) == prediction).sum()
            for number, (a, b) in enumerate(zip(spikes, result.spikes, strict=True)):
                different[i, number] += np.count_nonzero(a != b)
                either[i, number] += np.count_nonzero(a | b)
    return [
        Comparison(
            weight_bits=each.weight_bits,
            state_bits=each.state_bits,
            sequences=len(x),
            float_accuracy=correct / predictions,
            accuracy=float(integer_correct[i] / predictions),
            agreement=float(agreed[i] / predictions),
            divergence=tuple(map(float, different[i] / np.maximum(either[i], 1))),
        )
        for i, each in enumerate(networks)
    ]


def _run_float(folded: Folded, stream: Stream | None, x: Array) -> Result:
    """The folded network; as a stream where that is possible, which is faster."""
    if stream is None:
        return run(folded, x)
    sizes = [len(layer.rows) for layer in folded.layers]
    fired = np.zeros((1, len(x), sum(sizes)), np.uint8)
    stream.reset()
    scores = stream.feed(x[None], every=folded.pool == "none", spikes=fired)[0]
    return Result(scores, np.split(fired[0].view(bool), np.cumsum(sizes)[:-1], 1))


def table(
    folded: Folded,
    samples: Sequence[Array],
    x: Sequence[Array],
    labels: Array,
    *,
    weight_bits: Sequence[int] = WEIGHT_BITS,
    state_bits: Sequence[int] = STATE_BITS,
) -> list[Comparison]:
    """Compare every pair of widths; scales are calibrated on `samples`, which should be of the training split."""
    seen = observe_samples(folded, samples)
    networks = [
        quantize_observed(folded, seen, weight_bits=weight, state_bits=state)
        for weight in weight_bits
        for state in state_bits
    ]
    return compare(folded, networks, x, labels)


def text(rows: Sequence[Comparison]) -> str:
    """Comparisons as a table in Markdown."""
    layers = range(1, len(rows[0].divergence) + 1)
    names = ["weights", "states", "accuracy", "agrees with float", *(f"different spikes, layer {i}" for i in layers)]
    cells = [names, ["---"] * len(names), ["float", "float", _percent(rows[0].float_accuracy), "100 %"]]
    cells[-1] += ["0 %"] * len(layers)
    for row in rows:
        shares = map(_percent, (row.accuracy, row.agreement, *row.divergence))
        cells.append([f"{row.weight_bits} bit", f"{row.state_bits} bit", *shares])
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
