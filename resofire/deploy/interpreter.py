"""Runs NIR graphs step by step. NIR gives equations in continuous time; here is what they mean in steps of dt.

    a node adds up what its edges bring, in the order of the list of edges, and acts at once
    Scale, Linear, Affine, Threshold     as NIR has them; Threshold fires on v > threshold
    Delay                                gives what it got delay = dt earlier, before that zeros
    LI, LIF                              v = (1 - dt/τ) v + (r dt/τ) I + (dt/τ) v_leak (forward Euler); a LIF fires on
                                         v > v_threshold and then has v = v_reset at once

Every cycle must pass through a Delay. So "one step late" stands in the file, at the edge that closes the cycle, and is
no habit of the reader. Parts without cycles are run for all steps together.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from .folded import Array

KNOWN = ("Input", "Output", "Scale", "Linear", "Affine", "Threshold", "Delay", "LI", "LIF")
STATEFUL = ("LI", "LIF")


class GraphError(ValueError):
    """A graph that cannot be run. Its text is one sentence."""


@dataclass
class Program:
    """A graph in the order in which it is run."""

    nodes: dict[str, Any]
    sources: dict[str, list[str]]
    """Where the edges into a node come from, in the order of the list of edges."""
    parts: list[list[str]]
    """Nodes that run together: one, or those of a cycle in their order within a step."""
    dt: float
    input: str = ""
    output: str = ""
    dtype: Any = field(default=np.float64)


def prepare(graph: Any, dt: float) -> Program:
    """Orders a NIRGraph; GraphError if it cannot be run."""
    nodes = dict(graph.nodes)
    sources: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in graph.edges:
        sources[target].append(source)
    program = Program(nodes, sources, _parts(nodes, sources), dt)
    for name, node in nodes.items():
        kind = type(node).__name__
        if kind not in KNOWN:
            raise GraphError(f"node {name!r} must be one of {', '.join(KNOWN)}, got {kind}")
        if kind == "Delay" and not np.allclose(node.delay, dt, rtol=1e-6, atol=0):
            raise GraphError(f"node {name!r} must have a delay of one step of {dt:g} s")
        if kind in STATEFUL and not (np.asarray(node.tau) > 0).all():
            raise GraphError(f"node {name!r} must have a positive tau")
        if not sources[name] and kind != "Input":
            raise GraphError(f"node {name!r} has no edge into it")
    for kind in ("Input", "Output"):
        found = [name for name, node in nodes.items() if type(node).__name__ == kind]
        if len(found) != 1:
            raise GraphError(f"the graph must have one {kind}, got {len(found)}")
        setattr(program, kind.lower(), found[0])
    if sources[program.input]:
        raise GraphError("the graph must have no edge into its Input")
    weights = [node.weight.dtype for node in nodes.values() if type(node).__name__ in ("Linear", "Affine")]
    program.dtype = np.result_type(*weights) if weights else np.dtype(np.float64)
    return program


def run(program: Program, x: Array, keep: tuple[str, ...] = ()) -> tuple[Array, dict[str, Array]]:
    """Values [T, inputs] through a graph: its output [T, outputs], and what the nodes named in `keep` gave."""
    wanted = (len(x), *(int(size) for size in np.asarray(program.nodes[program.input].input_type["input"]).reshape(-1)))
    if x.shape != wanted:
        raise GraphError(f"x must have shape {list(wanted)}, got {list(x.shape)}")
    given = {program.input: np.asarray(x, program.dtype)}
    kept: dict[str, Array] = {}
    # How many edges still have to be served; what nobody needs any more is let go.
    open_edges = dict.fromkeys(program.nodes, 0)
    for sources in program.sources.values():
        for source in sources:
            open_edges[source] += 1
    for part in program.parts:
        if part != [program.input]:
            _run_part(program, part, given, len(x))
        kept |= {name: given[name] for name in part if name in keep or name == program.output}
        for name in part:
            for source in program.sources[name]:
                open_edges[source] -= 1
                if not open_edges[source]:
                    given.pop(source, None)
    return kept[program.output], kept


def _parts(nodes: dict[str, Any], sources: dict[str, list[str]]) -> list[list[str]]:
    place = {name: i for i, name in enumerate(nodes)}
    pairs = [(place[source], place[target]) for target, found in sources.items() for source in found]
    ends = np.array(pairs, np.int64).reshape(-1, 2).T
    matrix = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(len(nodes), len(nodes)))
    _, labels = connected_components(matrix, directed=True, connection="strong")
    members: dict[int, list[str]] = {}
    for name, label in zip(nodes, labels.tolist(), strict=True):
        members.setdefault(label, []).append(name)
    above: dict[int, set[int]] = {label: set() for label in members}
    for target, found in sources.items():
        above[labels[place[target]]] |= {labels[place[source]] for source in found} - {labels[place[target]]}
    return [_within(members[label], nodes, sources) for label in TopologicalSorter(above).static_order()]


def _within(part: list[str], nodes: dict[str, Any], sources: dict[str, list[str]]) -> list[str]:
    """The order within a step. What a Delay gives is there from the start, so edges out of one do not count."""
    own = set(part)
    inner = {
        name: [each for each in sources[name] if each in own and type(nodes[each]).__name__ != "Delay"] for name in part
    }
    try:
        return list(TopologicalSorter(inner).static_order())
    except CycleError as error:
        raise GraphError(f"the cycle through {error.args[1][0]!r} has no Delay in it") from None


def _run_part(program: Program, part: list[str], given: dict[str, Array], steps: int) -> None:
    nodes, sources = program.nodes, program.sources
    (first, *others) = part
    if not others and first not in sources[first]:
        total = _total([given[source] for source in sources[first]])
        given[first] = _alone(program, nodes[first], total)
        return
    acts = {name: _act(program, nodes[name]) for name in part if type(nodes[name]).__name__ != "Delay"}
    delays = [name for name in part if name not in acts]
    for name in part:
        given[name] = np.zeros((steps, *np.asarray(next(iter(nodes[name].output_type.values())))), program.dtype)
    for t in range(steps):
        for name, act in acts.items():
            given[name][t] = act(_total([given[source][t] for source in sources[name]]))
        if t + 1 < steps:
            for name in delays:
                given[name][t + 1] = _total([given[source][t] for source in sources[name]])


def _total(values: list[Array]) -> Array:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _alone(program: Program, node: Any, x: Array) -> Array:
    """A node that is in no cycle, for all steps."""
    kind = type(node).__name__
    if kind == "Delay":
        return np.concatenate((np.zeros_like(x[:1]), x[:-1]))
    act = _act(program, node)
    return np.stack([act(each) for each in x]) if kind in STATEFUL and len(x) else act(x)


def _act(program: Program, node: Any) -> Callable[[Array], Array]:
    kind, dtype = type(node).__name__, program.dtype
    if kind in STATEFUL:
        return _leaky(program, node)
    if kind == "Scale":
        scale = node.scale.astype(dtype)
        return lambda x: x * scale
    if kind == "Threshold":
        threshold = node.threshold.astype(dtype)
        return lambda x: (x > threshold).astype(dtype)
    if kind == "Linear":
        weight = np.ascontiguousarray(node.weight.T, dtype)
        return lambda x: x @ weight
    if kind == "Affine":
        weight, bias = np.ascontiguousarray(node.weight.T, dtype), node.bias.astype(dtype)
        return lambda x: x @ weight + bias
    return lambda x: x


def _leaky(program: Program, node: Any) -> Callable[[Array], Array]:
    dtype = program.dtype
    # In float64, whatever the network is in: 1 - dt/τ is to come out as the β it was made from.
    share = program.dt / np.asarray(node.tau, np.float64)
    decay, gain = (1 - share).astype(dtype), (np.asarray(node.r, np.float64) * share).astype(dtype)
    leak = (share * node.v_leak).astype(dtype)
    v = np.zeros(decay.shape, dtype)
    if type(node).__name__ == "LI":

        def integrate(x: Array) -> Array:
            nonlocal v
            v = decay * v + (gain * x + leak)
            return v

        return integrate
    threshold, back = node.v_threshold.astype(dtype), node.v_reset.astype(dtype)

    def fire(x: Array) -> Array:
        nonlocal v
        v = decay * v + (gain * x + leak)
        fired = v > threshold
        v = np.where(fired, back, v)
        return fired.astype(dtype)

    return fire
