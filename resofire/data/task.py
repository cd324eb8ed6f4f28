"""Tasks: a data set as the rest of the library sees it, and the splits that yield its batches.

    values    [B, T, C] float32, stored as they came (usually bytes) and scaled when a batch is made
    tokens    [B, T] int64
    labels    [B], or one per time step

Sequences of different lengths are packed end to end, [1, S, C] or [1, S], with `cu_seqlens` [B + 1]. In a task of
pairs (two documents to compare), sequences 2i and 2i + 1 are pair i.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .warps import Warps

SPLITS = ("train", "validation", "test")
# Label of a time step without a label, as in F.cross_entropy.
IGNORED = -100


class DataError(ValueError):
    """Data that are missing, damaged or unfit. The text is one sentence for the user.

    It may quote names and values of a damaged file: they are kept on one line, printable and of bounded length.
    """

    def __init__(self, text: str = "") -> None:
        line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
        super().__init__(line if len(line) <= 1000 else f"{line[:500]} ... {line[-400:]}")


class Batch(NamedTuple):
    """The data of one step; the model is called as `model(x, cu_seqlens=cu_seqlens)`."""

    x: Tensor
    labels: Tensor  # [B]; with labels per step [B, T], or [1, S] when packed
    cu_seqlens: Tensor | None  # int32; None if all sequences have one length


@dataclass(frozen=True)
class Form:
    """The conversion of stored numbers to input.

    Attributes:
        scale: Values are stored * scale + shift; a tuple is per channel. Tokens are used as stored.
        shift: See `scale`.
        order: Permutation of the time steps, e.g. of pixels.
    """

    scale: float | tuple[float, ...] = 1.0
    shift: float | tuple[float, ...] = 0.0
    order: np.ndarray | None = field(default=None, compare=False)


class Split:
    """Sequences with their labels.

    Args:
        stored: [N, T, C] or [N, T]; with `bounds`, all K sequences end to end, [S, C] or [S].
        labels: One per sequence, per pair, or per time step, stored like the sequences.
        kind: "values" or "tokens".
        form: How stored numbers become input.
        bounds: [K + 1], where each sequence begins and the last one ends.
        pairs: Whether sequences 2i and 2i + 1 are compared.
        per_step: Whether each time step has a label.
        warps: Augmentation of images, applied to batches in shuffled order, that is in training.
    """

    def __init__(
        self, stored: np.ndarray, labels: np.ndarray, *, kind: str, form: Form | None = None,
        bounds: np.ndarray | None = None, pairs: bool = False, per_step: bool = False, warps: Warps | None = None,
    ) -> None:  # fmt: skip
        self.stored, self.labels, self.bounds = stored, labels, bounds
        self.kind, self.form, self.pairs, self.per_step = kind, form or Form(), pairs, per_step
        self.warps = warps

    def __repr__(self) -> str:
        return f"Split({len(self):,} {'pairs' if self.pairs else 'sequences'} of {self.kind})"

    def __len__(self) -> int:
        """Number of samples: sequences, or pairs."""
        if self.bounds is None:
            return len(self.stored)
        return (len(self.bounds) - 1) // (2 if self.pairs else 1)

    @property
    def lengths(self) -> np.ndarray:
        """Length of every sequence, [N]; of pairs [N, 2]."""
        if self.bounds is None:
            return np.full(len(self.stored), self.stored.shape[1])
        lengths = np.diff(self.bounds)
        return lengths.reshape(-1, 2) if self.pairs else lengths

    def batches(
        self, size: int, *, seed: int | None = None, epoch: int = 0, start: int = 0, last: bool = True, rank: int = 0,
        world: int = 1,
    ) -> Iterator[Batch]:  # fmt: skip
        """Iterate over batches in stored order or, with a seed, in the order of (seed, epoch).

        Args:
            size: Samples per batch, over all processes.
            seed: Seed of the order; None for the stored order.
            epoch: Number of the epoch.
            start: Batches to skip, to resume an epoch.
            last: Whether to yield an incomplete last batch.
            rank: Which share of each batch to yield.
            world: Number of shares, one per training process. Shares of a batch smaller than `world` may be empty.

        Yields:
            The batches, or this rank's shares of them.
        """
        for name, value in (("size", size), ("world", world)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"batches: {name} must be a positive integer, got {value!r}")
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < world:
            raise ValueError(f"batches: rank must be an integer from 0 to world - 1 = {world - 1}, got {rank!r}")
        order = np.arange(len(self)) if seed is None else shuffled(len(self), seed, epoch)
        end = len(order) if last else len(order) - len(order) % size
        warps = self.warps.draw(len(self), seed, epoch) if self.warps is not None and seed is not None else None
        for first in range(start * size, end, size):
            chosen = self._share(order[first : first + size], rank, world)
            yield self.batch(chosen, None if warps is None else warps[chosen])

    def _share(self, chosen: np.ndarray, rank: int, world: int) -> np.ndarray:
        """One of `world` shares: equal in number or, packed, about equal in time steps."""
        if self.bounds is None or world == 1:
            return np.array_split(chosen, world)[rank]
        per_sample = 2 if self.pairs else 1
        steps = (self.bounds[per_sample * (chosen + 1)] - self.bounds[per_sample * chosen]).astype(np.int64)
        # Longest first, each to the share with the fewest steps; among shares without steps, to one without a sequence.
        shares = [(0, False, number) for number in range(world)]
        mine = []
        for place in np.argsort(-steps, kind="stable"):
            load, _, number = shares[0]
            heapq.heapreplace(shares, (load + int(steps[place]), True, number))
            if number == rank:
                mine.append(place)
        return chosen[np.sort(np.array(mine, np.int64))]

    def batch(self, chosen: np.ndarray, by: np.ndarray | None = None) -> Batch:
        """Make one batch.

        Args:
            chosen: Numbers of the sequences or pairs, [B].
            by: How to warp each image, see `Warps.draw`; None leaves them.

        Returns:
            The batch.
        """
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


@dataclass(frozen=True)
class Task:
    """A data set, ready to train on.

    Attributes:
        name: Name of the data set.
        kind: "values" or "tokens".
        classes: Number of classes.
        splits: "train", and "validation" and "test" where they exist.
        inputs: Channels of values; None for tokens.
        vocabulary: Number of tokens; None for values.
        pairs: Whether two documents are compared.
        per_step: Whether each time step has a label.
        symbols: What each token stands for.
        class_names: What each class is called.
        source: Where the task came from, `{"name", "settings", "data_dir"}`, as `load` sets it, or
            `{"path", "settings", "checksum"}`, as `from_path` does; None if unknown.
        missing: Values that were missing and have been filled in.
    """

    name: str
    kind: str
    classes: int
    splits: dict[str, Split]
    inputs: int | None = None
    vocabulary: int | None = None
    pairs: bool = False
    per_step: bool = False
    symbols: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    source: dict[str, Any] | None = None
    missing: int = 0

    def __getitem__(self, split: str) -> Split:
        if split not in self.splits:
            raise KeyError(f"{self.name}: split must be one of {', '.join(self.splits)}, got {split!r}")
        return self.splits[split]


def statistics(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the values of each channel over all steps of a split, each [C] float64."""
    count, shift, total, squares = 0, None, np.zeros(1), np.zeros(1)
    for batch in split.batches(256):
        x = batch.x.flatten(0, -2).double().numpy()
        # Sums of x minus the mean of the first batch: they do not cancel if the mean is large.
        shift = x.mean(0) if shift is None else shift
        count, total, squares = count + len(x), total + (x - shift).sum(0), squares + ((x - shift) ** 2).sum(0)
    mean = total / max(1, count)
    return mean + (0 if shift is None else shift), np.sqrt(np.maximum(squares / max(1, count) - mean**2, 0))


def value_range(split: Split) -> tuple[np.ndarray, np.ndarray] | None:
    """Smallest and largest value of each channel over a split, each [C] float32.

    None for tokens, for a split of another class and for an empty one.
    """
    if split.kind == "tokens" or type(split) is not Split or not split.stored.size:
        return None
    # Computed on the stored numbers, usually bytes: converting all batches would take minutes on a large data set.
    stored = split.stored.reshape(-1, split.stored.shape[-1])
    scale, shift = (np.asarray(each, np.float32) for each in (split.form.scale, split.form.shift))
    ends = np.stack([stored.min(0), stored.max(0)]).astype(np.float32) * scale + shift
    return ends.min(0), ends.max(0)


def make_splits(
    arrays: Mapping[str, np.ndarray], kind: str, form: Form | None = None, *, pairs: bool = False,
    per_step: bool = False, warps: Warps | None = None,
) -> dict[str, Split]:  # fmt: skip
    """Make the three splits from arrays SPLIT_x, SPLIT_labels and, if packed, SPLIT_bounds; only train is warped."""
    return {
        split: Split(
            arrays[f"{split}_x"], arrays[f"{split}_labels"], kind=kind, form=form,
            bounds=arrays.get(f"{split}_bounds"), pairs=pairs, per_step=per_step,
            warps=warps if split == "train" else None,
        )
        for split in SPLITS
    }  # fmt: skip


def shuffled(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch, the same on every machine: numpy guarantees the stream of this generator."""
    return np.random.RandomState([seed % 2**32, epoch % 2**32]).permutation(count)


def hold_out(x: np.ndarray, labels: np.ndarray, count: int, seed: int) -> dict[str, np.ndarray]:
    """Hold `count` random sequences out for validation; returns arrays as `make_splits` takes them."""
    order = shuffled(len(x), seed, 0)
    held_out, kept = np.sort(order[:count]), np.sort(order[count:])
    return {
        "train_x": x[kept],
        "train_labels": labels[kept],
        "validation_x": x[held_out],
        "validation_labels": labels[held_out],
    }


def pack(sequences: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Sequences end to end, and their bounds."""
    return np.concatenate(sequences), np.cumsum([0, *map(len, sequences)])


def require_setting(task: str, name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise ValueError unless a setting has one of these values."""
    if value not in choices:
        raise ValueError(f"{task}: {name} must be one of {', '.join(map(str, choices))}, got {value!r}")


def require_counts(task: str, name: str, value: object) -> None:
    """Raise ValueError unless a setting holds the numbers of training, validation and test samples."""
    if (
        not isinstance(value, tuple | list)
        or len(value) != len(SPLITS)
        or any(type(count) is not int or count < 0 for count in value)
    ):
        raise ValueError(f"{task}: {name} must be three numbers, of train, validation and test, got {value!r}")
