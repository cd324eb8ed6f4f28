"""resofire export as a user meets it."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
import torch

import resofire
from resofire import cli, models
from resofire.commands.export import ENDINGS
from resofire.commands.runs import sequences
from resofire.data.task import Form, Split
from resofire.deploy import fold
from resofire.deploy.formats import c_run, safetensors
from resofire.deploy.reference import run

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
    size = sum(each.stat().st_size for each in (file.iterdir() if to == "c" else [file]))
    out = capsys.readouterr().out
    names = " in digits.h, digits_test.c" if to == "c" else ""
    assert out.startswith(f"{file.name}: {size:,} bytes{names}\nverified: ")
    assert "; 0 of 65,536 spikes differ\n" in out
    assert ("fixed point agrees with float on 100.0 %" in out) == (to == "c")
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_bits_and_json(tmp_path, capsys):
    if not COMPILER:
        pytest.skip("there is no C compiler")
    out = tmp_path / "n4.h"
    arguments = ["--to", "c", "--out", str(out), "--samples", "2", "--weight-bits", "4", "--json"]
    assert cli.main(["export", "digits", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["n4.h", "n4_test.c"]
    assert "4 bit weights" in (out / "n4.h").read_text()


def test_float_numbers_and_no_compiler(tmp_path, capsys, monkeypatch):
    if not COMPILER:
        pytest.skip("there is no C compiler")
    monkeypatch.chdir(tmp_path)
    arguments = ["export", "digits", "--to", "c", "--numbers", "float", "--samples", "2", "--longest", "64"]
    assert cli.main(arguments) == 0
    assert "verified: scores and spikes of 2 sequences (128 steps)" in capsys.readouterr().out
    assert "A spiking network in float" in (tmp_path / "digits-c" / "digits.h").read_text()
    monkeypatch.setattr(c_run, "COMPILERS", ("no-such-compiler",))
    assert cli.main(arguments) == 0
    assert "not run: c: no C compiler found (tried no-such-compiler); digits_test.c" in capsys.readouterr().out


def test_a_file_of_weights_in_the_folder_of_its_run(tmp_path, capsys):
    out = tmp_path / "x.safetensors"
    file = models.find("digits") / "model.safetensors"
    assert cli.main(["export", str(file), "--to", "safetensors", "--out", str(out), "--samples", "1"]) == 0
    assert out.exists()


def test_nothing_is_left_by_a_termination(tmp_path, monkeypatch):
    def terminated(descriptor):
        assert len(list(tmp_path.iterdir())) == 1
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(os, "fsync", terminated)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"):
        cli.main(["export", "digits", "--to", "safetensors", "--out", str(tmp_path / "x"), "--samples", "1"])
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_failed_verification_exits_1(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(safetensors, "replay", lambda content, samples: [run(fold(other), x) for x in samples])
    other = resofire.pretrained("digits")
    with torch.no_grad():
        other.head.bias += 1
    arguments = ["export", "digits", "--to", "safetensors", "--out", str(tmp_path / "x"), "--samples", "1"]
    assert cli.main(arguments) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("resofire: export: the safetensors file disagrees with the network in float")
    assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_fixed_point_table(capsys):
    assert cli.main(["evaluate", "digits", "--fixed-point", "--count", "20", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["weight_bits"], row["state_bits"]) for row in rows] == [
        (w, s) for w in (8, 6, 4) for s in (16, 24, 32)
    ]
    assert rows[0]["agreement"] >= 0.95
    assert rows[0]["sequences"] == 20
    assert cli.main(["evaluate", "digits", "--fixed-point", "--count", "10"]) == 0
    assert "| 8 bit | 16 bit |" in capsys.readouterr().out
    assert cli.main(["evaluate", "digits", "--count", "10"]) == 2
    assert "--count is for --fixed-point, got 10 without it" in capsys.readouterr().err


USAGE_ERRORS = [
    (["digits", "--to", "onx"], "--to must be one of nir, onnx, onnx-step, c, safetensors, got 'onx'"),
    (["digits", "--to", "c", "--weight-bits", "7"], "weight_bits must be one of 8, 6, 4, got 7"),
    (["digits", "--to", "nir", "--samples", "0"], "--samples must be a positive integer, got 0"),
    (["digits", "--to", "nir", "--out", "/dev/null/x"], "--out /dev/null/x cannot be written"),
    (["digits", "--to", "nir", "--weight-bits", "4"], "--weight-bits and --state-bits are for c, got --to nir"),
    (["digits", "--to", "onnx", "--numbers", "float"], "--numbers, --weight-bits and --state-bits are for c, got"),
    (["digits", "--to", "c", "--numbers", "int"], "--numbers must be one of fixed, float, got 'int'"),
    (["digits", "--to", "c", "--numbers", "float", "--state-bits", "32"], "are for fixed point, got --numbers float"),
    (["digits", "--to", "c", "--out", "/dev/null"], "--out must name a folder, got the file /dev/null"),
    (["digit", "--to", "nir"], "did you mean 'digits'?"),
]


def test_a_usage_error_is_one_sentence_and_leaves_nothing(subtests, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, message in USAGE_ERRORS:
        with subtests.test(message):
            code, printed = cli.main(["export", *arguments]), capsys.readouterr().err
            assert code == 2
            assert message in printed
            assert printed.count("\n") == 1
            assert not list(tmp_path.iterdir())


def test_samples_with_a_label_for_each_step():
    labels = np.arange(12).reshape(4, 3)
    split = Split(np.ones((4, 3, 2), np.float32), labels, kind="values", form=Form(), per_step=True)
    x, found = sequences(split, 2)
    assert [each.shape for each in x] == [(3, 2), (3, 2)]
    assert all(row.tolist() in labels.tolist() for row in found)
