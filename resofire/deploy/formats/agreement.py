"""Whether something that runs a folded network agrees with the reference, spike by spike, up to rounding.

A spike may differ only at a tie: where the potential of the reference is within rounding of the threshold. What follows
a tie may legitimately differ. So in a causal network the comparison stops there: it leaves out later steps of the
layers above, and later steps of the same neuron if it resets. Equal spikes must give equal scores, up to rounding.
"""

from dataclasses import dataclass, replace

import numpy as np

from ...nn.folded import Array, Folded, Layer, Neurons
from .. import equation
from ..reference import Result, both_directions, pool_each_step, run, trajectory

# The distance from the threshold that is a tie, relative to the threshold and the largest potential of that neuron.
TIES = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12}
# The allowed deviation of scores, relative to the largest of the sequence.
SCORES = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}


class DisagreementError(ValueError):
    """A difference beyond rounding; the text says what and where."""


@dataclass
class Agreement:
    """Counts over all sequences compared so far."""

    spikes: int = 0
    """Neurons times steps."""
    compared: int = 0
    """Those before any tie."""
    different: int = 0
    """Those that differ; all of them ties."""
    scores: int = 0
    """Score values compared."""
    deviation: float = 0.0
    """The largest between scores compared."""

    def add(self, folded: Folded, x: Array, reference: Result, result: Result) -> int:
        """Compare what the reference and the file compute on one sequence x, values [T, inputs] or tokens [T].

        Returns:
            The number of leading steps that agree: all, or those before a tie.

        Raises:
            DisagreementError: They differ by more than rounding.
        """
        if [each.shape for each in result.spikes] != [each.shape for each in reference.spikes]:
            raise DisagreementError("the spikes have other shapes than those of the folded network")
        end = len(x)
        self.spikes += sum(each.size for each in reference.spikes)
        for i, (a, b) in enumerate(zip(reference.spikes, result.spikes, strict=True)):
            different = a[:end] != b[:end]
            self.compared += different.size
            if different.any():
                self.different += int(different.sum())
                _require_ties(folded, x, i, different)
                end = int(different.any(1).argmax()) if folded.causal else 0
        if end == len(x) or (reference.scores.ndim == 2 and end):
            self._add_scores(reference.scores, result.scores, end, SCORES[folded.dtype])
        return end

    def _add_scores(self, reference: Array, scores: Array, end: int, tolerance: float) -> None:
        if reference.shape != scores.shape:
            raise DisagreementError(f"the scores must have shape {list(reference.shape)}, got {list(scores.shape)}")
        if reference.ndim == 2:
            reference, scores = reference[:end], scores[:end]
        deviation = float(np.abs(reference.astype(np.float64) - scores).max())
        self.deviation, self.scores = max(self.deviation, deviation), self.scores + reference.size
        allowed = tolerance * (1 + float(np.abs(reference).max()))
        if not deviation <= allowed:
            raise DisagreementError(f"equal spikes give scores {deviation:.3g} apart, more than {allowed:.3g}")


def run_each_step(folded: Folded, x: Array) -> Result:
    """As `reference.run`, with the scores after every step [T, classes]."""
    scores, spikes = run(replace(folded, pool="none", pool_steps=None), x)
    return Result(pool_each_step(scores, folded.pool, folded.pool_steps), spikes)


def _require_ties(folded: Folded, x: Array, number: int, different: Array) -> None:
    layer = folded.layers[number]
    width = layer.neurons[0].count
    # The layers below alone, with their accumulators as scores.
    eye, zero = np.eye(width, dtype=folded.dtype), np.zeros(width, folded.dtype)
    z = run(replace(folded, layers=folded.layers[:number], pool="none", pool_steps=None, head=eye, bias=zero), x).scores
    distances = _distances(layer, z)[: len(different)]
    # An equation may keep its spikes in any state.
    kept = [group.reset != "none" or group.kind == "equation" for group in layer.neurons]
    resets = np.repeat(kept, [group.count for group in layer.neurons])
    for neuron in np.flatnonzero(different.any(0)):
        steps = np.flatnonzero(different[:, neuron])
        if resets[neuron]:
            backwards = neuron >= width
            steps = steps[-1:] if backwards else steps[:1]
        worst = steps[distances[steps, neuron].argmax()]
        if not distances[worst, neuron] <= TIES[folded.dtype]:
            raise DisagreementError(
                f"neuron {neuron} of layer {number} differs in step {worst}, where the relative distance of its "
                f"potential from the threshold is {distances[worst, neuron]:.3g}"
            )


def _distances(layer: Layer, z: Array) -> Array:
    """The relative distance of each potential from its threshold, [T, neurons]."""

    def of_group(group: Neurons, z: Array) -> Array:
        if group.kind == "equation":
            return equation.distances(group, z)
        u = _potentials(group, z).astype(np.float64)
        return np.abs(u - group.threshold) / (np.abs(group.threshold) + np.abs(u).max(0) + 1e-300)

    return both_directions(layer.neurons, z, of_group)


def _potentials(group: Neurons, z: Array) -> Array:
    """The potentials, which are compared with the threshold, [T, N]."""
    return group.sign * z if group.kind == "spatial" else np.stack([u for u, _, _ in trajectory(group, z)])
