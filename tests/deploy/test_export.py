"""Export: a file is there if and only if its content was run and agreed with the network."""

import builtins
import json
import os
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from deploy_cases import CASES, make_input, network

import resofire
from resofire import data
from resofire.atomic import write_atomic
from resofire.deploy import (
    FORMATS,
    ExportError,
    FloatFormat,
    Folded,
    Format,
    Layer,
    Neurons,
    VerificationError,
    export,
    fold,
    load,
    register,
    save,
)
from resofire.deploy.formats import c, c_run, safetensors
from resofire.deploy.formats.agreement import Agreement, DisagreementError
from resofire.deploy.reference import Result, run
from resofire.models import ClassifierConfig
from resofire.nn import SDTCM, PRFConfig


@pytest.fixture(autouse=True)
def _formats(monkeypatch):
    """Formats that a test registers are gone after it."""
    monkeypatch.setattr("resofire.deploy.formats.FORMATS", FORMATS)
    before = dict(FORMATS)
    yield
    FORMATS.clear()
    FORMATS.update(before)


def samples(case, *lengths):
    return [make_input(CASES[case], length).numpy() for length in lengths or (40, 7)]


def needs(to):
    for package in FORMATS[to].packages:
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    if to == "c" and not any(map(shutil.which, c_run.COMPILERS)):
        pytest.skip("there is no C compiler")


@pytest.mark.parametrize("case", ["unit gain", "tokens", "feedforward lif"])
@pytest.mark.parametrize("to", list(FORMATS))
def test_every_format(to, case, tmp_path):
    needs(to)
    out = tmp_path / f"network{FORMATS[to].suffix}"
    if to == "c":
        out.mkdir()
        (out / "network.h").write_text("an older one")
    else:
        out.write_text("an older one")
    model = network(CASES[case], torch.float32)
    # With scores at every step, fixed point is calibrated on more steps.
    x = samples(case, 40, 7) if to != "c" else [make_input(CASES[case], 40, seed).numpy() for seed in range(6)]
    report = export(model, to, out, x)
    steps = sum(map(len, x))
    assert [file.name for file in tmp_path.iterdir()] == [out.name]
    assert json.loads(json.dumps(report)) == report
    files = [out / name for name in report["files"]] if to == "c" else [out]
    assert (report["format"], report["file"]) == (to, str(out))
    assert report["bytes"] == sum(file.stat().st_size for file in files)
    if to == "c":
        assert sorted(out.iterdir()) == files == [out / "network.h", out / "network_test.c"]
    assert report["spikes_compared"] == steps * fold(model).neurons
    assert (report["spikes_different"], report["sequences"], report["steps"]) == (0, len(x), steps)
    assert report["largest_deviation"] < 1e-5
    if to == "c":
        assert report["scores_compared"] == 3 * (steps if case == "feedforward lif" else 6)
        assert report["states_compared"] > 0
        assert report["states_different"] == 0
    elif to != "safetensors":
        assert report["float64"]["spikes_compared"] == steps * fold(model).neurons
        assert report["float64"]["largest_deviation"] < 1e-12


def test_bidirectional_networks(tmp_path):
    needs("onnx")
    model = network(CASES["bidirectional"], torch.float32)
    assert export(model, "onnx", tmp_path / "a.onnx", samples("bidirectional"))["spikes_different"] == 0
    for to in ("onnx-step", "nir", "c"):
        needs(to)
        with pytest.raises(ExportError, match="the network is bidirectional"):
            export(model, to, tmp_path / "b", samples("bidirectional"))
    assert [file.name for file in tmp_path.iterdir()] == ["a.onnx"]


class Own(FloatFormat):
    """A user's format: a change of the network, stored as safetensors."""

    suffix = ".own"
    in_float64 = False

    def __init__(self, change=lambda folded: folded):
        self.change = change

    def write(self, folded):
        return safetensors.encode(self.change(folded))

    def replay(self, content, samples):
        return safetensors.replay(content, samples)


def other_row(folded):
    rows = folded.layers[0].rows.copy()
    rows[0] += 0.1
    return replace(folded, layers=(replace(folded.layers[0], rows=rows), *folded.layers[1:]))


def test_a_format_of_a_user(tmp_path):
    register("own", Own())
    report = export(network(CASES["prenorm"]), "own", tmp_path / "a.own", samples("prenorm"))
    assert report["format"] == "own"
    assert load(tmp_path / "a.own").neurons == 36
    with pytest.raises(ExportError, match="export: to 'own': this format takes no options, got weight_bits"):
        export(network(CASES["prenorm"]), "own", tmp_path / "b", samples("prenorm"), weight_bits=8)
    with pytest.raises(ValueError, match="register: name must be new, got 'own'"):
        register("own", Own())
    with pytest.raises(TypeError, match="register: form must be a Format, got str"):
        register("other", "own")
    with pytest.raises(TypeError, match="abstract"):
        Format()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_row, r"the own file disagrees with the network in float32: neuron \d+ of layer \d differs in step"),
        (lambda folded: replace(folded, head=folded.head * 1.01), "equal spikes give scores .* apart"),
    ],
)
def test_a_file_that_disagrees_is_not_left(change, words, tmp_path):
    register("own", Own(change))
    out = tmp_path / "network"
    with pytest.raises(VerificationError, match=words) as caught:
        export(network(CASES["prenorm"], torch.float32), "own", out, samples("prenorm"))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
    out.write_text("an older one")
    with pytest.raises(VerificationError, match=words):
        export(network(CASES["prenorm"], torch.float32), "own", out, samples("prenorm"))
    assert [file.name for file in tmp_path.iterdir()] == [out.name]
    assert out.read_text() == "an older one"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_nothing_is_left_by_an_interruption_or_a_full_disk(error, tmp_path, monkeypatch):
    """Also for NIR, whose HDF5 is built in memory: the file is written once, by `write_atomic`. So is a folder."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(error))
    for to in ("safetensors", "nir", "c"):
        needs(to)
        with pytest.raises((KeyboardInterrupt, ExportError), match=None if error is KeyboardInterrupt else "No space"):
            export(network(CASES["prenorm"]), to, tmp_path / "a", samples("prenorm"))
        assert not list(tmp_path.iterdir())


def test_targets_that_are_not_regular_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    for out in (tmp_path / "pipe", tmp_path / "folder", "/dev/null"):
        with pytest.raises(ExportError, match="could not be written: it exists and is not a regular file"):
            export(network(CASES["prenorm"]), "safetensors", out, samples("prenorm"))
    for out in (tmp_path / "pipe", tmp_path / "file", "/dev/null"):
        with pytest.raises(ExportError, match="could not be written: it exists and is not a folder"):
            export(network(CASES["prenorm"]), "c", out, samples("prenorm"))
    assert (tmp_path / "file").read_text() == "kept"
    with pytest.raises(ExportError, match="out must be a file in a folder that exists, got"):
        export(network(CASES["prenorm"]), "nir", tmp_path / "nowhere" / "a", samples("prenorm"))
    with pytest.raises(ExportError, match="out must be in a folder that exists, got"):
        export(network(CASES["prenorm"]), "c", tmp_path / "nowhere" / "a", samples("prenorm"))
    with pytest.raises(OSError, match="not a regular file"):
        write_atomic(tmp_path / "pipe", b"")


def tie(reset="none", dtype=np.float32, count=2):
    """Two neurons without memory: the second reads what the first adds."""
    one = np.ones(count, dtype)
    neurons = Neurons("lif", np.ones(count, np.int8), one, 0 * one, 0 * one, 0 * one, reset)
    layers = tuple(Layer((neurons,), np.eye(count, dtype=dtype)) for _ in range(2))
    return Folded(np.eye(count, dtype=dtype), False, layers, "mean", np.eye(count, dtype=dtype), 0 * one)


def with_tie(step):
    x = np.full((10, 2), 0.25, np.float32)
    x[step, 1] = 1 - 2e-6
    return x


def flipped(result, layer, step, neuron):
    spikes = [each.copy() for each in result.spikes]
    spikes[layer][step, neuron] ^= True
    return Result(result.scores, spikes)


def test_a_tie_may_differ_and_what_follows_is_left_out():
    folded, x = tie(), with_tie(6)
    expected, agreement = run(folded, x), Agreement()
    assert agreement.add(folded, x, expected, flipped(flipped(expected, 0, 6, 1), 1, 8, 0)) == 6
    # All of the first layer, and the second up to the tie; no scores.
    assert (agreement.spikes, agreement.compared, agreement.different, agreement.scores) == (40, 32, 1, 0)


def test_away_from_a_tie_nothing_may_differ():
    folded, x = tie(), with_tie(6)
    expected = run(folded, x)
    for layer, step, neuron in ((0, 5, 1), (1, 2, 0)):
        with pytest.raises(DisagreementError, match=f"neuron {neuron} of layer {layer} differs in step {step}"):
            Agreement().add(folded, x, expected, flipped(expected, layer, step, neuron))
        # Nor before a tie that excuses what is after it.
        with pytest.raises(DisagreementError, match=f"differs in step {step}"):
            Agreement().add(folded, x, expected, flipped(flipped(expected, 0, 6, 1), layer, step, neuron))
    with pytest.raises(DisagreementError, match="neuron 1 of layer 0 differs in step 6"):
        Agreement().add(tie(dtype=np.float64), x, expected, flipped(expected, 0, 6, 1))
    with pytest.raises(DisagreementError, match="other shapes"):
        Agreement().add(folded, x, expected, Result(expected.scores, expected.spikes[:1]))


def test_after_a_tie_a_neuron_that_resets_may_differ():
    x = with_tie(6)
    expected = run(tie("soft"), x)
    result = flipped(flipped(expected, 0, 6, 1), 0, 8, 1)
    assert Agreement().add(tie("soft"), x, expected, result) == 6
    with pytest.raises(DisagreementError, match="differs in step 8"):
        Agreement().add(tie(), x, expected, result)


@pytest.mark.parametrize(("step", "refused"), [(8, False), (0, True)])
def test_a_sequence_with_a_tie_is_verified_up_to_it(step, refused, tmp_path):
    """The replay flips a tie; its scores are then compared with the network's on the steps before."""
    folded, lengths = tie(), []

    class Flipping(Own):
        def replay(self, content, samples):
            lengths.append([len(each) for each in samples])
            results = super().replay(content, samples)
            return [flipped(each, 0, step, 1) if len(each.spikes[0]) > step else each for each in results]

    register("x", Flipping())
    if refused:
        with pytest.raises(ExportError, match="could not be verified: after ties, 20 of 40 spikes and 0 scores"):
            export(folded, "x", tmp_path / "a", [with_tie(step)])
        assert not list(tmp_path.iterdir())
        return
    report = export(folded, "x", tmp_path / "a", [with_tie(step)])
    assert lengths == [[10], [8]]
    assert (report["spikes_different"], report["spikes_compared"]) == (1, 36)


BAD_SAMPLES = [
    ("prenorm", [], "at least one sequence, got none"),
    ("prenorm", [np.zeros((3, 1))], r"finite numbers of shape \[steps, 2\], got float64 of shape \[3, 1\]"),
    ("prenorm", [np.zeros((0, 2))], r".*, got float64 of shape \[0, 2\]"),
    ("prenorm", [np.full((3, 2), np.nan)], "finite numbers"),
    ("tokens", [np.array([0, 11])], r"tokens from 0 to 10 of shape \[steps\]"),
    ("tokens", [np.zeros((3, 2))], "tokens from 0 to 10"),
]


def test_samples_that_the_network_cannot_read(subtests, tmp_path):
    for case, x, message in BAD_SAMPLES:
        sentence = f"export: samples must be {message}"
        with subtests.test(message, case=case), pytest.raises(ExportError, match=sentence):
            export(network(CASES[case]), "safetensors", tmp_path / "a", x)


def test_unknown_formats_and_broken_networks(tmp_path):
    model = network(CASES["prenorm"])
    with pytest.raises(ExportError, match="to must be one of nir, onnx, onnx-step, c, safetensors, got 'pt'"):
        export(model, "pt", tmp_path / "a", samples("prenorm"))
    folded = fold(model)
    with pytest.raises(ExportError, match="cannot be used: bias must be finite"):
        export(replace(folded, bias=folded.bias * np.nan), "safetensors", tmp_path / "a", samples("prenorm"))


@pytest.mark.parametrize("numbers", ["fixed", "float"])
def test_c(numbers, tmp_path, monkeypatch):
    """A header that a compiler agrees with; if it disagrees, none."""
    needs("c")
    model, x = network(CASES["prenorm"], torch.float32), samples("prenorm")
    export(model, "c", tmp_path / "int.h", x, numbers=numbers)
    assert "network_int" in (tmp_path / "int.h" / "network_int.h").read_text()
    text, change = {
        "fixed": (c.Text, ("+ 8192) >> 14", "+ 8000) >> 14")),
        "float": (c.FloatText, ("s->z[j] += row[j]", "s->z[j] += 0.5f * row[j]")),
    }[numbers]
    write = text.whole
    monkeypatch.setattr(text, "whole", lambda self: write(self).replace(*change))
    with pytest.raises(VerificationError, match=r"the c file .*disagrees"):
        export(model, "c", tmp_path / "other", x, numbers=numbers)
    monkeypatch.undo()
    source = c_run.self_test
    monkeypatch.setattr(c_run, "self_test", lambda *given: source(*given[:3], given[3][::-1], *given[4:]))
    with pytest.raises(VerificationError, match="the c file fails its own test: other: 2 of 2 sequences differ"):
        export(model, "c", tmp_path / "other", x, numbers=numbers)
    assert [file.name for file in tmp_path.iterdir()] == ["int.h"]


@pytest.mark.parametrize("numbers", ["fixed", "float"])
def test_without_a_compiler_c_is_written_and_not_run(numbers, tmp_path, monkeypatch):
    monkeypatch.setattr(c_run, "COMPILERS", ("no-such-compiler",))
    report = export(
        network(CASES["prenorm"], torch.float32), "c", tmp_path / "net", samples("prenorm"), numbers=numbers
    )
    assert report["run"] is False
    assert report["compared"] == "c: no C compiler found (tried no-such-compiler)"
    assert (report["spikes_compared"], "agreement" in report) == (0, numbers == "fixed")
    assert sorted(file.name for file in (tmp_path / "net").iterdir()) == report["files"] == ["net.h", "net_test.c"]


def test_fixed_point_that_is_no_longer_the_network_is_refused(tmp_path):
    """Scales calibrated on two steps of one image: the rest of every image overflows."""
    x = list(data.load("digits")["train"].batch(np.arange(20)).x.numpy())
    with pytest.raises(VerificationError, match=r"in fixed point agrees with float on .* % of the samples"):
        export(resofire.pretrained("digits"), "c", tmp_path / "n.h", x, scales=[x[0][:2]])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("to", "package"), [("nir", "nir"), ("onnx", "onnx"), ("onnx-step", "onnxruntime")])
def test_a_package_that_is_missing(to, package, tmp_path, monkeypatch):
    needs(to)
    genuine = builtins.__import__

    def without(name, *rest):
        # Only the package itself: a relative import of a module of ours has a level.
        if name.split(".")[0] == package and (len(rest) < 4 or rest[3] == 0):
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return genuine(name, *rest)

    for name in ("nir", "onnx", "onnxruntime"):
        monkeypatch.delitem(sys.modules, f"resofire.deploy.formats.{name}", raising=False)
        monkeypatch.delattr(sys.modules["resofire.deploy.formats"], name, raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ExportError, match=rf"to '{to}' needs the package {package}: pip install 'resofire\[export\]'"):
        export(network(CASES["prenorm"]), to, tmp_path / "a", samples("prenorm"))


def test_a_folded_network_comes_back_to_the_bit(subtests, tmp_path):
    for case in CASES:
        with subtests.test(case):
            for dtype in ("float32", "float64"):
                folded = fold(network(CASES[case]), dtype)
                back = load(save(folded, tmp_path / "network.safetensors"))
                assert (back.dtype, back.tokens, back.pool) == (folded.dtype, folded.tokens, folded.pool)
                for a, b in zip(folded.layers, back.layers, strict=True):
                    assert [(g.kind, g.reset) for g in a.neurons] == [(g.kind, g.reset) for g in b.neurons]
                    assert a.fresh == b.fresh
                x = make_input(CASES[case], 20).numpy()
                ours, theirs = run(folded, x), run(back, x)
                np.testing.assert_array_equal(ours.scores, theirs.scores)
                for a, b in zip(ours.spikes, theirs.spikes, strict=True):
                    np.testing.assert_array_equal(a, b)


def test_a_wrong_fold_is_not_exported(tmp_path, monkeypatch):
    """Folding may be a user's own method: the file is compared with the network, not with its folded form alone."""
    model = (
        ClassifierConfig(inputs=1, classes=3, features=8, depth=1, neuron=PRFConfig(delta=(0.1, 1.0))).build().eval()
    )
    right = SDTCM.fold

    def wrong(self, c, d, floor):
        layers, c, d = right(self, c, d, floor)
        return layers, 2 * c, d

    samples = [np.random.RandomState(0).standard_normal((30, 1)).astype(np.float32)]
    assert export(model, "safetensors", tmp_path / "right.safetensors", samples)["bytes"] > 0
    monkeypatch.setattr(SDTCM, "fold", wrong)
    with pytest.raises(VerificationError, match=r"the folded network differs from the network by .* check the `fold`"):
        export(model, "safetensors", tmp_path / "wrong.safetensors", samples)
    assert not (tmp_path / "wrong.safetensors").exists()
