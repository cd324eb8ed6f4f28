"""Folded networks as NIR graphs, in files that other neuromorphic tools can read.

NIR has no resonator and no soft reset: `nir.LIF` resets hard. A temporal neuron is therefore written as a small cycle
(`Scale` 1 where edges are only to be added up):

    current -> u -> spikes (Threshold)        u -> before (Delay of one step) -> re_u, im_u (Scale φ)
    re_u, im_r, current -> u                  im_u, re_r -> r -> r_before (Delay) -> re_r, im_r
    soft reset: u, spikes -> reset (Scale -η) -> kept -> before

`Threshold` fires on >, ours on ≥: it is given the next lower number of the same precision, which is the same thing. A
LIF with hard reset is a `nir.LIF`. The output is scores at every step: metadata say whether their mean, the last, or
all are the network's scores (`pool`), what a step lasts (`dt`), and whether the input is tokens, one-hot (`tokens`).
How such a graph is run: `interpreter`.
"""

import os
from pathlib import Path
from typing import Any

import nir
import numpy as np

from ..models.storage import StorageError
from . import hdf5
from .folded import POOLS, Array, Folded, Layer, Neurons
from .interpreter import GraphError, Program, prepare, run
from .reference import Walked

DT = 1e-4
LIMIT = 1 << 30


class _Draft:
    """A graph in the making."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.nodes: dict[str, Any] = {}
        self.edges: list[tuple[str, str]] = []

    def add(self, name: str, node: Any, *sources: str) -> str:
        self.nodes[name] = node
        self.edges += [(source, name) for source in sources]
        return name

    def scale(self, name: str, by: Array, *sources: str) -> str:
        return self.add(name, nir.Scale(np.asarray(by, self.dtype)), *sources)

    def delay(self, name: str, size: int, source: str) -> str:
        return self.add(name, nir.Delay(np.full(size, DT)), source)


def graph(folded: Folded) -> Any:
    """The NIRGraph of a folded network; ValueError if it has none."""
    if not folded.causal:
        raise ValueError("nir: the network is bidirectional, and NIR has no way to walk a sequence from its end")
    draft = _Draft(folded.dtype)
    draft.add("input", nir.Input({"input": np.array([len(folded.table)])}))
    z = draft.add("table", nir.Linear(np.ascontiguousarray(folded.table.T)), "input")
    for i, layer in enumerate(folded.layers):
        z = _layer(draft, str(i), layer, z)
    draft.add("head", nir.Affine(np.ascontiguousarray(folded.head.T), folded.bias), z)
    draft.add("output", nir.Output({"output": np.array([len(folded.bias)])}), "head")
    about = {"dt": DT, "pool": folded.pool, "tokens": folded.tokens}
    return nir.NIRGraph(draft.nodes, draft.edges, metadata=about)


def write(folded: Folded, file: Path) -> None:
    nir.write(str(file), graph(folded))


def read(file: str | os.PathLike[str], *, limit: int = LIMIT) -> Any:
    """The NIRGraph in a file from anywhere; StorageError, in one sentence that names it, if there is none.

    limit     bytes that its arrays may take in all
    """
    file = Path(file)
    if not file.is_file():
        raise StorageError(f"read: file must be a NIR graph, got {file}, which is not a file")
    try:
        (fault,) = hdf5.faults([file], limit=limit)
        if fault:
            raise GraphError(fault)
        found = nir.read(str(file))
        if not isinstance(found, nir.NIRGraph):
            raise GraphError("it holds one node and no graph")
        _look_at(found)
        prepare(found, _dt(found))
    except Exception as error:  # whatever a damaged file makes HDF5 or nir say
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise StorageError(f"{file} cannot be used as a NIR graph: {said}") from None
    return found


class Player:
    """A graph that can be run: `play(x)` for one sequence, tokens [T] or values [T, inputs]."""

    def __init__(self, found: Any) -> None:
        self._program: Program = prepare(found, _dt(found))
        self._pool, self._tokens = str(found.metadata.get("pool", "none")), bool(found.metadata.get("tokens", False))
        # The spikes of a layer are those of a node that `graph` has named so.
        names = [name for name in found.nodes if name.endswith(".spikes") and name.split(".")[0].isdecimal()]
        self._spikes = tuple(sorted(names, key=lambda name: int(name.split(".")[0])))

    def play(self, x: Array) -> Walked:
        if self._tokens:
            size = int(np.asarray(self._program.nodes[self._program.input].input_type["input"])[0])
            x = np.asarray(x)[..., None] == np.arange(size)
        out, kept = run(self._program, np.asarray(x, self._program.dtype), self._spikes)
        scores = {"mean": lambda: out.mean(0), "last": lambda: out[-1], "none": lambda: out}[self._pool]()
        return Walked(scores, [kept[name] > 0 for name in self._spikes])


def replay(file: Path, samples: list[Array]) -> list[Walked]:
    """What the graph in a file makes of sequences."""
    player = Player(read(file))
    return [player.play(sample) for sample in samples]


def _layer(draft: _Draft, name: str, layer: Layer, z: str) -> str:
    (neurons,) = layer.neurons
    if neurons.kind == "spatial":
        seen = z if (neurons.sign == 1).all() else draft.scale(f"{name}.seen", neurons.sign, z)
        spikes = draft.add(f"{name}.spikes", nir.Threshold(_below(neurons.threshold)), seen)
    else:
        current = _current(draft, name, neurons, z, alone=layer.fresh)
        spikes = (
            _hard(draft, name, neurons, current) if neurons.reset == "hard" else _cycle(draft, name, neurons, current)
        )
    added = draft.add(f"{name}.rows", nir.Linear(np.ascontiguousarray(layer.rows.T)), spikes)
    if layer.fresh and layer.clear is None:
        return added
    keep = np.ones(layer.rows.shape[1]) if layer.clear is None else ~layer.clear
    return draft.scale(f"{name}.z", keep, *([] if layer.fresh else [z]), added)


def _current(draft: _Draft, name: str, neurons: Neurons, z: str, *, alone: bool) -> str:
    """The node that gives σ z + κ. `alone`: nobody else looks at z."""
    if not neurons.current.any():
        return z if (neurons.sign == 1).all() else draft.scale(f"{name}.current", neurons.sign, z)
    before = draft.nodes[z]
    if alone and isinstance(before, nir.Linear) and (neurons.sign == 1).all():
        draft.nodes[z] = nir.Affine(before.weight, neurons.current)
        return z
    return draft.add(f"{name}.current", nir.Affine(np.diag(neurons.sign.astype(draft.dtype)), neurons.current), z)


def _cycle(draft: _Draft, name: str, neurons: Neurons, current: str) -> str:
    ones, size = np.ones(neurons.count), neurons.count
    turns = neurons.kind == "prf"
    # The order of the edges is that of the additions in `reference.step`, for the same bits.
    u = draft.scale(f"{name}.u", ones, f"{name}.re_u", *([f"{name}.im_r"] if turns else []), current)
    spikes = draft.add(f"{name}.spikes", nir.Threshold(_below(neurons.threshold)), u)
    kept = u
    if neurons.reset == "soft":
        reset = draft.scale(f"{name}.reset", -neurons.threshold, spikes)
        kept = draft.scale(f"{name}.kept", ones, u, reset)
    before = draft.delay(f"{name}.before", size, kept)
    draft.scale(f"{name}.re_u", neurons.phi_re, before)
    if turns:
        draft.scale(f"{name}.im_u", neurons.phi_im, before)
        r = draft.scale(f"{name}.r", ones, f"{name}.im_u", f"{name}.re_r")
        r_before = draft.delay(f"{name}.r_before", size, r)
        draft.scale(f"{name}.re_r", neurons.phi_re, r_before)
        draft.scale(f"{name}.im_r", -neurons.phi_im, r_before)
    return spikes


def _hard(draft: _Draft, name: str, neurons: Neurons, current: str) -> str:
    """1 - dt/τ = β and r dt/τ = 1, in float64: there a neighbour of what is rounded nearly always hits them."""
    beta = neurons.phi_re.astype(np.float64)
    tau = _hit(DT / (1 - beta), lambda tau: 1 - DT / tau, beta)
    r = _hit(tau / DT, lambda r: r * (DT / tau), np.ones_like(beta))
    zero = np.zeros_like(beta)
    return draft.add(f"{name}.spikes", nir.LIF(tau, r, zero, _below(neurons.threshold), zero), current)


def _hit(guess: Array, function: Any, wanted: Array) -> Array:
    best = guess
    for direction in (-np.inf, np.inf):
        near = guess
        for _ in range(3):
            near = np.nextafter(near, direction)
            best = np.where(abs(function(near) - wanted) < abs(function(best) - wanted), near, best)
    return best


def _below(threshold: Array) -> Array:
    return np.nextafter(threshold, threshold.dtype.type(-np.inf))


def _dt(found: Any) -> float:
    dt = float(found.metadata.get("dt", DT))
    if not 0 < dt < np.inf:
        raise GraphError(f"dt must be positive, got {dt}")
    return dt


def _look_at(found: Any) -> None:
    for name, node in found.nodes.items():
        for key, value in vars(node).items():
            if isinstance(value, np.ndarray) and value.dtype.kind not in "fiub":
                raise GraphError(f"{name}.{key} must hold numbers, got {value.dtype}")
            if isinstance(value, np.ndarray) and not np.isfinite(value).all():
                raise GraphError(f"{name}.{key} must be finite, got NaN or Inf")
    if str(found.metadata.get("pool", "none")) not in POOLS:
        raise GraphError(f"pool must be one of {', '.join(POOLS)}, got {found.metadata['pool']!r}")
