"""CIFAR-10: the real archive where RESOFIRE_DATA has it; small ones in every form; pickles that would run code."""

import os
import pickle

import numpy as np
import pytest
import torch
from archives import pack
from PIL import Image

from resofire.data import DataError, cifar, load
from resofire.data.pickled import unpickle

COUNT = 20


def batches(form, count=COUNT):
    """The six files of a form, and all images [6 * count, 3072] and labels in their order."""
    draw = np.random.RandomState(5)
    pixels = draw.randint(0, 256, (6, count, 3072)).astype(np.uint8)
    labels = draw.randint(0, 10, (6, count)).astype(np.uint8)
    files = {}
    for number, name in enumerate((*cifar.TRAIN, cifar.TEST)):
        if form == "bin":
            records = np.concatenate([labels[number][:, None], pixels[number]], 1)
            files[f"cifar-10-batches-bin/{name}.bin"] = records.tobytes()
        else:
            batch = {
                b"batch_label": b"of 5",
                b"labels": labels[number].tolist(),
                b"data": pixels[number],
                b"filenames": [b"a"],
            }
            files[f"cifar-10-batches-py/{name}"] = pickle.dumps(batch, protocol=2)
    return files, pixels, labels


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "BATCH", COUNT)
    monkeypatch.setattr(cifar, "VALIDATION", 10)
    (tmp_path / "cifar10").mkdir()
    return tmp_path


def rgb(pixels):
    return pixels.reshape(-1, 3, 1024).transpose(0, 2, 1)


@pytest.mark.deep
def test_real(real):
    task = load("scifar", real("cifar10"))
    sizes = {name: len(split) for name, split in task.splits.items()}
    assert sizes == {"train": 45_000, "validation": 5_000, "test": 10_000}
    assert np.bincount(task["test"].labels).tolist() == [1000] * 10
    assert sum(np.bincount(task[name].labels) for name in ("train", "validation")).tolist() == [5000] * 10
    assert task["test"].labels[:8].tolist() == [3, 8, 8, 0, 6, 6, 1, 6]
    x = next(task["train"].batches(2000, seed=0)).x
    assert x.shape == (2000, 1024, 3)
    assert x.mean((0, 1)).abs().max() < 0.05
    # The customary deviations are a little smaller than the real ones.
    assert (x.std((0, 1)) - 1).abs().max() < 0.05
    grey = cifar.grey(task["train"].stored[:5000])
    assert abs(grey.mean() - cifar.GREY_MEAN) < 2
    assert abs(grey.std() - cifar.GREY_DEVIATION) < 2


@pytest.mark.parametrize(
    ("form", "name", "mode"), [("bin", "{}.tar.bz2", "bz2"), ("bin", "", "folder"), ("py", "{}.zip", "zip")]
)
def test_small(small, form, name, mode):
    files, pixels, labels = batches(form)
    # Not under the name of the official archive, which has a checksum.
    base = "cifar-10-batches-bin" if form == "bin" else "cifar-10-python"
    pack(small / "cifar10" / name.format(base), files, mode)
    task = load("scifar", small)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 90, "validation": 10, "test": 20}
    np.testing.assert_array_equal(task["test"].stored, rgb(pixels[5]))
    np.testing.assert_array_equal(task["test"].labels, labels[5])
    trained = {
        (split.stored[i].tobytes(), int(split.labels[i]))
        for split in (task["train"], task["validation"])
        for i in range(len(split))
    }
    assert trained == {(x.tobytes(), int(label)) for x, label in zip(rgb(pixels[:5]), labels[:5].ravel(), strict=True)}
    x = next(task["test"].batches(20)).x
    expected = (rgb(pixels[5]) / 255 - np.array(cifar.MEAN)) / np.array(cifar.DEVIATION)
    torch.testing.assert_close(x, torch.from_numpy(expected).float())


def test_grey_is_pillows_luma(small):
    files, pixels, _ = batches("bin")
    pack(small, files, "folder")
    task = load("image", small / "cifar-10-batches-bin")
    expected = [np.asarray(Image.fromarray(x.reshape(32, 32, 3)).convert("L")).reshape(1024, 1) for x in rgb(pixels[5])]
    np.testing.assert_array_equal(task["test"].stored, np.stack(expected))
    x = next(task["test"].batches(20)).x
    assert x.shape == (20, 1024, 1)
    torch.testing.assert_close(x, torch.from_numpy((np.stack(expected) / 255 - 122.6 / 255) / (61 / 255)).float())


class Evil:
    def __reduce__(self):
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("batch", [Evil(), {b"data": Evil(), b"labels": [0] * COUNT}, {b"data": np.array([Evil()])}])
def test_pickles_run_no_code(small, monkeypatch, batch):
    monkeypatch.chdir(small)
    files, _, _ = batches("py")
    files["cifar-10-batches-py/data_batch_2"] = pickle.dumps(batch, protocol=2)
    pack(small / "cifar10/cifar-10-python.tar.gz", files, "gz")
    with pytest.raises(DataError, match=r"cifar-10-python.tar.gz: .*data_batch_2 must be a pickled batch .* asks for"):
        load("scifar", small)
    assert not (small / "harmed").exists()


WRONG_PICKLES = [
    ([1, 2], "must be a pickled dictionary, got list"),
    ({b"labels": [0] * COUNT}, 'must hold "data"'),
    ({b"labels": [0] * COUNT, b"data": np.zeros((COUNT, 3000), np.uint8)}, r"got u1 \(20, 3000\)"),
    ({b"labels": [0] * COUNT, b"data": np.zeros((COUNT, 3072), np.int8)}, r"got i1 \(20, 3072\)"),
    ({b"labels": [0] * 3, b"data": np.zeros((COUNT, 3072), np.uint8)}, 'must hold "labels"'),
    ({b"labels": [-1] * COUNT, b"data": np.zeros((COUNT, 3072), np.uint8)}, "labels from 0 to 9, got -1"),
    ({b"labels": [10**30] * COUNT, b"data": np.zeros((COUNT, 3072), np.uint8)}, "labels from 0 to 9, got 10000"),
]


def test_wrong_pickles(subtests, small):
    for batch, message in WRONG_PICKLES:
        with subtests.test(message):
            files, _, _ = batches("py")
            files["cifar-10-batches-py/test_batch"] = pickle.dumps(batch, protocol=2)
            pack(small / "cifar10", files, "folder")
            with pytest.raises(DataError, match=f"test_batch.*{message}"):
                load("scifar", small)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[:-1], r"data_batch_3.bin must have 61460 bytes \(20 images\), got 61459"),
        (lambda raw: b"\x0a" + raw[1:], "data_batch_3.bin must hold labels from 0 to 9, got 10"),
        (None, "must hold data_batch_1, .* got no data_batch_3"),
    ],
    ids=["cut", "label", "missing"],
)
def test_wrong_binaries(small, change, message):
    files, _, _ = batches("bin")
    name = "cifar-10-batches-bin/data_batch_3.bin"
    raw = files.pop(name)
    if change is not None:
        files[name] = change(raw)
    pack(small / "cifar10", files, "folder")
    with pytest.raises(DataError, match=message):
        load("image", small)


def test_an_official_name_with_other_contents(small):
    place = small / "cifar10/cifar-10-binary.tar.gz"
    pack(place, batches("bin")[0], "gz")
    load("scifar", small)  # repacked
    place.write_bytes(place.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cannot be read, .*official file has 170052171 bytes, this one \d+"):
        load("scifar", small)
    pack(place, {"cifar-100-binary/train.bin": b"x"}, "gz")
    with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz must hold data_batch_1, .* got no data_batch_1"):
        load("scifar", small)


NESTED = b"\x80\x02K\x01" + b"2\x86" * 60
TEXT = b"X\x00\x10\x00\x00" + b"a" * 4096 + b"q\x00c_codecs\nencode\nq\x01"
BOMBS = {
    "a memo of 4 GB": (b"\x80\x02}r\xff\xff\xff\x1f.", {}),
    "a text of 4 GB": (b"\x80\x02}U\x01aT\xff\xff\xff\x7f.", None),
    "a frame of 2⁶³ bytes": (b"\x80\x04\x95" + b"\xff" * 8 + b"}.", {}),
    "hashing for ever": (b"\x80\x02}" + b"K\x01" + b"q\x00h\x00\x86" * 60 + b"K\x01s.", None),
    "the same text a thousand times": (b"\x80\x02" + TEXT + b"h\x01h\x00\x85R" * 1000 + b".", None),
    "no end": (b"\x80\x02}", None),
    "no arguments": (b"\x80\x02s.", None),
    "across a mark": (b"\x80\x02}K\x01K\x02(s.", None),
    "a long number": (b"L" + b"9" * 10_000 + b"L\n.", None),
}


def test_pickles_cannot_fill_memory(subtests):
    for name, (raw, expected) in BOMBS.items():
        with subtests.test(name):
            if expected is not None:
                assert unpickle(raw) == expected
            else:
                with pytest.raises(ValueError, match=r"\w"):
                    unpickle(raw)


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_any_protocol(protocol):
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    batch = unpickle(pickle.dumps({b"data": pixels, "labels": [1, 2**40, -3], "more": (None, 1.5, True)}, protocol))
    data = batch.pop("data")
    assert batch == {"labels": [1, 2**40, -3], "more": (None, 1.5, True)}
    assert (data.kind, data.shape, data.fortran, data.raw) == ("u1", (3, 4), False, pixels.tobytes())
