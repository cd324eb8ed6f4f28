"""Heartbeats: the real files where they are at hand, files written by the tests, damaged ones."""

import gzip
import io
import struct
import zlib

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat

from resofire.data import DataError, ecg, load, mat, show


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


def saved(contents, **options):
    out = io.BytesIO()
    savemat(out, contents, **options)
    return out.getvalue()


@pytest.mark.parametrize("compress", [False, True])
def test_arrays_are_those_of_scipy(compress):
    kinds = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
    arrays = {f"a{kind}": np.arange(24).reshape(2, 3, 4).astype(kind) for kind in kinds}
    arrays |= {"tiny": np.array([[7]], np.uint8)}
    raw = saved({"text": "other", "cell": np.array(["a", 1], object), **arrays}, do_compression=compress)
    read = mat.read_arrays(raw, {name: array.shape for name, array in arrays.items()})
    for name, array in loadmat(io.BytesIO(raw)).items():
        if name in arrays:
            np.testing.assert_array_equal(read[name], array)


def compressed(data):
    packed = zlib.compress(data)
    return saved({})[:128] + struct.pack("<II", mat.COMPRESSED, len(packed)) + packed


PLAIN = saved({"x": np.zeros((2, 3))})
WRONG_FILES = {
    "a bomb": (compressed(PLAIN[128:] + bytes(10**8)), "too many bytes"),
    "another bomb": (compressed(struct.pack("<II", mat.MATRIX, 1 << 31) + bytes(10**8)), "must"),
    "a huge element": (PLAIN[:132] + b"\xff" * 4 + PLAIN[136:], "which are not there"),
    "a shape": (PLAIN.replace(struct.pack("<ii", 2, 3), struct.pack("<ii", -2, -3)), r"got \(-2, -3\)"),
    "complex": (saved({"x": np.zeros((2, 3)) * 1j}), "must hold real numbers in x"),
    "text": (saved({"x": np.array(["abc", "def"])}), "must hold real numbers in x"),
    "no type": (PLAIN.replace(struct.pack("<II", 9, 48), struct.pack("<II", 99, 48)), "truncated or corrupt"),
    "many small elements": (PLAIN[:128] + struct.pack("<II", 0x10001, 0) * 10**5, "got None"),
    "no MATLAB file": (bytes(200), "must be a MATLAB 5 file"),
}


def test_wrong_files(subtests):
    for name, (raw, message) in WRONG_FILES.items():
        with subtests.test(name), pytest.raises(mat.MatError, match=message):
            mat.read_arrays(raw, {"x": (2, 3)})
