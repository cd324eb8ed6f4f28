"""Tasks whose arrays do not fit each other are refused in one sentence."""

from dataclasses import replace

import numpy as np
import pytest

from resofire.data import DataError, Form, Split, Task
from resofire.data.checks import require_sound
from resofire.data.warps import Warps


def task(packed, kind):
    stored = np.arange(24, dtype=np.uint8).reshape((12, 2) if packed else (3, 4, 2))
    stored = stored if kind == "values" else stored[..., 0]
    split = Split(stored, np.array([0, 1, 2]), kind=kind, bounds=np.array([0, 4, 4, 12]) if packed else None)
    size = {"inputs": 2} if kind == "values" else {"vocabulary": 24}
    return Task("set", kind, 3, {"train": split}, **size)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", ["values", "tokens"])
def test_sound(packed, kind):
    require_sound(task(packed, kind))


WRONG = [
    (True, {"stored": None}, "train: stored must be numbers of 2 dimensions"),
    (True, {"stored": np.array([["a", "b"]])}, "stored must be numbers"),
    (False, {"stored": np.zeros((3, 4, 5))}, "stored must have 2 channels, got 5"),
    (False, {"labels": None}, "labels must be integers of shape"),
    (True, {"labels": np.array([0, 1])}, r"labels must be integers of shape \(3,\)"),
    (True, {"labels": np.array([0, 1, 3])}, "labels must be classes"),
    (True, {"labels": np.array([0, 1, -100])}, "labels must be classes"),
    (True, {"bounds": np.array([0, 8, 4, 12])}, "bounds must rise from 0 to 12"),
    (True, {"bounds": np.array([0, 4, 8, 13])}, "bounds must rise from 0 to 12"),
    (True, {"bounds": np.zeros((2, 2))}, "bounds must be a list of integers"),
    (True, {"form": Form(order=np.arange(4))}, "order must be a permutation"),
    (False, {"form": Form(order=np.array([0, 1, 2, 9]))}, "order must be a permutation"),
    (False, {"form": Form(scale=(1.0, 2.0, 3.0))}, "scale must be a number"),
    (False, {"form": Form(shift=float("nan"))}, "shift must be a number"),
    (False, {"warps": Warps(3)}, "warps must fit the images"),
    (False, {"warps": Warps(2, shift="x")}, "warps must be numbers"),
    (False, {"pairs": True}, "train must be of the kind of the task"),
    (False, {"kind": "tokens"}, "train must be of the kind of the task"),
]


def test_wrong_splits(subtests):
    for packed, changes, message in WRONG:
        wrong = task(packed, "values")
        vars(wrong.splits["train"]).update(changes)
        with subtests.test(message), pytest.raises(DataError, match=message):
            require_sound(wrong)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": "3"}, "classes must be a positive integer, got '3'"),
        ({"inputs": None}, "inputs must be a positive integer, got None"),
        ({"kind": []}, "kind must be values or tokens"),
        ({"class_names": (1, 2, 3)}, "class_names must be a list of words"),
        ({"splits": {}}, "there must be a train split"),
    ],
)
def test_wrong_tasks(changes, message):
    with pytest.raises(DataError, match=message):
        require_sound(replace(task(True, "values"), **changes))


def test_wrong_tokens():
    wrong = task(True, "tokens")
    with pytest.raises(DataError, match="tokens must be in the vocabulary"):
        require_sound(replace(wrong, vocabulary=20))
