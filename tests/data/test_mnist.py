"""idx files: the real MNIST where it is at hand, small files in every form, damaged ones; the permutations."""

import bz2
import gzip
import lzma
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from resofire.data import fashion, idx, psmnist, smnist
from resofire.data.files import DataError, Remote

REAL = Path(__file__).parents[3] / "shared" / "data"
real = pytest.mark.skipif(not (REAL / "mnist").is_dir(), reason="MNIST is not in ../shared/data")
PACK = {
    "": lambda raw: raw,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


def images(count, seed=0):
    pixels = np.random.RandomState(seed).randint(0, 256, (count, 784)).astype(np.uint8)
    return np.array([0x803, count, 28, 28], ">u4").tobytes() + pixels.tobytes()


def labels(count):
    return np.array([0x801, count], ">u4").tobytes() + bytes(i * 7 % 10 for i in range(count))


def write(folder, name, raw, ending):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / (name + ending)
    if ending == ".zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, raw)
    else:
        file.write_bytes(PACK[ending](raw))
    return file


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Sets of 60 and 20 images; returns what writes them."""
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(idx, "SIZES", {"train": 60, "t10k": 20})
    monkeypatch.setattr(idx, "VALIDATION", 10)
    for module in (smnist, psmnist, fashion):
        monkeypatch.setattr(module, "FIRST", (0, 7, 4))

    def files(ending="", folder="mnist", dot=False):
        mark = "." if dot else "-"
        for part, count in idx.SIZES.items():
            write(tmp_path / folder, f"{part}-images{mark}idx3-ubyte", images(count, count), ending)
            write(tmp_path / folder, f"{part}-labels{mark}idx1-ubyte", labels(count), ending)
        return tmp_path

    return files


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RESOFIRE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield smnist.load(REAL), psmnist.load(REAL), psmnist.load(REAL, permutation="random")


@real
def test_real_sizes_values_and_labels(mnist):
    task = mnist[0]
    sizes = {name: len(split) for name, split in task.splits.items()}
    assert sizes == {"train": 55_000, "validation": 5_000, "test": 10_000}
    assert (task.kind, task.classes, task.inputs) == ("values", 10, 1)
    counts = sum(np.bincount(task[name].labels) for name in ("train", "validation"))
    assert counts.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert task["test"].labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    x = next(task["test"].batches(1000)).x
    assert x.shape == (1000, 784, 1)
    assert (x.min(), x.max()) == (0, 1)
    # The mean of all training pixels is a well-known number.
    total = sum(int(task[name].stored.sum(dtype=np.int64)) for name in ("train", "validation"))
    assert round(total / (60_000 * 784 * 255), 4) == 0.1307


@real
@pytest.mark.parametrize(("number", "name"), [(1, "bitrev"), (2, "random")])
def test_real_permuted(mnist, number, name):
    plain, permuted = (next(mnist[each]["test"].batches(16, seed=3)) for each in (0, number))
    assert torch.equal(permuted.x, plain.x[:, psmnist.pixel_order(name)])
    assert torch.equal(permuted.labels, plain.labels)


@real
def test_real_mnist_is_not_taken_for_fashion(tmp_path, monkeypatch):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path))
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte.gz must begin with the labels 9 0 0 .* got 5 0 4"):
        fashion.load(REAL / "mnist")


@real
def test_real_packed_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "cache"))
    for file in (REAL / "mnist").iterdir():
        raw = gzip.decompress(file.read_bytes())
        (tmp_path / file.name).write_bytes(gzip.compress(raw, 1 if "labels" in file.name else 0))
    assert len(smnist.load(tmp_path)["test"]) == 10_000


def test_bitrev():
    order = psmnist.pixel_order("bitrev")
    assert order[:9].tolist() == [0, 512, 256, 768, 128, 640, 384, 64, 576]
    assert sorted(order) == list(range(784))


def test_random():
    order = psmnist.pixel_order("random")
    assert order.tolist() == np.random.RandomState(92916).permutation(784).tolist()
    assert sorted(order) == list(range(784))


def test_unknown_permutation():
    with pytest.raises(ValueError, match="permutation must be one of bitrev, random, got 'hilbert'"):
        psmnist.load(permutation="hilbert")


@pytest.mark.parametrize("ending", ["", ".xz", ".bz2", ".zip"])
@pytest.mark.parametrize("folder", ["mnist", "smnist", "."])
def test_small(small, ending, folder):
    task = smnist.load(small(ending, folder))
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 50, "validation": 10, "test": 20}
    expected = np.frombuffer(images(20, 20), np.uint8, offset=16).reshape(20, 784, 1)
    np.testing.assert_array_equal(task["test"].stored, expected)
    assert task["test"].labels.tolist() == [i * 7 % 10 for i in range(20)]
    x = next(task["test"].batches(20)).x
    assert torch.equal(x, torch.from_numpy(expected.astype(np.float32)) * np.float32(1 / 255))


def test_small_with_dots_and_gz(small):
    assert len(fashion.load(small(".gz", "FashionMNIST/raw", dot=True))["test"]) == 20


def test_a_sub_folder_goes_before_the_folder(small):
    small("", ".")
    folder = small("", "fashion")
    (folder / "train-labels-idx1-ubyte").write_bytes(b"not taken")
    assert len(fashion.load(folder)["train"]) == 50


def test_an_official_name_with_other_contents(small, monkeypatch):
    folder = small(".gz")
    assert len(smnist.load(folder)["test"]) == 20
    monkeypatch.setattr(idx, "SIZES", {"train": 60, "t10k": 21})
    (folder / "mnist/t10k-labels-idx1-ubyte.gz").touch()
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz must hold 21 × 28 × 28 images, got 20"):
        smnist.load(folder)


def test_a_truncated_official_file_says_what_was_expected(small):
    folder = small(".gz")
    os.truncate(folder / "mnist/train-labels-idx1-ubyte.gz", 20)
    with pytest.raises(
        DataError, match=r"train-labels-idx1-ubyte.gz cannot be read, .* official file has 28881 bytes, this one 20\)"
    ):
        smnist.load(folder)


def test_another_set_is_not_taken_for_mnist(small):
    folder = small()
    raw = labels(60)
    (folder / "mnist/train-labels-idx1-ubyte").write_bytes(raw[:8] + bytes([8, 7, 0]) + raw[11:])
    with pytest.raises(DataError, match="train-labels-idx1-ubyte must begin with the labels 0 7 4 of mnist, got 8 7 0"):
        smnist.load(folder)


def no_network(*_):
    raise DataError("no network")


def test_prepared_files_that_are_gone_are_not_missed(small, monkeypatch):
    folder = small()
    first = smnist.load(folder)["test"].labels.tolist()
    file, *others = (folder / "mnist").iterdir()
    for each in others:
        each.unlink()
    # What is there in part is not passed over in silence.
    monkeypatch.setattr("resofire.data.download.fetch", no_network)
    with pytest.raises(DataError, match="no network"):
        smnist.load(folder)
    file.unlink()
    assert smnist.load(folder)["test"].labels.tolist() == first
    assert psmnist.load()["test"].labels.tolist() == first


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("train-images-idx3-ubyte", b"", r"must be an idx file of images \(magic number 2051\), got 0 bytes"),
        ("train-images-idx3-ubyte", images(60)[:10], "must begin with 16 bytes"),
        ("train-images-idx3-ubyte", labels(60), "must be an idx file of images .* got 2049"),
        ("train-images-idx3-ubyte", images(60)[:-1], r"must have 47056 bytes \(unpacked\), got 47055"),
        ("train-images-idx3-ubyte", images(60) + b"x", "must have 47056 bytes"),
        ("t10k-images-idx3-ubyte", images(19), "must hold 20 × 28 × 28 images, got 19 × 28 × 28"),
        ("t10k-labels-idx1-ubyte", labels(21), "must hold 20 labels, got 21"),
        ("t10k-labels-idx1-ubyte", labels(20)[:-1] + b"\x0a", "must hold labels from 0 to 9, got 10"),
        ("t10k-labels-idx1-ubyte", b"<html>404</html>", "must be an idx file of labels"),
    ],
)
def test_wrong_files_are_named(small, name, raw, said):
    folder = small()
    (folder / "mnist" / name).write_bytes(raw)
    with pytest.raises(DataError, match=f"{name} {said}"):
        smnist.load(folder)
    assert not [file for file in (folder / "cache").iterdir() if file.is_dir()]


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2", ".zip"])
@pytest.mark.parametrize("harm", ["cut", "flipped"])
def test_damaged_compression(tmp_path, ending, harm):
    file = write(tmp_path, "train-images-idx3-ubyte", images(60), ending)
    raw = bytearray(file.read_bytes())
    if harm == "cut":
        raw = raw[: len(raw) // 2]
    else:
        for place in range(len(raw) // 2, len(raw) // 2 + 40):
            raw[place] ^= 0xFF
    file.write_bytes(raw)
    with pytest.raises(DataError, match=f"train-images-idx3-ubyte{ending} cannot be read"):
        idx.read_images(file)


def test_a_changed_file_is_prepared_again(small):
    folder = small()
    first = smnist.load(folder)["test"].labels.tolist()
    (folder / "mnist/t10k-labels-idx1-ubyte").write_bytes(labels(20)[:8] + bytes(20))
    assert first != smnist.load(folder)["test"].labels.tolist() == [0] * 20


def test_official_files_are_known_in_advance():
    for module in (smnist, fashion):
        for name, file in module.FILES.items():
            assert isinstance(file.remote, Remote)
            assert file.remote.name == f"{file.names[0]}.gz"
            assert name in file.names[0]
