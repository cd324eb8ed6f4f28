"""The command line as a user meets it: output, exit codes, mistakes in one sentence."""

import json

import pytest

from resofire import cli, data

WORDS = ", ".join(cli.COMMANDS)


def test_doctor_tells_versions_and_backends(capsys):
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "torch        2." in out
    assert "scan       available" in out
    assert "agree with their reference" in out


def test_doctor_as_json(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["works"] is True
    assert found["backends"]["prf"]["reference"] == "available"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["dcotor"], f"resofire: command must be one of {WORDS}, got 'dcotor' (did you mean 'doctor'?)"),
        (["bench", "neuron"], "resofire: bench: name must be one of neurons, networks, peers, events, stream, got 'neuron' (did you mean 'neurons'?)"),
        (["bench", "--jsn=x"], "resofire: bench: there is no flag --jsn (did you mean '--json'?); see resofire bench --help"),
        (["bench", "--json", "."], "resofire: bench: --json must name a file, got the folder ."),
        (["bench", "--json", "/dev/null/x/y"], "resofire: bench: --json /dev/null/x/y cannot be written: Not a directory"),
        ([], f"resofire: command must be one of {WORDS}; see resofire --help"),
        (["data", "shw", "digits"], "resofire: data: action must be one of list, prepare, show, got 'shw' (did you mean 'show'?)"),
        (["data", "show", "--data-dir", "/dev/null", "smnist"], "resofire: --data-dir must be a folder, got /dev/null"),
        (["train", "smnist", "--task-settings.shift", "x"], "resofire: --task-settings.shift must be a number, got 'x'; see resofire train smnist --help"),
        (["train", "digits", "--task-settings.shift", "1"], "resofire: train: there is no flag --task-settings.shift; see resofire train digits --help"),
        (["train", "smnist", "--task-settings.shfit", "1"], "resofire: train: there is no flag --task-settings.shfit (did you mean '--task-settings.shift'?); see resofire train smnist --help"),
        (["bench", "neurons", "--figure", "x"], "resofire: bench: --figure is for peers and events, got neurons"),
        (["train", "pathx-small", "--epochs", "3"], "resofire: train: --epochs has no effect beside 3000 steps; add --steps None"),
        (["data", "show", "a/b/c"], f"resofire: data: name must be one of {', '.join(data.NAMES)}, got 'a/b/c'"),
        (["evaluate", "a" * 300], f"resofire: model '{'a' * 300}' cannot be read: File name too long"),
        (["data", "show", "smnist", "--data-dir", "~nobody-of-this-name/x"], "resofire: --data-dir must be a folder, got ~nobody-of-this-name/x: Could not determine home directory."),
        (["doctor", "extra"], "resofire: Unrecognized options: extra; see resofire --help"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_exits_2(arguments, sentence, capsys):
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err == sentence + "\n"
    assert captured.out == ""


def test_bench_prints_ratios_and_writes_json(tmp_path, capsys, monkeypatch):
    """The whole path on sizes that take a moment."""
    from resofire.benchmarks import neurons

    monkeypatch.setattr(neurons, "SHAPES", [(2, 64, 32), (2, 32, 32)])
    monkeypatch.setattr(neurons, "against_loops", lambda table, shape, rounds: None)
    monkeypatch.setattr(neurons, "against_spikingjelly", lambda table, rounds: None)
    monkeypatch.setattr("resofire.ops.retain_buffers", lambda: True)
    file = tmp_path / "deep" / "neurons.json"
    assert cli.main(["bench", "neurons", "--quick", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert result["command"] == "resofire bench neurons --quick"
    names = [row["name"] for row in result["figures"]]
    assert "PRF scan over fft at 2x64x32" in names
    assert all(row["value"] > 0 for row in result["figures"])
    assert "PRF scan over fft at 2x64x32" in capsys.readouterr().out


def test_data_lists_every_set(capsys):
    assert cli.main(["data", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in data.NAMES)


def test_data_draws_samples_beside_the_text(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["data", "show", "digits"]) == 0
    assert capsys.readouterr().out.endswith("samples drawn in digits.png\n")
    assert (tmp_path / "digits.png").read_bytes()[1:4] == b"PNG"


def test_data_shows_the_embedded_set(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "cache"))
    assert cli.main(["data", "show", "digits", "--png", str(tmp_path / "new" / "digits.png")]) == 0
    printed = capsys.readouterr().out
    assert "digits: values in 1 channel(s), 10 classes" in printed
    assert (tmp_path / "new" / "digits.png").read_bytes()[1:4] == b"PNG"
    assert cli.main(["data", "prepare", "digits", "--json"]) == 0
    assert sum(split["size"] for split in json.loads(capsys.readouterr().out)["splits"].values()) == 1797
