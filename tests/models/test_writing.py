"""A file is replaced whole, or stays what it was."""

import os

import pytest

from resofire import models
from resofire.atomic import write_atomic
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
