"""A trained network as a stream: one time step in, scores out, with a state of constant size.

The state is two numbers for each PRF and LIF, the states of neurons of any other equation, and the sums of the
read-out; with the pool "window" also its steps. Chunks of any size give the same bits.
"""

import hashlib
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from torch import nn

from ..nn.folded import KINDS, POOLS, RESETS, Array, Folded, Neurons
from ..ops.checks import require_count
from . import kernels as k
from . import machine
from .fold import fold

MAGIC = b"RSFS0001"
# Magic, fingerprint of the network, checksum of the body, streams, bytes of the body.
HEADER = struct.Struct("<8s32s32sQQ")


class _Network(NamedTuple):
    """A network as the kernel reads it."""

    layout: Array
    numbers: Array
    registers: int
    """Numbers that the machine of equations needs."""


class _State(NamedTuple):
    """The state of some streams; shapes are in `kernels.walk`."""

    potentials: Array
    totals: Array
    steps: Array
    counts: Array


class Stream:
    """Run `streams` independent streams of one network.

    Args:
        model: A folded network, or one that can be folded.
        streams: How many.
        dtype: float32 or float64; that of the network if not given.

    Raises:
        ValueError: The network is bidirectional, or an argument is out of range.

    Example:
        >>> stream = Stream(resofire.pretrained("digits"))
        >>> scores = stream.step([[0.5]])
    """

    def __init__(self, model: Folded | nn.Module, streams: int = 1, *, dtype: Any = None) -> None:
        require_count("Stream", "streams", streams)
        folded = model if isinstance(model, Folded) else fold(model)
        if dtype is not None:
            folded = folded.astype(dtype)
        if folded.dtype not in (np.float32, np.float64):
            raise ValueError(f"Stream: dtype must be float32 or float64, got {folded.dtype}")
        self.folded, self.streams = folded, streams
        self._network = _pack(folded)
        counts = [layer.neurons[0].count for layer in folded.layers]
        temporal = sum(_width(layer.neurons[0]) for layer in folded.layers)
        widest = max(folded.table.shape[1], *(layer.rows.shape[1] for layer in folded.layers))
        ring = (folded.pool_steps or 0) if folded.pool == "window" else 0
        self._state = _State(
            potentials=np.zeros((streams, 2, temporal), folded.dtype),
            totals=np.zeros((streams, len(folded.head) * (1 + ring)), np.float64),
            steps=np.zeros(streams, np.int64),
            counts=np.zeros((streams, len(folded.layers)), np.int64),
        )
        self._scratch = np.zeros((3, max(widest, self._network.registers)), folded.dtype)
        self._active = np.zeros(max(counts) + 1, np.int64)
        self._no_spikes = np.zeros((streams, 0, folded.neurons), np.uint8)

    def feed(self, x: Any, *, every: bool = False, spikes: Array | None = None) -> Array:
        """Feed a chunk of time steps.

        Args:
            x: Values [streams, steps, inputs] or tokens [streams, steps].
            every: Return the scores after every step of the chunk.
            spikes: A writable array of zeros [streams, steps, neurons] of uint8 in which the spikes are set, if given.

        Returns:
            Scores [streams, classes] over all steps so far, as the pool weights them (pool "none" and "last": of the
            last step); with `every`, [streams, steps, classes].

        Raises:
            ValueError: The chunk has the wrong shape or contains a value that is not finite or not a token, or `spikes`
                is not such an array. The state is unchanged.
        """
        x = self._checked(x)
        if not x.shape[1] and not every:
            raise ValueError("Stream.feed: x must have at least one step, got none")
        scores = np.zeros((self.streams, x.shape[1] if every else 1, len(self.folded.bias)), np.float64)
        if spikes is None:
            spikes = self._no_spikes
        else:
            _require_spikes(spikes, (*x.shape[:2], self.folded.neurons))
        k.walk(
            self._network.layout, self._network.numbers, x, *self._state, self._scratch, self._active, spikes, scores
        )
        return scores if every else scores[:, 0]

    def step(self, x: Any) -> Array:
        """Feed one time step: values [streams, inputs] or tokens [streams]; returns scores [streams, classes]."""
        x = np.asarray(x)
        if x.ndim == 0:
            raise ValueError("Stream.step: x must have shape [streams, inputs] or [streams], got a scalar")
        return self.feed(x[:, None])

    @property
    def steps(self) -> Array:
        """The time steps that each stream has seen, [streams]."""
        return self._state.steps.copy()

    def fire_rates(self) -> Array:
        """Spikes per neuron and step so far for each layer, [streams, layers]; NaN before the first step."""
        sizes = np.array([layer.neurons[0].count for layer in self.folded.layers])
        with np.errstate(invalid="ignore"):
            return self._state.counts / (self._state.steps[:, None] * sizes)

    def reset(self) -> None:
        """Return to the state before the first step."""
        for array in self._state:
            array[...] = 0

    def save(self) -> bytes:
        """The state as bytes, for a stream of the same network, number of streams and dtype."""
        body = b"".join(np.ascontiguousarray(array).tobytes() for array in self._state)
        return HEADER.pack(MAGIC, self._fingerprint(), hashlib.sha256(body).digest(), self.streams, len(body)) + body

    def restore(self, state: bytes) -> None:
        """Resume from a saved state.

        Raises:
            TypeError: The state is not bytes.
            ValueError: It is damaged, holds impossible numbers or belongs to another network. Nothing is changed.
        """
        body, start, restored = self._body(state), 0, []
        for name, array in self._state._asdict().items():
            values = np.frombuffer(body, array.dtype, array.size, start).reshape(array.shape)
            # The checksum does not prove that a stream wrote it, and NaN would stay in the state forever.
            if not np.isfinite(values).all() or (values.dtype == np.int64 and (values < 0).any()):
                allowed = "at least 0" if values.dtype == np.int64 else "finite"
                raise ValueError(f"Stream.restore: state must have {name} that are {allowed}, got others")
            restored.append(values)
            start += array.nbytes
        for array, values in zip(self._state, restored, strict=True):
            array[...] = values

    def _body(self, state: bytes) -> bytes:
        if not isinstance(state, bytes | bytearray | memoryview):
            raise TypeError(f"Stream.restore: state must be bytes, got {type(state).__name__}")
        state = bytes(state)
        size = sum(array.nbytes for array in self._state)
        if len(state) < HEADER.size or not state.startswith(MAGIC):
            raise ValueError(f"Stream.restore: state must be what save returned, got {len(state)} other bytes")
        _, fingerprint, digest, streams, length = HEADER.unpack_from(state)
        if streams != self.streams:
            raise ValueError(f"Stream.restore: state must be of {self.streams} streams, got {streams}")
        if fingerprint != self._fingerprint():
            raise ValueError("Stream.restore: state belongs to another network or dtype")
        if length != size or len(state) != HEADER.size + size:
            raise ValueError(
                f"Stream.restore: state must have {HEADER.size + size} bytes, got {len(state)}: it is cut or damaged"
            )
        body = state[HEADER.size :]
        if digest != hashlib.sha256(body).digest():
            raise ValueError("Stream.restore: state is damaged: its checksum does not match")
        return body

    def _fingerprint(self) -> bytes:
        digest = hashlib.sha256(str(self._network.numbers.dtype).encode())
        digest.update(self._network.layout.tobytes())
        digest.update(self._network.numbers.tobytes())
        return digest.digest()

    def _checked(self, x: Any) -> Array:
        """The chunk as the kernel reads it, [streams, steps, inputs or 1]."""
        x = np.asarray(x)
        inputs = len(self.folded.table)
        if self.folded.tokens:
            if x.ndim != 2 or len(x) != self.streams or x.dtype.kind not in "iu":
                raise ValueError(
                    f"Stream.feed: x must be integers of shape [{self.streams}, steps], got {x.dtype} of "
                    f"shape {list(x.shape)}"
                )
            if x.size and (x.min() < 0 or x.max() >= inputs):
                bad = x.min() if x.min() < 0 else x.max()
                raise ValueError(f"Stream.feed: x must hold tokens from 0 to {inputs - 1}, got {bad}")
            return x.astype(np.int64)[..., None]
        if x.ndim != 3 or len(x) != self.streams or x.shape[2] != inputs or x.dtype.kind not in "fiu":
            raise ValueError(
                f"Stream.feed: x must be numbers of shape [{self.streams}, steps, {inputs}], got {x.dtype} of "
                f"shape {list(x.shape)}"
            )
        with np.errstate(over="ignore"):
            x = np.ascontiguousarray(x, self.folded.dtype)
        if not np.isfinite(x).all():
            # NaN or infinity would stay in the state forever.
            raise ValueError(f"Stream.feed: x must be finite in {self.folded.dtype}, got {x[~np.isfinite(x)][0]}")
        return x


class Packer:
    """Lays arrays of any shape end to end in one flat array of `dtype`."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = dtype
        self._parts: list[Array] = []
        self._size = 0

    def add(self, array: Array) -> int:
        """Append an array; returns the index at which it begins."""
        start = self._size
        self._parts.append(np.asarray(array, self._dtype).reshape(-1))
        self._size += self._parts[-1].size
        return start

    def packed(self) -> Array:
        """All arrays as one."""
        return np.concatenate(self._parts)


def _pack(folded: Folded) -> _Network:
    """Lay a folded network out as `kernels` reads it."""
    if not folded.causal:
        raise ValueError("stream: the network is bidirectional: it needs whole sequences and cannot be streamed")
    packer = Packer(folded.dtype)
    layout = np.zeros(k.FIRST + k.LAYER * len(folded.layers), np.int64)
    if folded.origin is not None:
        packer.add(folded.origin)
    place(layout, {
        k.TOKENS: k.CENTRED if folded.origin is not None else folded.tokens,
        k.INPUTS: 1 if folded.tokens else len(folded.table),
        k.ENTRY: folded.table.shape[1], k.WIDTH: folded.head.shape[0], k.CLASSES: folded.head.shape[1],
        k.POOL: POOLS.index(folded.pool), k.LAYERS: len(folded.layers), k.TABLE: packer.add(folded.table),
        k.HEAD: packer.add(folded.head), k.BIAS: packer.add(folded.bias),
    })  # fmt: skip
    temporal = registers = 0
    codes: list[int] = []
    for number, layer in enumerate(folded.layers):
        (neurons,) = layer.neurons
        place(layout[k.FIRST + k.LAYER * number :], {
            k.KIND: KINDS.index(neurons.kind), k.COUNT: neurons.count, k.OUTPUTS: layer.rows.shape[1],
            k.FRESH: layer.fresh, k.RESET: RESETS.index(neurons.reset), k.SIGN: packer.add(neurons.sign),
            k.THRESHOLD: packer.add(neurons.threshold), k.CURRENT: packer.add(neurons.current),
            k.RE: packer.add(neurons.phi_re), k.IM: packer.add(neurons.phi_im), k.ROWS: packer.add(layer.rows),
            k.KEEP: -1 if layer.clear is None else packer.add(~layer.clear), k.STATE: temporal,
        })  # fmt: skip
        if neurons.equation is not None:
            code = machine.encode(neurons.equation, packer.add)
            place(layout[k.FIRST + k.LAYER * number :], {
                k.GAIN: packer.add(neurons.equation.gain), k.STATES: len(neurons.equation.program.states),
                k.CODE: len(layout) + len(codes), k.CODE_LENGTH: len(code.instructions),
            })  # fmt: skip
            codes += code.instructions
            registers = max(registers, code.registers * neurons.count)
        temporal += _width(neurons)
    tail = [] if folded.pool_steps is None else [folded.pool_steps]
    return _Network(np.concatenate([layout, np.array([*codes, *tail], np.int64)]), packer.packed(), registers)


def _width(neurons: Neurons) -> int:
    """The size of a group's state, in pairs of numbers."""
    if neurons.equation is not None:
        return -(-len(neurons.equation.program.states) // 2) * neurons.count
    return 0 if neurons.kind == "spatial" else neurons.count


def place(layout: Array, values: dict[int, int]) -> None:
    """Write the integers of a network or layer to their indices."""
    layout[list(values)] = list(values.values())


def _require_spikes(spikes: Any, shape: tuple[int, ...]) -> None:
    """Refuse an array that the kernel cannot write spikes to; Numba's own error would only name types."""
    if not isinstance(spikes, np.ndarray):
        raise ValueError(f"Stream.feed: spikes must be a NumPy array, got {type(spikes).__name__}")
    if spikes.shape != shape or spikes.dtype != np.uint8 or not spikes.flags.writeable:
        kind = "" if spikes.flags.writeable else "read-only "
        raise ValueError(
            f"Stream.feed: spikes must be writable uint8 of shape {list(shape)}, got {kind}{spikes.dtype} of shape "
            f"{list(spikes.shape)}"
        )
