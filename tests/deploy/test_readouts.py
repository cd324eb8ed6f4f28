"""Read-outs for signals that never end: leaky means and windows, in streams, in fixed point and in C alike."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from deploy_cases import BASE, CASES, make_input, network

from resofire import cli, deploy
from resofire.deploy import Stream, export, fold, quantize
from resofire.deploy.formats.c import FLAGS, header, verify
from resofire.deploy.reference import run, run_integer
from resofire.deploy.simulate import Simulation
from resofire.models import RetrievalConfig, build

READOUTS = ("mean", "last", "leaky:1", "leaky:7", "leaky:16", "leaky:1000", "window:1", "window:5", "window:1000")
compiled = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


def weights(readout, steps):
    """What each of `steps` steps counts, [steps]."""
    pool, _, size = readout.partition(":")
    age = np.arange(steps)[::-1]
    if pool == "leaky":
        counts = (1 - 1 / int(size)) ** age.astype(np.float64)
    else:
        counts = (age < {"mean": steps, "last": 1}.get(pool, int(size or 0))).astype(np.float64)
    return counts / counts.sum()


@pytest.mark.parametrize("readout", READOUTS)
def test_streams_agree_with_the_definition_in_chunks_of_any_size(readout, subtests):
    x = make_input(BASE, 60).numpy()
    whole = fold(network(BASE))
    each = run(replace(whole, pool="none"), x).scores
    folded = whole.with_readout(readout)
    assert folded.readout == readout
    assert folded.fault() is None
    stream = Stream(folded)
    scores = stream.feed(x[None], every=True)[0]
    for t in range(60):
        np.testing.assert_allclose(scores[t], weights(readout, t + 1) @ each[: t + 1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(run(folded, x).scores, scores[-1], rtol=0, atol=1e-12)
    for chunk in (1, 7, 59):
        with subtests.test(chunk=chunk):
            parts, state = [], Stream(folded).save()
            for at in range(0, 60, chunk):
                part = Stream(folded)
                part.restore(state)
                parts.append(part.feed(x[None, at : at + chunk], every=True)[0])
                state = part.save()
            np.testing.assert_array_equal(np.concatenate(parts), scores)
    other = Stream(whole.with_readout("leaky:8"))
    with pytest.raises(ValueError, match="belongs to another network"):
        other.restore(stream.save())


def test_a_window_does_not_drift():
    """Its sum is recomputed each time the ring is full."""
    folded = fold(network(BASE), "float32").with_readout("window:5")
    x = make_input(BASE, 20_000).numpy()
    x[100:200] *= 1e6
    stream = Stream(folded)
    long = stream.feed(x[None])
    fresh = run(replace(folded, pool="none", pool_steps=None), x).scores[-5:].mean(0, np.float64)
    np.testing.assert_allclose(long[0], fresh, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", [16, 24, 32])
@pytest.mark.parametrize("readout", [each for each in READOUTS if ":" in each])
def test_fixed_point_bit_for_bit_and_near_the_definition(readout, bits):
    x = [make_input(BASE, 60, seed).numpy() for seed in range(3)]
    quantized = quantize(fold(network(BASE)).with_readout(readout), x, state_bits=bits)
    simulation = Simulation(quantized)
    each = Simulation(replace(quantized, pool="none", pool_steps=None)).run(x[0]).scores
    for steps in (1, 2, 6, 60):
        scores = simulation.run(x[0][:steps]).scores
        np.testing.assert_array_equal(scores, run_integer(quantized, x[0][:steps]).scores)
        weight = float(min(steps, quantized.pool_steps))
        if "leaky" in readout:
            weight = ((1 - 1 / quantized.pool_steps) ** np.arange(steps)).sum()
            weight *= 2.0 ** (quantized.leak.fraction - quantized.leak.drop)
        expected = weights(readout, steps) @ each[:steps]
        # The deviation is far below what a unit of z in every channel would make.
        unit = np.abs(quantized.head).sum(0) + np.abs(quantized.bias) * 2**-12
        assert (np.abs(scores / weight - expected) <= unit / 8 + 2**-12 * np.abs(expected)).all()


@compiled
@pytest.mark.parametrize(
    ("readout", "bits"),
    [("leaky:7", (8, 16)), ("leaky:1024", (6, 24)), ("leaky:1000000", (4, 32)), ("window:5", (8, 16)),
     pytest.param("window:1000", (6, 32), marks=pytest.mark.deep),
     pytest.param("leaky:1", (8, 24), marks=pytest.mark.deep)],
)  # fmt: skip
def test_the_c_file_has_the_same_bits(readout, bits):
    x = [make_input(BASE, 60, seed).numpy() for seed in range(2)]
    quantized = quantize(fold(network(BASE)).with_readout(readout), x, weight_bits=bits[0], state_bits=bits[1])
    text = header(quantized)
    strict = (*FLAGS[:-1], "-O0", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    assert verify(text, quantized, x, flags=strict).equal
    assert "MOST_STEPS" not in text
    ring = int(readout.partition(":")[2]) * 6 * (2 if bits[1] == 16 else 4)
    assert (f"The window takes {ring} bytes" in text) == ("window" in readout)


@pytest.mark.parametrize("steps", [1, 3, 100, 65_535, (1 << 20) - 1])
@pytest.mark.parametrize("bits", [16, 24, 32])
def test_leaky_sums_fit_into_64_bits_whatever_comes(bits, steps):
    x = [make_input(BASE, 20).numpy()]
    quantized = quantize(fold(network(BASE)).with_readout(f"leaky:{steps}"), x, state_bits=bits)
    leak, largest = quantized.leak, 1 << (bits - 1 - quantized.head_drop)
    assert abs(leak.factor / 2**leak.shift * steps - 1) <= 2**-15
    assert leak.fraction >= (16 if bits == 16 and steps < 1 << 16 else 4)
    total = 0
    for _ in range(2000):
        assert total * leak.factor + (1 << leak.shift >> 1) < 1 << 63
        total += (largest << leak.fraction) - ((total * leak.factor + (1 << leak.shift >> 1)) >> leak.shift)
    # Where it ends up after more steps than can be run here.
    last = ((largest << leak.fraction) + 1 << leak.shift) // leak.factor
    assert max(total, last * leak.factor + (1 << leak.shift)) < 1 << 63
    read = last >> leak.drop
    assert int((read * np.abs(quantized.head).astype(object).sum(0)).max()) < 1 << 63


CONFIGS = {
    "values": CASES["pool leaky"],
    "tokens": replace(CASES["tokens"], pool="leaky", pool_steps=3),
    "feedforward": replace(CASES["feedforward"], pool="leaky", pool_steps=16),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_network_that_is_trained_leaky(name):
    """Whole, padded, packed, step by step, folded: the same logits, and gradients as the definition has them."""
    config = CONFIGS[name]
    model = network(config)
    lengths = [40, 1, 17, 0]
    x = [make_input(config, steps, seed) for seed, steps in enumerate(lengths)]
    padded = torch.nn.utils.rnn.pad_sequence([each if len(each) else x[0][:0] for each in x], batch_first=True)
    packed = model(torch.cat(x)[None], cu_seqlens=torch.tensor([0, 40, 41, 58, 58], dtype=torch.int32))
    torch.testing.assert_close(model(padded, lengths=torch.tensor(lengths)), packed, rtol=0, atol=1e-12)
    stream = Stream(fold(model))
    for number, each in enumerate(x[:3]):
        torch.testing.assert_close(model(each[None])[0], packed[number], rtol=0, atol=1e-12)
        state = None
        for now in each:
            logits, state = model.step(now[None], state)
        torch.testing.assert_close(logits[0], packed[number], rtol=0, atol=1e-12)
        stream.reset()
        np.testing.assert_allclose(stream.feed(each.numpy()[None])[0], packed[number].detach(), rtol=0, atol=1e-9)
    plain = build(replace(config, pool="none", pool_steps=None)).double().eval()
    plain.load_state_dict(model.state_dict())
    counts = torch.from_numpy(weights(f"leaky:{config.pool_steps}", 17).copy())
    expected = torch.einsum("tc,t->c", plain(x[2][None])[0], counts)
    torch.testing.assert_close(packed[2], expected, rtol=0, atol=1e-12)
    for loss, network_ in ((packed[2], model), (expected, plain)):
        loss.square().sum().backward()
        assert network_.state_dict().keys() == model.state_dict().keys()
    for one, two in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=0, atol=1e-9)


def test_it_is_saved_and_its_files_agree(tmp_path):
    model, x = network(CASES["pool leaky"]), [make_input(BASE, 30, seed).numpy() for seed in range(2)]
    deploy.save(fold(model), tmp_path / "n")
    assert deploy.load(tmp_path / "n").readout == "leaky:7"
    for to in ("nir", "onnx", "onnx-step"):
        pytest.importorskip(to.split("-")[0])
        for readout in (None, "leaky:1", "window:4"):
            if (to, readout) == ("onnx-step", "window:4"):
                with pytest.raises(deploy.ExportError, match="no memory for a window of time steps; use the read-out"):
                    export(model, to, tmp_path / "x", x, readout=readout)
            else:
                assert export(model, to, tmp_path / "x", x, readout=readout)["largest_deviation"] < 1e-9


def test_bad_readouts_are_refused(subtests):
    folded = fold(network(BASE))
    form = "readout must be mean, last, leaky:STEPS or window:STEPS, got "
    for readout, words in {
        "leaky": form, "mean:3": form, "none": form, "": form, "leak:3": form, 3: form,
        "leaky:0": "readout must be leaky:STEPS with 1 to 1048576 steps, got 'leaky:0'",
        "leaky:x": "readout must be leaky:STEPS with 1 to 1048576 steps, got 'leaky:x'",
        "window:65537": "readout must be window:STEPS with 1 to 65536 steps, got 'window:65537'",
    }.items():  # fmt: skip
        with subtests.test(readout), pytest.raises(ValueError, match=words):
            folded.with_readout(readout)
    for settings, words in [
        ({"pool": "leaky"}, "pool_steps must be an integer from 1 to 1048576 for pool leaky, got None"),
        ({"pool_steps": 3}, "pool_steps must be None for pool mean, got 3"),
        ({"pool": "window", "pool_steps": 3}, "pool must be one of"),
    ]:
        with pytest.raises(ValueError, match=words):
            replace(BASE, **settings)
    assert RetrievalConfig(vocabulary=7, features=8, depth=1, pool="leaky", pool_steps=9).pool_steps == 9


def test_the_flag(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.linspace(0, 1, 100))
    output = []
    for readout in ("mean", "window:100", "leaky:5"):
        assert cli.main(["stream", "digits", str(tmp_path / "x.npy"), "--readout", readout]) == 0
        output.append(capsys.readouterr().out)
    assert output[0].split(",")[0] == output[1].split(",")[0] != output[2].split(",")[0]
    assert cli.main(["stream", "digits", str(tmp_path / "x.npy"), "--readout", "leaky"]) == 2
    assert "stream: readout must be mean, last, leaky:STEPS or window:STEPS, got 'leaky'" in capsys.readouterr().err
    if shutil.which("cc"):
        arguments = ["--to", "c", "--samples", "1", "--readout", "leaky:32", "--out", str(tmp_path / "n.h")]
        assert cli.main(["export", "digits", *arguments]) == 0
        assert "a mean that forgets, with a memory of 32 steps" in (tmp_path / "n.h" / "n.h").read_text()
