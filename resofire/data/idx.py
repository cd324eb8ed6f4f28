"""The idx format of MNIST and its relatives: a magic number, the sizes, then bytes; and the sets that come in it.

Four files: images and labels of 60,000 for training and of 10,000 for the test. No validation split exists: 5,000
images of the training files, the choice of a fixed seed, are set aside, which leaves 55,000. Pixels are stored as they
came, [N, 784, 1], row by row.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from .files import DataError, Remote, Wanted, origin, prepared_from, read
from .store import Arrays
from .task import Form, Split, Task, set_aside
from .warps import require_warps

VERSION = 1
SEED = 0
SIZES = {"train": 60_000, "t10k": 10_000}
VALIDATION = 5_000
SIDE = 28
CLASSES = 10
IMAGES, LABELS = 0x0803, 0x0801


def wanted(address: str, known: dict[str, tuple[int, str]]) -> dict[str, Wanted]:
    """The four files of a set at an address, of known sizes and md5: "train-images", "train-labels", …"""
    return {
        name: Wanted(
            (file := f"{name}-idx{3 if name.endswith('images') else 1}-ubyte", file.replace("-idx", ".idx")),
            remote=Remote(f"{address}{file}.gz", size, f"md5:{md5}"),
        )
        for name, (size, md5) in known.items()
    }


def read_images(file: Path, count: int | None = None, remote: Remote | None = None) -> np.ndarray:
    """Images of 28 × 28 as [N, 784, 1], checked; with `count`, there must be as many."""
    raw = read(file, remote)
    _check(file, raw, IMAGES, (count, SIDE, SIDE))
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, SIDE * SIDE, 1)


def read_labels(file: Path, count: int | None = None, remote: Remote | None = None) -> np.ndarray:
    """Labels of ten classes as [N], checked."""
    raw = read(file, remote)
    _check(file, raw, LABELS, (count,))
    labels = np.frombuffer(raw, np.uint8, offset=8)
    if labels.size and labels.max() >= CLASSES:
        raise DataError(f"{file} must hold labels from 0 to {CLASSES - 1}, got {labels.max()}")
    return labels


def _check(file: Path, raw: bytes, magic: int, expected: tuple[int | None, ...]) -> None:
    kind = "images" if magic == IMAGES else "labels"
    head = 4 * (1 + len(expected))
    found = np.frombuffer(raw[: len(raw) // 4 * 4][:head], ">u4")
    if not found.size or found[0] != magic:
        got = f"{int(found[0])}" if found.size else f"{len(raw)} bytes"
        raise DataError(f"{file} must be an idx file of {kind} (magic number {magic}), got {got}")
    if len(raw) < head:
        raise DataError(f"{file} must begin with {head} bytes of sizes, got {len(raw)} in all: it is truncated")
    sizes = tuple(int(size) for size in found[1:])
    if any(want is not None and size != want for size, want in zip(sizes, expected, strict=True)):
        want = " × ".join("any number" if size is None else str(size) for size in expected)
        raise DataError(f"{file} must hold {want} {kind}, got {' × '.join(map(str, sizes))}")
    size = head + int(np.prod(sizes, dtype=object))
    if len(raw) != size:
        raise DataError(f"{file} must have {size} bytes (unpacked), got {len(raw)}: it is truncated or corrupt")


def load(
    task: str, folders: tuple[str, ...], files: dict[str, Wanted], first: tuple[int, ...],
    data_dir: str | os.PathLike[str] | None, order: np.ndarray | None = None, shift: float = 0.0, turn: float = 0.0,
    stretch: float = 0.0, bend: float = 0.0,
) -> Task:  # fmt: skip
    """A task from the four files.

    first          how its training labels begin: other sets have files of the same names and sizes
    shift to bend  how training images are warped, see warps.py
    """
    warps = require_warps(task, SIDE, shift, turn, stretch, bend)

    def make(found: dict[str, Path]) -> tuple[Arrays, dict[str, Any]]:
        sources: dict[str, str] = {}
        held = {}
        for name, file in found.items():
            remote, (part, kind) = files[name].remote, name.split("-")
            sources |= origin(file, remote)
            held[name] = (read_images if kind == "images" else read_labels)(file, SIZES[part], remote)
        x, labels = held["train-images"], held["train-labels"]
        begin = tuple(labels[: len(first)].tolist())
        if begin != first:
            raise DataError(
                f"{found['train-labels']} must begin with the labels {' '.join(map(str, first))} of {folders[0]}, got "
                f"{' '.join(map(str, begin))}: it is of another set whose files bear the same names"
            )
        parts = set_aside(x, labels, VALIDATION, SEED)
        return {**parts, "test_x": held["t10k-images"], "test_labels": held["t10k-labels"]}, {"sources": sources}

    settings = {"version": VERSION, "seed": SEED, "validation": VALIDATION}
    arrays, _ = prepared_from(folders[0], folders, files, data_dir, settings, make)
    form = Form(scale=1 / 255, order=order)
    splits = {
        split: Split(
            arrays[f"{split}_x"],
            arrays[f"{split}_labels"],
            kind="values",
            form=form,
            warps=warps if split == "train" else None,
        )
        for split in ("train", "validation", "test")
    }
    return Task(task, "values", CLASSES, splits, inputs=1)
