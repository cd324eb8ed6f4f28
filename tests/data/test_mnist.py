"""MNIST and Fashion-MNIST: the real files where RESOFIRE_DATA has them, small and damaged ones; the permutations."""

import bz2
import gzip
import lzma
import os
import zipfile

import numpy as np
import pytest
import torch

from resofire.data import DataError, load, mnist

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
    """A function that writes sets of 60 and 20 images."""
    monkeypatch.setattr(mnist, "SIZES", {"train": 60, "t10k": 20})
    monkeypatch.setattr(mnist, "VALIDATION", 10)
    monkeypatch.setattr(mnist, "FIRST", dict.fromkeys(mnist.FIRST, (0, 7, 4)))

    def files(ending="", folder="mnist", dot=False):
        mark = "." if dot else "-"
        for part, count in mnist.SIZES.items():
            write(tmp_path / folder, f"{part}-images{mark}idx3-ubyte", images(count, count), ending)
            write(tmp_path / folder, f"{part}-labels{mark}idx1-ubyte", labels(count), ending)
        return tmp_path

    return files


@pytest.fixture(scope="module")
def tasks(real, tmp_path_factory):
    folder = real("mnist")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RESOFIRE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return {name: load(name, folder) for name in ("smnist", "psmnist-bitrev", "psmnist-random")}


def test_real_sizes_values_and_labels(tasks):
    task = tasks["smnist"]
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


def test_real_permuted(tasks):
    for permutation in ("bitrev", "random"):
        plain, permuted = (
            next(tasks[name]["test"].batches(16, seed=3)) for name in ("smnist", f"psmnist-{permutation}")
        )
        assert torch.equal(permuted.x, plain.x[:, mnist.pixel_order(permutation)])
        assert torch.equal(permuted.labels, plain.labels)


def test_real_mnist_is_not_taken_for_fashion(real):
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte.gz must begin with the labels 9 0 0 .* got 5 0 4"):
        load("fashion", real("mnist") / "mnist")


def test_real_repacked(real, tmp_path):
    for file in (real("mnist") / "mnist").iterdir():
        raw = gzip.decompress(file.read_bytes())
        (tmp_path / file.name).write_bytes(gzip.compress(raw, 1 if "labels" in file.name else 0))
    assert len(load("smnist", tmp_path)["test"]) == 10_000


def test_permutations():
    order = mnist.pixel_order("bitrev")
    assert order[:9].tolist() == [0, 512, 256, 768, 128, 640, 384, 64, 576]
    assert sorted(order) == sorted(mnist.pixel_order("random")) == list(range(784))
    assert mnist.pixel_order("random")[:5].tolist() == [319, 576, 323, 107, 355]
    with pytest.raises(ValueError, match="permutation must be one of bitrev, random, got 'hilbert'"):
        mnist.psmnist(permutation="hilbert")


@pytest.mark.parametrize(("ending", "folder"), [("", "mnist"), (".xz", "smnist"), (".zip", ".")])
def test_small(small, ending, folder):
    task = load("smnist", small(ending, folder))
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 50, "validation": 10, "test": 20}
    expected = np.frombuffer(images(20, 20), np.uint8, offset=16).reshape(20, 784, 1)
    np.testing.assert_array_equal(task["test"].stored, expected)
    assert task["test"].labels.tolist() == [i * 7 % 10 for i in range(20)]
    x = next(task["test"].batches(20)).x
    assert torch.equal(x, torch.from_numpy(expected.astype(np.float32)) * np.float32(1 / 255))


def test_small_with_dots_and_gz(small):
    assert len(load("fashion", small(".gz", "FashionMNIST/raw", dot=True))["test"]) == 20


def test_a_sub_folder_goes_before_the_folder(small):
    small("", ".")
    folder = small("", "fashion")
    (folder / "train-labels-idx1-ubyte").write_bytes(b"not taken")
    assert len(load("fashion", folder)["train"]) == 50


def test_an_official_name_with_other_contents(small, monkeypatch):
    folder = small(".gz")
    assert len(load("smnist", folder)["test"]) == 20
    monkeypatch.setattr(mnist, "SIZES", {"train": 60, "t10k": 21})
    (folder / "mnist/t10k-labels-idx1-ubyte.gz").touch()
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz must hold 21 × 28 × 28 images, got 20"):
        load("smnist", folder)


def test_a_truncated_official_file_says_what_was_expected(small):
    folder = small(".gz")
    os.truncate(folder / "mnist/train-labels-idx1-ubyte.gz", 20)
    with pytest.raises(
        DataError, match=r"train-labels-idx1-ubyte.gz cannot be read, .* official file has 28881 bytes, this one 20\)"
    ):
        load("smnist", folder)


def test_another_set_is_not_taken_for_mnist(small):
    folder = small()
    raw = labels(60)
    (folder / "mnist/train-labels-idx1-ubyte").write_bytes(raw[:8] + bytes([8, 7, 0]) + raw[11:])
    with pytest.raises(DataError, match="train-labels-idx1-ubyte must begin with the labels 0 7 4 of mnist, got 8 7 0"):
        load("smnist", folder)


def no_network(*_):
    raise DataError("no network")


def test_prepared_files_that_are_gone_are_not_missed(small, monkeypatch):
    folder = small()
    first = load("smnist", folder)["test"].labels.tolist()
    file, *others = (folder / "mnist").iterdir()
    for each in others:
        each.unlink()
    # What is there in part is not passed over in silence.
    monkeypatch.setattr("resofire.data.download.fetch", no_network)
    with pytest.raises(DataError, match="no network"):
        load("smnist", folder)
    file.unlink()
    assert load("smnist", folder)["test"].labels.tolist() == first
    assert load("psmnist-bitrev")["test"].labels.tolist() == first


WRONG_FILES = [
    ("train-images-idx3-ubyte", b"", r"must be an idx file of images \(magic number 2051\), got 0 bytes"),
    ("train-images-idx3-ubyte", images(60)[:10], "must begin with 16 bytes"),
    ("train-images-idx3-ubyte", labels(60), "must be an idx file of images .* got 2049"),
    ("train-images-idx3-ubyte", images(60)[:-1], r"must have 47056 bytes \(unpacked\), got 47055"),
    ("train-images-idx3-ubyte", images(60) + b"x", "must have 47056 bytes"),
    ("t10k-images-idx3-ubyte", images(19), "must hold 20 × 28 × 28 images, got 19 × 28 × 28"),
    ("t10k-labels-idx1-ubyte", labels(21), "must hold 20 labels, got 21"),
    ("t10k-labels-idx1-ubyte", labels(20)[:-1] + b"\x0a", "must hold labels from 0 to 9, got 10"),
    ("t10k-labels-idx1-ubyte", b"<html>404</html>", "must be an idx file of labels"),
]


def test_wrong_files_are_named(subtests, small):
    for name, raw, message in WRONG_FILES:
        with subtests.test(message):
            folder = small()
            (folder / "mnist" / name).write_bytes(raw)
            with pytest.raises(DataError, match=f"{name} {message}"):
                load("smnist", folder)
            assert not [file for file in (folder / "cache").iterdir() if file.is_dir()]


def test_damaged_compression(subtests, tmp_path):
    for harm in ["cut", "flipped"]:
        for ending in [".gz", ".xz", ".bz2", ".zip"]:
            with subtests.test(harm, ending=ending):
                file = write(tmp_path, "train-images-idx3-ubyte", images(60), ending)
                raw = bytearray(file.read_bytes())
                if harm == "cut":
                    raw = raw[: len(raw) // 2]
                else:
                    for place in range(len(raw) // 2, len(raw) // 2 + 40):
                        raw[place] ^= 0xFF
                file.write_bytes(raw)
                with pytest.raises(DataError, match=f"train-images-idx3-ubyte{ending} cannot be read"):
                    mnist.read_images(file, 60)


def test_a_changed_file_is_prepared_again(small):
    folder = small()
    first = load("smnist", folder)["test"].labels.tolist()
    (folder / "mnist/t10k-labels-idx1-ubyte").write_bytes(labels(20)[:8] + bytes(20))
    assert first != load("smnist", folder)["test"].labels.tolist() == [0] * 20


def test_official_files_are_known_in_advance():
    for raw in (mnist.MNIST, mnist.FASHION):
        for name, file in raw.files.items():
            assert file.remote.url.startswith("https://")
            assert file.remote.name == f"{file.names[0]}.gz"
            assert name in file.names[0]
