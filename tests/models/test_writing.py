"""A file is replaced whole, or stays what it was."""

import os
from pathlib import Path

import pytest

from resofire import atomic, models
from resofire.atomic import write_atomic, write_folder
from resofire.models import ClassifierConfig, build


def test_a_file_is_replaced_whole(tmp_path):
    file = tmp_path / "x"
    write_atomic(file, b"one")
    write_atomic(file, b"two")
    assert file.read_bytes() == b"two"
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failure_in_the_middle_leaves_the_old_file(function, tmp_path, monkeypatch):
    def fails(*args, **kwargs):
        raise OSError(28, "No space left on device")

    config = ClassifierConfig(inputs=1, classes=2, features=2, depth=1)
    model, other = build(config), build(config)
    models.save(model, tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr(os, function, fails)
    with pytest.raises(OSError, match="No space left"):
        models.save(other, tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_an_interruption_in_the_middle_leaves_the_old_file(tmp_path, monkeypatch):
    def interrupts(stream):
        raise KeyboardInterrupt

    file = tmp_path / "x"
    write_atomic(file, b"one")
    monkeypatch.setattr(os, "fsync", interrupts)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(file, b"two")
    assert file.read_bytes() == b"one"
    assert [*tmp_path.iterdir()] == [file]


def test_a_new_folder_appears_with_all_its_files_or_not_at_all(tmp_path, monkeypatch):
    folder, files = tmp_path / "x.h", {"a": b"1", "b": b"2"}
    second, write = [], os.fsync

    def fails_once(descriptor):
        second.append(descriptor)
        if len(second) == 2:
            raise OSError(28, "No space left on device")
        return write(descriptor)

    monkeypatch.setattr(os, "fsync", fails_once)
    with pytest.raises(OSError, match="No space left"):
        write_folder(folder, files)
    assert not list(tmp_path.iterdir())
    write_folder(folder, files)
    assert [*tmp_path.iterdir()] == [folder]
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == files


def test_in_a_folder_that_exists_only_these_files_are_replaced(tmp_path):
    (tmp_path / "mine").write_text("kept")
    write_folder(tmp_path, {"a": b"1"})
    write_folder(tmp_path, {"a": b"2"})
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"mine": b"kept", "a": b"2"}
    for target in (tmp_path / "mine", tmp_path / "link"):
        if target.name == "link":
            target.symlink_to(tmp_path / "nowhere")
        with pytest.raises(OSError, match="it exists and is not a folder"):
            write_folder(target, {"a": b"3"})


def test_nobody_can_place_a_link_where_a_file_is_begun(tmp_path, monkeypatch):
    victim, begun, opened = tmp_path / "victim", [], os.open
    victim.write_text("precious")

    def watched(path, flags, mode=0o777):
        if Path(path).name.endswith(".part"):
            begun.append(Path(path))
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", watched)
    for _ in range(3):
        write_atomic(tmp_path / "file", b"new")
    assert len({*begun}) == 3
    # Even a name that somebody guessed is not written through.
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda count: "guessed")
    (tmp_path / ".file.guessed.part").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "file", b"newer")
    assert victim.read_text() == "precious"
    assert (tmp_path / "file").read_bytes() == b"new"
