"""Pathfinder as it was released: a folder of PNGs for each level, beside the lists that give their labels."""

import hashlib
import io
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from . import files
from .files import ARCHIVES, DataError, data_dir, members
from .store import room

LEVEL = "curv_contour_length_14"
# The one image of the release that is an empty file; it is left out, as others do.
EMPTY = "imgs/0/sample_172.png"


def released(given: str | os.PathLike[str] | None, size: int) -> Path | None:
    """The user's folder that has imgs and metadata in it, or an archive; None if there is neither."""
    base = data_dir(given)
    if base is None:
        return None
    name = f"pathfinder{size}"
    folders = [base, base / name, base / ("pathfinder" if size == 32 else "pathx")]
    folders += [place / name for place in (base / "lra_release", base / "lra_release" / "lra_release")]
    for folder in folders:
        place = folder / LEVEL
        # A folder named by its level alone does not say of which size it is: the images do, when they are read.
        if (place / "metadata").is_dir():
            return place
    for folder in (base, base / name, base / ("pathfinder" if size == 32 else "pathx")):
        for ending in (*ARCHIVES[1:], ".gz"):
            for stem in (name, LEVEL, "lra_release"):
                if (folder / (stem + ending)).is_file():
                    return folder / (stem + ending)
    return None


def identity(place: Path) -> str:
    """What tells one release from another without reading 200,000 images."""
    digest = hashlib.sha256()
    if place.is_dir():
        for file in sorted((place / "metadata").glob("*.npy")):
            digest.update(file.name.encode() + files.read_plain(file))
        _, *state = files.identity(place)
        digest.update(repr(state).encode())
    else:
        facts = place.stat()
        digest.update(f"{place.name} {facts.st_size} {facts.st_mtime_ns}".encode())
    return digest.hexdigest()


def images(place: Path, size: int) -> tuple[np.ndarray, np.ndarray]:
    """All images in the order of the metadata, and their labels."""
    lists: dict[int, list[tuple[str, int]]] = {}
    pictures: dict[str, np.ndarray | None] = {}
    for path, raw in _files(place, size):
        if path.startswith("metadata/") and path.endswith(".npy"):
            stem = path.removeprefix("metadata/").removesuffix(".npy")
            if not stem.isdigit():
                raise DataError(f"{place}/{path} must be named by a number")
            lists[int(stem)] = _labels(f"{place}/{path}", raw)
        elif path.startswith("imgs/") and path.endswith(".png"):
            pictures[path] = None if path == EMPTY and not raw else _picture(f"{place}/{path}", raw, size)
    if not lists:
        raise DataError(f"{place} must have {LEVEL}/metadata/<number>.npy, got none")
    rows = [row for number in sorted(lists) for row in lists[number]]
    for path, _ in rows:
        if path not in pictures:
            raise DataError(f"{place}/{path} is not there, though the metadata name it")
    kept = [(picture, label) for path, label in rows if (picture := pictures[path]) is not None]
    grey = room((len(kept), size * size))
    for row, (picture, _) in enumerate(kept):
        grey[row] = picture
    return grey, np.array([label for _, label in kept], np.uint8)


def _files(place: Path, size: int) -> Iterable[tuple[str, bytes]]:
    """(path under the level's folder, contents)."""
    if place.is_dir():
        return members(place)
    root = f"pathfinder{size}/{LEVEL}/"
    return ((path.partition(root)[2], raw) for path, raw in members(place) if root in path)


def _labels(name: str, raw: bytes) -> list[tuple[str, int]]:
    """Rows of metadata, an array or (as released) lines of text: folder, file, number, label, and more."""
    try:
        if raw.startswith(b"\x93NUMPY"):
            rows = [[str(cell) for cell in row] for row in np.load(io.BytesIO(raw), allow_pickle=False)]
        else:
            rows = [line.split() for line in raw.decode("utf-8").splitlines()]
    except (ValueError, TypeError, EOFError) as error:
        raise DataError(f"{name} cannot be read, it is truncated or corrupt: {error}") from None
    found = []
    for number, row in enumerate(rows, 1):
        if len(row) < 4 or row[3] not in ("0", "1"):
            got = row[3] if len(row) > 3 else f"{len(row)} columns"
            raise DataError(f"{name}, row {number} must have the label 0 or 1 in its fourth column, got {got}")
        found.append((f"{row[0].strip('/')}/{row[1]}", int(row[3])))
    return found


def _picture(name: str, raw: bytes, size: int) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(raw)) as image:
            grey = np.asarray(image.convert("L"))
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{name} cannot be read, it is truncated or corrupt: {error}") from None
    if grey.shape != (size, size):
        raise DataError(f"{name} must have {size} × {size} pixels, got {grey.shape[1]} × {grey.shape[0]}")
    return grey.reshape(-1)
