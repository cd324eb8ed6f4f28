"""Export: a file is there if and only if it was run and agreed with the network."""

import builtins
import importlib
import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from folds import CASES, given, network

from resofire.deploy import Folded, Layer, Neurons, fold
from resofire.deploy.formats.agreement import Agreement, DisagreementError, compare
from resofire.deploy.export import FORMATS, OWN, ExportError, Format, export, verified
from resofire.deploy.reference import Result, run
from resofire.deploy.formats.safetensors import load, save

# The module: the package may give the function this name.
exports = importlib.import_module("resofire.deploy.export")
NEEDS = {"nir": ["nir"], "onnx": ["onnx", "onnxruntime"], "onnx-step": ["onnx", "onnxruntime"], "safetensors": []}


def samples(case, *lengths):
    return [given(CASES[case], length).numpy() for length in lengths or (40, 7)]


def needs(to):
    for package in NEEDS[to]:
        pytest.importorskip(package, reason=f"the package {package} is not installed")


@pytest.mark.parametrize("case", ["prenorm", "tokens", "feedforward lif"])
@pytest.mark.parametrize("to", FORMATS)
def test_every_format(to, case, tmp_path):
    needs(to)
    out = tmp_path / f"network.{to}"
    out.write_text("an older one")
    model = network(CASES[case], torch.float32)
    report = export(model, to, out, samples(case))
    assert [file.name for file in tmp_path.iterdir()] == [out.name]
    assert json.loads(json.dumps(report)) == report
    assert (report["format"], report["file"], report["bytes"]) == (to, str(out), out.stat().st_size)
    neurons = sum(len(layer.rows) for layer in fold(model).layers)
    assert report["spikes_compared"] == 47 * neurons
    assert report["spikes_different"] == 0
    assert report["largest_deviation"] < 1e-5
    if to != "safetensors":
        assert report["float64"]["spikes_compared"] == 47 * neurons
        assert report["float64"]["largest_deviation"] < 1e-12


def test_bidirectional_networks(tmp_path):
    needs("onnx")
    model = network(CASES["bidirectional"], torch.float32)
    assert export(model, "onnx", tmp_path / "a.onnx", samples("bidirectional"))["spikes_different"] == 0
    with pytest.raises(ExportError, match="export: onnx-step: the network is bidirectional"):
        export(model, "onnx-step", tmp_path / "b.onnx", samples("bidirectional"))
    assert [file.name for file in tmp_path.iterdir()] == ["a.onnx"]


def other(folded, file):
    """Writes a network with one row changed."""
    rows = folded.layers[0].rows.copy()
    rows[0] += 0.1
    save(replace(folded, layers=(replace(folded.layers[0], rows=rows), *folded.layers[1:])), file)


def other_head(folded, file):
    save(replace(folded, head=folded.head * 1.01), file)


def broken(folded, file):
    save(folded, file)
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (other, r"the safetensors file disagrees with the network in float32: neuron \d+ of layer \d differs in step"),
        (other_head, "equal spikes give scores that are .* apart"),
        (broken, "cannot be read, it is truncated or corrupt"),
    ],
)
def test_a_file_that_disagrees_is_not_left(write, words, tmp_path, monkeypatch):
    monkeypatch.setattr(exports, "wrote", write, raising=False)
    monkeypatch.setitem(FORMATS, "safetensors", Format("export.wrote", "storage.replay", twin=False))
    out = tmp_path / "network.safetensors"
    with pytest.raises(ExportError, match=words) as caught:
        export(network(CASES["prenorm"], torch.float32), "safetensors", out, samples("prenorm"))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
    out.write_text("an older one")
    with pytest.raises(ExportError, match=words):
        export(network(CASES["prenorm"], torch.float32), "safetensors", out, samples("prenorm"))
    assert [file.name for file in tmp_path.iterdir()] == [out.name]
    assert out.read_text() == "an older one"


def test_nothing_is_left_by_an_interruption(tmp_path, monkeypatch):
    def interrupted(folded, file):
        file.write_text("half of it")
        raise KeyboardInterrupt

    folded = fold(network(CASES["prenorm"]))
    with pytest.raises(KeyboardInterrupt):
        verified(folded, "x", tmp_path / "a", samples("prenorm"), interrupted, lambda file, x: [])
    assert not list(tmp_path.iterdir())


def tie(reset="none", dtype=np.float32, count=2):
    """Two neurons without memory: the second sees what the first adds."""
    one = np.ones(count, dtype)
    neurons = Neurons("lif", np.ones(count, np.int8), one, 0 * one, 0 * one, 0 * one, reset)
    layers = tuple(Layer((neurons,), np.eye(count, dtype=dtype)) for _ in range(2))
    return Folded(np.eye(count, dtype=dtype), False, layers, "mean", np.eye(count, dtype=dtype), 0 * one)


def flipped(found, layer, step, neuron):
    spikes = [each.copy() for each in found.spikes]
    spikes[layer][step, neuron] ^= True
    return Walked(found.scores, spikes)


def test_a_tie_may_differ_and_what_follows_is_left_out():
    folded, x = tie(), np.full((10, 2), 0.25, np.float32)
    x[6, 1] = 1 - 2e-6
    ours, seen = walk(folded, x), Agreement()
    assert compare(folded, x, ours, flipped(flipped(ours, 0, 6, 1), 1, 8, 0), seen) == 6
    # All of the first layer, and the second up to the tie; no scores.
    assert (seen.spikes, seen.compared, seen.different, seen.scores) == (40, 32, 1, 0)


def test_away_from_a_tie_nothing_may_differ():
    folded, x = tie(), np.full((10, 2), 0.25, np.float32)
    x[6, 1] = 1 - 2e-6
    ours = walk(folded, x)
    for layer, step, neuron in ((0, 5, 1), (1, 2, 0)):
        with pytest.raises(DisagreementError, match=f"neuron {neuron} of layer {layer} differs in step {step}"):
            compare(folded, x, ours, flipped(ours, layer, step, neuron), Agreement())
        # Nor before a tie that excuses what is after it.
        with pytest.raises(DisagreementError, match=f"differs in step {step}"):
            compare(folded, x, ours, flipped(flipped(ours, 0, 6, 1), layer, step, neuron), Agreement())
    with pytest.raises(DisagreementError, match="neuron 1 of layer 0 differs in step 6"):
        compare(tie(dtype=np.float64), x, ours, flipped(ours, 0, 6, 1), Agreement())
    with pytest.raises(DisagreementError, match="other shapes"):
        compare(folded, x, ours, Walked(ours.scores, ours.spikes[:1]), Agreement())


def test_after_a_tie_a_neuron_that_resets_may_go_its_own_way():
    x = np.full((10, 2), 0.25, np.float32)
    x[6, 1] = 1 - 2e-6
    for reset, fine in (("soft", True), ("none", False)):
        folded = tie(reset)
        ours = walk(folded, x)
        found = flipped(flipped(ours, 0, 6, 1), 0, 8, 1)
        if fine:
            assert compare(folded, x, ours, found, Agreement()) == 6
        else:
            with pytest.raises(DisagreementError, match="differs in step 8"):
                compare(folded, x, ours, found, Agreement())


@pytest.mark.parametrize(("step", "refused"), [(8, False), (0, True)])
def test_a_sequence_with_a_tie_is_checked_up_to_it(step, refused, tmp_path):
    """The replay flips a tie; its scores are then held against the network's on the steps before."""
    folded, x = tie(), np.full((10, 2), 0.25, np.float32)
    x[step, 1] = 1 - 2e-6
    asked = []

    def replay(file, given):
        asked.append([len(each) for each in given])
        found = [walk(folded, each) for each in given]
        return [flipped(each, 0, step, 1) if len(each.spikes[0]) > step else each for each in found]

    if refused:
        with pytest.raises(ExportError, match="could not be checked: after ties, 20 of 40 spikes and 0 scores"):
            verified(folded, "x", tmp_path / "a", [x], save, replay)
        assert not list(tmp_path.iterdir())
        return
    report = verified(folded, "x", tmp_path / "a", [x], save, replay)
    assert asked == [[10], [8]]
    assert report["spikes_different"] == 1
    assert report["spikes_compared"] == 36


@pytest.mark.parametrize(
    ("case", "given", "words"),
    [
        ("prenorm", [], "at least one sequence, got none"),
        ("prenorm", [np.zeros((3, 1))], r"finite numbers of shape \[steps, 2\], got float64 of shape \[3, 1\]"),
        ("prenorm", [np.zeros((0, 2))], r".*, got float64 of shape \[0, 2\]"),
        ("prenorm", [np.full((3, 2), np.nan)], "finite numbers"),
        ("tokens", [np.array([0, 11])], r"tokens from 0 to 10 of shape \[steps\]"),
        ("tokens", [np.zeros((3, 2))], "tokens from 0 to 10"),
    ],
)
def test_samples_that_are_none(case, given, words, tmp_path):
    with pytest.raises(ExportError, match=f"export: samples must be {words}"):
        export(network(CASES[case]), "safetensors", tmp_path / "a", given)


def test_formats_and_files_that_cannot_be(tmp_path):
    model = network(CASES["prenorm"])
    with pytest.raises(ExportError, match="to must be one of nir, onnx, onnx-step, safetensors, c, got 'pt'"):
        export(model, "pt", tmp_path / "a", samples("prenorm"))
    for out in (tmp_path, tmp_path / "nowhere" / "a"):
        with pytest.raises(ExportError, match="out must be a file in a folder that exists, got"):
            export(model, "safetensors", out, samples("prenorm"))
    folded = fold(model)
    with pytest.raises(ExportError, match="cannot be used: bias must be finite"):
        export(replace(folded, bias=folded.bias * np.nan), "safetensors", tmp_path / "a", samples("prenorm"))


def test_a_format_with_a_check_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setitem(OWN, "c", "export.mine")
    monkeypatch.setattr(
        exports, "mine", lambda folded, out, samples: {"file": str(out), "n": len(samples)}, raising=False
    )
    assert export(network(CASES["prenorm"]), "c", tmp_path / "a", samples("prenorm")) == {
        "file": str(tmp_path / "a"),
        "n": 2,
    }


def test_c(tmp_path, monkeypatch):
    """A header that a compiler has agreed on; without a compiler, or against it, none."""
    c = pytest.importorskip("resofire.deploy.c")
    model, given = network(CASES["prenorm"], torch.float32), samples("prenorm")
    monkeypatch.setattr(c, "COMPILERS", ("no-such-compiler",))
    with pytest.raises(ExportError, match="there is no C compiler here"):
        export(model, "c", tmp_path / "int.h", given)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    if not any(map(shutil.which, c.COMPILERS)):
        pytest.skip("there is no C compiler here")
    report = export(model, "c", tmp_path / "int.h", given)
    assert [file.name for file in tmp_path.iterdir()] == ["int.h"]
    assert json.loads(json.dumps(report)) == report
    assert report["spikes_compared"] == 47 * sum(len(layer.rows) for layer in fold(model).layers)
    assert "network_int" in (tmp_path / "int.h").read_text()
    monkeypatch.setattr(c, "expected", lambda simulation, x: [["0"]])
    with pytest.raises(ExportError, match="disagrees with the network in integers in 2 of 2 sequences"):
        export(model, "c", tmp_path / "other.h", given)
    assert [file.name for file in tmp_path.iterdir()] == ["int.h"]


@pytest.mark.parametrize(("to", "package"), [("nir", "nir"), ("onnx", "onnx"), ("onnx-step", "onnxruntime")])
def test_a_package_that_is_missing(to, package, tmp_path, monkeypatch):
    genuine = builtins.__import__

    def without(name, *rest):
        # Only the package itself: a relative import of a module of ours has a level.
        if name.split(".")[0] == package and (len(rest) < 4 or rest[3] == 0):
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return genuine(name, *rest)

    for name in ("nir", "onnx", "onnxruntime"):
        monkeypatch.delitem(sys.modules, f"resofire.deploy.{name}", raising=False)
    if package == "onnxruntime":
        pytest.importorskip("onnx", reason="the package onnx is not installed")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ExportError, match=rf"to '{to}' needs the package {package}: pip install 'resofire\[export\]'"):
        export(network(CASES["prenorm"]), to, tmp_path / "a", samples("prenorm"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_folded_network_comes_back_to_the_bit(case, dtype, tmp_path):
    folded = fold(network(CASES[case]), dtype)
    back = load(save(folded, tmp_path / "network.safetensors"))
    assert (back.dtype, back.tokens, back.pool) == (folded.dtype, folded.tokens, folded.pool)
    for a, b in zip(folded.layers, back.layers, strict=True):
        assert (a.fresh, [(g.kind, g.reset) for g in a.neurons]) == (b.fresh, [(g.kind, g.reset) for g in b.neurons])
    x = given(CASES[case], 20).numpy()
    ours, theirs = walk(folded, x), walk(back, x)
    np.testing.assert_array_equal(ours.scores, theirs.scores)
    for a, b in zip(ours.spikes, theirs.spikes, strict=True):
        np.testing.assert_array_equal(a, b)
