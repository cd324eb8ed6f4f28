"""What a folded network does, counted: see the equations in `folded`."""

from collections.abc import Sequence

from .folded import Folded, Neurons

# For each neuron and step: products, additions (its input's σ z + κ is one), comparisons.
NEURON = {"prf": (4, 4, 1), "lif": (1, 2, 1), "spatial": (0, 0, 1)}


def operations(folded: Folded, rates: Sequence[float], steps: float) -> dict[str, float]:
    """Operations of one inference of so many steps, layers firing at these rates, by the names of `measure.Costs`.

    mac         values at the input, and the head; nothing else
    ac          weight rows, one number each
    multiply, add, compare    in neurons; additions of the mean over time, too
    """
    if len(rates) != len(folded.layers):
        raise ValueError(f"operations: rates must be one for each of {len(folded.layers)} layers, got {len(rates)}")
    found = dict.fromkeys(("mac", "ac", "multiply", "add", "compare"), 0.0)
    found["mac"] = 0 if folded.tokens else steps * folded.table.size
    for layer, rate in zip(folded.layers, rates, strict=True):
        for group in layer.neurons:
            products, additions, comparisons = NEURON[group.kind]
            found["multiply"] += products * group.count * steps
            found["add"] += (additions + _resetting(group, rate)) * group.count * steps
            found["compare"] += comparisons * group.count * steps
        found["ac"] += rate * layer.rows.size * steps
    if folded.pool == "mean":
        found["add"] += len(folded.head) * steps
    found["mac"] += folded.head.size * (steps if folded.pool == "none" else 1)
    return found


def _resetting(neurons: Neurons, rate: float) -> float:
    return rate if neurons.reset == "soft" else 0.0
