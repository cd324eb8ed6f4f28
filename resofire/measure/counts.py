"""What a network does in one inference, as numbers: operations by kind, and bytes moved. No hardware, no energy yet.

Operations, all in the network's own number type:

    mac          a product added to a sum, in a matrix product on real values
    ac           a weight added to a sum because its input spiked; nothing is multiplied
    multiply, add, compare    elementwise
    nonlinear    one value of exp, sigmoid, GELU, a reciprocal or a root

Bytes are those of one sequence that walks through step by step, nothing kept in a cache: every part reads each weight
that it uses, its state and its input once, and writes its state and its output once. A number is 4 bytes, a spike
1 bit. Constants that a whole layer shares (a threshold) stay in a register.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

NUMBER, SPIKE = 4, 0.125  # bytes
OPERATIONS = ("mac", "ac", "multiply", "add", "compare", "nonlinear")
BYTES = ("weights_read", "state_read", "state_written", "activations_read", "activations_written")
# Where an operation belongs, in the order in which data walks; those behind the head are parts of peers.
COMPONENTS = (
    "encoder", "norm", "temporal neuron", "token linear", "residual", "spatial neuron", "channel linear", "pool",
    "head", "state space", "feedthrough", "attention", "softmax", "gate",
)  # fmt: skip
# The parts around the blocks. What the paper says of a model ("no MAC") it says of the blocks.
OUTSIDE = ("encoder", "pool", "head")


@dataclass(frozen=True, kw_only=True)
class Count:
    """One part of a network: what it does each time that it runs, and how many `times` that is in one inference."""

    layer: str
    component: str
    times: float
    mac: float = 0
    ac: float = 0
    multiply: float = 0
    add: float = 0
    compare: float = 0
    nonlinear: float = 0
    weights_read: float = 0
    state_read: float = 0
    state_written: float = 0
    activations_read: float = 0
    activations_written: float = 0

    def __post_init__(self) -> None:
        if self.component not in COMPONENTS:
            raise ValueError(f"Count: component must be one of {', '.join(COMPONENTS)}, got {self.component!r}")
        for name in ("times", *OPERATIONS, *BYTES):
            value = getattr(self, name)
            if not _is_number(value) or not 0 <= value < float("inf"):
                raise ValueError(f"Count: {name} must be a number of at least 0, got {value!r}")

    def as_dict(self) -> dict[str, Any]:
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


@dataclass(frozen=True)
class Counts:
    """All parts of a network, for inferences of `steps` time steps."""

    name: str
    steps: float
    parts: tuple[Count, ...]

    def __post_init__(self) -> None:
        require_positive("Counts", "steps", self.steps)

    def __iter__(self) -> Iterator[Count]:
        return iter(self.parts)

    def only(self, *components: str) -> "Counts":
        return Counts(self.name, self.steps, tuple(part for part in self if part.component in components))

    @property
    def blocks(self) -> "Counts":
        """Without what stands around the blocks: encoder, pool, head."""
        return self.only(*(each for each in COMPONENTS if each not in OUTSIDE))

    def per_inference(self, kind: str) -> float:
        """How many operations, or bytes, of a kind there are in one inference."""
        return sum(getattr(part, kind) * part.times for part in self.parts)

    def per_step(self, kind: str) -> float:
        """The same, divided evenly among the time steps."""
        return self.per_inference(kind) / self.steps

    def components(self) -> list[str]:
        """Those that there are, in the order of COMPONENTS."""
        found = {part.component for part in self}
        return [each for each in COMPONENTS if each in found]

    @property
    def no_nonlinear(self) -> bool:
        """Whether no block has a nonlinear function to work out. (A spike is a comparison.)"""
        return self.blocks.per_inference("nonlinear") == 0

    @property
    def no_mac(self) -> bool:
        """Whether no block multiplies a matrix with real values."""
        return self.blocks.per_inference("mac") == 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON. A layer's numbers are for each time that it runs, the totals per time step."""
        return {
            "unit": "operations and bytes each time a layer runs, float32, spikes 1 bit",
            "layers": [part.as_dict() for part in self],
            "per_step": {kind: _plain(self.per_step(kind)) for kind in (*OPERATIONS, *BYTES)},
        }


def joined(name: str, steps: float, *pieces: Iterable[Count]) -> Counts:
    """One network of several pieces."""
    return Counts(name, steps, tuple(part for piece in pieces for part in piece))


def require_positive(owner: str, name: str, value: float) -> None:
    if not _is_number(value) or not 0 < value < float("inf"):
        raise ValueError(f"{owner}: {name} must be a positive number, got {value!r}")


def require_widths(owner: str, widths: tuple[int, ...]) -> None:
    """The channels of each block."""
    whole = isinstance(widths, tuple) and all(isinstance(x, int) and not isinstance(x, bool) and x > 0 for x in widths)
    if not whole or not widths:
        raise ValueError(f"{owner}: widths must be a tuple of positive integers, one a block, got {widths!r}")


def require_rate(owner: str, name: str, value: float) -> None:
    if not _is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{owner}: {name} must be a rate from 0 to 1, got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    """A fraction, which keeps counts exact, as JSON's number."""
    return value if isinstance(value, str | int | float) else float(value)
