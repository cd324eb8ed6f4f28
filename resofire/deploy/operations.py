"""Operations of a folded network, counted from its equations (`resofire.nn.folded`)."""

from collections.abc import Sequence

from ..nn.folded import Folded

# For each neuron and step: products, additions (σ z + κ is one of them), comparisons.
NEURON = {"prf": (4, 4, 1), "lif": (1, 2, 1), "spatial": (0, 0, 1)}


def operations(folded: Folded, rates: Sequence[float], steps: float) -> dict[str, float]:
    """Count the operations of one inference.

    Args:
        folded: The network.
        rates: The fire rate of each layer.
        steps: Time steps.

    Returns:
        Counts by the names of `measure.Costs`: `mac` (values at the input, and the head), `ac` (weight rows, one for
        each number), and `multiply`, `add`, `compare` (in neurons; additions of the mean over time too).

    Raises:
        ValueError: There is not one rate for each layer.
    """
    if len(rates) != len(folded.layers):
        raise ValueError(f"operations: rates must be one for each of {len(folded.layers)} layers, got {len(rates)}")
    counts = dict.fromkeys(("mac", "ac", "multiply", "add", "compare"), 0.0)
    counts["mac"] = 0 if folded.tokens else steps * folded.table.size
    for layer, rate in zip(folded.layers, rates, strict=True):
        for group in layer.neurons:
            products, additions, comparisons = NEURON[group.kind]
            resets = rate if group.reset == "soft" else 0.0
            counts["multiply"] += products * group.count * steps
            counts["add"] += (additions + resets) * group.count * steps
            counts["compare"] += comparisons * group.count * steps
        counts["ac"] += rate * layer.rows.size * steps
    if folded.pool == "mean":
        counts["add"] += len(folded.head) * steps
    counts["mac"] += folded.head.size * (steps if folded.pool == "none" else 1)
    return counts
