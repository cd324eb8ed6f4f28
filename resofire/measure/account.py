"""Measure a network: fire rates, operations and energy, compared with peers of equal size.

Modules count themselves (`resofire.nn.counts`; docs/energy.md has the rules and their reasons).
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import torch

from ..data import Batch
from ..nn import PRFConfig
from ..nn.counts import CountError, Counts, joined, require_counting, require_positive
from .costs import FLOAT32, Costs, energy, find_costs
from .peers import SPIKING, TITLES, complexity, law, peer, require_peers, require_state_size
from .rates import rates_and_length


def count_ops(model: Any, shape: tuple[float, ...], rates: Mapping[str, float], *, fold_norm: bool = False) -> Counts:
    """Count the operations and bytes of one inference.

    Args:
        model: A network with `count(steps, rates, *, fold_norm)` and a config, as all of `resofire.models` have.
        shape: Of the input of one inference, without batch: (steps,) for tokens or (steps, inputs) for values. For a
            pair of documents, the steps of both together. A mean length need not be an integer.
        rates: Fire rate of each neuron layer by name, see `fire_rates`. Fractions give exact counts.
        fold_norm: Count a network whose norms have been merged into the layers around them.

    Returns:
        The counts of all parts.

    Raises:
        CountError: A module has no `count`, or `rates` lacks one of its layers.
        ValueError: `shape` does not fit the network.
    """
    require_counting(model, "")
    inputs = getattr(model.config, "inputs", None)
    form = "(steps,)" if inputs is None else f"(steps, {inputs})"
    if not isinstance(shape, tuple) or len(shape) != (1 if inputs is None else 2) or (inputs and shape[1] != inputs):
        raise ValueError(f"count_ops: shape must be {form} for this model, got {shape!r}")
    require_positive("count_ops", "shape[0]", shape[0])
    return joined(type(model).__name__, shape[0], model.count(shape[0], dict(rates), fold_norm=fold_norm))


def measure(
    model: Any, batches: Iterable[Batch], length: float | None = None, *, against: tuple[str, ...] = ("s4",),
    state_size: int = 64, costs: Costs | str = FLOAT32, fold_norm: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Measure a network's fire rates and compute its operations and energy, compared with peers of equal size.

    Args:
        model: A network that counts itself, see `count_ops`.
        batches: What to measure the fire rates on, as `resofire.data` yields them.
        length: Time steps per inference, both documents of a pair together; None for the mean of the batches.
        against: Names of peers, see PEERS.
        state_size: The peers' state size H.
        costs: A cost table, or the name of one in COSTS.
        fold_norm: Count the norms as part of their neighbours, see `count_ops`.

    Returns:
        A dict ready for JSON; `report` makes tables of it, `resofire.plot.measure.draw` a figure.

    Raises:
        ValueError: An argument is out of range, or the network does not count itself (CountError).
    """
    require_counting(model, "")
    require_peers("measure", against)
    require_state_size("measure", state_size, against)
    find_costs("measure", costs)
    if length is not None:
        require_positive("measure", "length", length)
    rates, mean_length = rates_and_length(model, batches)
    return account(
        model, rates, mean_length if length is None else length, against=against, state_size=state_size, costs=costs,
        fold_norm=fold_norm,
    )  # fmt: skip


def account(
    model: Any, rates: Mapping[str, float], length: float, *, against: tuple[str, ...] = ("s4",),
    state_size: int = 64, costs: Costs | str = FLOAT32, fold_norm: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Compute the operations and energy of a network from fire rates that are known, e.g. those of a run's record.

    Args:
        model: A network that counts itself, see `count_ops`.
        rates: Fire rate of each neuron layer by name.
        length: Time steps per inference, both documents of a pair together.
        against: See `measure`, as the remaining arguments.
        state_size: The peers' state size H.
        costs: A cost table, or the name of one in COSTS.
        fold_norm: Count the norms as part of their neighbours.

    Returns:
        What `measure` returns.

    Raises:
        ValueError: As `measure`.
    """
    require_peers("measure", against)
    require_state_size("measure", state_size, against)
    require_positive("measure", "length", length)
    table = find_costs("measure", costs)
    steps, inputs = float(length), getattr(model.config, "inputs", None)
    counts = count_ops(model, (steps,) if inputs is None else (steps, inputs), rates, fold_norm=fold_norm)
    own, rate = energy(counts, table), sum(rates.values()) / len(rates) if rates else None
    peers = {}
    for name in against:
        if rate is None and name in SPIKING:
            raise ValueError(f"measure: against must not be {name}: the {type(model).__name__} has no fire rate for it")
        # A peer that spikes gets the network's mean rate.
        other = peer_network(model, name, steps, state_size=state_size, rate=rate or 0.0, fold_norm=fold_norm)
        spent = energy(other, table)
        peers[name] = {
            "title": TITLES[name], "state_size": None if name == "transformer" else state_size,
            "rate": rate if other.per_inference("ac") else None,
            "dynamics": complexity(name, bidirectional=_bidirectional(model)), "no_nonlinear": other.no_nonlinear,
            "no_mac": other.no_mac,
            "energy": {**spent.as_dict(), "times_ours": spent.mj_per_inference / own.mj_per_inference},
        }  # fmt: skip
    return {
        "network": _network(model, fold_norm),
        "length": {"value": steps, "sequences": _sequences(model), "unit": "time steps per inference"},
        "costs": {**asdict(table), "unit": "pJ per operation, pJ per byte"},
        "rates": {"unit": "spikes per neuron and time step", "layers": dict(rates), "mean": rate},
        "counts": counts.as_dict(),
        "energy": own.as_dict(),
        "block": {"dynamics": _dynamics(model), "no_nonlinear": counts.no_nonlinear, "no_mac": counts.no_mac},
        "peers": peers,
    }


def peer_network(
    model: Any, name: str, steps: float, *, state_size: int, rate: float, fold_norm: bool = False
) -> Counts:
    """Count a peer in place of a network's blocks: same widths, depth, directions, input layer, pool and head.

    Args:
        model: A network with `widths` and `count_frame(steps, *, fold_norm)`, as all of `resofire.models` have.
        name: One of PEERS.
        steps: Time steps per inference.
        state_size: The peer's H.
        rate: Fire rate of a peer that spikes.
        fold_norm: Count the norms as part of their neighbours.

    Raises:
        CountError: The network has no `widths` or `count_frame`.
    """
    for need in ("widths", "count_frame"):
        if not hasattr(model, need):
            raise CountError(f"measure: the {type(model).__name__} has no `{need}`, so it has no peer of equal size")
    blocks = peer(
        name, model.widths, steps, state_size=state_size, rate=rate, sequences=_sequences(model),
        bidirectional=_bidirectional(model), norm=_has_norms(model) and not fold_norm,
    )  # fmt: skip
    return joined(TITLES[name], steps, blocks, model.count_frame(steps, fold_norm=fold_norm))


def _sequences(model: Any) -> int:
    return 2 if getattr(model.config, "pairs", False) else 1


def _bidirectional(model: Any) -> bool:
    block = getattr(model.config, "block", None)
    return bool(getattr(model.config if block is None else block, "bidirectional", False))


def _has_norms(model: Any) -> bool:
    """Whether blocks have norms."""
    return getattr(model.config, "norm", "none") != "none"


def _dynamics(model: Any) -> str:
    """Products per time step of a block's temporal neurons, as a polynomial in its width D."""
    config = getattr(model.config, "neuron", None)
    if config is None or getattr(model.config, "block", None) is not None:
        return "unknown"

    def products(width: int, state_size: int) -> float:
        return (1 + _bidirectional(model)) * config.build(width).count("neuron", 1).multiply

    # Without a device: sampling initial values would consume the caller's random numbers.
    with torch.device("meta"):
        return law(products)


def _block(model: Any) -> str:
    """The name of a network's own block, or of its neuron."""
    config = getattr(model.config, "block", None) or getattr(model.config, "neuron", model.config)
    if isinstance(config, PRFConfig):
        # It may make another neuron.
        with torch.device("meta"):
            return type(config.build(1)).__name__
    return type(config).__name__.removesuffix("Config")


def _network(model: Any, fold_norm: bool) -> dict[str, Any]:
    return {
        "kind": type(model).__name__,
        "widths": list(getattr(model, "widths", ())),
        "neuron": _block(model),
        "bidirectional": _bidirectional(model),
        "norm": "none" if not _has_norms(model) else "folded" if fold_norm else "counted",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
