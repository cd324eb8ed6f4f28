"""Prepared data on disk: made once, whole or not at all, by one process at a time."""

import errno
import json
import multiprocessing
import os

import numpy as np
import pytest

from resofire.data import store
from resofire.data.store import DataError, cache_dir, earlier, prepared


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "cache"))


def make():
    return {"x": np.arange(1000, dtype=np.int16), "empty": np.zeros((0, 3))}, {"classes": 2}


def must_not_make():
    raise AssertionError("it was there already")


def folder(name="set"):
    (found,) = [each for each in cache_dir().iterdir() if each.is_dir() and each.name.startswith(name)]
    return found


def test_the_second_time_it_is_opened_not_made():
    arrays, facts = prepared("set", {"version": 1, "seed": 0}, make)
    again, same = prepared("set", {"version": 1, "seed": 0}, must_not_make)
    assert facts == same == {"classes": 2}
    assert isinstance(again["x"], np.memmap)
    for name in arrays:
        assert np.array_equal(arrays[name], again[name])
    manifest = json.loads((folder() / "manifest.json").read_text())
    assert manifest["settings"] == {"version": 1, "seed": 0}
    assert len(manifest["arrays"]["x"]["sha256"]) == 64


@pytest.mark.parametrize("settings", [{"version": 2, "seed": 0}, {"version": 1, "seed": 1}], ids=str)
def test_other_settings_are_another_set(settings):
    prepared("set", {"version": 1, "seed": 0}, make)
    with pytest.raises(AssertionError, match="already"):
        prepared("set", settings, must_not_make)


@pytest.mark.parametrize("harm", ["truncated", "no manifest", "half a manifest", "missing"])
def test_what_is_not_whole_is_made_again(harm):
    prepared("set", {"version": 1}, make)
    where = folder()
    if harm == "truncated":
        os.truncate(where / "x.npy", 500)
    elif harm == "no manifest":
        (where / "manifest.json").unlink()
    elif harm == "half a manifest":
        (where / "manifest.json").write_text("{")
    else:
        (where / "x.npy").unlink()
    arrays, _ = prepared("set", {"version": 1}, make)
    assert arrays["x"].sum() == 499500


def test_an_interrupted_preparation_leaves_nothing_that_counts():
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepared("set", {"version": 1}, stop)
    assert [each for each in cache_dir().iterdir() if each.is_dir()] == []
    assert prepared("set", {"version": 1}, make)[0]["x"].shape == (1000,)


def test_the_folder_may_be_named_from_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RESOFIRE_CACHE", "~/mine")
    assert cache_dir() == tmp_path / "mine"


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        DataError, match=r"file/cache cannot be written \(.*\): name another folder with RESOFIRE_CACHE"
    ):
        prepared("set", {"version": 1}, make)


def test_a_full_disk_is_one_sentence_and_nothing_stays(monkeypatch):
    def full(file, array):
        file.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\)"):
        prepared("set", {"version": 1}, make)
    assert [each.suffix for each in cache_dir().iterdir()] == [".lock"]


def test_an_earlier_set_is_the_newest_of_the_same_settings():
    for number, when in ((1, 30), (2, 50), (3, 40)):
        prepared("set", {"version": 1, "sources": [number]}, lambda number=number: ({}, {"number": number}))
        (found,) = [
            each for each in cache_dir().glob("set-*/manifest.json") if f'"number": {number}' in each.read_text()
        ]
        os.utime(found, (when, when))
    assert earlier("set", {"version": 1}) == ({}, {"number": 2})
    assert earlier("set", {"version": 2}) is None
    assert earlier("other", {"version": 1}) is None


def _prepare_slowly(folder, marks, barrier):
    os.environ["RESOFIRE_CACHE"] = folder

    def slow():
        marks.put(os.getpid())
        return make()

    barrier.wait(30)
    arrays, _ = prepared("set", {"version": 1}, slow)
    assert arrays["x"].sum() == 499500


def test_two_processes_at_once_make_it_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    marks, barrier = context.Queue(), context.Barrier(2)
    workers = [
        context.Process(target=_prepare_slowly, args=(str(tmp_path / "cache"), marks, barrier)) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    marks.get(timeout=5)
    assert marks.empty()


def test_much_room_is_on_disk(tmp_path, monkeypatch):
    assert not isinstance(store.room((3, 5)), np.memmap)
    monkeypatch.setattr(store, "IN_MEMORY", 15)
    found = store.room((3, 5))
    assert isinstance(found, np.memmap)
    found[1] = 7
    assert found.sum() == 35
    assert list((tmp_path / "cache").iterdir()) == []
