"""CIFAR-10, pixel by pixel: Image of the Long Range Arena (grey, 1024 × 1) and sequential CIFAR-10 (colour, 1024 × 3).

Five training batches and a test batch of 10,000 images, binary or pickled, in any archive:

    binary    records of 3,073 bytes: a label, then 1,024 red, green and blue values
    python    pickled dictionaries with "data" [10000, 3072] and "labels"

A pickle can run code when it is loaded, and fill any memory. These are read by a machine of our own for the few
operations that such files need (`pickled.py`). There is no validation split: 5,000 random training images are held out,
which leaves 45,000.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .files import Folder, RawFile, RawFiles, Remote, members, prepared_from
from .pickled import PickledArray, unpickle
from .registry import dataset
from .store import Arrays, Prepared
from .task import DataError, Form, Task, hold_out, make_splits
from .warps import require_warps

VERSION = 1
SEED = 0
VALIDATION = 5_000
CLASSES = 10
SIDE = 32
BATCH = 10_000
RECORD = 3_073
ARCHIVE = RawFile(
    ("cifar-10-binary", "cifar-10-batches-bin", "cifar-10-python", "cifar-10-batches-py"),
    archive=True,
    remote=Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        170_052_171,
        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    inside=("data_batch_1.bin", "data_batch_1"),
)
RAW = RawFiles(("cifar10", "cifar-10", "image", "scifar", "CIFAR10", "cifar"), {"archive": ARCHIVE})
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = "test_batch"
NAME = r"(?:^|/)(data_batch_[1-5]|test_batch)(\.bin)?$"
CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# Of grey values in 0..255, and of colours in 0..1: the customary ones.
GREY_MEAN, GREY_DEVIATION = 122.6, 61.0
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)


@dataset("image", about="CIFAR-10 in grey, pixel by pixel (Long Range Arena)")
def image(data_dir: Folder = None, *, shift: float = 0.0, turn: float = 0.0, mirror: bool = False) -> Task:
    """Load Image: (grey / 255 − 122.6 / 255) / (61 / 255), grey as ITU-R 601 luma; 45,000 / 5,000 / 10,000.

    Args:
        data_dir: Folder with the archive.
        shift: Augmentation of training images, as are `turn` and `mirror`: see `Warps`.
        turn: See `shift`.
        mirror: See `shift`.

    Returns:
        The task.
    """
    form = Form(scale=1 / GREY_DEVIATION, shift=-GREY_MEAN / GREY_DEVIATION)
    warps = require_warps("image", SIDE, shift=shift, turn=turn, mirror=mirror)
    splits = make_splits(_arrays("image", grey, data_dir), "values", form, warps=warps)
    return Task("image", "values", CLASSES, splits, inputs=1, class_names=CLASS_NAMES)


@dataset("scifar", about="CIFAR-10 in colour, pixel by pixel")
def scifar(data_dir: Folder = None, *, shift: float = 0.0, turn: float = 0.0, mirror: bool = False) -> Task:
    """Load sequential CIFAR-10: red, green, blue, each (value / 255 − mean) / deviation; 45,000 / 5,000 / 10,000.

    Args and return value are those of `image`.
    """
    form = Form(
        scale=tuple(1 / (255 * deviation) for deviation in DEVIATION),
        shift=tuple(-mean / deviation for mean, deviation in zip(MEAN, DEVIATION, strict=True)),
    )
    warps = require_warps("scifar", SIDE, shift=shift, turn=turn, mirror=mirror)
    splits = make_splits(_arrays("scifar", lambda x: x, data_dir), "values", form, warps=warps)
    return Task("scifar", "values", CLASSES, splits, inputs=3, class_names=CLASS_NAMES)


def _arrays(name: str, convert: Callable[[np.ndarray], np.ndarray], data_dir: Folder) -> Arrays:
    """Prepared arrays of the images, converted from [N, 1024, 3]."""

    def make(places: dict[str, Path]) -> Prepared:
        x, labels, test_x, test_labels = read_batches(places["archive"])
        parts = hold_out(convert(x), labels, VALIDATION, SEED)
        return {**parts, "test_x": convert(test_x), "test_labels": test_labels}, {}

    settings = {"version": VERSION, "seed": SEED, "validation": VALIDATION}
    return prepared_from(name, RAW, data_dir, settings, make)[0]


def grey(x: np.ndarray) -> np.ndarray:
    """Convert [N, 1024, 3] bytes to [N, 1024, 1]: 0.299 R + 0.587 G + 0.114 B in Pillow's fixed point."""
    out = np.empty((*x.shape[:-1], 1), np.uint8)
    for first in range(0, len(x), 5_000):  # in parts, because the products need four bytes
        part = x[first : first + 5_000].astype(np.uint32)
        out[first : first + 5_000, :, 0] = (
            part[..., 0] * 19595 + part[..., 1] * 38470 + part[..., 2] * 7471 + 0x8000
        ) >> 16
    return out


def read_batches(place: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read training images [50000, 1024, 3], row by row, and labels; then those of the test.

    Raises:
        DataError: If a batch is missing or damaged.
    """
    batches: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    # A pickled batch has up to two bytes for a value, and label and file name of each image.
    largest = BATCH * (2 * RECORD + 256) + 4096
    for path, raw in members(place, {NAME: largest}, kept=(len(TRAIN) + 1) * largest, remote=ARCHIVE.remote):
        if match := re.search(NAME, path):
            where = f"{place}: {path}"
            batches[match[1]] = _binary(where, raw) if match[2] else _pickled(where, raw)
    missing = [name for name in (*TRAIN, TEST) if name not in batches]
    if missing:
        raise DataError(f"{place} must hold {', '.join((*TRAIN, TEST))} (.bin or pickled), got no {missing[0]}")
    x = np.concatenate([batches[name][0] for name in TRAIN])
    return x, np.concatenate([batches[name][1] for name in TRAIN]), *batches[TEST]


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
        batch = unpickle(raw)
    except ValueError as error:
        raise DataError(f"{where} must be a pickled batch of CIFAR-10: {error}") from None
    if not isinstance(batch, dict):
        raise DataError(f"{where} must be a pickled dictionary, got {type(batch).__name__}")
    data, labels = batch.get("data"), batch.get("labels")
    if not isinstance(data, PickledArray) or data.shape != (BATCH, 3072) or data.kind not in ("u1", "|u1"):
        got = f"{data.kind} {data.shape}" if isinstance(data, PickledArray) else type(data).__name__
        raise DataError(f'{where} must hold "data", bytes of shape ({BATCH}, 3072), got {got[:100]}')
    if len(data.raw) != BATCH * 3072:
        raise DataError(f'{where} must hold {BATCH * 3072} bytes of "data", got {len(data.raw)}')
    if not isinstance(labels, list) or len(labels) != BATCH or not all(type(label) is int for label in labels):
        raise DataError(f'{where} must hold "labels", a list of {BATCH} integers')
    planes = np.frombuffer(data.raw, np.uint8).reshape(BATCH, 3072, order="F" if data.fortran else "C")
    return _checked(where, planes, np.array(labels, object))  # of any size: a pickle holds Python integers
