"""What every data set is to the rest of the library: a few facts, and splits that give batches.

    values    [B, T, C] float32, stored as they came (bytes, as a rule) and scaled when a batch is made
    tokens    [B, T] int64
    labels    [B], or one for each time step

Sequences of different lengths come packed end to end, [1, S, C] or [1, S], with `cu_seqlens` [B + 1]; those of one
length come as they are. Pairs (two documents to compare) lie one after the other: sequences 2i and 2i + 1 are pair i.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .warps import Warps


class Batch(NamedTuple):
    """One step's worth of data, as a model is called with it: model(x, cu_seqlens=cu_seqlens)."""

    x: Tensor
    labels: Tensor  # [B]; with labels for each step [B, T], or [1, S] when packed
    cu_seqlens: Tensor | None  # int32; None if all sequences have one length


@dataclass(frozen=True)
class Form:
    """How stored numbers become input.

    scale, shift    values are stored * scale + shift, by channel if they are tuples; tokens are as stored
    order           the time steps in another order, e.g. a permutation of pixels
    """

    scale: float | tuple[float, ...] = 1.0
    shift: float | tuple[float, ...] = 0.0
    order: np.ndarray | None = field(default=None, compare=False)


class Split:
    """Some sequences and their labels.

    stored    [N, T, C] or [N, T], or, with `bounds` [K + 1], all K sequences end to end: [S, C] or [S]
    labels    one for each sequence, one for each pair if there are half as many, or one for each time step
    warps     how images are warped when batches are made in a seed's order, that is for training
    """

    def __init__(
        self, stored: np.ndarray, labels: np.ndarray, *, kind: str, form: Form, bounds: np.ndarray | None = None,
        pairs: bool = False, per_step: bool = False, warps: Warps | None = None,
    ) -> None:  # fmt: skip
        self.stored, self.labels, self.bounds = stored, labels, bounds
        self.kind, self.form, self.pairs, self.per_step = kind, form, pairs, per_step
        self.warps = warps

    def __len__(self) -> int:
        """How many there are to classify: sequences, or pairs."""
        if self.bounds is None:
            return len(self.stored)
        return (len(self.bounds) - 1) // (2 if self.pairs else 1)

    @property
    def lengths(self) -> np.ndarray:
        """The length of every sequence; of pairs, [N, 2]."""
        if self.bounds is None:
            return np.full(len(self.stored), self.stored.shape[1])
        lengths = np.diff(self.bounds)
        return lengths.reshape(-1, 2) if self.pairs else lengths

    def batches(
        self, size: int, *, seed: int | None = None, epoch: int = 0, start: int = 0, last: bool = True, rank: int = 0,
        world: int = 1,
    ) -> Iterator[Batch]:  # fmt: skip
        """Batches of `size`, in the stored order or, with a seed, in that of (seed, epoch).

        start    how many batches to leave out at the beginning: where an interrupted epoch goes on
        last     whether to give what is left over at the end
        rank, world    which share of each batch to give, and into how many it is divided: one for each process that
                       trains; a batch of fewer than `world` leaves some shares empty
        """
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"batches: size must be a positive integer, got {size!r}")
        if isinstance(world, bool) or not isinstance(world, int) or world < 1:
            raise ValueError(f"batches: world must be a positive integer, got {world!r}")
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < world:
            raise ValueError(f"batches: rank must be an integer from 0 to world - 1 = {world - 1}, got {rank!r}")
        order = np.arange(len(self)) if seed is None else shuffled(len(self), seed, epoch)
        end = len(order) if last else len(order) - len(order) % size
        by = self.warps.draw(len(self), seed, epoch) if self.warps is not None and seed is not None else None
        for first in range(start * size, end, size):
            chosen = self._share(order[first : first + size], rank, world)
            yield self.batch(chosen, None if by is None else by[chosen])

    def _share(self, chosen: np.ndarray, rank: int, world: int) -> np.ndarray:
        """One of `world` shares of these: of equal number, or, packed, of about as many time steps."""
        if self.bounds is None or world == 1:
            return np.array_split(chosen, world)[rank]
        each = 2 if self.pairs else 1
        steps = (self.bounds[each * (chosen + 1)] - self.bounds[each * chosen]).astype(np.int64)
        # The longest first, each to the lightest share; of shares without a time step, to one without a sequence.
        shares = [(0, False, number) for number in range(world)]
        mine = []
        for place in np.argsort(-steps, kind="stable"):
            load, _, number = shares[0]
            heapq.heapreplace(shares, (load + int(steps[place]), True, number))
            if number == rank:
                mine.append(place)
        return chosen[np.sort(np.array(mine, np.int64))]

    def batch(self, chosen: np.ndarray, by: np.ndarray | None = None) -> Batch:
        """The batch of these sequences or pairs, by their numbers; images warped `by` these, see `Warps.draw`."""
        chosen = np.asarray(chosen)
        if self.bounds is None:
            x = self.stored[chosen]
            if self.warps is not None and by is not None:
                x = self.warps.warp(x, by)
            return Batch(self._input(x), torch.from_numpy(self.labels[chosen].astype(np.int64)), None)
        rows = np.stack([2 * chosen, 2 * chosen + 1], 1).reshape(-1) if self.pairs else chosen
        pieces = [slice(self.bounds[row], self.bounds[row + 1]) for row in rows]
        x = np.concatenate([self.stored[piece] for piece in pieces]) if pieces else self.stored[:0]
        lengths = [piece.stop - piece.start for piece in pieces]
        bounds = torch.from_numpy(np.cumsum([0, *lengths]).astype(np.int32))
        if self.per_step:
            labels = np.concatenate([self.labels[:0], *(self.labels[piece] for piece in pieces)])[None]
        else:
            labels = self.labels[chosen]
        return Batch(self._input(x[None]), torch.from_numpy(labels.astype(np.int64)), bounds)

    def _input(self, stored: np.ndarray) -> Tensor:
        if self.form.order is not None:
            stored = stored[:, self.form.order]
        if self.kind == "tokens":
            return torch.from_numpy(stored.astype(np.int64))
        scale, shift = (np.asarray(each, np.float32) for each in (self.form.scale, self.form.shift))
        return torch.from_numpy(stored.astype(np.float32) * scale + shift)


def shuffled(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch: the same for the same numbers, on any machine (numpy keeps this generator's stream)."""
    return np.random.RandomState([seed % 2**32, epoch % 2**32]).permutation(count)


def set_aside(x: np.ndarray, labels: np.ndarray, count: int, seed: int) -> dict[str, np.ndarray]:
    """Two splits of one: `count` sequences of a seed's choice for validation, the others for training."""
    choice = shuffled(len(x), seed, 0)
    aside, kept = np.sort(choice[:count]), np.sort(choice[count:])
    return {
        "train_x": x[kept],
        "train_labels": labels[kept],
        "validation_x": x[aside],
        "validation_labels": labels[aside],
    }


@dataclass(frozen=True)
class Task:
    """A data set, ready to train on."""

    name: str
    kind: str  # "values" or "tokens"
    classes: int
    splits: dict[str, Split]  # "train", "test", and "validation" where there is one
    inputs: int | None = None  # channels of values
    vocabulary: int | None = None  # number of tokens
    pairs: bool = False  # two documents to compare
    per_step: bool = False  # a label for each time step
    symbols: tuple[str, ...] | None = None  # what tokens stand for, for people
    source: dict[str, Any] | None = None  # {"name", "settings", "data_dir"}, as `load` sets it; None if unknown

    def __getitem__(self, split: str) -> Split:
        if split not in self.splits:
            raise KeyError(f"{self.name}: split must be one of {', '.join(self.splits)}, got {split!r}")
        return self.splits[split]
