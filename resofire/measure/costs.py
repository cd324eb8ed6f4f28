"""Energy per operation, as small tables with their source, and the energy of counted operations.

M. Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014, figure 1.1.9, 45 nm, 0.9 V, in pJ:

    integer add 8 bit 0.03, 32 bit 0.1; multiply 8 bit 0.2, 32 bit 3.1
    float add 16 bit 0.4, 32 bit 0.9; multiply 16 bit 1.1, 32 bit 3.7
    64 bits from a cache of 8 KB 10, 32 KB 20, 1 MB 100; from DRAM 1,300 to 2,600

The source lists neither comparisons nor nonlinear functions. A comparison is charged as an addition: a subtraction of
which the sign is kept. A nonlinear function is charged as two MACs, as the paper does for a sigmoid; that is little,
and favours the peers.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from ..nn.counts import BYTES, OPERATIONS, Count, Counts
from ..ops.registry import nearest

PER_WORD = 8  # bytes: memory is charged by 64 bits


@dataclass(frozen=True, kw_only=True)
class Costs:
    """A cost table: pJ per operation, and per byte of weights, state and activations."""

    name: str
    source: str
    mac: float
    ac: float
    multiply: float
    add: float
    compare: float
    nonlinear: float
    weights_byte: float = 0.0
    state_byte: float = 0.0
    activations_byte: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name not in ("name", "source") and not (isinstance(value, int | float) and 0 <= value < float("inf")):
                raise ValueError(f"Costs: {name} must be a number of at least 0, got {value!r}")

    def of(self, kind: str) -> float:
        """Return pJ per operation or byte of a kind, by its name in `Count`."""
        return float(getattr(self, kind if kind in OPERATIONS else f"{kind.split('_')[0]}_byte"))


def _arithmetic(name: str, source: str, multiply: float, add: float) -> Costs:
    mac = round(multiply + add, 3)
    return Costs(name=name, source=f"Horowitz 2014, 45 nm: {source}", mac=mac, ac=add, multiply=multiply, add=add,
                 compare=add, nonlinear=2 * mac)  # fmt: skip


FLOAT32 = _arithmetic("float32", "float32 arithmetic, no memory; the paper's table", 3.7, 0.9)
FLOAT16 = _arithmetic("float16", "float16 arithmetic, no memory", 1.1, 0.4)
# 8-bit weights, 32-bit sums and states: a MAC is an 8-bit product and a 32-bit addition. Elementwise products, on
# states, have 32 bits; a peer's state matrices are charged as 8-bit MACs as well, which favours the peer.
INT8 = replace(
    _arithmetic("int8", "8-bit weights, 32-bit sums and states, no memory", 3.1, 0.1), mac=0.3, nonlinear=0.6
)
SRAM = replace(
    FLOAT32, name="sram", weights_byte=100 / PER_WORD, state_byte=20 / PER_WORD, activations_byte=20 / PER_WORD,
    source="Horowitz 2014, 45 nm: float32, weights in 1 MB of SRAM, state and activations in 32 KB",
)  # fmt: skip
DRAM = replace(
    SRAM, name="dram", weights_byte=1300 / PER_WORD,
    source="Horowitz 2014, 45 nm: float32, weights in DRAM (at its low end), state and activations in 32 KB of SRAM",
)  # fmt: skip
COSTS = {table.name: table for table in (FLOAT32, FLOAT16, INT8, SRAM, DRAM)}


@dataclass(frozen=True)
class Energy:
    """pJ per inference by component, and the time steps of an inference."""

    steps: float
    components: dict[str, float]

    @property
    def mj_per_inference(self) -> float:
        return sum(self.components.values()) * 1e-9

    @property
    def pj_per_step(self) -> float:
        return sum(self.components.values()) / self.steps

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON: the whole and its components."""
        return {
            "pJ_per_step": self.pj_per_step,
            "mJ_per_inference": self.mj_per_inference,
            "components": {
                name: {"pJ_per_step": pj / self.steps, "mJ_per_inference": pj * 1e-9}
                for name, pj in self.components.items()
            },
        }


def energy(counts: Counts, costs: Costs | str = FLOAT32) -> Energy:
    """Compute the energy of counted operations and bytes.

    Args:
        counts: As `count_ops` or `peer` return them.
        costs: A cost table, or the name of one in COSTS.

    Raises:
        ValueError: There is no table of this name.
    """
    table = find_costs("energy", costs)
    components = dict.fromkeys(counts.components(), 0.0)
    for part in counts:
        components[part.component] += float(part.times) * _once(part, table)
    return Energy(float(counts.steps), components)


def find_costs(owner: str, costs: Costs | str) -> Costs:
    """Return a cost table by itself or by name."""
    if isinstance(costs, Costs):
        return costs
    if costs not in COSTS:
        raise ValueError(f"{owner}: costs must be a Costs or one of {nearest(str(costs), list(COSTS))}, got {costs!r}")
    return COSTS[costs]


def _once(part: Count, table: Costs) -> float:
    return sum(float(getattr(part, kind)) * table.of(kind) for kind in (*OPERATIONS, *BYTES))
