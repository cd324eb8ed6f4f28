"""Damaged and hostile NIR files, as in test_hostile; and tricks of HDF5."""

import numpy as np
import pytest
from folds import CASES, given
from hostile import mutated

from resofire.models.storage import StorageError


@pytest.fixture
def nir():
    return pytest.importorskip("nir", reason="the package nir is not installed")


def test_nir_files(nir, folded, tmp_path, watched, monkeypatch):
    """Some of these make libhdf5 loop for ever or crash: they are looked at in another process, here all in one go."""
    from resofire.deploy import hdf5
    from resofire.deploy.formats.nir import Player, read, write

    write(folded, tmp_path / "good.nir")
    good, files = (tmp_path / "good.nir").read_bytes(), []
    for seed in range(200):
        files.append(tmp_path / f"{seed}.nir")
        files[-1].write_bytes(mutated(good, seed))
    said = dict(zip(files, hdf5.faults(files, limit=1 << 28, seconds=1), strict=True))
    assert sum(each is None for each in said.values()) > 20
    monkeypatch.setattr(hdf5, "faults", lambda asked, **_: [said[file] for file in asked])
    x, ran = given(CASES["soft prf"], 3).numpy(), 0
    for file in files:
        found = watched(lambda file=file: read(file), file)
        if found is not None:
            ran += 1
            with np.errstate(all="ignore"):
                Player(found).play(x)
    assert 20 < ran < 150


def hdf5_file(tmp_path, fill):
    h5py = pytest.importorskip("h5py", reason="the package h5py is not installed")
    file = tmp_path / "hostile.nir"
    with h5py.File(file, "w") as held:
        node = held.create_group("node")
        node["type"] = "NIRGraph"
        fill(h5py, node)
    return file


def elsewhere(h5py, node):
    node["nodes"] = h5py.ExternalLink("/etc/passwd", "/")


def soft(h5py, node):
    node["nodes"] = h5py.SoftLink("/node")


def itself(h5py, node):
    node["nodes"] = node


def outside(h5py, node):
    node.create_dataset("edges", (100,), "u1", external=[("/etc/hostname", 0, 100)])


def unwritten(h5py, node):
    node.create_dataset("edges", (1 << 40,), "f4", chunks=(1 << 10,))


def packed(h5py, node):
    node.create_dataset("edges", data=np.zeros(1 << 27, np.uint8), compression="gzip", chunks=(1 << 24,))


def compound(h5py, node):
    node.create_dataset("edges", data=np.zeros(3, [("a", "f4"), ("b", "i4")]))


def deep(h5py, node):
    for _ in range(20):
        node = node.create_group("nodes")


@pytest.mark.parametrize(
    ("fill", "words"),
    [
        (elsewhere, "'nodes' is a link to somewhere else"),
        (soft, "'nodes' is a link to somewhere else"),
        (itself, "nested too deep or in themselves"),
        (outside, "'edges' is no array in this file"),
        (unwritten, "'edges' claims 4398046511104 bytes"),
        (packed, "its arrays take more than"),
        (compound, "'edges' must hold numbers or text"),
        (deep, "nested too deep"),
    ],
)
def test_tricks_of_hdf5(fill, words, nir, tmp_path):
    from resofire.deploy.formats.nir import read

    file = hdf5_file(tmp_path, fill)
    with pytest.raises(StorageError, match=words) as caught:
        read(file, limit=1 << 26)
    assert str(file) in str(caught.value)


def test_a_nir_node_of_a_bad_number(nir, folded, tmp_path):
    from resofire.deploy.formats.nir import graph, read

    made = graph(folded)
    made.nodes["head"].bias = np.array([1, np.nan, 1], np.float32)
    nir.write(tmp_path / "bad.nir", made)
    with pytest.raises(StorageError, match=r"head\.bias must be finite, got NaN or Inf"):
        read(tmp_path / "bad.nir")
