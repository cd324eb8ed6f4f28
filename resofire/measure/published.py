"""The paper's energy account: its tables, the arithmetic that gives its numbers to the last printed digit, its slips.

The formula that the paper prints, with the fire rates that it prints, misses its own energies by 1.5 to 10.1 %. These
departures from the formula give all five of them exactly:

    every layer fires at the task's average, and that average divides the sum over 2L neuron layers by 2 (L + 1)
    the five products of a PRF are charged as MACs (4.6 pJ), not as multiplications (3.7 pJ)
    a bidirectional network is charged as a causal one, a pair of documents as one document
    norm, encoder, pool, head and comparisons are not charged

and these give its five energies of S4: the sizes are those of `s4_depth` and `s4_features`, not of its own networks;
the state size is 64; D and H have changed places in the formula; everything but the gate is there twice (both ways).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from math import sqrt

import numpy as np

from ..models import ClassifierConfig, RetrievalConfig
from ..nn import PRF, SDTCM
from .costs import FLOAT32
from .counts import Count, Counts, joined
from .peers import peer
from .rates import Model


@dataclass(frozen=True, kw_only=True)
class Published:
    """What the paper prints of a task: rates in per cent, energies in mJ per inference."""

    name: str
    length: int
    temporal: tuple[str, ...]
    spatial: tuple[str, ...]
    average: str
    energy: str
    s4_energy: str
    s4_depth: int  # not printed: those with which the arithmetic comes out
    s4_features: int
    model: ClassifierConfig | RetrievalConfig

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.model.features,) * self.model.depth

    @property
    def s4_widths(self) -> tuple[int, ...]:
        return (self.s4_features,) * self.s4_depth

    @property
    def average_as_published(self) -> Decimal:
        """In per cent, in the decimals that the paper prints."""
        return sum(map(Decimal, (*self.temporal, *self.spatial)), Decimal(0)) / (2 * (self.model.depth + 1))

    @property
    def rates(self) -> dict[str, float]:
        """By the names of our layers; the paper gives both directions of a block one rate."""
        found = {}
        for number, (temporal, spatial) in enumerate(zip(self.temporal, self.spatial, strict=True)):
            block = f"encoder.blocks.{number}"
            found[f"{block}.token_neuron"] = float(temporal) / 100
            if self.model.bidirectional:
                found[f"{block}.token_neuron_reverse"] = float(temporal) / 100
            found[f"{block}.channel_neuron"] = float(spatial) / 100
        return found


TASKS = (
    Published(
        name="ListOps", length=2048, average="3.53", energy="0.075", s4_energy="5.104", s4_depth=6, s4_features=128,
        temporal=("0.0", "5.17", "2.50", "2.83", "0.80", "1.17", "3.02", "2.22"),
        spatial=("9.60", "5.29", "4.51", "2.63", "5.58", "3.57", "9.57", "5.07"),
        model=ClassifierConfig(vocabulary=18, classes=10, features=128, depth=8, prenorm=False),
    ),
    Published(
        name="Text", length=4096, average="4.32", energy="0.298", s4_energy="3.718", s4_depth=4, s4_features=64,
        temporal=("2.11", "4.30", "2.79", "1.66", "1.02", "1.48"),
        spatial=("9.20", "9.90", "10.11", "7.18", "5.55", "5.25"),
        model=ClassifierConfig(vocabulary=134, classes=2, features=256, depth=6),
    ),
    Published(
        name="Retrieval", length=4000, average="1.48", energy="0.211", s4_energy="24.439", s4_depth=6, s4_features=256,
        temporal=("0.66", "0.42", "0.42", "0.49", "0.48", "0.87"),
        spatial=("4.79", "4.24", "1.54", "2.46", "2.50", "1.91"),
        model=RetrievalConfig(vocabulary=98, features=256, depth=6),
    ),
    Published(
        name="Image", length=1024, average="3.47", energy="0.187", s4_energy="19.222", s4_depth=6, s4_features=512,
        temporal=("0.22", "7.10", "5.25", "3.67", "3.90", "4.24"),
        spatial=("0.44", "9.90", "5.71", "4.35", "2.77", "1.07"),
        model=ClassifierConfig(inputs=1, classes=10, features=512, depth=6, bidirectional=True, prenorm=False),
    ),
    Published(
        name="Pathfinder", length=1024, average="3.29", energy="0.067", s4_energy="6.256", s4_depth=6, s4_features=256,
        temporal=("3.37", "3.96", "5.07", "4.53", "4.53", "4.78"),
        spatial=("3.66", "2.98", "3.74", "3.63", "3.33", "2.53"),
        model=ClassifierConfig(vocabulary=256, classes=2, features=256, depth=6, bidirectional=True),
    ),
)  # fmt: skip
S4_STATE = 64
SAVING = "98.57"  # per cent, which the paper says its networks save against S4


def average_rate(temporal: Sequence[float], spatial: Sequence[float], *, as_published: bool = False) -> float:
    """The mean over all neuron layers; the paper's divides by one layer more of each kind than there are."""
    return (sum(temporal) + sum(spatial)) / (2 * (len(temporal) + as_published))


def published_counts(
    widths: tuple[int, ...],
    temporal: Sequence[float],
    spatial: Sequence[float],
    length: float,
    *,
    printed: bool = False,
) -> Counts:
    """SD-TCM blocks as the paper counts them; `printed`: by its formula, not by what it must have done."""
    if not printed:
        mean = average_rate(temporal, spatial, as_published=True)
        temporal, spatial = [mean] * len(widths), [mean] * len(widths)
    parts = []
    for number, (width, token, channel) in enumerate(zip(widths, temporal, spatial, strict=True)):
        name = f"encoder.blocks.{number}"
        neuron = {"multiply": 5 * width} if printed else {"mac": 5 * width}
        for layer, component, counted in (
            ("token_neuron", "temporal neuron", {**neuron, "add": 3 * width}),
            ("token_linear", "token linear", {"ac": token * width**2}),
            ("token_shortcut", "residual", {"add": width}),
            ("channel_linear", "channel linear", {"ac": channel * width**2}),
            ("channel_shortcut", "residual", {"add": width}),
        ):
            parts.append(Count(layer=f"{name}.{layer}", component=component, times=length, **counted))
    return joined("SD-TCM", length, parts)


def published_peer(
    name: str, widths: tuple[int, ...], length: float, *, state_size: int, rate: float = 0.0, printed: bool = False
) -> Counts:
    """A peer's blocks by the paper's formula; S4's, unless `printed`, by what it must have done."""
    if name != "s4" or printed:
        counted = peer(name, widths, length, state_size=state_size, rate=rate, norm=False)
        return counted.only("state space", "feedthrough", "channel linear", "gate")
    parts = []
    for width in widths:
        # D and H have changed places: the width stands where the state size should, and the other way round.
        block = peer(name, (state_size,), length, state_size=width, norm=False, rate=rate)
        twice = block.only("state space", "feedthrough", "channel linear").parts
        parts += [*twice, *twice, *block.only("gate").parts]
    return joined("S4-LegS", length, parts)


def published_rates(model: Model, rates: dict[str, float]) -> tuple[list[float], list[float]] | str:
    """Temporal and spatial rates of each block, the mean of both directions; or why the paper has no formula for it."""
    blocks = [module for module in model.modules() if isinstance(module, SDTCM)]
    if not blocks:
        return f"the paper has a formula for SD-TCM blocks only, not for a {type(model).__name__}"
    if not all(isinstance(block.token_neuron, PRF) for block in blocks):
        return f"the paper has a formula for the PRF only, not for the {type(blocks[0].token_neuron).__name__}"
    temporal, spatial = [], []
    for number in range(len(blocks)):
        names = [name for name in rates if name.startswith(f"encoder.blocks.{number}.token_neuron")]
        temporal.append(sum(rates[name] for name in names) / len(names))
        spatial.append(rates[f"encoder.blocks.{number}.channel_neuron"])
    return temporal, spatial


def s4_state_size(
    widths: tuple[int, ...], length: float, energy_mj: float, mac: float, multiply: float
) -> float | None:
    """The H at which the printed formula of S4 gives an energy; None if there is none: it is above it even at H = 0."""
    width = widths[0]
    products = energy_mj * 1e9 / (length * len(widths) * mac)
    # H² + 2DH = rest; the others of the formula, in MACs, do not depend on H.
    rest = products - 3 * width**2 - 2 * width - multiply / mac * width
    return sqrt(width**2 + rest) - width if rest >= 0 else None


def s4_curve() -> dict[str, float]:
    """MACs of a block of S4 over its width w, from the five printed energies alone: their curve of least squares.

    Energies weigh by how finely they are printed; `constant_within` is the standard error that rounding alone gives.
    """
    width, blocks, mj = np.array(
        [(task.s4_features, task.s4_depth * task.length, float(task.s4_energy)) for task in TASKS]
    ).T
    macs, rounding = (each * 1e9 / (FLOAT32.mac * blocks) for each in (mj, 0.0005))
    inverse = np.linalg.pinv(np.stack([width**2, width, np.ones(len(TASKS))], 1) / rounding[:, None])
    square, linear, constant = map(float, inverse @ (macs / rounding))
    # A rounded number is off by anything up to half a digit alike: by that over √3 in the mean square.
    within = float(np.linalg.norm(inverse[2])) / sqrt(3)
    return {"square": square, "linear": linear, "constant": constant, "constant_within": within}


def rounded(value: float | Decimal, like: str) -> str:
    """A number with as many digits as a printed one; a tie goes to the even digit, as in the paper (Text)."""
    return str(Decimal(str(value)).quantize(Decimal(like), ROUND_HALF_EVEN))
