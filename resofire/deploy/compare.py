"""What integers cost: accuracy, and how far spikes part from the float network's, for each width in bits."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .folded import Array, Folded
from .quantize import quantize
from .quantized import STATE_BITS, WEIGHT_BITS, Quantized
from .reference import Walked, walk
from .simulate import Simulation
from .stream import Stream


@dataclass(frozen=True)
class Comparison:
    """One network in integers beside the folded one, on the same sequences."""

    weight_bits: int
    state_bits: int
    sequences: int
    float_accuracy: float
    accuracy: float
    """Shares of right answers; with scores at every step, of steps."""
    agreement: float
    """Share of answers that are those of the float network, right or wrong."""
    divergence: tuple[float, ...]
    """For each layer, of all neurons and steps at which either network fires, the share at which only one does."""


def compare(
    folded: Folded, quantized: Quantized | Sequence[Quantized], x: Sequence[Array], labels: Array
) -> list[Comparison]:
    """Walks sequences x (labels [S], or [S, T] with scores at every step) through the float network and the others."""
    networks = [quantized] if isinstance(quantized, Quantized) else list(quantized)
    if not len(x) or len(x) != len(labels):
        raise ValueError(f"compare: x and labels must be as many, and not none, got {len(x)} and {len(labels)}")
    stream = Stream(folded) if folded.causal else None
    simulations = [Simulation(each) for each in networks]
    answers = total = right = 0
    rights, agreed = np.zeros((2, len(networks)), np.int64)
    apart, either = np.zeros((2, len(networks), len(folded.layers)), np.int64)
    for sequence, label in zip(x, labels, strict=True):
        scores, fired = _float(folded, stream, np.asarray(sequence))
        answer = scores.argmax(-1)
        answers += answer.size
        right += int((answer == label).sum())
        total += 1
        for i, simulation in enumerate(simulations):
            found = simulation.walk(sequence)
            ours = found.scores.argmax(-1)
            rights[i] += (ours == label).sum()
            agreed[i] += (ours == answer).sum()
            for number, (a, b) in enumerate(zip(fired, found.spikes, strict=True)):
                apart[i, number] += np.count_nonzero(a != b)
                either[i, number] += np.count_nonzero(a | b)
    shares = apart / np.maximum(either, 1)
    return [
        Comparison(each.weight_bits, each.state_bits, total, right / answers, float(rights[i] / answers),
                   float(agreed[i] / answers), tuple(map(float, shares[i])))
        for i, each in enumerate(networks)
    ]  # fmt: skip


def _float(folded: Folded, stream: Stream | None, x: Array) -> Walked:
    """The folded network, as a stream if it can be one, since that is faster."""
    if stream is None:
        return walk(folded, x)
    sizes = [len(layer.rows) for layer in folded.layers]
    fired = np.zeros((1, len(x), sum(sizes)), np.uint8)
    stream.reset()
    scores = stream.feed(x[None], every=folded.pool == "none", spikes=fired)[0]
    return Walked(scores, np.split(fired[0].view(bool), np.cumsum(sizes)[:-1], 1))


def table(
    folded: Folded,
    samples: Sequence[Array],
    x: Sequence[Array],
    labels: Array,
    *,
    weight_bits: Sequence[int] = WEIGHT_BITS,
    state_bits: Sequence[int] = STATE_BITS,
) -> list[Comparison]:
    """Every pair of widths: scales from `samples` (of the training split), figures on x and labels (the test split)."""
    networks = [
        quantize(folded, samples, weight_bits=weight, state_bits=state)
        for weight in weight_bits
        for state in state_bits
    ]
    return compare(folded, networks, x, labels)


def text(rows: Sequence[Comparison]) -> str:
    """A table in Markdown."""
    layers = range(1, len(rows[0].divergence) + 1)
    lines = [
        "| weights | states | accuracy | as float | " + " | ".join(f"spikes apart, layer {i}" for i in layers) + " |",
        "|---" * (4 + len(layers)) + "|",
        f"| float | float | {rows[0].float_accuracy:.2%} | 100 % | " + " | ".join("0 %" for _ in layers) + " |",
    ]
    for row in rows:
        apart = " | ".join(f"{share:.2%}" for share in row.divergence)
        lines.append(
            f"| {row.weight_bits} bit | {row.state_bits} bit | {row.accuracy:.2%} | {row.agreement:.2%} | {apart} |"
        )
    return "\n".join(lines).replace("%", " %").replace("  %", " %")
