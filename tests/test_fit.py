"""resofire fit: one command from a file to a run that every other command takes."""

import json
import re

import numpy as np
import pytest

from resofire import models, train
from resofire.cli import main

STATES = ("fault", "idle, warm")


def signals(count, seed):
    """Vibrations around 20.5 with a slow or a fast wave, of 30 to 40 steps, and their states."""
    random = np.random.RandomState(seed)
    rows = []
    for number in range(count):
        steps = np.arange(random.randint(30, 41))
        wave = np.sin(steps * (0.9 if number % 2 else 0.2) + random.rand()) + 0.1 * random.randn(len(steps))
        rows.append((STATES[number % 2], 20.5 + 0.01 * wave))
    return rows


def write(file, rows):
    lines = [f'"{state}";' + ";".join(f"{value:.5f}" for value in values) for state, values in rows]
    file.write_text("\n".join(lines))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    write(folder / "train.csv", signals(60, 0))
    write(folder / "test.csv", signals(20, 1))
    return folder


def test_fit_and_every_command_after_it(run, capsys, monkeypatch):
    monkeypatch.chdir(run)
    size = ["--epochs", "12", "--features", "16", "--depth", "1"]
    assert main(["fit", "train.csv", "--test", "test.csv", "--minutes", "60", "--out", "net", *size]) == 0
    out = capsys.readouterr().out
    assert "train: 80 sequences of 30 to 40 steps in 1 channel, 2 classes\n  train 60, test 20\n" in out
    assert "  classes   fault 40, idle, warm 40\n  missing   none\n" in out
    assert "  network   1 blocks of 16 channels, causal, " in out
    assert re.search(r"by class of test\n +[\d.]+ %  \d+ of 10  fault\n +[\d.]+ %  \d+ of 10  idle, warm\n", out)
    assert re.fullmatch(r"  test  [\d.]+ %  \d+ of 20", out.splitlines()[-1])
    record = train.read("net")
    assert record["source"]["path"] == str(run / "train.csv")
    assert record["config"]["steps"] == 12 * (60 // record["config"]["batch"])
    result = json.loads((run / "net" / "result.json").read_text())
    assert result["accuracy"]["test"] >= 0.9
    # The run has its data: the files may go.
    (run / "train.csv").rename(run / "gone.csv")
    assert main(["evaluate", "net"]) == 0
    assert "the same as the run recorded" in capsys.readouterr().out
    write(run / "other.csv", signals(7, 2)[1::2])
    assert main(["evaluate", "net", "--data", "other.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["correct"]["test"][1] == 3
    assert main(["measure", "net", "--json"]) == 0
    assert main(["export", "net", "--to", "c", "--out", "c", "--samples", "4"]) == 0
    assert "idle, warm" in (run / "c" / "c.h").read_text()
    (run / "signal.txt").write_text("\n".join(f"{value}" for value in signals(2, 3)[1][1]))
    capsys.readouterr()
    assert main(["stream", "net", "signal.txt"]) == 0
    assert "class idle, warm (" in capsys.readouterr().out
    assert models.load("net").config.class_names == STATES
    (run / "gone.csv").rename(run / "train.csv")


def test_a_run_of_large_files_reads_them_again(run, capsys, monkeypatch):
    monkeypatch.setattr(train.source, "LIMIT", 0)
    monkeypatch.chdir(run)
    fit = ["fit", "train.csv", "--epochs", "1", "--features", "8", "--depth", "1", "--out", "large"]
    assert main(fit) == 0
    assert not (run / "large" / "data.npz").exists()
    assert main(["evaluate", "large"]) == 0
    assert "the same as the run recorded" in capsys.readouterr().out


WRONG = [
    (["gone.csv"], "from_path: path must be a file or folder, got gone.csv, which does not exist"),
    (["train.csv", "--minutes", "0"], "fit: --minutes must be a positive number, got 0"),
    (["train.csv", "--missing", "drop"], "from_path: missing must be one of refuse, zero, previous, interpolate, got 'drop'"),
    (["train.csv", "--test", "2"], "from_path: test must be (x, y) or a fraction from 0 to below 1, got 2.0"),
    (["train.csv", "--label", "state"], "from_path: label must be a column of train.csv ("),
    (["train.csv", "--features", "0"], "fit: --features must be a positive integer, got 0"),
    (["train.csv", "--out", "."], "train: out must be a new or empty folder, got .; to continue a run, resume it"),
]  # fmt: skip


def test_one_sentence_and_nothing_half_written(run, capsys, monkeypatch, subtests):
    monkeypatch.chdir(run)
    before = sorted(run.rglob("*"))
    for arguments, sentence in WRONG:
        with subtests.test(arguments):
            assert main(["fit", *arguments]) == 2
            error = capsys.readouterr().err
            assert error.startswith(f"resofire: {sentence}")
            assert error.count("\n") == 1
            assert sorted(run.rglob("*")) == before
