"""resofire measure as a user meets it."""

import json
import os
import re

import pytest

from resofire import cli
from resofire.models.storage import SHIPPED
from resofire.paper.published import compare_published


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
    measured = json.loads((tmp_path / "measure-digits" / "measure.json").read_text())
    assert list(measured["peers"]) == ["s4", "gsu"]
    assert measured["length"]["value"] == 64


@pytest.mark.parametrize("near", [False, True], ids=["absolute", "relative"])
def test_a_network_of_the_package_by_its_folder(near, tmp_path, capsys, monkeypatch):
    """Nothing is written into the package."""
    monkeypatch.chdir(tmp_path)
    folder = os.path.relpath(SHIPPED / "digits") if near else str(SHIPPED / "digits")
    before = sorted(SHIPPED.rglob("*"))
    assert cli.main(["measure", folder, "--batches", "1"]) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["measure-digits"]
    assert sorted(SHIPPED.rglob("*")) == before


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


def test_the_papers_own_tables_at_other_costs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["measure", "paper", "--costs", "sram", "--state-size", "32", "--out", "here"]) == 0
    assert "Audited at costs sram, H = 32" in capsys.readouterr().out
    assert [each.name for each in (tmp_path / "here").iterdir()] == ["measure.json"]
    assert json.loads((tmp_path / "here" / "measure.json").read_text()) == compare_published(32, "sram")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digit"], "did you mean 'digits'?"),
        (["digits", "--against", "s5"], "--against must be one of .*, got 's5'"),
        (["digits", "--costs", "gold"], "costs must be .*, got 'gold'"),
        (["digits", "--state-size", "0"], "--state-size must be .*, got 0"),
        (["digits", "--split", "tset"], "--split must be one of train, validation, test, got 'tset'"),
        (["paper", "--against", "s4"], "paper takes --costs, .* only, got --against"),
        (["paper", "--fold-norm"], "paper takes .* only, got --fold-norm"),
        (["paper", "--data-dir", "there"], "paper takes .* only, got --data-dir"),
        (["paper", "--costs", "gold"], "measure: --costs must be .*, got 'gold'"),
        (["paper", "--state-size", "7"], "state_size must be even for s4d, .*, got 7"),
        (["digits", "--batches", "0"], "--batches must be a positive integer, got 0"),
    ],
)
def test_mistakes(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["measure", *arguments]) == 2
    message = capsys.readouterr().err
    assert re.search(words, message), message
    assert message.count("\n") == 1
