"""The cache of prepared data: memory-mapped arrays with a manifest, made once and opened quickly.

A set is prepared in a folder with a temporary name, renamed when it is complete. A lock makes a second process wait for
the first and then open its result. The next preparation removes what an interrupted one left behind.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import re
import shutil
import sys
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
# Bytes: arrays up to this size, such as labels and bounds, are verified by their checksums when they are opened.
SMALL = 1 << 22
# Bytes of the header of an .npy file.
LONGEST_HEADER = 1 << 14


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
        settings: Everything the result depends on: pipeline version, seed, identity of the raw files. JSON types.
        make: Returns the arrays and a dictionary of facts about them.

    Returns:
        The arrays, memory-mapped, and the facts.
    """
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    folder = cache_dir() / f"{name}-{key}"
    if (cached := _intact(folder, settings)) is not None:
        return cached
    with locked(folder.with_suffix(".lock")):
        if (cached := _intact(folder, settings, f"preparing {name} again")) is not None:
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
    return _open(folder, settings)


def earlier(name: str, settings: dict[str, Any]) -> Prepared | None:
    """The newest prepared set with these settings, whatever "sources" it was made from; None if there is none."""
    expected = json.loads(json.dumps(settings))
    manifests = []
    for file in cache_dir().glob(f"{name}-{'?' * 12}/manifest.json"):
        with contextlib.suppress(OSError):  # another process prepares it again
            manifests.append((file.stat().st_mtime_ns, file))
    for _, file in sorted(manifests, reverse=True):
        try:
            stored = _manifest(file)["settings"]
            if {key: value for key, value in stored.items() if key != "sources"} != expected:
                continue
        except (OSError, _Damaged):
            continue
        with contextlib.suppress(DataError):
            if (cached := _intact(file.parent, stored, "it is ignored")) is not None:
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


def array_from(raw: bytes) -> np.ndarray:
    """The array in the bytes of an .npy file; allocates nothing that a damaged header only claims.

    Raises:
        ValueError: If they are not one array of plain values.
    """
    shape, fortran, dtype, start = _header(raw)
    if math.prod(shape) * dtype.itemsize != len(raw) - start:
        raise ValueError(f"an array of shape {shape} needs {math.prod(shape) * dtype.itemsize} bytes")
    # NumPy would make texts of code points that do not exist, which Python cannot handle.
    if dtype.kind == "U":
        points = np.frombuffer(raw, np.dtype("u4").newbyteorder(dtype.byteorder), offset=start)
        if points.size and points.max() > 0x10FFFF:
            raise ValueError("an array has letters that do not exist")
    return np.frombuffer(raw, dtype, offset=start).reshape(shape, order="F" if fortran else "C")


def _header(raw: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, Fortran order, dtype and offset of the array in an .npy file, from its first bytes."""
    stream = io.BytesIO(raw)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    # A damaged header can make Python's parser raise anything.
    except Exception as error:
        raise ValueError(f"the header of an array is damaged: {' '.join(str(error).split())[:200]}") from None
    if dtype.kind not in "biufcSU" or any(size < 0 for size in shape):
        raise ValueError(f"an array must be of plain values, got {dtype} {shape}")
    return shape, fortran, dtype, stream.tell()


def _write(folder: Path, arrays: Arrays, facts: dict[str, Any], settings: dict[str, Any]) -> None:
    entries = {}
    for name, array in arrays.items():
        file, array = folder / f"{name}.npy", np.ascontiguousarray(array)
        np.save(file, array)
        entries[name] = {
            "bytes": file.stat().st_size, "sha256": checksum(file), "dtype": array.dtype.str, "shape": array.shape,
        }  # fmt: skip
    manifest = json.loads(json.dumps({"settings": settings, "facts": facts, "arrays": entries}))
    manifest["sha256"] = _digest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


class _Damaged(Exception):
    """Why a prepared set cannot be used."""


def _intact(folder: Path, settings: dict[str, Any], remedy: str = "") -> Prepared | None:
    """The prepared set in a folder; None if there is none or if it is damaged, which is reported with `remedy`."""
    try:
        return _open(folder, settings)
    except FileNotFoundError:
        return None
    except _Damaged as damage:
        if remedy:
            print(f"{folder} is damaged ({damage}); {remedy}", file=sys.stderr)
        return None


def _open(folder: Path, settings: dict[str, Any]) -> Prepared:
    """Open a prepared set. Only small arrays and the headers of large ones are read, so that it takes no time.

    Raises:
        FileNotFoundError: There is no manifest.
        _Damaged: It is not as it was written.
        DataError: It cannot be read.
    """
    try:
        manifest = _manifest(folder / "manifest.json")
        if manifest["settings"] != json.loads(json.dumps(settings)):
            raise _Damaged("its settings differ")
        arrays = {name: _array(folder / f"{name}.npy", entry) for name, entry in manifest["arrays"].items()}
        return arrays, manifest["facts"]
    except NotADirectoryError:
        raise FileNotFoundError from None
    except FileNotFoundError:
        raise
    # Not damage, so it is not prepared again: it may be complete and in use.
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from None


def _manifest(file: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        raise _Damaged("its manifest is not JSON") from None
    parts = [manifest.get(part) for part in ("settings", "facts", "arrays")] if isinstance(manifest, dict) else [None]
    if not all(isinstance(part, dict) for part in parts):
        raise _Damaged("its manifest is malformed")
    for name, entry in manifest["arrays"].items():
        if not re.fullmatch(r"[\w-]+", name) or not isinstance(entry, dict) or "bytes" not in entry:
            raise _Damaged("its manifest is malformed")
        # Earlier versions wrote neither types nor the checksum of the manifest.
        if "sha256" not in manifest and "dtype" in entry:
            raise _Damaged("its manifest has no checksum")
    if "sha256" in manifest and manifest["sha256"] != _digest(manifest):
        raise _Damaged("its manifest does not match its checksum")
    return manifest


def _digest(manifest: dict[str, Any]) -> str:
    """The checksum of a manifest without its own entry."""
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _array(file: Path, entry: dict[str, Any]) -> np.ndarray:
    """Open an array memory-mapped; check its size, its header and, if it is small, its checksum."""
    try:
        with file.open("rb") as stream:
            size, head = os.fstat(stream.fileno()).st_size, stream.read(LONGEST_HEADER)
    except FileNotFoundError:
        raise _Damaged(f"{file.name} is missing") from None
    try:
        shape, _, dtype, start = _header(head)
    except ValueError as error:
        raise _Damaged(f"{file.name}: {error}") from None
    if size != entry["bytes"] or math.prod(shape) * dtype.itemsize != size - start:
        raise _Damaged(f"{file.name} has {size} bytes")
    if "dtype" in entry and (dtype.str, list(shape)) != (entry["dtype"], entry["shape"]):
        raise _Damaged(f"{file.name} has a header that does not match the manifest")
    if size <= SMALL and checksum(file) != entry.get("sha256"):
        raise _Damaged(f"{file.name} does not match its checksum")
    # An empty array cannot be mapped.
    array: np.ndarray = np.load(file, mmap_mode="r" if math.prod(shape) else None)
    return array


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
    """Hold a file lock, which the system releases if the process is killed. Creates the folder of the lock file."""
    with write_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
