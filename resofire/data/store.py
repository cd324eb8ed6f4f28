"""The cache of prepared data: memory-mapped arrays beside a manifest, made once and opened at once.

A set is prepared in a folder with a temporary name, renamed when it is complete. A lock makes a second process wait for
the first and then open its result. The next preparation removes what an interrupted one left behind.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from .task import DataError

Arrays = dict[str, np.ndarray]
Prepared = tuple[Arrays, dict[str, Any]]
# Bytes: a larger array is made in a temporary file, not in memory.
IN_MEMORY = 1 << 30


def cache_dir() -> Path:
    """The cache folder: RESOFIRE_CACHE, or `resofire` in the user's cache folder."""
    folder = os.environ.get("RESOFIRE_CACHE")
    if folder:
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
    return Path(base) / "resofire"


def prepared(name: str, settings: dict[str, Any], make: Callable[[], Prepared]) -> Prepared:
    """Open a prepared data set; the first time, make it.

    Args:
        name: Name of the set.
        settings: All that the result depends on: pipeline version, seed, identity of the raw files. JSON types.
        make: Returns the arrays and a dictionary of facts about them.

    Returns:
        The arrays, memory-mapped, and the facts.

    Raises:
        DataError: If the cache cannot be written.
    """
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    folder = cache_dir() / f"{name}-{key}"
    if (cached := _open(folder, settings)) is not None:
        return cached
    with locked(folder.with_suffix(".lock")):
        if (cached := _open(folder, settings)) is not None:
            return cached
        partial = folder.with_suffix(".part")
        shutil.rmtree(partial, ignore_errors=True)
        arrays, facts = make()
        try:
            with write_errors(partial):
                partial.mkdir()
                _write(partial, arrays, facts, settings)
                shutil.rmtree(folder, ignore_errors=True)
                partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    cached = _open(folder, settings)
    assert cached is not None
    return cached


def earlier(name: str, settings: dict[str, Any]) -> Prepared | None:
    """The newest prepared set with these settings, whatever "sources" it was made from; None if there is none."""
    expected = json.loads(json.dumps(settings))
    manifests = cache_dir().glob(f"{name}-{'?' * 12}/manifest.json")
    for file in sorted(manifests, key=lambda file: file.stat().st_mtime_ns, reverse=True):
        try:
            stored = json.loads(file.read_text())["settings"]
            same = {key: value for key, value in stored.items() if key != "sources"} == expected
            cached = _open(file.parent, stored) if same else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if cached is not None:
            return cached
    return None


def empty_bytes(shape: tuple[int, ...]) -> np.ndarray:
    """An uninitialised uint8 array, in a temporary file if it is large."""
    if math.prod(shape) < IN_MEMORY:
        return np.empty(shape, np.uint8)
    with write_errors(cache_dir()):
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache_dir()) as file:
            return np.memmap(file, np.uint8, "w+", shape=shape)


def _write(folder: Path, arrays: Arrays, facts: dict[str, Any], settings: dict[str, Any]) -> None:
    entries = {}
    for name, array in arrays.items():
        file = folder / f"{name}.npy"
        np.save(file, np.ascontiguousarray(array))
        entries[name] = {"bytes": file.stat().st_size, "sha256": checksum(file)}
    manifest = {"settings": settings, "facts": facts, "arrays": entries}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def _open(folder: Path, settings: dict[str, Any]) -> Prepared | None:
    """What a folder holds, or None if it is incomplete. Compares sizes, not checksums: opening must take no time."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["settings"] != json.loads(json.dumps(settings)):
            return None
        arrays = {}
        for name, entry in manifest["arrays"].items():
            file = folder / f"{name}.npy"
            if file.stat().st_size != entry["bytes"]:
                return None
            # An empty array cannot be mapped.
            arrays[name] = np.load(file, mmap_mode="r" if entry["bytes"] > 256 else None)
        return arrays, manifest["facts"]
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
    # No reason to make it again: it may be complete, and in use.
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from None


def checksum(file: Path, kind: str = "sha256") -> str:
    """The checksum of a file, in hexadecimal."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, kind).hexdigest()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from None


@contextlib.contextmanager
def write_errors(place: Path) -> Iterator[None]:
    """Turn an OSError (disk full, no permission) into one sentence."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{place} cannot be written ({error.strerror or error}): name another folder with RESOFIRE_CACHE"
        ) from None


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock that ends with the process, however it ends. Creates the folder of the lock file."""
    with write_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
