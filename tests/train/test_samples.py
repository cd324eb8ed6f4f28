"""Sample sequences beside a network: those of the package, and what works with them alone."""

import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from kinds import task

import resofire
from resofire import cli, data, models, train
from resofire.commands.runs import sequences
from resofire.data.task import Split
from resofire.train.samples import MAX_BYTES, SAMPLES

REAL = os.environ.get("RESOFIRE_DATA")
MNIST = [name for name in models.shipped() if "mnist" in name]
# Networks whose training accuracy is lower (72, 59 and 44 %), less three standard errors of 80 answers.
LEAST = {"image-small": 0.57, "listops": 0.42, "listops-small": 0.27}
WEIGHTS = Path(resofire.__file__).parent / "weights"


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """No data set, no cache and no network."""

    def refused(*arguments, **named):
        raise OSError("no network")

    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RESOFIRE_DATA", raising=False)
    monkeypatch.setattr(socket, "socket", refused)
    monkeypatch.setattr(socket, "create_connection", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.chdir(tmp_path)


def inputs(split, rows):
    return [split.batch(np.array([row])).x[0].numpy() for row in rows]


@pytest.mark.parametrize("name", models.shipped())
def test_every_shipped_network_has_some(name):
    samples = train.load_samples(models.find(name))
    split, config = samples["train"], resofire.pretrained(name).config
    assert (WEIGHTS / name / SAMPLES).stat().st_size <= MAX_BYTES
    assert len(split) == 80
    assert split.warps is None
    assert samples.classes == config.classes == len(samples.class_names)
    assert (samples.inputs, samples.vocabulary) == (config.inputs, config.vocabulary)
    assert len({x.tobytes() for x in inputs(split, range(80))}) == 80
    batch = split.batch(np.arange(80))
    with torch.no_grad():
        answers = resofire.pretrained(name)(batch.x, cu_seqlens=batch.cu_seqlens).argmax(-1)
    assert (answers == batch.labels).float().mean() > LEAST.get(name, 0.9)


def test_they_are_the_training_sequences_that_export_took_before(subtests, tmp_path, monkeypatch):
    names = ["digits"]
    if REAL is not None and (Path(REAL) / "mnist").is_dir():
        names += MNIST
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path))
    for name in names:
        with subtests.test(name):
            folder = models.find(name)
            x, labels = sequences(train.load_task(folder, REAL)["train"], 80)
            kept, kept_labels = sequences(train.load_samples(folder)["train"], 80, shuffle=False)
            np.testing.assert_array_equal(kept, x)
            np.testing.assert_array_equal(kept_labels, labels)


def test_the_package_stays_small():
    files = [file for file in WEIGHTS.parent.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert sum(file.stat().st_size for file in files) < 15e6


def test_export_measure_and_stream_without_data_or_network(offline, tmp_path, capsys):
    with pytest.raises(data.DataError):
        train.load_task(models.find("smnist"))
    to = "c" if shutil.which("cc") else "safetensors"
    assert cli.main(["export", "smnist", "--to", to, "--samples", "2", "--out", str(tmp_path / "n")]) == 0
    assert cli.main(["measure", "smnist", "--batches", "1", "--json"]) == 0
    captured = capsys.readouterr()
    assert '"split": "samples"' in captured.out
    assert captured.err.startswith("resofire: measured on the 80 sample sequences of smnist: ")
    assert captured.err.count("\n") == 1
    (tmp_path / "review.txt").write_text("What a terrible, boring film.")
    assert cli.main(["stream", "text-small", str(tmp_path / "review.txt"), "--text"]) == 0
    assert capsys.readouterr().out.startswith("step 29: class negative (+")
    assert cli.main(["evaluate", "smnist"]) == 2
    assert cli.main(["export", "smnist", "--to", "safetensors", "--samples", "81"]) == 2
    assert "--samples must be at most 80, the sample sequences of smnist, got 81" in capsys.readouterr().err


@pytest.mark.deep
@pytest.mark.parametrize("name", models.shipped())
def test_every_shipped_network_without_data_or_network(name, offline, tmp_path, capsys):
    model = resofire.pretrained(name)
    x, _ = sequences(train.load_samples(models.find(name))["train"], 1, shuffle=False)
    np.save("x.npy", x[0])
    assert cli.main(["measure", name, "--batches", "1", "--json"]) == 0
    assert cli.main(["export", name, "--to", "safetensors", "--samples", "2"]) == 0
    capsys.readouterr()
    commands = [["stream", name, "x.npy"], *([["export", name, "--to", "c"]] if shutil.which("cc") else [])]
    for words in commands:
        assert cli.main(words) == (2 if model.config.bidirectional else 0), words
        captured = capsys.readouterr()
        if model.config.bidirectional:
            assert "the network is bidirectional: it needs whole sequences and cannot be " in captured.err
            assert captured.err.count("\n") == 1
    assert (tmp_path / f"{name}-c").exists() != model.config.bidirectional


def test_samples_of_a_run_of_your_own(tmp_path):
    for kind in ("classifier", "per-step"):
        own = task(kind)
        train.save_samples(own, tmp_path, 3)
        kept = train.load_samples(tmp_path)
        expected, _ = sequences(own["train"], 3)
        for before, after in zip(expected, sequences(kept["train"], 3, shuffle=False)[0], strict=True):
            np.testing.assert_array_equal(before, after)
        assert (kept.name, kept.classes, kept.per_step) == (own.name, own.classes, own.per_step)
    assert train.load_samples(tmp_path / "none") is None
    with pytest.raises(ValueError, match="count must be an integer from 1 to 80, got 81"):
        train.save_samples(own, tmp_path, 81)
    long = Split(np.zeros((9, 40_000, 1), np.float32), np.zeros(9, np.int64), kind="values")
    with pytest.raises(train.RunError, match="samples must fit into 100,000 bytes"):
        train.save_samples(replace(own, splits={"train": long}), tmp_path)
    (tmp_path / SAMPLES).write_bytes(b"PK")
    with pytest.raises(train.RunError, match=r"samples\.npz cannot be read"):
        train.load_samples(tmp_path)
