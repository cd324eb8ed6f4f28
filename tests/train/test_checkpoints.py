"""Checkpoints: two are kept, damaged ones are skipped, nothing in them is executed, a full disk costs nothing."""

import errno
import hashlib
import os
import pickle
from pathlib import Path

import pytest
import torch

from resofire.train import checkpoints

SIZE = 1000


def state(step: int) -> dict:
    torch.manual_seed(step)
    return {"step": step, "model": {"weight": torch.randn(SIZE)}, "best": None, "logs": {"since": [[0.5, 1.0]]}}


def names(run: Path) -> list[str]:
    """Everything in the folder of checkpoints, by its step or name."""
    files = sorted((run / checkpoints.FOLDER).iterdir())
    return [str(int(file.name[5:13])) if checkpoints.NAME.fullmatch(file.name) else file.name for file in files]


def put(run: Path, step: int, data: bytes) -> Path:
    """A file whose name tells the truth about what it holds."""
    file = run / checkpoints.FOLDER / f"step-{step:08d}-{hashlib.sha256(data).hexdigest()[:16]}.pt"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    return file


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


DAMAGES = {
    "a bit flipped": flip,
    "truncated": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "one byte long": lambda data: data + b"x",
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
}


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints of the steps 100 and 200."""
    checkpoints.write(tmp_path, state(100))
    checkpoints.write(tmp_path, state(200))
    return tmp_path


def test_the_newest_comes_back_as_it_was_written(run):
    checkpoint = checkpoints.newest(run)
    assert checkpoint is not None
    assert checkpoint.damaged == []
    assert checkpoint.file == checkpoints.listed(run)[0]
    expected = state(200)
    assert torch.equal(checkpoint.state["model"].pop("weight"), expected["model"].pop("weight"))
    assert checkpoint.state == {"format": checkpoints.FORMAT, **expected}


def test_two_are_kept(run):
    for step in (300, 1_000, 20_000):
        checkpoints.write(run, state(step))
    assert names(run) == ["1000", "20000"]
    assert [int(file.name[5:13]) for file in checkpoints.listed(run)] == [20_000, 1_000]


def test_one_of_the_same_step_takes_the_place_of_the_other(run):
    checkpoints.write(run, {**state(200), "best": {"accuracy": 0.5}})
    assert names(run) == ["100", "200"]
    assert checkpoints.newest(run).state["best"] == {"accuracy": 0.5}
    same = checkpoints.listed(run)
    checkpoints.write(run, {**state(200), "best": {"accuracy": 0.5}})
    assert checkpoints.listed(run) == same


def test_a_run_without_checkpoints_has_none(tmp_path):
    assert checkpoints.newest(tmp_path) is None
    assert checkpoints.listed(tmp_path) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_skipped(damage, run):
    newest, before = checkpoints.listed(run)
    newest.write_bytes(DAMAGES[damage](newest.read_bytes()))
    checkpoint = checkpoints.newest(run)
    assert checkpoint.file == before
    assert checkpoint.state["step"] == 100
    assert torch.equal(checkpoint.state["model"]["weight"], state(100)["model"]["weight"])
    assert checkpoint.damaged == [newest]


@pytest.mark.parametrize("damage", ["a bit flipped", "empty"])
def test_there_is_none_if_all_are_damaged(damage, run):
    for file in checkpoints.listed(run):
        file.write_bytes(DAMAGES[damage](file.read_bytes()))
    assert checkpoints.newest(run) is None
    assert len(checkpoints.listed(run)) == 2


def test_one_that_cannot_be_read_is_skipped(run):
    newest, before = checkpoints.listed(run)
    newest.unlink()
    newest.mkdir()
    assert checkpoints.newest(run).file == before


def test_a_damaged_one_does_not_take_the_place_of_a_good_one(run):
    newest = checkpoints.listed(run)[0]
    newest.write_bytes(flip(newest.read_bytes()))
    checkpoints.write(run, state(150))
    assert names(run) == ["100", "150"]
    assert checkpoints.newest(run).damaged == []


def test_other_files_are_left_alone(run):
    folder = run / checkpoints.FOLDER
    others = ("step-00000900.pt", "step-900-0123456789abcdef.pt", "step-00000900-XYZ.pt", "notes.txt", "best.pt",
              "step-00000900-0123456789abcdef.pt.bak")  # fmt: skip
    for name in others:
        (folder / name).write_bytes(b"mine")
    assert len(checkpoints.listed(run)) == 2
    assert checkpoints.newest(run).state["step"] == 200
    checkpoints.write(run, state(300))
    assert set(names(run)) == {"200", "300", *others}
    assert all((folder / name).read_bytes() == b"mine" for name in others)


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("way", ["pickle", "torch.save"])
def test_a_malicious_one_is_skipped_and_not_executed(way, run, tmp_path):
    folder, scratch = tmp_path / "was here", tmp_path / "scratch"
    content = {"format": checkpoints.FORMAT, "step": 300, "model": Malicious(folder)}
    if way == "pickle":
        scratch.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, scratch)
    file = put(run, 300, scratch.read_bytes())
    checkpoint = checkpoints.newest(run)
    assert checkpoint.state["step"] == 200
    assert checkpoint.damaged == [file]
    assert not folder.exists()
    # It would have been, had it been run.
    torch.load(file, weights_only=False) if way == "torch.save" else pickle.loads(file.read_bytes())
    assert folder.exists()


@pytest.mark.parametrize("content", [{"format": 0, "step": 300}, {"step": 300}, [1, 2], torch.zeros(3)], ids=str)
def test_one_of_another_format_is_skipped(content, run, tmp_path):
    torch.save(content, tmp_path / "scratch")
    file = put(run, 300, (tmp_path / "scratch").read_bytes())
    assert checkpoints.newest(run).damaged == [file]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_ones(function, run, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, function, full)
        with pytest.raises(OSError, match="No space left"):
            checkpoints.write(run, state(300))
    assert names(run) == ["100", "200"]
    checkpoint = checkpoints.newest(run)
    assert checkpoint.state["step"] == 200
    assert checkpoint.damaged == []
    checkpoints.write(run, state(300))
    assert names(run) == ["200", "300"]


def test_half_written_files_of_a_killed_process_are_removed(run):
    half = run / checkpoints.FOLDER / ".step-00000250-0123456789abcdef.pt.0123456789abcdef.part"
    half.write_bytes(b"half")
    assert checkpoints.newest(run).state["step"] == 200
    checkpoints.write(run, state(300))
    assert names(run) == ["200", "300"]
