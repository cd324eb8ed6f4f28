"""Operations of a folded network, counted from its equations (`resofire.nn.folded`)."""

from collections.abc import Sequence

from ..nn.counts import Count, Counts, joined
from ..nn.folded import Folded

# For each channel of the read-out and step: products, additions.
POOL = {"mean": (0, 1), "leaky": (1, 1), "window": (0, 2)}
# For each neuron and step: products, additions (σ z + κ is one of them), comparisons.
NEURON = {"prf": (4, 4, 1), "lif": (1, 2, 1), "spatial": (0, 0, 1)}


def operations(folded: Folded, rates: Sequence[float], steps: float) -> Counts:
    """Count the operations of one inference; `measure.energy` makes an energy of them. Bytes are not counted.

    Args:
        folded: The network.
        rates: The fire rate of each layer.
        steps: Time steps.

    Returns:
        The counts of the input layer, each layer's neurons and weight rows, the pool and the head.

    Raises:
        ValueError: There is not one rate for each layer.
    """
    if len(rates) != len(folded.layers):
        raise ValueError(f"operations: rates must be one for each of {len(folded.layers)} layers, got {len(rates)}")
    parts = []
    if not folded.tokens:
        parts.append(Count(layer="input", component="encoder", times=steps, mac=folded.table.size))
    for number, (layer, rate) in enumerate(zip(folded.layers, rates, strict=True)):
        name = f"layers.{number}"
        spatial = all(group.kind == "spatial" for group in layer.neurons)
        for group in layer.neurons:
            if group.equation is None:
                products, additions, comparisons = NEURON[group.kind]
                resets = rate if group.reset == "soft" else 0.0
                each = {"multiply": products, "add": additions + resets, "compare": comparisons}
            else:
                # g σ z + κ is a product and an addition more.
                each = dict(group.equation.operations)
                each |= {kind: each[kind] + 1 for kind in ("multiply", "add")}
            parts.append(
                Count(
                    layer=f"{name}.neurons", component="spatial neuron" if spatial else "temporal neuron", times=steps,
                    **{kind: number * group.count for kind, number in each.items()},
                )
            )  # fmt: skip
        component = "channel linear" if spatial else "token linear"
        parts.append(Count(layer=f"{name}.rows", component=component, times=steps, ac=rate * layer.rows.size))
    products, additions = POOL.get(folded.pool, (0, 0))
    if additions:
        width = len(folded.head)
        parts.append(
            Count(layer="pool", component="pool", times=steps, multiply=products * width, add=additions * width)
        )
    times = steps if folded.pool == "none" else 1
    parts.append(Count(layer="head", component="head", times=times, mac=folded.head.size))
    return joined("folded", steps, parts)
