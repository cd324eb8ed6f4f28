"""resofire stream as a user meets it: files, pipes, wavs, texts, a terminal, mistakes."""

import io
import json
import os
import pty
import struct
import subprocess
import sys
import wave

import numpy as np
import pytest
import torch

import resofire
from resofire import cli, data, models, train
from resofire.commands.stream import _token
from resofire.commands.usage import UsageError
from resofire.models import ClassifierConfig, build


@pytest.fixture(scope="module")
def digit():
    """One test image, [64], and what the shipped network says of it."""
    x = data.load("digits")["test"].batch(np.arange(1)).x
    with torch.no_grad():
        return x[0, :, 0].tolist(), resofire.pretrained("digits")(x)[0]


def shown(capsys, *arguments):
    assert cli.main(["stream", *map(str, arguments)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("chunk", [1, 64, 1000])
def test_values_from_a_file(subtests, digit, tmp_path, capsys, chunk):
    for between in [" ", "\n", ", ", ",\n\n"]:
        with subtests.test(between=between):
            values, logits = digit
            (tmp_path / "x.txt").write_text(between.join(map(repr, values)))
            result = json.loads(shown(capsys, "digits", tmp_path / "x.txt", "--chunk", chunk, "--json"))
            assert result["steps"] == 64
            assert result["prediction"] == int(logits.argmax())
            np.testing.assert_allclose(result["scores"], logits, atol=1e-4)
            assert set(result["fire_rates"]) == set(models_rates())
            assert 0 < result["energy_mj"] < 1


def test_an_exported_network(digit, tmp_path, capsys):
    values, _ = digit
    (tmp_path / "x.txt").write_text(" ".join(map(repr, values)))
    file = tmp_path / "n.safetensors"
    assert cli.main(["export", "digits", "--to", "safetensors", "--out", str(file), "--samples", "1"]) == 0
    capsys.readouterr()
    exported = json.loads(shown(capsys, file, tmp_path / "x.txt", "--json"))
    original = json.loads(shown(capsys, "digits", tmp_path / "x.txt", "--json"))
    assert list(exported["fire_rates"]) == ["layers.0", "layers.1", "layers.2", "layers.3"]
    rates = [list(found.pop("fire_rates").values()) for found in (exported, original)]
    assert rates[0] == rates[1]
    assert exported == original
    file.write_bytes(file.read_bytes()[:-8])
    assert cli.main(["stream", str(file), str(tmp_path / "x.txt")]) == 2
    assert "n.safetensors cannot be read, it is truncated or corrupt" in capsys.readouterr().err


def models_rates():
    folder = models.find("digits")
    return json.loads((folder / "result.json").read_text())["fire_rates"]


def test_a_line_for_a_person(digit, tmp_path, capsys):
    (tmp_path / "x.txt").write_text(" ".join(map(repr, digit[0])))
    assert shown(capsys, "digits", tmp_path / "x.txt").startswith(f"step 64: class {int(digit[1].argmax())} (+")


def test_standard_input(digit, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(repr, digit[0]))))
    assert json.loads(shown(capsys, "digits", "-", "--json"))["prediction"] == int(digit[1].argmax())


def test_a_live_line_in_a_terminal(digit, tmp_path):
    (tmp_path / "x.txt").write_text(" ".join(map(repr, digit[0] * 2000)))
    first, second = pty.openpty()
    code = "import sys; from resofire.cli import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", code, "stream", "digits", str(tmp_path / "x.txt")],
        stderr=second, stdout=subprocess.PIPE, env={**os.environ, "TERM": "xterm"}, timeout=120, check=True,
    )  # fmt: skip
    os.close(second)
    live = os.read(first, 100_000).decode()
    os.close(first)
    # Drawn over and over in one line, which is erased at the end; the cursor is back.
    assert live.startswith("\x1b[?25lstep ")
    assert live.count("\r\x1b[2Kstep ") > 1
    assert live.count("\n") == 1
    assert live.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")
    assert ran.stdout.decode().startswith("step 128,000: class ")


def saved(tmp_path, **settings):
    config = ClassifierConfig(**{"inputs": 1, "classes": 3, "features": 8, "depth": 1, **settings})
    models.save(build(config).eval(), tmp_path / "net")
    return tmp_path / "net"


def test_several_values_in_a_step(tmp_path, capsys):
    net = saved(tmp_path, inputs=2)
    (tmp_path / "x.txt").write_text("1 2\n3,4\n\n5 6\n")
    assert json.loads(shown(capsys, net, tmp_path / "x.txt", "--json"))["steps"] == 3
    expected = shown(capsys, net, tmp_path / "x.txt")
    # As a table may have it that was trained on.
    (tmp_path / "x.csv").write_text("speed (m/s);load\n1;2\n3;4\n5;6\n")
    assert shown(capsys, net, tmp_path / "x.csv") == expected
    (tmp_path / "x.txt").write_text("1 2\n3\n")
    assert cli.main(["stream", str(net), str(tmp_path / "x.txt")]) == 2
    assert "stream: line 2 must hold 2 numbers, one step, got 1" in capsys.readouterr().err


def test_tokens(tmp_path, capsys):
    net = saved(tmp_path, inputs=None, vocabulary=7)
    (tmp_path / "x.txt").write_text("1 2 6 0")
    assert json.loads(shown(capsys, net, tmp_path / "x.txt", "--json"))["steps"] == 4
    for text, words in (("1 7", "input must hold tokens from 0 to 6, got 7"), ("1.5", "must hold integers")):
        (tmp_path / "x.txt").write_text(text)
        assert cli.main(["stream", str(net), str(tmp_path / "x.txt")]) == 2
        assert words in capsys.readouterr().err


def test_a_wav(tmp_path, capsys):
    net, file = saved(tmp_path), tmp_path / "a.wav"
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(struct.pack("<100h", *range(-50, 50)))
    assert json.loads(shown(capsys, net, file, "--json"))["steps"] == 100
    assert cli.main(["stream", str(saved(tmp_path / "b", inputs=2)), str(file)]) == 2
    assert "a.wav is a wav of 1 channel, but" in capsys.readouterr().err
    file.write_bytes(b"RIFF")
    assert cli.main(["stream", str(net), str(file)]) == 2
    assert "must be a wav with PCM samples, it cannot be read" in capsys.readouterr().err


def test_an_npy(tmp_path, capsys):
    file, values, tokens = tmp_path / "x.npy", saved(tmp_path / "v"), saved(tmp_path / "t", inputs=None, vocabulary=7)
    np.save(file, np.linspace(0, 1, 100))
    flat = shown(capsys, values, file, "--json", "--chunk", "30")
    np.save(file, np.linspace(0, 1, 100)[:, None])
    assert shown(capsys, values, file, "--json") == flat
    np.save(file, np.arange(6))
    assert json.loads(shown(capsys, tokens, file, "--json"))["steps"] == 6
    for array, net, words in [
        (np.zeros((5, 2)), values, "must hold numbers [steps, 1], got float64 [5, 2]"),
        (np.zeros(()), values, "must hold numbers [steps, 1], got float64 []"),
        (np.zeros(5), tokens, "must hold integers [steps], got float64 [5]"),
        (np.array(["a"]), values, "must hold numbers [steps, 1], got <U1 [1, 1]"),
        (np.array([None]), values, "cannot be read: "),
        (np.zeros((0, 1)), values, "must hold at least one step, got none"),
    ]:
        np.save(file, array)
        assert cli.main(["stream", str(net), str(file)]) == 2
        assert words in capsys.readouterr().err
    file.write_bytes(b"\x93NUMPY")
    assert cli.main(["stream", str(values), str(file)]) == 2
    assert "x.npy cannot be read: " in capsys.readouterr().err


def test_a_warning_outside_of_the_training_range(digit, tmp_path, capsys):
    np.save(tmp_path / "x.npy", [*digit[0], 3.5, -2.0])
    assert cli.main(["stream", "digits", str(tmp_path / "x.npy"), "--chunk", "7", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["steps"] == 66
    words = "step 65: the input is 3.5, outside the range of the training data, 0 to 1"
    assert captured.err == f"resofire: {words}\n"


def test_what_a_run_recorded(tmp_path, capsys):
    """Class names and the range of the inputs of a run on arrays of your own."""
    x = np.random.default_rng(0).uniform([2, -1], [3, 1], (60, 12, 2)).astype(np.float32)
    task = data.from_arrays(x, ["still", "moving"] * 30, test=0.2)
    model = ClassifierConfig(inputs=2, classes=2, features=8, depth=1)
    config = train.RunConfig(name="own", task="own", model=model, steps=2, batch=8)
    train.train(config, task, tmp_path / "run")
    np.save(tmp_path / "x.npy", x[0])
    result = json.loads(shown(capsys, tmp_path / "run", tmp_path / "x.npy", "--json"))
    assert result["class"] == task.class_names[result["prediction"]]
    assert f"step 12: class {result['class']} (" in shown(capsys, tmp_path / "run", tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", x[0] + [0, 9])
    assert cli.main(["stream", str(tmp_path / "run"), str(tmp_path / "x.npy")]) == 0
    assert "resofire: step 1: input 1 is " in capsys.readouterr().err
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    for damaged in ([[0, 1]], "x", {"a": 1}, [[None, 1], [0, 1]]):
        record["input_range"], record["class_names"] = damaged, damaged
        (tmp_path / "run" / "run.json").write_text(json.dumps(record))
        assert "class" not in json.loads(shown(capsys, tmp_path / "run", tmp_path / "x.npy", "--json"))


USAGE_ERRORS = [
    ("1 x", [], "stream: line 1 must hold numbers, got '1 x'"),
    ("\n\n", [], "must hold at least one step, got none"),
    ("0.5 nan", [], "input must be finite in float32, got nan"),
    ("1e400", [], "input must be finite in float32, got inf"),
    ("RIFF....", [], "the input is a wav; give it as a file whose name ends in .wav"),
    ("word\n1\nword", [], "stream: line 3 must hold numbers, got 'word'"),
    ("1", ["--chunk", "0"], "--chunk must be a positive integer, got 0"),
    ("1", ["--text"], "--text is for networks that read characters, digits does not"),
]


def test_a_usage_error_is_one_sentence(subtests, tmp_path, capsys):
    for text, arguments, message in USAGE_ERRORS:
        with subtests.test(message):
            (tmp_path / "x.txt").write_text(text)
            code = cli.main(["stream", "digits", str(tmp_path / "x.txt"), *arguments])
            assert message in capsys.readouterr().err
            assert code == 2


def test_files_and_networks_that_are_not_there(tmp_path, capsys):
    assert cli.main(["stream", "digits", str(tmp_path / "none")]) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe\x00")
    assert cli.main(["stream", "digits", str(tmp_path / "x.txt")]) == 2
    assert "cannot be read: it is not text" in capsys.readouterr().err
    assert cli.main(["stream", "digit", str(tmp_path / "x.txt")]) == 2
    assert "did you mean 'digits'?" in capsys.readouterr().err


def test_characters_and_bytes():
    letters = {"<pad>": 0, "<unk>": 1, "a": 2, "b": 3}
    assert [_token(each, letters, 1) for each in "abé"] == [[2], [3], [1]]
    # As text-lra names them: what can be printed by itself, the other bytes by their number.
    octets = {"<pad>": 0, **{chr(n) if 32 <= n < 127 else f"<{n:02x}>": n + 1 for n in range(256)}}
    assert [token for each in "a\né" for token in _token(each, octets, None)] == [n + 1 for n in "a\né".encode()]
    with pytest.raises(UsageError, match="must be of characters that the network knows, got 'é'"):
        _token("é", {"a": 0}, None)
