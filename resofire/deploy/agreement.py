"""Whether something that runs a folded network agrees with the reference, spike by spike, up to rounding.

A spike may differ only at a tie: where the potential of the reference is within rounding of the threshold. What comes
after a tie may rightly go its own way, so of a causal network it is compared up to there: later steps of the layers
above, and later steps of the same neuron if it resets, are left out. Equal spikes must give equal scores (rounded).
"""

from dataclasses import dataclass, replace

import numpy as np

from .folded import Array, Folded, Layer, Neurons
from .reference import Walked, step, walk

# Distance from the threshold, as a share of the threshold and the largest potential of that neuron, that is a tie.
TIES = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12}
# How far scores may be apart, as a share of the largest of the sequence.
SCORES = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}


class DisagreementError(ValueError):
    """What differs, and where, in one sentence."""


@dataclass
class Agreement:
    """What was compared over all sequences so far."""

    spikes: int = 0
    compared: int = 0
    different: int = 0
    """Of those compared; all of them ties."""
    scores: int = 0
    """Score values compared."""
    deviation: float = 0.0
    """Largest between scores compared."""


def running(folded: Folded, x: Array) -> Walked:
    """As `walk`, with the scores after every step [T, classes]."""
    scores, spikes = walk(replace(folded, pool="none"), x)
    if folded.pool == "mean":
        scores = (np.cumsum(scores, 0, np.float64) / np.arange(1, len(scores) + 1)[:, None]).astype(folded.dtype)
    return Walked(scores, spikes)


def compare(folded: Folded, x: Array, ours: Walked, found: Walked, seen: Agreement) -> int:
    """Adds one sequence to what was seen; DisagreementError if it differs by more than rounding.

    `ours` is what the reference says. Returns how many steps agree from the first on: all, or those before a tie.
    """
    if [each.shape for each in found.spikes] != [each.shape for each in ours.spikes]:
        raise DisagreementError("the spikes have other shapes than those of the folded network")
    end = len(x)
    seen.spikes += sum(each.size for each in ours.spikes)
    for i, (a, b) in enumerate(zip(ours.spikes, found.spikes, strict=True)):
        different = a[:end] != b[:end]
        seen.compared += different.size
        if different.any():
            seen.different += int(different.sum())
            _only_ties(folded, x, i, different)
            end = int(different.any(1).argmax()) if folded.causal else 0
    if end == len(x) or (ours.scores.ndim == 2 and end):
        _close(folded, ours.scores, found.scores, end, seen)
    return end


def _close(folded: Folded, ours: Array, found: Array, end: int, seen: Agreement) -> None:
    if ours.shape != found.shape:
        raise DisagreementError(f"the scores must have shape {list(ours.shape)}, got {list(found.shape)}")
    if ours.ndim == 2:
        ours, found = ours[:end], found[:end]
    apart = float(np.abs(ours.astype(np.float64) - found).max())
    seen.deviation, seen.scores = max(seen.deviation, apart), seen.scores + ours.size
    allowed = SCORES[folded.dtype] * (1 + float(np.abs(ours).max()))
    if not apart <= allowed:
        raise DisagreementError(f"equal spikes give scores that are {apart:.3g} apart, and {allowed:.3g} is allowed")


def _only_ties(folded: Folded, x: Array, number: int, different: Array) -> None:
    # The layers below alone, their accumulators as scores.
    width = folded.layers[number].neurons[0].count
    eye, none = np.eye(width, dtype=folded.dtype), np.zeros(width, folded.dtype)
    z = walk(replace(folded, layers=folded.layers[:number], pool="none", head=eye, bias=none), x).scores
    away = _distances(folded.layers[number], z)[: len(different)]
    resets = np.concatenate([np.full(group.count, group.reset != "none") for group in folded.layers[number].neurons])
    for neuron in np.flatnonzero(different.any(0)):
        steps = np.flatnonzero(different[:, neuron])
        if resets[neuron]:
            backwards = neuron >= folded.layers[number].neurons[0].count
            steps = steps[-1:] if backwards else steps[:1]
        worst = steps[away[steps, neuron].argmax()]
        if not away[worst, neuron] <= TIES[folded.dtype]:
            raise DisagreementError(
                f"neuron {neuron} of layer {number} differs in step {worst}, where its potential is "
                f"{away[worst, neuron]:.3g} of its size away from the threshold"
            )


def _distances(layer: Layer, z: Array) -> Array:
    """How far the potentials are from their thresholds, as a share, [T, neurons]."""
    found = []
    for i, group in enumerate(layer.neurons):
        turn = -1 if i else 1
        u = _potentials(group, z[::turn])[::turn].astype(np.float64)
        found.append(np.abs(u - group.threshold) / (np.abs(group.threshold) + np.abs(u).max(0) + 1e-300))
    return np.concatenate(found, 1)


def _potentials(group: Neurons, z: Array) -> Array:
    """What is held against the threshold, [T, N]."""
    seen = group.sign * z
    if group.kind == "spatial":
        return seen
    held, free = [], replace(group, reset="none")
    u, r = np.zeros((2, group.count), z.dtype)
    fired = np.zeros(group.count, bool)
    for now in seen:
        held.append(step(free, u, r, now, fired)[0])
        u, r = step(group, u, r, now, fired)
    return np.stack(held)
