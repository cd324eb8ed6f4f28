"""Prepared data on disk: memory-mapped arrays beside a manifest, made once and opened in no time.

A set is prepared in a folder of its own under a temporary name, which is renamed when all is there: what has its name
is whole. A lock keeps two processes from preparing the same set at once; the second waits and then finds it. What an
interrupted preparation leaves behind is removed by the next one.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
# Bytes: a larger array is made in a temporary file, not in memory.
IN_MEMORY = 1 << 30


class DataError(Exception):
    """Something is wrong with a file, or it is not there. Its text is the sentence that is shown."""


def cache_dir() -> Path:
    """RESOFIRE_CACHE, or the user's cache folder."""
    given = os.environ.get("RESOFIRE_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
    return Path(base) / "resofire"


def prepared(
    name: str, settings: dict[str, Any], make: Callable[[], tuple[Arrays, dict[str, Any]]]
) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and facts that `make` gives for these settings, from disk if they have been made before.

    settings    all that the result depends on: the version of the pipeline, a seed, checksums of the files it came from
    """
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    folder = cache_dir() / f"{name}-{key}"
    found = _open(folder, settings)
    if found is not None:
        return found
    with locked(folder.with_suffix(".lock")):
        found = _open(folder, settings)
        if found is not None:
            return found
        rough = folder.with_suffix(".part")
        shutil.rmtree(rough, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        arrays, facts = make()
        try:
            with writing(rough):
                rough.mkdir()
                _write(rough, arrays, facts, settings)
                rough.rename(folder)
        finally:
            shutil.rmtree(rough, ignore_errors=True)
    found = _open(folder, settings)
    assert found is not None
    return found


def earlier(name: str, settings: dict[str, Any]) -> tuple[Arrays, dict[str, Any]] | None:
    """The newest prepared set of these settings, whatever "sources" it was made from; None if there is none."""
    wanted = json.loads(json.dumps(settings))
    for file in sorted(cache_dir().glob(f"{name}-{'?' * 12}/manifest.json"), key=_written, reverse=True):
        try:
            held = json.loads(file.read_text())["settings"]
            same = {key: value for key, value in held.items() if key != "sources"} == wanted
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        found = _open(file.parent, held) if same else None
        if found is not None:
            return found
    return None


def _written(file: Path) -> int:
    return file.stat().st_mtime_ns


def room(shape: tuple[int, ...]) -> np.ndarray:
    """Bytes to be filled, on disk if they are many."""
    if math.prod(shape) < IN_MEMORY:
        return np.empty(shape, np.uint8)
    with writing(cache_dir()):
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache_dir()) as file:
            return np.memmap(file, np.uint8, "w+", shape=shape)


def _write(folder: Path, arrays: Arrays, facts: dict[str, Any], settings: dict[str, Any]) -> None:
    described = {}
    for name, array in arrays.items():
        file = folder / f"{name}.npy"
        np.save(file, np.ascontiguousarray(array))
        described[name] = {"bytes": file.stat().st_size, "sha256": checksum(file)}
    manifest = {"settings": settings, "facts": facts, "arrays": described}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def _open(folder: Path, settings: dict[str, Any]) -> tuple[Arrays, dict[str, Any]] | None:
    """What a folder holds, or None if it is not whole. Sizes are compared, not checksums: it must not take time."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["settings"] != json.loads(json.dumps(settings)):
            return None
        arrays = {}
        for name, described in manifest["arrays"].items():
            file = folder / f"{name}.npy"
            if file.stat().st_size != described["bytes"]:
                return None
            # An empty array cannot be mapped.
            arrays[name] = np.load(file, mmap_mode="r" if described["bytes"] > 256 else None)
        return arrays, manifest["facts"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def checksum(file: Path, kind: str = "sha256") -> str:
    digest = hashlib.new(kind)
    try:
        with file.open("rb") as stream:
            while piece := stream.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from None
    return digest.hexdigest()


@contextlib.contextmanager
def writing(place: Path) -> Iterator[None]:
    """A cache that cannot be written, because it is full or not ours, in one sentence."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{place} cannot be written ({error.strerror or error}): name another folder with RESOFIRE_CACHE"
        ) from None


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Holds a lock that ends with the process, whatever ends it. Makes the folder it is in."""
    with writing(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = file.open("a")
    with handle:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
