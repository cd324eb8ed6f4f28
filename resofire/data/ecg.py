"""ECG: heartbeats of the QT database as events, each time step labelled with one of six waves or intervals.

Two `.mat` files: x (618 and 141, 1301, 4), each −1, 0 or 1; y (…, 6), one-hot. 556 / 62 / 141: the validation split is
held out of the training file. 8 % of the steps of the training file and 10 % of the test file have no label.
"""

import math
from pathlib import Path

import numpy as np

from .files import Folder, RawFile, RawFiles, Remote, prepared_from, read
from .mat import MatError, read_arrays
from .registry import dataset
from .store import Prepared
from .task import IGNORED, DataError, Task, hold_out, make_splits, require_setting

VERSION = 1
SEED = 0
VALIDATION = 62
SIZES = {"train": 618, "test": 141}
STEPS, INPUTS, CLASSES = 1301, 4, 6
UNLABELLED = ("first", "ignored")
ADDRESS = "https://raw.githubusercontent.com/byin-cwi/Efficient-spiking-networks"
# Sizes and checksums are of copies at hand, since the authors publish none.
RAW = RawFiles(
    ("ecg", "qtdb", "ECG", "QTDB"),
    {
        "train": RawFile(
            ("QTDB_train.mat",),
            remote=Remote(
                f"{ADDRESS}/1331f6c052e73d48eb71a1dc62239948e874ecb2/data/QTDB_train.mat", 537_262,
                "sha256:72d1a10c96f1540880447e07256835d66da419c0b34f3dff495731a7928c5bc7",
            ),
        ),
        "test": RawFile(
            ("QTDB_test.mat",),
            remote=Remote(
                f"{ADDRESS}/25a29e8d1ebfef6df6a7689d76000f702a21e8d7/NMI_vis/ecg/QTDB_test.mat", 112_720,
                "sha256:916f11e21679a5b61988305bbb7cd1e6df8b34f1ed4a157a7a4e295d400ef232",
            ),
        ),
    },
)  # fmt: skip


@dataset("ecg", about="electrocardiograms, a label for each time step")
def ecg(data_dir: Folder = None, unlabelled: str = "first") -> Task:
    """Load ECG.

    Args:
        data_dir: Folder with the raw files.
        unlabelled: Label of steps that have none: "first" is class 0, as argmax of y gives; "ignored" is −100, which
            cross-entropy leaves out.

    Returns:
        The task, with labels per step.
    """
    require_setting("ecg", "unlabelled", unlabelled, UNLABELLED)

    def make(places: dict[str, Path]) -> Prepared:
        x, labels = read_mat(places["train"], SIZES["train"], unlabelled)
        test_x, test_labels = read_mat(places["test"], SIZES["test"], unlabelled)
        return {**hold_out(x, labels, VALIDATION, SEED), "test_x": test_x, "test_labels": test_labels}, {}

    settings = {"version": VERSION, "seed": SEED, "validation": VALIDATION, "unlabelled": unlabelled}
    arrays, _ = prepared_from("ecg", RAW, data_dir, settings, make)
    splits = make_splits(arrays, "values", per_step=True)
    return Task("ecg", "values", CLASSES, splits, inputs=INPUTS, per_step=True)


def read_mat(file: Path, count: int, unlabelled: str) -> tuple[np.ndarray, np.ndarray]:
    """Read x [count, 1301, 4] float32 and labels [count, 1301] int8.

    Raises:
        DataError: If the file is damaged or has other contents.
    """
    shapes = {"x": (count, STEPS, INPUTS), "y": (count, STEPS, CLASSES)}
    # Twice the size of both as doubles: the files hold other variables, too.
    raw = read(file, 16 * sum(map(math.prod, shapes.values())))
    try:
        arrays = read_arrays(raw, shapes)
    except MatError as error:
        raise DataError(f"{file} {error}") from None
    with np.errstate(over="ignore"):
        x, y = arrays["x"].astype(np.float32), arrays["y"]
    if not np.isfinite(x).all():
        raise DataError(f"{file} must hold finite numbers in x")
    if not np.isin(y, (0, 1)).all() or (y.sum(-1) > 1).any():
        raise DataError(f"{file} must hold one label for each step at most, as 0 and 1, in y")
    labels = y.argmax(-1).astype(np.int8)
    if unlabelled == "ignored":
        labels[y.sum(-1) == 0] = IGNORED
    return x, labels
