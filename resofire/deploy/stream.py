"""A trained network as a stream: one time step in, scores out, with a state that does not grow.

The state of a stream is two numbers for each temporal neuron, and the sums of the read-out. Chunks may be of any size;
what was fed in one piece or many gives the same bits.
"""

import hashlib
import struct
from typing import Any

import numpy as np
from torch import nn

from .fold import fold
from .folded import Array, Folded
from .kernels import walk
from .packed import pack

MAGIC = b"RSFS0001"
# Magic, network, checksum of what follows, streams, bytes that follow.
HEAD = struct.Struct("<8s32s32sQQ")


class Stream:
    """`streams` independent streams of one network.

    model     a folded network, or one that can be folded
    dtype     float32 or float64; that of the network if not given
    """

    def __init__(self, model: Folded | nn.Module, streams: int = 1, *, dtype: Any = None) -> None:
        if isinstance(streams, bool) or not isinstance(streams, int) or streams < 1:
            raise ValueError(f"Stream: streams must be a positive integer, got {streams!r}")
        folded = model if isinstance(model, Folded) else fold(model)
        if dtype is not None:
            folded = folded.astype(dtype)
        if folded.dtype not in (np.float32, np.float64):
            raise ValueError(f"Stream: dtype must be float32 or float64, got {folded.dtype}")
        self.folded, self.streams = folded, streams
        self._packed = packed = pack(folded)
        self._states = np.zeros((streams, 2, packed.states), folded.dtype)
        self._totals = np.zeros((streams, len(folded.head)), np.float64)
        self._steps = np.zeros(streams, np.int64)
        self._counts = np.zeros((streams, len(folded.layers)), np.int64)
        self._scratch = np.zeros((2, packed.widest), folded.dtype)
        self._active = np.zeros(packed.most + 1, np.int64)
        self._unkept = np.zeros((streams, 0, packed.neurons), np.uint8)
        self._arrays = (self._states, self._totals, self._steps, self._counts)

    def feed(self, x: Any, *, every: bool = False, spikes: Array | None = None) -> Array:
        """Feeds a chunk, and gives the scores [streams, classes] of all steps so far (pool "none": of the last).

        x         values [streams, steps, inputs] or tokens [streams, steps]
        every     scores after every step of the chunk, [streams, steps, classes]
        spikes    if given, zeros [streams, steps, neurons] of uint8, in which those that fire are set
        """
        x = self._require(x)
        if not x.shape[1] and not every:
            raise ValueError("Stream.feed: x must have at least one step, got none")
        scores = np.zeros((self.streams, x.shape[1] if every else 1, len(self.folded.bias)), np.float64)
        if spikes is None:
            spikes = self._unkept
        elif spikes.shape != (*x.shape[:2], self._packed.neurons) or spikes.dtype != np.uint8:
            wanted = [*x.shape[:2], self._packed.neurons]
            raise ValueError(f"Stream.feed: spikes must be uint8 of shape {wanted}, got {list(spikes.shape)}")
        walk(self._packed.whole, self._packed.numbers, x, *self._arrays, self._scratch, self._active, spikes, scores)
        return scores if every else scores[:, 0]

    def step(self, x: Any) -> Array:
        """One time step: values [streams, inputs] or tokens [streams]. Scores [streams, classes]."""
        return self.feed(np.asarray(x)[:, None])

    @property
    def steps(self) -> Array:
        """Time steps that each stream has seen, [streams]."""
        return self._steps.copy()

    def fire_rates(self) -> Array:
        """Spikes per neuron and step so far of each layer, [streams, layers]; NaN before the first step."""
        sizes = np.array([layer.neurons[0].count for layer in self.folded.layers])
        with np.errstate(invalid="ignore"):
            return self._counts / (self._steps[:, None] * sizes)

    def reset(self) -> None:
        """Back to before the first step."""
        for array in self._arrays:
            array[...] = 0

    def save(self) -> bytes:
        """The state as bytes: for a network of the same numbers, streams and dtype."""
        body = b"".join(np.ascontiguousarray(array).tobytes() for array in self._arrays)
        return HEAD.pack(MAGIC, self._fingerprint(), _digest(body), self.streams, len(body)) + body

    def restore(self, state: bytes) -> None:
        """Goes on from a saved state; ValueError, and nothing is changed, if it is not one of this network."""
        body = self._require_state(state)
        at, found = 0, []
        for array in self._arrays:
            found.append(np.frombuffer(body, array.dtype, array.size, at).reshape(array.shape))
            at += array.nbytes
        for array, value in zip(self._arrays, found, strict=True):
            array[...] = value

    def _require_state(self, state: bytes) -> bytes:
        if not isinstance(state, bytes | bytearray | memoryview):
            raise TypeError(f"Stream.restore: state must be bytes, got {type(state).__name__}")
        state = bytes(state)
        size = sum(array.nbytes for array in self._arrays)
        if len(state) < HEAD.size or not state.startswith(MAGIC):
            raise ValueError(f"Stream.restore: state must be what save gave, got {len(state)} other bytes")
        _, fingerprint, digest, streams, length = HEAD.unpack_from(state)
        if streams != self.streams:
            raise ValueError(f"Stream.restore: state must be of {self.streams} streams, got {streams}")
        if fingerprint != self._fingerprint():
            raise ValueError("Stream.restore: state is of another network or dtype")
        if length != size or len(state) != HEAD.size + size:
            raise ValueError(
                f"Stream.restore: state must have {HEAD.size + size} bytes, got {len(state)}: it is cut or damaged"
            )
        body = state[HEAD.size :]
        if digest != _digest(body):
            raise ValueError("Stream.restore: state is damaged: its checksum is another one")
        return body

    def _fingerprint(self) -> bytes:
        numbers = self._packed.numbers
        digest = hashlib.sha256(str(numbers.dtype).encode())
        digest.update(self._packed.whole.tobytes())
        digest.update(numbers.tobytes())
        return digest.digest()

    def _require(self, x: Any) -> Array:
        """The chunk as the kernel takes it, [streams, steps, inputs or 1]."""
        x = np.asarray(x)
        if self.folded.tokens:
            if x.ndim != 2 or len(x) != self.streams or x.dtype.kind not in "iu":
                raise ValueError(
                    f"Stream.feed: x must be integers of shape [{self.streams}, steps], got {x.dtype} of "
                    f"shape {list(x.shape)}"
                )
            if x.size and (x.min() < 0 or x.max() >= len(self.folded.table)):
                bad = x.min() if x.min() < 0 else x.max()
                raise ValueError(f"Stream.feed: x must hold tokens from 0 to {len(self.folded.table) - 1}, got {bad}")
            return x.astype(np.int64)[..., None]
        inputs = len(self.folded.table)
        if x.ndim != 3 or len(x) != self.streams or x.shape[2] != inputs or x.dtype.kind not in "fiu":
            raise ValueError(
                f"Stream.feed: x must be numbers of shape [{self.streams}, steps, {inputs}], got {x.dtype} of "
                f"shape {list(x.shape)}"
            )
        with np.errstate(over="ignore"):
            x = np.ascontiguousarray(x, self.folded.dtype)
        if not np.isfinite(x).all():
            # It would stay in the state for ever.
            raise ValueError(f"Stream.feed: x must be finite in {self.folded.dtype}, got {x[~np.isfinite(x)][0]}")
        return x


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
