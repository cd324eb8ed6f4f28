"""The paper's energy account: its tables, the arithmetic that reproduces them to the last printed digit, its slips.

The paper's formula, evaluated at its fire rates, misses its own energies by 1.5 to 10.1 %. These departures from the
formula reproduce all five exactly:

    every layer fires at the task's average, and that average divides the sum over 2L neuron layers by 2 (L + 1)
    the five products of a PRF are charged as MACs (4.6 pJ), not as multiplications (3.7 pJ)
    a bidirectional network is charged as a causal one, a pair of documents as one document
    norm, encoder, pool, head and comparisons are not charged

and these reproduce its five energies of S4: sizes `s4_depth` and `s4_features`, not those of its own networks; state
size 64; D and H swapped in the formula; everything but the gate counted twice (bidirectional).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from math import sqrt
from typing import Any

import numpy as np
import torch

from ..measure import PEERS, Costs, Count, Counts, count_ops, energy, peer, peer_network
from ..measure.costs import FLOAT32, find_costs
from ..measure.peers import TITLES, require_state_size
from ..measure.report import number, table
from ..models import ClassifierConfig, RetrievalConfig, build
from ..nn.counts import joined


@dataclass(frozen=True, kw_only=True)
class Published:
    """The paper's printed numbers for a task: rates in per cent, energies in mJ per inference."""

    name: str
    length: int
    temporal: tuple[str, ...]
    spatial: tuple[str, ...]
    average: str
    energy: str
    s4_energy: str
    s4_depth: int  # not printed: the sizes that reproduce the printed energy
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
        """In per cent, exact in decimals."""
        return sum(map(Decimal, (*self.temporal, *self.spatial)), Decimal(0)) / (2 * (self.model.depth + 1))

    @property
    def rates(self) -> dict[str, float]:
        """By the names of our layers; the paper has one rate for both directions of a block."""
        rates = {}
        for place, (temporal, spatial) in enumerate(zip(self.temporal, self.spatial, strict=True)):
            block = f"encoder.blocks.{place}"
            rates[f"{block}.token_neuron"] = float(temporal) / 100
            if self.model.bidirectional:
                rates[f"{block}.token_neuron_reverse"] = float(temporal) / 100
            rates[f"{block}.channel_neuron"] = float(spatial) / 100
        return rates


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
SAVING = "98.57"  # per cent of S4's energy, as the paper claims


def average_rate(temporal: Sequence[float], spatial: Sequence[float], *, as_published: bool = False) -> float:
    """Average over all neuron layers; the paper divides by one layer of each kind too many."""
    return (sum(temporal) + sum(spatial)) / (2 * (len(temporal) + as_published))


def published_counts(
    widths: tuple[int, ...],
    temporal: Sequence[float],
    spatial: Sequence[float],
    length: float,
    *,
    printed: bool = False,
) -> Counts:
    """Count SD-TCM blocks by the arithmetic that gives the paper's numbers, or (`printed`) by its formula."""
    if not printed:
        mean = average_rate(temporal, spatial, as_published=True)
        temporal, spatial = [mean] * len(widths), [mean] * len(widths)
    parts = []
    for place, (width, token, channel) in enumerate(zip(widths, temporal, spatial, strict=True)):
        name = f"encoder.blocks.{place}"
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
    """Count a peer by the paper's formula; S4, unless `printed`, by the arithmetic that gives its numbers."""
    if name != "s4" or printed:
        counted = peer(name, widths, length, state_size=state_size, rate=rate, norm=False)
        return counted.only("state space", "feedthrough", "channel linear", "gate")
    parts = []
    for width in widths:
        # D and H swapped: the width in place of the state size, and vice versa.
        block = peer(name, (state_size,), length, state_size=width, norm=False, rate=rate)
        twice = block.only("state space", "feedthrough", "channel linear").parts
        parts += [*twice, *twice, *block.only("gate").parts]
    return joined("S4-LegS", length, parts)


def as_published(measured: dict[str, Any], state_size: int = S4_STATE) -> dict[str, Any] | None:
    """Compute the energy of a measured network of SD-TCM blocks by the formula that the paper prints.

    It charges the blocks alone, without norm, input layer and head, and two directions as one.

    Args:
        measured: What `resofire.measure.measure` returned.
        state_size: The H of S4 and the other state space models.

    Returns:
        mJ per inference of the network and of those peers the paper has a formula for; None for other networks.
    """
    rates, widths = measured["rates"]["layers"], tuple(measured["network"]["widths"])
    spatial = [rate for name, rate in rates.items() if name.endswith(".channel_neuron")]
    forward, backward = (
        [rate for name, rate in rates.items() if name.endswith(end)]
        for end in (".token_neuron", ".token_neuron_reverse")
    )
    prf = measured["network"]["neuron"] == "PRF"
    if not prf or not len(widths) == len(spatial) == len(forward) or len(backward) not in (0, len(widths)):
        return None
    temporal = [(a + b) / 2 for a, b in zip(forward, backward, strict=True)] if backward else forward
    steps, mean = measured["length"]["value"], average_rate(temporal, spatial)
    own = energy(published_counts(widths, temporal, spatial, steps, printed=True)).mj_per_inference
    peers = {
        name: energy(
            published_peer(name, widths, steps, state_size=state_size, rate=mean, printed=True)
        ).mj_per_inference
        for name in measured["peers"]
        if name in ("s4", "binary-s4d", "gsu")
    }
    return {"mJ_per_inference": own, "peers": peers}


def report_convention(published: dict[str, Any]) -> str:
    """Write what `as_published` returned as a table."""
    own = published["mJ_per_inference"]
    rows = [["this network", number(own), "1.0x"]]
    rows += [[TITLES[name], number(other), f"{other / own:,.1f}x"] for name, other in published["peers"].items()]
    return table("By the paper's formula (blocks only), mJ per inference", ["", "energy", ""], rows)


def s4_state_size(
    widths: tuple[int, ...], length: float, energy_mj: float, mac: float, multiply: float
) -> float | None:
    """Solve the printed formula of S4 for H; None if even H = 0 costs more than `energy_mj`."""
    width = widths[0]
    products = energy_mj * 1e9 / (length * len(widths) * mac)
    # H² + 2DH = rest; the other terms, in MACs, do not depend on H.
    rest = products - 3 * width**2 - 2 * width - multiply / mac * width
    return sqrt(width**2 + rest) - width if rest >= 0 else None


def s4_curve() -> dict[str, float]:
    """Fit the MACs of an S4 block as a quadratic in its width to the five printed energies.

    Energies are weighted by their printed precision; `constant_within` is the standard error from rounding alone.
    """
    width, blocks, mj = np.array(
        [(task.s4_features, task.s4_depth * task.length, float(task.s4_energy)) for task in TASKS]
    ).T
    macs, rounding = (each * 1e9 / (FLOAT32.mac * blocks) for each in (mj, 0.0005))
    inverse = np.linalg.pinv(np.stack([width**2, width, np.ones(len(TASKS))], 1) / rounding[:, None])
    square, linear, constant = map(float, inverse @ (macs / rounding))
    # Rounding errors are uniform up to half a digit: that over √3 in the root mean square.
    within = float(np.linalg.norm(inverse[2])) / sqrt(3)
    return {"square": square, "linear": linear, "constant": constant, "constant_within": within}


def rounded(value: float | Decimal, like: str) -> str:
    """Round to as many digits as a printed number has; ties to even, as in the paper (Text)."""
    return str(Decimal(str(value)).quantize(Decimal(like), ROUND_HALF_EVEN))


def compare_published(state_size: int = S4_STATE, costs: Costs | str = FLOAT32) -> list[dict[str, Any]]:
    """Compare the paper's printed energies with its own arithmetic and with a full count ("audited"), task by task.

    Args:
        state_size: H of S4 and the other peers.
        costs: Cost table of the audited account, as in `measure`.

    Returns:
        One dict per task: rates in per cent, energies in mJ per inference at the paper's (padded) length.
    """
    require_state_size("compare_published", state_size, tuple(PEERS))
    cost_table = find_costs("compare_published", costs)
    return [_compared(task, state_size, cost_table) for task in TASKS]


def _compared(task: Published, state_size: int, costs: Costs) -> dict[str, Any]:
    temporal, spatial = ([float(rate) / 100 for rate in kind] for kind in (task.temporal, task.spatial))
    # Only shapes are counted, so no weights are needed.
    with torch.device("meta"):
        model = build(task.model)
    steps = float(task.length * (2 if task.model.pairs else 1))
    mean = average_rate(temporal, spatial)
    counts = count_ops(model, (steps,) if task.model.inputs is None else (steps, task.model.inputs), task.rates)
    audited = energy(counts, costs)
    peers = {
        name: energy(peer_network(model, name, steps, state_size=state_size, rate=mean), costs).mj_per_inference
        for name in PEERS
    }
    arithmetic = energy(published_counts(task.widths, temporal, spatial, task.length)).mj_per_inference
    formula = energy(published_counts(task.widths, temporal, spatial, task.length, printed=True)).mj_per_inference
    s4 = energy(published_peer("s4", task.s4_widths, task.length, state_size=S4_STATE)).mj_per_inference
    s4_formula = energy(published_peer("s4", task.widths, task.length, state_size=state_size, printed=True))
    needed = s4_state_size(task.widths, task.length, float(task.s4_energy), FLOAT32.mac, FLOAT32.multiply)
    return {
        "task": task.name,
        "length": task.length,
        "costs": costs.name,
        "state_size": state_size,
        "average": {
            "printed": task.average, "reproduced": rounded(task.average_as_published, task.average), "true": 100 * mean,
            "temporal": 100 * sum(temporal) / len(temporal), "spatial": 100 * sum(spatial) / len(spatial),
        },
        "energy": {
            "printed": task.energy, "reproduced": rounded(arithmetic, task.energy), "formula": formula,
            "formula_deviation": formula / float(task.energy) - 1, "audited": audited.mj_per_inference,
            "audited_over_printed": audited.mj_per_inference / float(task.energy),
            "audited_over_float32": audited.mj_per_inference / energy(counts).mj_per_inference,
            "neuron_share": audited.components["temporal neuron"] * 1e-9 / audited.mj_per_inference,
        },
        "s4": {
            "printed": task.s4_energy, "reproduced": rounded(s4, task.s4_energy),
            "sizes": [task.s4_depth, task.s4_features], "formula": s4_formula.mj_per_inference,
            "state_size_needed": needed, "audited": peers["s4"],
        },
        "saving": {
            "unit": "per cent of S4's energy saved", "printed": 100 * (1 - float(task.energy) / float(task.s4_energy)),
            "audited": 100 * (1 - audited.mj_per_inference / peers["s4"]),
        },
        "times": {name: mj / audited.mj_per_inference for name, mj in peers.items()},
        "claim_of_average_saving": SAVING,
        "curve_of_s4": s4_curve(),
    }  # fmt: skip


def report_published(tasks: list[dict[str, Any]]) -> str:
    """Write what `compare_published` returned as tables."""
    rates = [
        [each["task"], each["average"]["reproduced"], each["average"]["printed"], f"{each['average']['true']:.2f}",
         f"{each['average']['temporal']:.2f}", f"{each['average']['spatial']:.2f}"]
        for each in tasks
    ]  # fmt: skip
    energies = [
        [each["task"], each["energy"]["reproduced"], each["energy"]["printed"], f"{each['energy']['formula']:.3f}",
         f"{100 * each['energy']['formula_deviation']:+.1f} %", f"{each['energy']['audited']:.3f}",
         f"{each['energy']['audited_over_printed']:.2f}x"]
        for each in tasks
    ]  # fmt: skip
    peers = [
        [each["task"], each["s4"]["reproduced"], each["s4"]["printed"], "{} x {}".format(*each["s4"]["sizes"]),
         f"{each['s4']['formula']:.3f}", _state_size(each["s4"]["state_size_needed"]), f"{each['s4']['audited']:.3f}",
         f"{each['saving']['printed']:.1f} %", f"{each['saving']['audited']:.1f} %"]
        for each in tasks
    ]  # fmt: skip
    audits = [
        [each["task"], number(each["energy"]["audited"]), f"{each['energy']['audited_over_float32']:.1f}x",
         f"{100 * each['energy']['neuron_share']:.0f} %", *(f"{times:,.1f}x" for times in each["times"].values())]
        for each in tasks
    ]  # fmt: skip
    costs, size, curve = tasks[0]["costs"], tasks[0]["state_size"], tasks[0]["curve_of_s4"]
    printed, audited = (sum(each["saving"][key] for each in tasks) / len(tasks) for key in ("printed", "audited"))
    claim = tasks[0]["claim_of_average_saving"]
    return "\n\n".join(
        [
            table("Average fire rate, %", ["", "reproduced", "printed", "true", "temporal", "spatial"], rates),
            table(f"Energy, mJ per inference; audited at costs {costs}",
                   ["", "reproduced", "printed", "its formula", "deviation", "audited", "of printed"], energies),
            table(f"S4, mJ per inference; its formula and audited at H = {size}, audited at costs {costs}",
                   ["", "reproduced", "printed", "at", "its formula", "needs H", "audited", "saved", "audited"], peers),
            "S4 as printed, MACs of a block of width w: "
            f"{curve['square']:.4f} w² + {curve['linear']:.2f} w + {curve['constant']:,.0f} "
            f"(± {curve['constant_within']:.0f})",
            table(f"Audited at costs {costs}, H = {size}: mJ per inference, and the peers as multiples of it",
                   ["", "mJ", "of float32", "neurons", *tasks[0]["times"]], audits),
            f"Saved, mean over the tasks: {printed:.1f} % by the printed numbers, {audited:.1f} % audited "
            f"(the paper: {claim} %,\nwhich is 1 minus the quotient of its two mean energies).",
        ]
    )  # fmt: skip


def _state_size(size: float | None) -> str:
    return "not derivable" if size is None else f"{size:.1f}"
