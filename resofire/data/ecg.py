"""ECG: heartbeats of the QT database as events, and for each time step which of six waves or intervals it is in.

Two `.mat` files: x (618 and 141, 1301, 4), each −1, 0 or 1; y (…, 6), one-hot. 556 / 62 / 141: the validation split is
a fixed seed's choice of the training file. 8 % of the steps of the training file and 10 % of the test's bear no label
at all. `unlabelled` says what becomes of them: "first" makes them class 0, which is what taking the argmax of y does;
"ignored" makes them −100, which torch's cross-entropy leaves out.
"""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from .files import DataError, Remote, Wanted, origin, prepared_from, read
from .store import Arrays
from .task import Form, Split, Task, set_aside

VERSION = 1
SEED = 0
VALIDATION = 62
SIZES = {"train": 618, "test": 141}
STEPS, INPUTS, CLASSES = 1301, 4, 6
IGNORED = -100
UNLABELLED = ("first", "ignored")
FOLDERS = ("ecg", "qtdb", "ECG", "QTDB")
ADDRESS = "https://raw.githubusercontent.com/byin-cwi/Efficient-spiking-networks"
# Sizes and checksums are of copies at hand: its makers publish none. What they have there now is refused if it differs.
FILES = {
    "train": Wanted(
        ("QTDB_train.mat",),
        remote=Remote(
            f"{ADDRESS}/1331f6c052e73d48eb71a1dc62239948e874ecb2/data/QTDB_train.mat", 537_262,
            "sha256:72d1a10c96f1540880447e07256835d66da419c0b34f3dff495731a7928c5bc7",
        ),
    ),
    "test": Wanted(
        ("QTDB_test.mat",),
        remote=Remote(
            f"{ADDRESS}/25a29e8d1ebfef6df6a7689d76000f702a21e8d7/NMI_vis/ecg/QTDB_test.mat", 112_720,
            "sha256:916f11e21679a5b61988305bbb7cd1e6df8b34f1ed4a157a7a4e295d400ef232",
        ),
    ),
}  # fmt: skip


def load(data_dir: str | os.PathLike[str] | None = None, unlabelled: str = "first") -> Task:
    if unlabelled not in UNLABELLED:
        raise ValueError(f"ecg: unlabelled must be one of {', '.join(UNLABELLED)}, got {unlabelled!r}")

    def make(found: dict[str, Path]) -> tuple[Arrays, dict[str, Any]]:
        sources: dict[str, str] = {}
        for name, file in found.items():
            sources |= origin(file, FILES[name].remote)
        x, labels = read_mat(found["train"], SIZES["train"], unlabelled)
        test_x, test_labels = read_mat(found["test"], SIZES["test"], unlabelled)
        parts = set_aside(x, labels, VALIDATION, SEED)
        return {**parts, "test_x": test_x, "test_labels": test_labels}, {"sources": sources}

    settings = {"version": VERSION, "seed": SEED, "validation": VALIDATION, "unlabelled": unlabelled}
    arrays, _ = prepared_from("ecg", FOLDERS, FILES, data_dir, settings, make)
    splits = {
        split: Split(arrays[f"{split}_x"], arrays[f"{split}_labels"], kind="values", form=Form(), per_step=True)
        for split in ("train", "validation", "test")
    }
    return Task("ecg", "values", CLASSES, splits, inputs=INPUTS, per_step=True)


def read_mat(file: Path, count: int, unlabelled: str = "first") -> tuple[np.ndarray, np.ndarray]:
    """x [N, 1301, 4] float32 and labels [N, 1301] int8."""
    from scipy.io import loadmat

    raw = read(file)
    try:
        held = loadmat(io.BytesIO(raw), variable_names=("x", "y"))
    # Whatever a damaged file makes the reader stumble over.
    except Exception as error:
        raise DataError(f"{file} must be a MATLAB file, it is truncated or corrupt: {error}") from None
    for name, last in (("x", INPUTS), ("y", CLASSES)):
        found = held.get(name)
        shape = None if found is None else found.shape
        if shape != (count, STEPS, last) or found.dtype.kind not in "iufb":
            raise DataError(f"{file} must hold {name} of shape ({count}, {STEPS}, {last}), got {shape}")
    x, y = held["x"].astype(np.float32), held["y"]
    if not np.isfinite(x).all():
        raise DataError(f"{file} must hold finite numbers in x")
    if not np.isin(y, (0, 1)).all() or (y.sum(-1) > 1).any():
        raise DataError(f"{file} must hold one label for each step at most, as 0 and 1, in y")
    labels = y.argmax(-1).astype(np.int8)
    if unlabelled == "ignored":
        labels[y.sum(-1) == 0] = IGNORED
    return x, labels
