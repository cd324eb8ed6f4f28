"""Pathfinder as released: a folder of PNGs for each level, and lists with their labels."""

import contextlib
import hashlib
import io
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import files
from .files import ARCHIVES, Folder, data_dir, members
from .store import array_from, empty_bytes
from .task import DataError

LEVEL = "curv_contour_length_14"
# An image of the release that is an empty file; it is left out, as is customary.
EMPTY = "imgs/0/sample_172.png"
# Images of a level.
LARGEST = 200_000


def find(folder: Folder, size: int) -> Path | None:
    """The folder that has imgs and metadata in it, or an archive, in the user's folder; None if there is neither."""
    base = data_dir(folder)
    if base is None:
        return None
    name = f"pathfinder{size}"
    folders = [base, base / name, base / ("pathfinder" if size == 32 else "pathx")]
    deeper = [base / "lra_release" / name, base / "lra_release" / "lra_release" / name]
    for place in (parent / LEVEL for parent in (*folders, *deeper)):
        # The name of the level does not tell the size; it is checked when the images are read.
        if (place / "metadata").is_dir():
            return place
    for parent in folders:
        for ending in (*ARCHIVES[1:], ".gz"):
            for stem in (name, LEVEL, "lra_release"):
                if (parent / (stem + ending)).is_file():
                    return parent / (stem + ending)
    return None


def identity(place: Path) -> str:
    """Identify a release without reading 200,000 images."""
    digest = hashlib.sha256()
    if place.is_dir():
        for file in sorted((place / "metadata").glob("*.npy")):
            digest.update(file.name.encode())
            with contextlib.suppress(OSError), file.open("rb") as stream:  # reported when it is read
                while piece := stream.read(1 << 20):
                    digest.update(piece)
        _, *sizes = files.identity(place)
        digest.update(repr(sizes).encode())
    else:
        state = place.stat()
        digest.update(f"{place.name} {state.st_size} {state.st_mtime_ns}".encode())
    return digest.hexdigest()


def read(place: Path, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Read all images in the order of the metadata, [N, size²] uint8, and their labels.

    Raises:
        DataError: If a file is missing or damaged.
    """
    lists: dict[int, list[tuple[str, int]]] = {}
    pictures: dict[str, np.ndarray | None] = {}
    for path, raw in _files(place, size):
        if path.startswith("metadata/") and path.endswith(".npy"):
            stem = path.removeprefix("metadata/").removesuffix(".npy")
            if not re.fullmatch("[0-9]{1,9}", stem):
                raise DataError(f"{place}/{path} must be named by a number")
            lists[int(stem)] = _labels(f"{place}/{path}", raw)
        elif path.startswith("imgs/") and path.endswith(".png"):
            if len(pictures) == LARGEST:
                raise DataError(f"{place} must hold at most {LARGEST} images, got more")
            pictures[path] = None if path == EMPTY and not raw else _picture(f"{place}/{path}", raw, size)
    if not lists:
        raise DataError(f"{place} must have {LEVEL}/metadata/<number>.npy, got none")
    rows = [row for number in sorted(lists) for row in lists[number]]
    if len(rows) > LARGEST:
        raise DataError(f"{place} must list at most {LARGEST} images in its metadata, got {len(rows)}")
    for path, _ in rows:
        if path not in pictures:
            raise DataError(f"{place}/{path} is missing, but the metadata list it")
    kept = [(picture, label) for path, label in rows if (picture := pictures[path]) is not None]
    grey = empty_bytes((len(kept), size * size))
    for row, (picture, _) in enumerate(kept):
        grey[row] = picture
    return grey, np.array([label for _, label in kept], np.uint8)


def _files(place: Path, size: int) -> Iterator[tuple[str, bytes]]:
    """(path in the folder of the level, contents)."""
    root = "" if place.is_dir() else f"pathfinder{size}/{LEVEL}/"
    start = f"(?:^|/){root}" if root else "^"
    # An uncompressed picture has four bytes a pixel at most.
    patterns = {rf"{start}imgs/.*\.png$": 4 * size * size + 4096, rf"{start}metadata/[^/]*\.npy$": 1 << 20}
    for path, raw in members(place, patterns, kept=1 << 33, total=1 << 37):
        yield path.partition(root)[2] if root else path, raw


def _labels(name: str, raw: bytes) -> list[tuple[str, int]]:
    """(path, label) of each row of the metadata, an array or (as released) text: folder, file, number, label, …"""
    try:
        if raw.startswith(b"\x93NUMPY"):
            rows = [[str(cell) for cell in row] for row in array_from(raw)]
        else:
            rows = [line.split() for line in raw.decode("utf-8").splitlines()]
    except (ValueError, TypeError, EOFError) as error:
        raise DataError(f"{name} cannot be read, it is truncated or corrupt: {error}") from None
    labels = []
    for number, row in enumerate(rows, 1):
        if len(row) < 4 or row[3] not in ("0", "1"):
            got = row[3] if len(row) > 3 else f"{len(row)} columns"
            raise DataError(f"{name}, row {number} must have the label 0 or 1 in its fourth column, got {got}")
        labels.append((f"{row[0].strip('/')}/{row[1]}", int(row[3])))
    return labels


def _picture(name: str, raw: bytes, size: int) -> np.ndarray:
    from PIL import Image

    if raw[:8] != b"\x89PNG\r\n\x1a\n" or len(raw) < 24:
        raise DataError(f"{name} cannot be read, it is no PNG or truncated")
    # Before anything is unpacked.
    width, height = struct.unpack_from(">II", raw, 16)
    if (width, height) != (size, size):
        raise DataError(f"{name} must have {size} × {size} pixels, got {width} × {height}")
    try:
        with Image.open(io.BytesIO(raw), formats=["PNG"]) as image:
            return np.asarray(image.convert("L")).reshape(size * size)
    # A damaged file can make Pillow raise anything.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{name} cannot be read, it is truncated or corrupt: {reason}") from None
