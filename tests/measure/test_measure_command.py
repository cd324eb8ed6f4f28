"""resofire measure as a user meets it."""

import json
import re

import pytest

from resofire import cli


def test_a_network_of_the_package(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["measure", "digits", "--against", "s4", "gsu"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("digits: digits\nClassifier, 2 x 128 PRF")
    assert "S4-LegS, H = 64" in out
    assert max(map(len, out.splitlines())) <= 100
    assert sorted(file.name for file in (tmp_path / "measure-digits").iterdir()) == [
        "measure.json", "measure.png", "measure.svg"
    ]  # fmt: skip
    found = json.loads((tmp_path / "measure-digits" / "measure.json").read_text())
    assert list(found["peers"]) == ["s4", "gsu"]
    assert found["length"]["value"] == 64


def test_json_writes_nothing_unless_told(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["measure", "digits", "--json", "--batches", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == "digits"
    assert not list(tmp_path.iterdir())
    assert cli.main(["measure", "digits", "--json", "--batches", "1", "--out", "here"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "here" / "measure.json").read_text())


def test_the_papers_own_tables(capsys):
    assert cli.main(["measure", "paper"]) == 0
    assert "Average fire rate, %" in capsys.readouterr().out
    assert cli.main(["measure", "paper", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["task"] == "ListOps"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digit"], "did you mean 'digits'?"),
        (["digits", "--against", "s5"], "against must be among .*, got 's5'"),
        (["digits", "--costs", "gold"], "costs must be .*, got 'gold'"),
        (["digits", "--state-size", "0"], "state_size must be .*, got 0"),
        (["digits", "--split", "tset"], "--split must be one of train, validation, test, got 'tset'"),
        (["digits", "--batches", "0"], "--batches must be a positive whole number, got 0"),
    ],
)
def test_mistakes(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["measure", *arguments]) == 2
    said = capsys.readouterr().err
    assert re.search(words, said), said
    assert said.count("\n") == 1
