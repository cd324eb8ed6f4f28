"""Batches of sequences of one length, of different lengths, or packed; and pooling over time.

Sequences of different lengths are packed end to end before anything is computed: padding costs nothing, enters no
statistics, and may have any value.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..ops import moments
from ..ops.checks import require_bounds, sequence_count


class Sequences(NamedTuple):
    """The layout of a stream: [B, T, D] if `cu_seqlens` is None, else [1, S, D]."""

    batch: int  # B
    cu_seqlens: Tensor | None = None  # [B + 1], int32
    places: Tensor | None = None  # [S]: index of each step in the flattened [B, T], only if packed from `lengths`
    steps: int = 0  # T, only if packed from `lengths`

    def pool(self, stream: Tensor, how: str, steps: int | None = None) -> Tensor:
        """[B, D]: each sequence's mean over its true length, leaky mean or last step; an empty one gives zeros."""
        if how == "none":
            return stream
        if stream.shape[1] == 0:
            # Keep the graph: a process with an empty share must still take part in the backward pass's collectives.
            return stream.new_zeros(self.batch, stream.shape[2]) + stream.sum()
        if how == "leaky":
            assert steps is not None
            return self._leaky(stream, 1 - 1 / steps)
        if self.cu_seqlens is None:
            return stream.mean(1) if how == "mean" else stream[:, -1]
        if how == "mean":
            return moments(stream, self.cu_seqlens)[0].to(stream.dtype)
        bounds = self.cu_seqlens.long()
        return torch.where(bounds.diff()[:, None] > 0, stream[0, (bounds[1:] - 1).clamp(min=0)], 0)

    def _leaky(self, stream: Tensor, decay: float) -> Tensor:
        """The mean in which a step of age t counts decay^t."""
        places = torch.arange(stream.shape[1], device=stream.device)
        if self.cu_seqlens is None:
            weights = decay ** (stream.shape[1] - 1 - places).double()
            return torch.einsum("btd,t->bd", stream, (weights / weights.sum()).to(stream.dtype))
        bounds = self.cu_seqlens.long()
        sequence = torch.searchsorted(bounds[1:], places, right=True)
        weights = decay ** (bounds[1:][sequence] - 1 - places).double()
        sums = weights.new_zeros(self.batch).index_add(0, sequence, weights)
        share = (weights / sums[sequence]).to(stream.dtype)
        return stream.new_zeros(self.batch, stream.shape[2]).index_add(0, sequence, stream[0] * share[:, None])

    def restore(self, y: Tensor) -> Tensor:
        """Unpack [1, S, C] to [B, T, C] with zeros after each end, if it was packed from `lengths`."""
        if self.places is None:
            return y
        padded = y.new_zeros(self.batch * self.steps, y.shape[2]).index_copy(0, self.places, y[0])
        return padded.view(self.batch, self.steps, y.shape[2])


class StreamState(NamedTuple):
    """The state of a network between time steps: its layers' states, and the running sum of the read-out.

    The sum is in float64, as a stream has no end; it and the count [B] are None unless the pool is "mean" or "leaky".
    """

    layers: tuple[Any, ...]
    total: Tensor | None
    steps: Tensor | None


def start(layers: tuple[Any, ...], pool: str, batch: int, features: int, device: torch.device) -> StreamState:
    """The state before the first step."""
    if pool not in ("mean", "leaky"):
        return StreamState(layers, None, None)
    total = torch.zeros(batch, features, dtype=torch.float64, device=device)
    return StreamState(layers, total, torch.zeros(batch, dtype=torch.int64, device=device))


def advance(
    layers: tuple[Any, ...], state: StreamState, stream: Tensor, pool_steps: int | None
) -> tuple[Tensor, StreamState]:
    """Update the read-out by one step [B, D]; with `pool_steps` the mean is leaky."""
    if state.total is None or state.steps is None:
        return stream, StreamState(layers, None, None)
    steps = state.steps + 1
    if pool_steps is not None:
        decay = 1 - 1 / pool_steps
        total = decay * state.total + stream
        # W = λ W + 1 after `steps` steps, without a state of its own.
        weight = (1 - decay ** steps.double()) / (1 - decay)
        return (total / weight[:, None]).to(stream.dtype), StreamState(layers, total, steps)
    total = state.total + stream
    return (total / steps[:, None]).to(stream.dtype), StreamState(layers, total, steps)


def require_state(op: str, state: StreamState, layers: int) -> None:
    if not isinstance(state, StreamState) or len(state.layers) != layers:
        got = f"{len(state.layers)} layers" if isinstance(state, StreamState) else type(state).__name__
        raise TypeError(f"{op}: state must be what init_state or step returned, with {layers} layers, got {got}")


def arrange(
    owner: str, x: Tensor, lengths: Tensor | None, cu_seqlens: Tensor | None
) -> tuple[Tensor, Sequences]:  # fmt: skip
    """Check `lengths` or `cu_seqlens` of a batch [B, T, ...], and pack it if it has `lengths`."""
    if lengths is not None and cu_seqlens is not None:
        raise ValueError(f"{owner}: lengths and cu_seqlens must not both be given")
    if lengths is not None:
        return _pack(owner, x, lengths)
    if cu_seqlens is None:
        return x, Sequences(x.shape[0])
    if x.shape[0] != 1:
        raise ValueError(f"{owner}: x must be packed as [1, S, ...] when cu_seqlens is given, got {list(x.shape)}")
    batch = sequence_count(owner, x, cu_seqlens)
    # To read them back from a GPU would stall its stream.
    if cu_seqlens.device.type == "cpu" and not torch.compiler.is_compiling():
        require_bounds(owner, cu_seqlens.tolist(), x.shape[1])
    return x, Sequences(batch, cu_seqlens)


def require_lengths(owner: str, lengths: Tensor, shape: tuple[int, ...], longest: int) -> None:
    if not isinstance(lengths, Tensor) or not is_integer(lengths):
        got = str(lengths.dtype).removeprefix("torch.") if isinstance(lengths, Tensor) else type(lengths).__name__
        raise TypeError(f"{owner}: lengths must be a tensor of integers, got {got}")
    if lengths.shape != shape:
        raise ValueError(f"{owner}: lengths must have shape {list(shape)}, got {list(lengths.shape)}")
    lengths = lengths.long()  # in a small type `longest` would wrap around
    bad = lengths[(lengths < 0) | (lengths > longest)]
    if bad.numel():
        raise ValueError(f"{owner}: lengths must be from 0 to {longest}, got {bad[0].item()}")


def is_integer(x: Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def _pack(owner: str, x: Tensor, lengths: Tensor) -> tuple[Tensor, Sequences]:
    batch, steps = x.shape[:2]
    require_lengths(owner, lengths, (batch,), steps)
    lengths = lengths.to(x.device).long()
    places = (torch.arange(steps, device=x.device) < lengths[:, None]).flatten().nonzero()[:, 0]
    cu_seqlens = torch.zeros(batch + 1, dtype=torch.int32, device=x.device)
    cu_seqlens[1:] = lengths.cumsum(0)
    return x.flatten(0, 1)[places][None], Sequences(batch, cu_seqlens, places, steps)
