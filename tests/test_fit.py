"""resofire fit: one command from a file to a run that every other command takes."""

import json
import os
import re
import shutil
import signal
import wave

import numpy as np
import pytest
import torch

from resofire import models, train
from resofire.cli import main
from resofire.train import loop

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
    assert "  network   1 block of 16 channels, causal, " in out
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
    assert main(["evaluate", "net", "--data", "other.csv"]) == 0
    assert re.fullmatch(r"  test  [\d.]+ %  \d of 3", capsys.readouterr().out.splitlines()[-1])
    (run / "gap.csv").write_text((run / "other.csv").read_text().replace(";20", ";;20", 1))
    assert main(["evaluate", "net", "--data", "gap.csv"]) == 2
    assert "gap.csv, line 1, column 2 is nan; the setting missing fills such values" in capsys.readouterr().err
    assert main(["evaluate", "net", "--data", "gap.csv", "--missing", "previous"]) == 0
    assert main(["evaluate", "net", "--missing", "previous"]) == 2
    capsys.readouterr()
    assert main(["measure", "net", "--json"]) == 0
    assert main(["export", "net", "--to", "c", "--out", "c", "--samples", "4"]) == 0
    assert "idle, warm" in (run / "c" / "c.h").read_text()
    (run / "signal.txt").write_text("\n".join(f"{value}" for value in signals(2, 3)[1][1]))
    capsys.readouterr()
    assert main(["stream", "net", "signal.txt"]) == 0
    assert "class idle, warm (" in capsys.readouterr().out
    assert models.load("net").config.class_names == STATES
    for to in ("nir", "onnx", "onnx-step", "safetensors"):
        assert main(["export", "net", "--to", to, "--out", f"net.{to}", "--samples", "2"]) == 0
    assert main(["report", "net"]) == 0
    assert all(state in (run / "net" / "report.html").read_text() for state in STATES)
    assert main(["train", "--resume", "net"]) == 2
    assert "net is finished; see its result.json" in capsys.readouterr().err
    (run / "gone.csv").rename(run / "train.csv")


def test_an_interrupted_fit_is_resumed_to_the_same_bytes(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(run / "train.csv", "own.csv")
    fit = ["fit", "own.csv", "--epochs", "3", "--features", "8", "--depth", "1", "--minutes", "60"]
    assert main([*fit, "--out", "whole"]) == 0
    steps = []

    def interrupted(*arguments, step=loop._step, **named):
        steps.append(None)
        if len(steps) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return step(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "_step", interrupted)
        assert main([*fit, "--out", "again"]) == 130
    assert "resume with: resofire train --resume again" in capsys.readouterr().err
    # The run has its data.
    (tmp_path / "own.csv").unlink()
    assert main(["train", "--resume", "again"]) == 0
    assert re.fullmatch(r"  test  [\d.]+ %  \d+ of 12", capsys.readouterr().out.splitlines()[-1])
    files = [tmp_path / name / "model.safetensors" for name in ("whole", "again")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_run_of_large_files_reads_them_again(run, capsys, monkeypatch):
    monkeypatch.setattr(train.source, "LIMIT", 0)
    monkeypatch.chdir(run)
    fit = ["fit", "train.csv", "--epochs", "1", "--features", "8", "--depth", "1", "--out", "large"]
    assert main(fit) == 0
    assert not (run / "large" / "data.npz").exists()
    assert main(["evaluate", "large"]) == 0
    assert "the same as the run recorded" in capsys.readouterr().out


def write_wav(file, values, rate=8_000):
    file.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(file), "wb") as opened:
        opened.setnchannels(1)
        opened.setsampwidth(2)
        opened.setframerate(rate)
        opened.writeframes((values * 8_000).astype("<i2").tobytes())


def test_sound_is_framed_and_streamed_as_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tones = [np.sin(np.arange(801 + 10 * number) * (0.1 if number % 2 else 0.9)) for number in range(16)]
    for number, tone in enumerate(tones):
        write_wav(tmp_path / "tones" / ("high", "low")[number % 2] / f"{number}.wav", tone)
    size = ["--epochs", "6", "--features", "8", "--depth", "1", "--minutes", "60"]
    assert main(["fit", "tones", *size, "--out", "net"]) == 0
    out = capsys.readouterr().out
    # 876 samples on average.
    assert "tones: 16 sequences of 400 to 475 steps in 2 channels, 2 classes\n" in out
    assert "  frames    2 samples in a step\n" in out
    settings = train.read("net")["source"]["settings"]
    assert (settings["frame"], settings["rate"]) == (2, 8_000)
    # Samples go in one by one, from any file; an odd one at the end makes no step.
    write_wav(tmp_path / "sound.wav", tones[0])
    samples = (tones[0] * 8_000).astype("<i2") / 2**15
    np.save("sound.npy", samples)
    (tmp_path / "sound.txt").write_text("\n".join(map(repr, samples.tolist())))
    results = []
    for file in ("sound.wav", "sound.npy", "sound.txt"):
        assert main(["stream", "net", file, "--json", "--chunk", "7"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["steps"] == 400
    assert results[0] == results[1] == results[2]
    logits = models.load("net")(torch.tensor(samples[:800], dtype=torch.float32).reshape(1, 400, 2))
    np.testing.assert_allclose(results[0]["scores"], logits[0].detach(), atol=1e-4)
    # Sound at another rate would be heard at another pitch.
    write_wav(tmp_path / "other" / "high" / "0.wav", tones[0], rate=16_000)
    write_wav(tmp_path / "other" / "low" / "0.wav", tones[1], rate=16_000)
    for arguments in (["stream", "net", "other/high/0.wav"], ["evaluate", "net", "--data", "other"]):
        assert main(arguments) == 2
        assert "0.wav must have 8000 samples a second" in capsys.readouterr().err


WRONG = [
    (["gone.csv"], "from_path: path must be a file or folder, got gone.csv, which does not exist"),
    (["train.csv", "--minutes", "0"], "fit: --minutes must be a positive number, got 0"),
    (["train.csv", "--missing", "drop"], "from_path: missing must be one of refuse, zero, previous, interpolate, got 'drop'"),
    (["train.csv", "--test", "2"], "from_path: test must be (x, y) or a fraction from 0 to below 1, got 2.0"),
    (["train.csv", "--label", "state"], "from_path: label must be a column of train.csv ("),
    ([""], "from_path: path must be a file or folder, got an empty text"),
    (["train.csv", "--test", ""], "from_path: test must be a file or folder, got an empty text"),
    (["train.csv", "--features", "1000000000"], "train: memory must be at least "),
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
