"""resofire export as a user meets it."""

import json
import shutil

import pytest

from resofire import cli
from resofire.commands.export import ENDINGS

COMPILER = shutil.which("cc")


@pytest.mark.parametrize("to", ENDINGS)
def test_a_network_of_the_package(to, tmp_path, capsys, monkeypatch):
    for package in {"nir": ("nir",), "onnx": ("onnx", "onnxruntime"), "onnx-step": ("onnx", "onnxruntime")}.get(to, ()):
        pytest.importorskip(package)
    if to == "c" and not COMPILER:
        pytest.skip("there is no C compiler")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", "digits", "--to", to, "--samples", "2"]) == 0
    file = tmp_path / f"digits{ENDINGS[to]}"
    out = capsys.readouterr().out
    assert out.startswith(f"{file.name}: {file.stat().st_size:,} bytes\nchecked: ")
    assert out.endswith("0 of 65,536 spikes differ\n")
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_bits_and_json(tmp_path, capsys):
    if not COMPILER:
        pytest.skip("there is no C compiler")
    sizes = []
    for bits in (8, 4):
        out = tmp_path / f"n{bits}.h"
        arguments = ["--to", "c", "--out", str(out), "--samples", "2", "--weight-bits", str(bits), "--json"]
        assert cli.main(["export", "digits", *arguments]) == 0
        sizes.append(json.loads(capsys.readouterr().out)["bytes"])
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["digits", "--to", "onx"],
            "--to must be one of nir, onnx, onnx-step, c, safetensors, got 'onx'",
        ),
        (["digits", "--to", "c", "--weight-bits", "7"], "weight_bits must be one of 8, 6, 4, got 7"),
        (["digits", "--to", "nir", "--samples", "0"], "--samples must be a positive whole number, got 0"),
        (["digits", "--to", "nir", "--out", "/dev/null/x"], "--out /dev/null/x cannot be written"),
        (["digit", "--to", "nir"], "did you mean 'digits'?"),
    ],
)
def test_mistakes(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())
