"""The layers of a network by the names that the page gives them."""

import re
from typing import NamedTuple

KINDS = {
    "token_neuron": "temporal", "token_neuron_reverse": "temporal, reversed", "channel_neuron": "spatial",
    "neurons": "temporal",
}  # fmt: skip


class Place(NamedTuple):
    """Where a layer is: the number of its block from 1 on, and its kind of neuron."""

    block: int
    kind: str


def place(name: str) -> Place:
    """The place of a layer, e.g. of encoder.blocks.0.token_neuron; one with a name of its own keeps it as its kind."""
    numbers = re.findall(r"\.(\d+)", name)
    last = re.sub(r"\.\d+$", "", name).rsplit(".", 1)[-1]
    return Place(int(numbers[-1]) + 1 if numbers else 1, KINDS.get(last, name))


def title(name: str) -> str:
    """A layer for people: block 1, temporal."""
    block, kind = place(name)
    return name if kind == name else f"block {block}, {kind}"
