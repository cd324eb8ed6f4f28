"""MNIST and Fashion-MNIST, pixel by pixel: 784 × 1, in [0, 1], not normalised.

Both come as four idx files (a magic number, sizes, bytes): images and labels of 60,000 for training, 10,000 for the
test. They have no validation split: 5,000 random training images are held out.

Two permutations of MNIST are in use, and their results are not comparable. Step t shows pixel permutation[t]:

    bitrev    the numbers 0..1023 with their ten bits reversed, those below 784
    random    numpy.random.RandomState(92916).permutation(784)
"""

from pathlib import Path

import numpy as np

from .files import Folder, RawFile, RawFiles, Remote, prepared_from, read
from .registry import dataset
from .store import Prepared
from .task import DataError, Form, Task, hold_out, make_splits, require_setting
from .warps import Warps, require_warps

VERSION = 1
SEED = 0
SIZES = {"train": 60_000, "t10k": 10_000}
VALIDATION = 5_000
SIDE, PIXELS, CLASSES = 28, 784, 10
IMAGES, LABELS = 0x0803, 0x0801
# Bytes read beyond the known size, so that an error can quote the header of a wrong file.
SLACK = 1 << 20


def _raw(folders: tuple[str, ...], address: str, known: dict[str, tuple[int, str]]) -> RawFiles:
    files = {}
    for name, (size, checksum) in known.items():
        stem = f"{name}-idx{3 if name.endswith('images') else 1}-ubyte"
        remote = Remote(f"{address}{stem}.gz", size, checksum)
        files[name] = RawFile((stem, stem.replace("-idx", ".idx")), remote=remote)
    return RawFiles(folders, files)


MNIST = _raw(
    ("mnist", "smnist", "psmnist", "MNIST", "MNIST/raw", "raw"),
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    {
        "train-images": (9_912_422, "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        "train-labels": (28_881, "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        "t10k-images": (1_648_877, "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        "t10k-labels": (4_542, "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    },
)
FASHION = _raw(
    ("fashion", "fashion-mnist", "FashionMNIST", "FashionMNIST/raw", "raw"),
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/b2617bb6d3ffa2e429640350f613e3291e10b141/"
    "data/fashion/",
    {
        "train-images": (26_421_880, "sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        "train-labels": (29_515, "sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        "t10k-images": (4_422_102, "sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        "t10k-labels": (5_148, "sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    },
)
# First training labels, which tell the sets apart: their files have the same names and sizes.
FIRST = {"mnist": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4), "fashion": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5)}
DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip


@dataset("smnist", about="MNIST pixel by pixel")
def smnist(
    data_dir: Folder = None, shift: float = 0.0, turn: float = 0.0, stretch: float = 0.0, bend: float = 0.0
) -> Task:
    """Load sequential MNIST, 55,000 / 5,000 / 10,000 images.

    Args:
        data_dir: Folder with the raw files.
        shift: Augmentation of training images, see `Warps`; likewise the other three.
        turn: See `Warps`.
        stretch: See `Warps`.
        bend: See `Warps`.
    """
    warps = require_warps("smnist", SIDE, shift=shift, turn=turn, stretch=stretch, bend=bend)
    return _load("smnist", MNIST, data_dir, warps=warps, class_names=DIGITS)


@dataset("psmnist-random", about="MNIST, pixels in one random order", permutation="random")
@dataset("psmnist-bitrev", about="MNIST, pixels in bit-reversed order", permutation="bitrev")
def psmnist(
    data_dir: Folder = None, permutation: str = "bitrev", shift: float = 0.0, turn: float = 0.0, stretch: float = 0.0,
    bend: float = 0.0,
) -> Task:  # fmt: skip
    """Load permuted sequential MNIST: as `smnist`, pixels in the order of `permutation`, "bitrev" or "random"."""
    warps = require_warps("psmnist", SIDE, shift=shift, turn=turn, stretch=stretch, bend=bend)
    return _load("psmnist", MNIST, data_dir, order=pixel_order(permutation), warps=warps, class_names=DIGITS)


@dataset("fashion", about="Fashion-MNIST pixel by pixel")
def fashion(
    data_dir: Folder = None, shift: float = 0.0, turn: float = 0.0, stretch: float = 0.0, bend: float = 0.0
) -> Task:
    """Load sequential Fashion-MNIST, as `smnist`."""
    warps = require_warps("fashion", SIDE, shift=shift, turn=turn, stretch=stretch, bend=bend)
    return _load("fashion", FASHION, data_dir, warps=warps, class_names=CLOTHES)


def pixel_order(permutation: str) -> np.ndarray:
    """Which pixel each time step shows, [784]."""
    require_setting("psmnist", "permutation", permutation, ("bitrev", "random"))
    if permutation == "random":
        return np.random.RandomState(92916).permutation(PIXELS)
    reversed_bits = [int(f"{number:010b}"[::-1], 2) for number in range(1024)]
    return np.array([number for number in reversed_bits if number < PIXELS])


def _load(
    task: str, raw: RawFiles, data_dir: Folder, *, warps: Warps | None, class_names: tuple[str, ...],
    order: np.ndarray | None = None,
) -> Task:  # fmt: skip
    settings = {"version": VERSION, "seed": SEED, "validation": VALIDATION}
    arrays, _ = prepared_from(raw.folders[0], raw, data_dir, settings, lambda places: _make(raw, places))
    splits = make_splits(arrays, "values", Form(scale=1 / 255, order=order), warps=warps)
    return Task(task, "values", CLASSES, splits, inputs=1, class_names=class_names)


def _make(raw: RawFiles, places: dict[str, Path]) -> Prepared:
    arrays = {}
    for name, file in places.items():
        part, kind = name.split("-")
        arrays[name] = (read_images if kind == "images" else read_labels)(file, SIZES[part], raw.files[name].remote)
    labels, first = arrays["train-labels"], FIRST[raw.folders[0]]
    begin = tuple(labels[: len(first)].tolist())
    if begin != first:
        raise DataError(
            f"{places['train-labels']} must begin with the labels {' '.join(map(str, first))} of {raw.folders[0]}, got "
            f"{' '.join(map(str, begin))}: it belongs to another set whose files have the same names"
        )
    parts = hold_out(arrays["train-images"], labels, VALIDATION, SEED)
    return {**parts, "test_x": arrays["t10k-images"], "test_labels": arrays["t10k-labels"]}, {}


def read_images(file: Path, count: int, remote: Remote | None = None) -> np.ndarray:
    """Read `count` images of 28 × 28, [count, 784, 1] uint8.

    Raises:
        DataError: If the file is no such idx file.
    """
    raw = read(file, 16 + count * PIXELS + SLACK, remote)
    _check(file, raw, IMAGES, (count, SIDE, SIDE))
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, PIXELS, 1)


def read_labels(file: Path, count: int, remote: Remote | None = None) -> np.ndarray:
    """Read `count` labels of ten classes, [count] uint8.

    Raises:
        DataError: If the file is no such idx file.
    """
    raw = read(file, 8 + count + SLACK, remote)
    _check(file, raw, LABELS, (count,))
    labels = np.frombuffer(raw, np.uint8, offset=8)
    if labels.max() >= CLASSES:
        raise DataError(f"{file} must hold labels from 0 to {CLASSES - 1}, got {labels.max()}")
    return labels


def _check(file: Path, raw: bytes, magic: int, expected: tuple[int, ...]) -> None:
    kind = "images" if magic == IMAGES else "labels"
    head = 4 * (1 + len(expected))
    numbers = np.frombuffer(raw[: len(raw) // 4 * 4][:head], ">u4")
    if not numbers.size or numbers[0] != magic:
        got = f"{int(numbers[0])}" if numbers.size else f"{len(raw)} bytes"
        raise DataError(f"{file} must be an idx file of {kind} (magic number {magic}), got {got}")
    if len(raw) < head:
        raise DataError(f"{file} must begin with {head} bytes of sizes, got {len(raw)} in all: it is truncated")
    sizes = tuple(int(size) for size in numbers[1:])
    if sizes != expected:
        shapes = [" × ".join(map(str, shape)) for shape in (expected, sizes)]
        raise DataError(f"{file} must hold {shapes[0]} {kind}, got {shapes[1]}")
    size = head + int(np.prod(sizes))
    if len(raw) != size:
        raise DataError(f"{file} must have {size} bytes (unpacked), got {len(raw)}: it is truncated or corrupt")
