"""CIFAR-10's files: five training batches and a test batch of 10,000 images, binary or pickled, in any archive.

    binary    records of 3,073 bytes: a label, then 1,024 red, green and blue values
    python    pickled dictionaries with "data" [10000, 3072] and "labels"

A pickle can run code when it is loaded. These are read by an unpickler that knows nothing but the few names that such
files need, and has stand-ins of its own for them. No validation split exists: 5,000 images of the training batches, the
choice of a fixed seed, are set aside, which leaves 45,000.
"""

import io
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .files import DataError, Remote, Wanted, members, origin, prepared_from
from .store import Arrays
from .task import set_aside

VERSION = 1
SEED = 0
VALIDATION = 5_000
CLASSES = 10
BATCH = 10_000
RECORD = 3_073
FOLDERS = ("cifar10", "cifar-10", "image", "scifar", "CIFAR10", "cifar")
FILE = Wanted(
    ("cifar-10-binary", "cifar-10-batches-bin", "cifar-10-python", "cifar-10-batches-py"),
    archive=True,
    remote=Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", 170_052_171, "md5:c32a1d4ab5d03f1284b67883e8d87530"
    ),
    inside=("data_batch_1.bin", "data_batch_1"),
)
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = "test_batch"


def load(
    name: str, change: Callable[[np.ndarray], np.ndarray], data_dir: str | os.PathLike[str] | None
) -> tuple[Arrays, dict[str, Any]]:
    """Prepared arrays {train,validation,test}_{x,labels} of a task that changes the images [N, 1024, 3] in some way."""

    def make(found: dict[str, Path]) -> tuple[Arrays, dict[str, Any]]:
        place = found["archive"]
        sources = origin(place, FILE.remote)
        x, labels, test_x, test_labels = read_batches(place)
        parts = set_aside(change(x), labels, VALIDATION, SEED)
        return {**parts, "test_x": change(test_x), "test_labels": test_labels}, {"sources": sources}

    settings = {"version": VERSION, "seed": SEED, "validation": VALIDATION}
    return prepared_from(name, FOLDERS, {"archive": FILE}, data_dir, settings, make)


def read_batches(place: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images [50000, 1024, 3], row by row, and labels; then those of the test."""
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for path, raw in members(place, FILE.remote):
        match = re.search(r"(?:^|/)(data_batch_[1-5]|test_batch)(\.bin)?$", path)
        if match:
            where = f"{place}: {path}"
            found[match[1]] = _binary(where, raw) if match[2] else _pickled(where, raw)
    missing = [name for name in (*TRAIN, TEST) if name not in found]
    if missing:
        raise DataError(f"{place} must hold {', '.join((*TRAIN, TEST))} (.bin or pickled), got no {missing[0]}")
    x = np.concatenate([found[name][0] for name in TRAIN])
    return x, np.concatenate([found[name][1] for name in TRAIN]), *found[TEST]


def _binary(where: str, raw: bytes) -> tuple[np.ndarray, np.ndarray]:
    if len(raw) != BATCH * RECORD:
        raise DataError(f"{where} must have {BATCH * RECORD} bytes ({BATCH} images), got {len(raw)}")
    records = np.frombuffer(raw, np.uint8).reshape(BATCH, RECORD)
    return _checked(where, records[:, 1:], records[:, 0])


def _checked(where: str, planes: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if labels.min() < 0 or labels.max() >= CLASSES:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise DataError(f"{where} must hold labels from 0 to {CLASSES - 1}, got {wrong}")
    return np.ascontiguousarray(planes.reshape(BATCH, 3, 1024).transpose(0, 2, 1)), labels.astype(np.uint8)


def _pickled(where: str, raw: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        held = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
    # Whatever a damaged stream makes the unpickler stumble over.
    except Exception as error:
        raise DataError(f"{where} must be a pickled batch of CIFAR-10: {error}") from None
    if not isinstance(held, dict):
        raise DataError(f"{where} must be a pickled dictionary, got {type(held).__name__}")
    named = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in held.items()}
    data, labels = named.get("data"), named.get("labels")
    if not isinstance(data, _Array) or data.shape != (BATCH, 3072) or data.kind not in ("u1", "|u1"):
        got = f"{data.kind} {data.shape}" if isinstance(data, _Array) else type(data).__name__
        raise DataError(f'{where} must hold "data", bytes of shape ({BATCH}, 3072), got {got}')
    if len(data.raw) != BATCH * 3072:
        raise DataError(f'{where} must hold {BATCH * 3072} bytes of "data", got {len(data.raw)}')
    if not isinstance(labels, list) or len(labels) != BATCH or not all(type(label) is int for label in labels):
        raise DataError(f'{where} must hold "labels", a list of {BATCH} integers')
    planes = np.frombuffer(data.raw, np.uint8).reshape(BATCH, 3072, order="F" if data.fortran else "C")
    return _checked(where, planes, np.array(labels, np.int64))


class _Array:
    """Stands in for a numpy array: keeps what the pickle says of it."""

    shape: tuple[int, ...] = ()
    kind = ""
    fortran = False
    raw = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, _Type) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("an array that is not of bytes")
        self.shape, self.kind, self.fortran, self.raw = tuple(shape), kind.name, bool(fortran), raw


class _Type:
    """Stands in for a numpy type."""

    def __init__(self, name: bytes | str, *_: object) -> None:
        self.name = name.decode("latin1") if isinstance(name, bytes) else str(name)

    def __setstate__(self, state: object) -> None:
        pass


class _Ndarray:
    """Stands in for numpy.ndarray itself, which is only named."""


def _encode(text: str, encoding: object = None) -> bytes:
    return text.encode("latin1")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[tuple[str, str], Any] = {
            ("numpy", "ndarray"): _Ndarray,
            ("numpy", "dtype"): _Type,
            ("_codecs", "encode"): _encode,
        }
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return lambda *_: _Array()
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which such a file does not need")
        return allowed[module, name]
