"""Packed and reversed sequences for backends that implement neither: one call per sequence, flipped if reversed."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from .checks import require_bounds
from .registry import Call, Result

# (current [B, T, N] in the state's type, state [C', B, N], call) -> (spikes, state)
Plain = Callable[[Tensor, Tensor, Call], tuple[Tensor, Tensor]]


def each_sequence(op: str, plain: Plain) -> Callable[[Call], Result]:
    """Build a backend's `run` from a function that only runs [B, T, N] forward in time."""

    def run(call: Call) -> Result:
        current = call.current.to(call.state.dtype)
        if call.cu_seqlens is None:
            spikes, state = _walk(plain, current, call.state, call)
        else:
            bounds = call.cu_seqlens.tolist()
            require_bounds(op, bounds, current.shape[1])
            parts = [
                _walk(plain, current[:, start:end], call.state[:, i : i + 1], call)
                for i, (start, end) in enumerate(itertools.pairwise(bounds))
            ]
            spikes = torch.cat([current[:, :0], *(part[0] for part in parts)], 1)
            state = torch.cat([call.state[:, :0], *(part[1] for part in parts)], 1)
        return Result(spikes.to(call.current.dtype), state)

    return run


def _walk(plain: Plain, current: Tensor, state: Tensor, call: Call) -> tuple[Tensor, Tensor]:
    if current.numel() == 0:
        return current.clone(), state.clone()
    if not call.reverse:
        return plain(current, state, call)
    spikes, state = plain(current.flip(1), state, call)
    return spikes.flip(1), state
