"""Folded networks as NIR graphs, in files that other neuromorphic tools can read.

NIR has no resonator and no soft reset: `nir.LIF` resets hard. A temporal neuron is therefore written as a small cycle
(`Scale` 1 where edges are only added up):

    current -> u -> spikes (Threshold)        u -> before (Delay of one step) -> re_u, im_u (Scale φ)
    re_u, im_r, current -> u                  im_u, re_r -> r -> r_before (Delay) -> re_r, im_r
    soft reset: u, spikes -> reset (Scale -η) -> kept -> before

`Threshold` fires on >, ours on ≥: it gets the next lower number of the same precision, which is equivalent. A LIF with
hard reset is a `nir.LIF`. The output is scores at every step. Metadata say whether the network's scores are their mean,
the last, or all of them (`pool`), how long a step is (`dt`), and whether the input is one-hot tokens (`tokens`).

NIR gives equations in continuous time. `replay` runs a graph in steps of dt, which is how the file is verified:

    a node adds up its incoming edges, in the order of the list of edges, and acts at once
    Delay     outputs its input of one step earlier, and zeros before that; every cycle passes through one
    LIF       v = (1 - dt/τ) v + (r dt/τ) I + (dt/τ) v_leak (forward Euler); fires on v > v_threshold, then v = v_reset
"""

import io
from collections.abc import Callable
from graphlib import TopologicalSorter
from typing import Any

import nir
import numpy as np

from ...nn.folded import Array, Folded, Layer, Neurons
from ..reference import Result, pool

DT = 1e-4


def write(folded: Folded) -> bytes:
    """The content of the file, an HDF5 file built in memory."""
    content = io.BytesIO()
    nir.write(content, graph(folded))
    return content.getvalue()


def replay(content: bytes, samples: list[Array]) -> list[Result]:
    """Run the graph in what `write` returned on each sample. Not for files from others: HDF5 is no match for them."""
    return run(nir.read(io.BytesIO(content)), samples)


class _Draft:
    """A graph under construction."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.nodes: dict[str, Any] = {}
        self.edges: list[tuple[str, str]] = []

    def add(self, name: str, node: Any, *sources: str) -> str:
        self.nodes[name] = node
        self.edges += [(source, name) for source in sources]
        return name

    def scale(self, name: str, factor: Array, *sources: str) -> str:
        return self.add(name, nir.Scale(np.asarray(factor, self.dtype)), *sources)

    def delay(self, name: str, size: int, source: str) -> str:
        return self.add(name, nir.Delay(np.full(size, DT)), source)


def graph(folded: Folded) -> Any:
    """The NIRGraph of a folded network.

    Raises:
        ValueError: The network is bidirectional.
    """
    if not folded.causal:
        raise ValueError("the network is bidirectional, and NIR cannot run over a sequence in reverse")
    draft = _Draft(folded.dtype)
    draft.add("input", nir.Input({"input": np.array([len(folded.table)])}))
    source = "input"
    if folded.origin is not None:
        source = draft.add("centred", nir.Affine(np.eye(len(folded.table), dtype=folded.dtype), -folded.origin), source)
    z = draft.add("table", nir.Linear(np.ascontiguousarray(folded.table.T)), source)
    for i, layer in enumerate(folded.layers):
        z = _layer(draft, str(i), layer, z)
    draft.add("head", nir.Affine(np.ascontiguousarray(folded.head.T), folded.bias), z)
    draft.add("output", nir.Output({"output": np.array([len(folded.bias)])}), "head")
    metadata = {"dt": DT, "pool": folded.pool, "tokens": folded.tokens}
    if folded.pool_steps is not None:
        metadata["pool_steps"] = folded.pool_steps
    return nir.NIRGraph(draft.nodes, draft.edges, metadata=metadata)


def _layer(draft: _Draft, name: str, layer: Layer, z: str) -> str:
    (neurons,) = layer.neurons
    if neurons.kind == "spatial":
        drive = z if (neurons.sign == 1).all() else draft.scale(f"{name}.seen", neurons.sign, z)
        spikes = draft.add(f"{name}.spikes", nir.Threshold(_below(neurons.threshold)), drive)
    else:
        current = _current(draft, name, neurons, z, only_reader=layer.fresh)
        spikes = (_hard if neurons.reset == "hard" else _cycle)(draft, name, neurons, current)
    added = draft.add(f"{name}.rows", nir.Linear(np.ascontiguousarray(layer.rows.T)), spikes)
    if layer.fresh and layer.clear is None:
        return added
    keep = np.ones(layer.rows.shape[1]) if layer.clear is None else ~layer.clear
    return draft.scale(f"{name}.z", keep, *([] if layer.fresh else [z]), added)


def _current(draft: _Draft, name: str, neurons: Neurons, z: str, *, only_reader: bool) -> str:
    """The node that gives σ z + κ. If nothing else reads z, κ goes into the node before."""
    if not neurons.current.any():
        return z if (neurons.sign == 1).all() else draft.scale(f"{name}.current", neurons.sign, z)
    before = draft.nodes[z]
    if only_reader and isinstance(before, nir.Linear) and (neurons.sign == 1).all():
        draft.nodes[z] = nir.Affine(before.weight, neurons.current)
        return z
    return draft.add(f"{name}.current", nir.Affine(np.diag(neurons.sign.astype(draft.dtype)), neurons.current), z)


def _cycle(draft: _Draft, name: str, neurons: Neurons, current: str) -> str:
    ones, size = np.ones(neurons.count), neurons.count
    rotates = neurons.kind == "prf"
    # The order of the edges is that of the additions in `reference.trajectory`, for the same bits.
    u = draft.scale(f"{name}.u", ones, f"{name}.re_u", *([f"{name}.im_r"] if rotates else []), current)
    spikes = draft.add(f"{name}.spikes", nir.Threshold(_below(neurons.threshold)), u)
    kept = u
    if neurons.reset == "soft":
        reset = draft.scale(f"{name}.reset", -neurons.threshold, spikes)
        kept = draft.scale(f"{name}.kept", ones, u, reset)
    before = draft.delay(f"{name}.before", size, kept)
    draft.scale(f"{name}.re_u", neurons.phi_re, before)
    if rotates:
        draft.scale(f"{name}.im_u", neurons.phi_im, before)
        r = draft.scale(f"{name}.r", ones, f"{name}.im_u", f"{name}.re_r")
        r_before = draft.delay(f"{name}.r_before", size, r)
        draft.scale(f"{name}.re_r", neurons.phi_re, r_before)
        draft.scale(f"{name}.im_r", -neurons.phi_im, r_before)
    return spikes


def _hard(draft: _Draft, name: str, neurons: Neurons, current: str) -> str:
    """A `nir.LIF` with 1 - dt/τ = β and r dt/τ = 1 in float64; a neighbour of the rounded value nearly always fits."""
    beta = neurons.phi_re.astype(np.float64)
    tau = _solve(DT / (1 - beta), lambda tau: 1 - DT / tau, beta)
    r = _solve(tau / DT, lambda r: r * (DT / tau), np.ones_like(beta))
    zero = np.zeros_like(beta)
    return draft.add(f"{name}.spikes", nir.LIF(tau, r, zero, _below(neurons.threshold), zero), current)


def _solve(guess: Array, function: Callable[[Array], Array], target: Array) -> Array:
    """The neighbour of `guess` whose function is nearest to the target."""
    best = guess
    for direction in (-np.inf, np.inf):
        near = guess
        for _ in range(3):
            near = np.nextafter(near, direction)
            best = np.where(abs(function(near) - target) < abs(function(best) - target), near, best)
    return best


def _below(threshold: Array) -> Array:
    return np.nextafter(threshold, threshold.dtype.type(-np.inf))


def run(graph: Any, samples: list[Array]) -> list[Result]:
    """Run a graph made by `graph` on each sample, values [T, inputs] or tokens [T]."""
    dtype, how, steps = graph.nodes["table"].weight.dtype, str(graph.metadata["pool"]), graph.metadata.get("pool_steps")
    inputs = int(graph.nodes["input"].input_type["input"][0])
    # All samples in one batch: what follows the end of one changes nothing before it.
    x = np.zeros((max(map(len, samples)), len(samples), inputs), dtype)
    for b, sample in enumerate(samples):
        x[: len(sample), b] = sample[:, None] == np.arange(inputs) if graph.metadata["tokens"] else sample
    names = [name for name in graph.nodes if name.endswith(".spikes")]
    names.sort(key=lambda name: int(name.split(".")[0]))
    outputs = _run_steps(graph, x, ["output", *names])
    results = []
    for b, sample in enumerate(samples):
        scores, *spikes = (values[: len(sample), b] for values in outputs)
        results.append(
            Result(pool(scores, how, None if steps is None else int(steps)), [fired > 0 for fired in spikes])
        )
    return results


def _run_steps(graph: Any, x: Array, names: list[str]) -> list[Array]:
    """The outputs of the nodes of these names in each step, [T, B, N] each, for the input x [T, B, inputs]."""
    nodes = graph.nodes
    sources: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in graph.edges:
        sources[target].append(source)
    delays = {name for name, node in nodes.items() if isinstance(node, nir.Delay)}
    # A Delay's output is known when a step begins, so edges out of one impose no order.
    order = list(TopologicalSorter({
        name: [] if name in delays else [source for source in sources[name] if source not in delays] for name in nodes
    }).static_order())  # fmt: skip
    act = {name: _function(nodes[name], float(graph.metadata["dt"]), x.dtype) for name in order if name not in delays}
    values = {name: np.zeros((x.shape[1], nodes[name].delay.size), x.dtype) for name in delays}
    records: dict[str, list[Array]] = {name: [] for name in names}
    for now in x:
        for name in order:
            if name not in delays:
                values[name] = act[name](_sum([values[source] for source in sources[name]]) if sources[name] else now)
        for name in names:
            records[name].append(values[name])
        values |= {name: _sum([values[source] for source in sources[name]]) for name in delays}
    return [np.stack(records[name]) for name in names]


def _sum(values: list[Array]) -> Array:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _function(node: Any, dt: float, dtype: Any) -> Callable[[Array], Array]:
    """The function of a node on its summed input [B, N] in one step."""
    if isinstance(node, nir.LIF):
        return _leaky(node, dt, dtype)
    if isinstance(node, nir.Scale):
        return lambda x: x * node.scale.astype(dtype)
    if isinstance(node, nir.Threshold):
        return lambda x: (x > node.threshold).astype(dtype)
    if isinstance(node, nir.Linear):
        return lambda x: x @ node.weight.T
    if isinstance(node, nir.Affine):
        return lambda x: x @ node.weight.T + node.bias
    if isinstance(node, nir.Input | nir.Output):
        return lambda x: x
    raise TypeError(f"replay: node must be one that `graph` writes, got {type(node).__name__}")


def _leaky(node: Any, dt: float, dtype: Any) -> Callable[[Array], Array]:
    # In float64 whatever the precision of the network, so that 1 - dt/τ comes out as β.
    share = dt / np.asarray(node.tau, np.float64)
    decay, gain = (1 - share).astype(dtype), (np.asarray(node.r, np.float64) * share).astype(dtype)
    leak = (share * node.v_leak).astype(dtype)
    v = np.zeros(decay.shape, dtype)

    def fire(x: Array) -> Array:
        nonlocal v
        v = decay * v + (gain * x + leak)
        fired = v > node.v_threshold.astype(dtype)
        v = np.where(fired, node.v_reset.astype(dtype), v)
        return fired.astype(dtype)

    return fire
