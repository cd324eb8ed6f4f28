"""Packed sequences for layers that need [B, T, D]: those of similar length run together, padded with zeros."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ...ops.convolution import fast_size


class Group(NamedTuple):
    """Sequences that run together: where each of their steps is in the stream [1, S, D], and which steps exist."""

    places: Tensor  # [b, T], any valid place where there is no step
    exists: Tensor  # [b, T]


def in_groups(
    function: Callable[[Tensor], Tensor], x: Tensor, cu_seqlens: Tensor | None, *, together: bool = False
) -> Tensor:
    """Apply a function of [B, T, D] to a batch, or to packed sequences [1, S, D].

    Args:
        function: Maps [b, T, D] to [b, T, E], each sequence by itself. Zeros behind the end of a sequence must not
            change what comes before.
        x: The batch; at least one step long.
        cu_seqlens: Bounds of packed sequences [B + 1]; None for a batch of one length.
        together: Pad all sequences to the longest: for a loop over time, whose cost is its number of steps.

    Returns:
        [B, T, E], or packed [1, S, E].
    """
    if cu_seqlens is None:
        return function(x)
    places, values = [], []
    for group in _groups(cu_seqlens, together):
        padded = torch.where(group.exists[..., None], x[0][group.places], 0)
        places.append(group.places[group.exists])
        values.append(function(padded)[group.exists])
    rows = torch.cat(values)
    return torch.empty_like(rows).index_copy(0, torch.cat(places), rows)[None]


def _groups(cu_seqlens: Tensor, together: bool) -> Iterator[Group]:
    """Groups of sequences that an FFT would pad to the same size: less than half of a group is padding."""
    by_size: dict[int, list[tuple[int, int]]] = {}
    for start, end in pairwise(cu_seqlens.tolist()):
        if end > start:
            size = 0 if together else fast_size(2 * (end - start) - 1)
            by_size.setdefault(size, []).append((start, end))
    for members in by_size.values():
        starts, ends = torch.tensor(members, device=cu_seqlens.device).T[..., None]
        steps = torch.arange(int((ends - starts).max()), device=cu_seqlens.device)
        yield Group((starts + steps).minimum(ends - 1), starts + steps < ends)
