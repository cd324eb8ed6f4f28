"""Prepared data on disk: made once, complete or not at all, by one process at a time."""

import errno
import json
import multiprocessing
import os
import signal

import numpy as np
import pytest

from resofire.data import DataError, store
from resofire.data.store import cache_dir, earlier, locked, prepared


def make():
    return {"x": np.arange(1000, dtype=np.int16), "empty": np.zeros((0, 3))}, {"classes": 2}


def must_not_make():
    raise AssertionError("it was there already")


def folders():
    return [each for each in cache_dir().iterdir() if each.is_dir()]


def test_the_second_time_it_is_opened_not_made():
    arrays, facts = prepared("set", {"version": 1, "seed": 0}, make)
    again, same = prepared("set", {"version": 1, "seed": 0}, must_not_make)
    assert facts == same == {"classes": 2}
    assert isinstance(again["x"], np.memmap)
    for name in arrays:
        assert np.array_equal(arrays[name], again[name])
    # The name of the folder is a hash of the settings: another one would lose what users have prepared.
    assert [each.name for each in folders()] == ["set-8e4b44df1a00"]
    manifest = json.loads((folders()[0] / "manifest.json").read_text())
    assert manifest["settings"] == {"version": 1, "seed": 0}
    assert len(manifest["arrays"]["x"]["sha256"]) == 64
    for settings in ({"version": 2, "seed": 0}, {"version": 1, "seed": 1}):
        with pytest.raises(AssertionError, match="already"):
            prepared("set", settings, must_not_make)


@pytest.mark.parametrize("harm", ["truncated", "no manifest", "half a manifest", "missing"])
def test_what_is_incomplete_is_made_again(harm):
    prepared("set", {"version": 1}, make)
    (folder,) = folders()
    if harm == "truncated":
        os.truncate(folder / "x.npy", 500)
    elif harm == "no manifest":
        (folder / "manifest.json").unlink()
    elif harm == "half a manifest":
        (folder / "manifest.json").write_text("{")
    else:
        (folder / "x.npy").unlink()
    arrays, _ = prepared("set", {"version": 1}, make)
    assert arrays["x"].sum() == 499500


def damages(folder):
    """Files of a prepared set with other contents, by what is wrong with them."""
    array, manifest = (folder / "x.npy").read_bytes(), json.loads((folder / "manifest.json").read_text())
    header = array[:128].replace(b"(1000,)", b"(5000,)") + array[128:]
    yield "x.npy", header, "bytes"
    yield "x.npy", array.replace(b"<i2", b"<u2", 1), "header that does not match"
    yield "x.npy", array.replace(b"{", b"[", 1), "header of an array is damaged"
    yield "x.npy", array[:500] + b"?" + array[501:], "does not match its checksum"
    yield "manifest.json", b"[1]", "malformed"
    yield "manifest.json", b"[" * 100_000, "not JSON"
    for part, value in (("arrays", []), ("arrays", {"../x": {}}), ("facts", None), ("facts", {}), ("arrays", {})):
        yield "manifest.json", json.dumps(manifest | {part: value}).encode(), "its manifest"
    del manifest["sha256"]
    yield "manifest.json", json.dumps(manifest).encode(), "no checksum"


def test_what_is_damaged_is_told_and_made_again(subtests, capsys):
    prepared("set", {"version": 1}, make)
    (folder,) = folders()
    for name, raw, reason in list(damages(folder)):
        with subtests.test(name, reason=reason):
            (folder / name).write_bytes(raw)
            assert earlier("set", {"version": 1}) is None
            capsys.readouterr()
            arrays, facts = prepared("set", {"version": 1}, make)
            assert (arrays["x"].sum(), facts) == (499500, {"classes": 2})
            output = capsys.readouterr().err
            assert reason in output
            assert output.endswith("preparing set again\n")
            assert output.count("\n") == 1


def test_sets_of_earlier_versions_are_opened():
    prepared("set", {"version": 1}, make)
    (folder,) = folders()
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]
    for entry in manifest["arrays"].values():
        del entry["dtype"], entry["shape"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert prepared("set", {"version": 1}, must_not_make)[0]["x"].sum() == 499500


def test_what_cannot_be_read_is_not_deleted(monkeypatch):
    prepared("set", {"version": 1}, make)

    def busy(file, **options):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(np, "load", busy)
        with pytest.raises(DataError, match=r"set-.* cannot be read: Too many open files"):
            prepared("set", {"version": 1}, make)
        assert earlier("set", {"version": 1}) is None
    prepared("set", {"version": 1}, must_not_make)


def test_an_interrupted_preparation_leaves_nothing():
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepared("set", {"version": 1}, stop)
    assert folders() == []
    assert prepared("set", {"version": 1}, make)[0]["x"].shape == (1000,)


def test_the_cache_may_be_named_from_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RESOFIRE_CACHE", "~/mine")
    assert cache_dir() == tmp_path / "mine"


def test_write_errors_are_one_sentence(tmp_path, monkeypatch):
    def full(file, array):
        file.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(DataError, match=r"cannot be written \(No space left on device\)"):
            prepared("set", {"version": 1}, make)
    assert [each.suffix for each in cache_dir().iterdir()] == [".lock"]
    (tmp_path / "file").touch()
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        DataError, match=r"file/cache cannot be written \(.*\): name another folder with RESOFIRE_CACHE"
    ):
        prepared("set", {"version": 1}, make)


def test_an_earlier_set_is_the_newest_of_the_same_settings():
    for number, when in ((1, 30), (2, 50), (3, 40)):
        prepared("set", {"version": 1, "sources": [number]}, lambda number=number: ({}, {"number": number}))
        (manifest,) = [
            each for each in cache_dir().glob("set-*/manifest.json") if f'"number": {number}' in each.read_text()
        ]
        os.utime(manifest, (when, when))
    assert earlier("set", {"version": 1}) == ({}, {"number": 2})
    assert earlier("set", {"version": 2}) is None
    assert earlier("other", {"version": 1}) is None


def _prepare(folder, marks, barrier):
    os.environ["RESOFIRE_CACHE"] = folder

    def marked():
        marks.put(os.getpid())
        return make()

    barrier.wait(30)
    arrays, _ = prepared("set", {"version": 1}, marked)
    assert arrays["x"].sum() == 499500


def test_two_processes_at_once_make_it_once():
    context = multiprocessing.get_context("spawn")
    marks, barrier = context.Queue(), context.Barrier(2)
    workers = [context.Process(target=_prepare, args=(str(cache_dir()), marks, barrier)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    marks.get(timeout=5)
    assert marks.empty()


def _hold(file, acquired):
    with locked(file):
        acquired.set()
        signal.pause()


def test_a_lock_ends_with_its_process(tmp_path):
    context = multiprocessing.get_context("spawn")
    acquired = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path / "lock", acquired))
    holder.start()
    assert acquired.wait(60)
    lock = store.FileLock(tmp_path / "lock")
    with pytest.raises(TimeoutError):
        lock.acquire(timeout=0.1)
    holder.kill()
    holder.join(60)
    with lock.acquire(timeout=5):
        pass


def test_a_large_array_is_on_disk(monkeypatch):
    assert not isinstance(store.empty_bytes((3, 5)), np.memmap)
    monkeypatch.setattr(store, "IN_MEMORY", 15)
    array = store.empty_bytes((3, 5))
    assert isinstance(array, np.memmap)
    array[:] = 7
    assert array.sum() == 105
    assert list(cache_dir().iterdir()) == []
