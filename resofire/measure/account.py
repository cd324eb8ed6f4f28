"""A network measured: fire rates, operations, energy as the paper would publish it and as it is, and its peers."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import torch

from ..models import Feedforward, build
from .costs import FLOAT32, Costs, Energy, energy, find_costs
from .counts import Counts, joined, require_positive
from .network import count_neuron, count_ops, frame, norms, sequences, widths
from .peers import PEERS, TITLES, complexity, law, peer, require_peers, require_state_size
from .published import (
    S4_STATE,
    SAVING,
    TASKS,
    Published,
    average_rate,
    published_counts,
    published_peer,
    published_rates,
    rounded,
    s4_curve,
    s4_state_size,
)
from .rates import Batch, Model, require_network, walk

# The paper has no formula of these.
NOT_IN_THE_PAPER = ("s4d", "transformer")


def measure(
    model: Model, batches: Iterable[Batch], length: float | None = None, *, against: tuple[str, ...] = ("s4",),
    state_size: int = 64, costs: Costs | str = FLOAT32, fold_norm: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Everything about a network's work, ready for JSON; `report` makes a table of it, `resofire.plot` a figure.

    batches       what to take the fire rates from, as `resofire.data` gives them
    length        time steps of an inference, both documents of a pair together; None: the mean of these batches
    against       peers of the same widths and depth, see PEERS
    state_size    their H
    costs         a table of costs, or the name of one in COSTS; the published account keeps to the paper's
    fold_norm     counts the norms as part of their neighbours, see `count_ops`
    """
    require_network("measure", model)
    require_peers("measure", against)
    require_state_size("measure", state_size, against)
    table = find_costs("measure", costs)
    if length is not None:
        require_positive("measure", "length", length)
    rates, mean_length = walk(model, batches)
    steps = float(mean_length if length is None else length)
    counts = count_ops(model, _shape(model, steps), rates, fold_norm=fold_norm)
    audited = energy(counts, table)
    split = published_rates(model, rates)
    published = None if isinstance(split, str) else _published(model, split, steps)
    return {
        "network": _network(model, fold_norm),
        "length": {"value": steps, "sequences": sequences(model), "unit": "time steps per inference"},
        "costs": {**asdict(table), "unit": "pJ per operation, pJ per byte"},
        "rates": {
            "unit": "spikes per neuron and time step",
            "layers": rates,
            "mean": sum(rates.values()) / len(rates),
            "mean_as_published": None if isinstance(split, str) else average_rate(*split, as_published=True),
        },
        "counts": counts.as_dict(),
        "energy": {
            "audited": audited.as_dict(),
            "published": {"not_defined": split} if published is None else published.as_dict(),
        },
        "block": {
            "dynamics": _dynamics(model), "no_nonlinear": counts.no_nonlinear, "no_mac": counts.no_mac,
        },
        "peers": {
            name: _peer(model, name, rates, split, (audited, published), table, state_size, fold_norm)
            for name in against
        },
    }  # fmt: skip


def peer_network(
    model: Model, name: str, steps: float, *, state_size: int, rate: float, fold_norm: bool = False
) -> Counts:
    """A peer in the place of a network's blocks: the same widths, depth and directions, input layer, pool and head."""
    config = model.config
    blocks = peer(
        name, widths(model), steps, state_size=state_size, rate=rate, sequences=sequences(model),
        bidirectional=getattr(config, "bidirectional", False), norm=norms(model) and not fold_norm,
    )  # fmt: skip
    return joined(TITLES[name], steps, blocks, frame(model, steps, fold_norm=fold_norm))


def compare_published(state_size: int = S4_STATE, costs: Costs | str = FLOAT32) -> list[dict[str, Any]]:
    """The paper's tasks, one after the other: what it prints, what its arithmetic gives, and the audited account.

    Rates are in per cent, energies in mJ per inference at the paper's (padded) length. S4 and the other peers have
    `state_size`; `costs` are those of the audited account, as in `measure`.
    """
    require_state_size("compare_published", state_size, tuple(PEERS))
    table = find_costs("compare_published", costs)
    return [_compared(task, state_size, table) for task in TASKS]


def _compared(task: Published, state_size: int, table: Costs) -> dict[str, Any]:
    temporal, spatial = ([float(rate) / 100 for rate in kind] for kind in (task.temporal, task.spatial))
    # Only shapes are counted: no weight needs to exist.
    with torch.device("meta"):
        model = build(task.model)
    steps = float(task.length * sequences(model))
    mean = average_rate(temporal, spatial)
    counts = count_ops(model, _shape(model, steps), task.rates)
    audited = energy(counts, table)
    peers = {
        name: energy(peer_network(model, name, steps, state_size=state_size, rate=mean), table).mj_per_inference
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
        "costs": table.name,
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


def _peer(
    model: Model, name: str, rates: dict[str, float], split: Any, ours: tuple[Energy, Energy | None], table: Costs,
    state_size: int, fold_norm: bool,
) -> dict[str, Any]:  # fmt: skip
    """A peer under both accounts. Its fire rate, where it spikes, is the mean of the network's own."""
    audited, published = ours
    rate = sum(rates.values()) / len(rates)
    counts = peer_network(model, name, audited.steps, state_size=state_size, rate=rate, fold_norm=fold_norm)
    found = energy(counts, table)
    theirs = None
    if published is not None and name not in NOT_IN_THE_PAPER:
        mean = average_rate(*split, as_published=True)
        theirs = energy(published_peer(name, widths(model), published.steps, state_size=state_size, rate=mean))
    return {
        "title": TITLES[name],
        "state_size": None if name == "transformer" else state_size,
        "rate": rate if counts.per_inference("ac") else None,
        "dynamics": complexity(name, bidirectional=getattr(model.config, "bidirectional", False)),
        "no_nonlinear": counts.no_nonlinear,
        "no_mac": counts.no_mac,
        "audited": {**found.as_dict(), "times_ours": _times(found, audited)},
        "published": None if theirs is None else {**theirs.as_dict(), "times_ours": _times(theirs, published)},
    }  # fmt: skip


def _times(theirs: Energy, ours: Energy | None) -> float | None:
    return None if ours is None else theirs.mj_per_inference / ours.mj_per_inference


def _published(model: Model, split: tuple[list[float], list[float]], steps: float) -> Energy:
    """At the paper's costs; of a pair it charges one document."""
    return energy(published_counts(widths(model), *split, steps / sequences(model)))


def _dynamics(model: Model) -> str:
    """What the temporal neurons of a block multiply in a time step."""
    directions = 1 + getattr(model.config, "bidirectional", False)

    def products(width: int, state_size: int) -> float:
        return directions * count_neuron(model.config.neuron.build(width), "neuron", 1).multiply

    # On no device: fresh neurons would draw from the caller's random numbers.
    with torch.device("meta"):
        return law(products)


def _network(model: Model, fold_norm: bool) -> dict[str, Any]:
    config = model.config
    plain = isinstance(model, Feedforward)
    return {
        "kind": type(model).__name__,
        "widths": list(widths(model)),
        "neuron": type(config.neuron).__name__.removesuffix("Config"),
        "bidirectional": bool(getattr(config, "bidirectional", False)),
        "norm": "none" if plain or not norms(model) else "folded" if fold_norm else "counted",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def _shape(model: Model, steps: float) -> tuple[float, ...]:
    inputs = model.config.sizes[0] if isinstance(model, Feedforward) else getattr(model.config, "inputs", None)
    return (steps,) if inputs is None else (steps, inputs)
