"""Heartbeats: the real files where they are at hand, files written by the tests, damaged ones."""

import gzip

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat

from resofire.data import DataError, ecg, load, show


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.setattr(ecg, "SIZES", {"train": 8, "test": 3})
    monkeypatch.setattr(ecg, "VALIDATION", 2)
    (tmp_path / "ecg").mkdir()
    for name, count in ecg.SIZES.items():
        savemat(tmp_path / f"ecg/QTDB_{name}.mat", made(count))
    return tmp_path


def made(count):
    draw = np.random.RandomState(count)
    x = draw.randint(-1, 2, (count, 1301, 4)).astype(np.int16)
    y = np.eye(6, dtype=np.uint8)[draw.randint(0, 6, (count, 1301))]
    y[:, -3:] = 0
    return {"x": x, "y": y}


def test_real(real):
    folder = real("ecg")
    task, strict = load("ecg", folder), load("ecg", folder, unlabelled="ignored")
    assert (task.kind, task.classes, task.inputs, task.per_step) == ("values", 6, 4, True)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 556, "validation": 62, "test": 141}
    raw = loadmat(folder / "ecg/QTDB_test.mat")
    batch = next(task["test"].batches(141))
    assert batch.x.shape == (141, 1301, 4)
    assert torch.equal(batch.x, torch.from_numpy(raw["x"].astype(np.float32)))
    assert torch.equal(batch.labels, torch.from_numpy(raw["y"].argmax(-1)))
    labels = next(strict["test"].batches(141)).labels
    assert torch.equal(labels == -100, torch.from_numpy(raw["y"].sum(-1) == 0))
    assert torch.equal(labels.clamp(min=0), batch.labels)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_small(small, ending):
    if ending:
        for file in list((small / "ecg").iterdir()):
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    task = load("ecg", small)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 6, "validation": 2, "test": 3}
    np.testing.assert_array_equal(task["test"].stored, made(3)["x"])
    np.testing.assert_array_equal(task["test"].labels, made(3)["y"].argmax(-1))


def test_unlabelled(small):
    assert (load("ecg", small, unlabelled="ignored")["train"].labels[:, -3:] == -100).all()
    assert (load("ecg", small)["train"].labels[:, -3:] == 0).all()
    # Steps without a label are not counted.
    figures = show.facts(load("ecg", small, unlabelled="ignored"))
    assert sum(figures["splits"]["test"]["labels"]) == 3 * 1298
    with pytest.raises(ValueError, match="unlabelled must be one of first, ignored, got 'dropped'"):
        load("ecg", small, unlabelled="dropped")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (made(4), r"must hold x of shape \(3, 1301, 4\), got \(4, 1301, 4\)"),
        ({"x": made(3)["x"]}, r"must hold y of shape \(3, 1301, 6\), got None"),
        (made(3) | {"y": made(3)["y"] + 1}, "must hold one label for each step"),
        (made(3) | {"x": made(3)["x"] * np.nan}, "must hold finite numbers in x"),
    ],
    ids=["count", "no y", "labels", "nan"],
)
def test_wrong_contents(small, contents, message):
    savemat(small / "ecg/QTDB_test.mat", contents)
    with pytest.raises(DataError, match=f"QTDB_test.mat {message}"):
        load("ecg", small)


@pytest.mark.parametrize("size", [0, 200, 9000])
def test_truncated(small, size):
    file = small / "ecg/QTDB_train.mat"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(DataError, match=r"QTDB_train.mat must"):
        load("ecg", small)
