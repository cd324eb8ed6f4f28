"""C in floats, and streams, of neurons of any equation: what is compiled fires the spikes of the network."""

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import torch
from deploy_cases import BASE, CASES, make_input, network

from resofire import nn
from resofire.deploy import ExportError, FoldError, Stream, export, fold, operations, quantize
from resofire.deploy.formats import c, c_run, safetensors
from resofire.deploy.reference import run
from resofire.models import ClassifierConfig, FeedforwardConfig
from resofire.nn.config import neuron_names
from resofire.nn.folded import Equation
from resofire.ops.equation.c import literal, step_source
from resofire.ops.equation.trace import trace

compiled = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
DEEP = ("postnorm and last", "no amplitude", "both amplitudes", "lif no reset", "unit gain", "no norm", "feedforward")
PLAIN = [
    pytest.param(case, marks=pytest.mark.deep if case in DEEP else ())
    for case in CASES
    if not case.startswith("bidirectional")
]


class Everything(nn.Neuron):
    """Every operation that can be compiled, and two comparisons that are no spikes."""

    states = ("a", "b", "last")

    def coefficients(self):
        return {"p": torch.linspace(0.2, 0.9, self.features), "q": torch.tensor(0.7)}

    @staticmethod
    def dynamics(current, state, c, spike):
        x = torch.tanh(current) + torch.sigmoid(state.a) - torch.exp(-state.b.abs())
        chosen = ((x > 0) & ~(state.a < -1)) | (state.b >= 2)
        y = torch.where(chosen, torch.sqrt(x.abs() + 1e-3), -x)
        z = torch.log(1 + y * y) + torch.sin(x) * torch.cos(y) + (x.abs() + 0.5) ** 1.7 - torch.minimum(x, y)
        z = z + torch.maximum(x, c.p) + x.clamp(-1, 1) / (1 + y.abs()) + 0.1 * (state.a <= y) + (x == y) + (x != y)
        s = spike(z - 4 - c.p)
        return s, {"a": c.q * state.a + x - s.detach(), "b": 0.5 * state.b + y, "last": state.a}


OWN = {
    "everything": replace(BASE, neuron=Everything.config()),
    "postnorm": replace(BASE, neuron=nn.ALIF.config(), prenorm=False),
    "tokens": replace(BASE, neuron=nn.TCLIF.config(), inputs=None, vocabulary=11, class_names=("a", 'b "', "ü")),
    "leaky": replace(BASE, neuron=nn.BHRF.config(), pool="leaky", pool_steps=7),
    "each step": replace(BASE, neuron=nn.DRF.config(resonators=2, history=2), pool="none"),
    "feedforward": FeedforwardConfig(sizes=(2, 6, 5, 3), neuron=nn.GLIF.config(), pool="last"),
    "sliding": replace(BASE, neuron=nn.SlidingPSN.config(order=3), depth=1, standardise=True),
}


def samples(config, count=3, steps=60):
    return [make_input(config, steps, seed).numpy() for seed in range(count)]


def verified(folded, x):
    made = c.prepare(folded, x, "net", numbers="float")
    return c.report(made, made.files(), x)


@compiled
@pytest.mark.parametrize("case", PLAIN)
def test_prf_lif_and_spatial_neurons(case):
    report = verified(fold(network(CASES[case], torch.float32)), samples(CASES[case]))
    assert report["spikes_compared"] > 1000
    assert report["spikes_different"] == report["float64"]["spikes_different"] == 0


@pytest.fixture(params=OWN)
def own(request):
    torch.manual_seed(5)
    config = OWN[request.param]
    model = network(config)
    if getattr(config, "standardise", False):
        model.encoder.standardise(np.array([1.0, -2.0]), np.array([0.5, 3.0]))
    return model, samples(config)


@compiled
def test_neurons_of_any_equation(own):
    model, x = own
    folded = fold(model, "float32")
    report = verified(folded, x)
    assert report["float64"]["spikes_compared"] == sum(map(len, x)) * folded.neurons
    assert report["float64"]["spikes_different"] == 0
    rates = [np.mean([run(folded, each).spikes[i].mean() for each in x]) for i in range(len(folded.layers))]
    assert all(0.002 < rate < 0.95 for rate in rates), rates


def test_streams_fold_and_network_agree(own):
    model, x = own
    folded = fold(model)
    for sample in x:
        with torch.no_grad():
            expected = model(torch.from_numpy(sample)[None])[0].numpy()
        np.testing.assert_allclose(run(folded, sample).scores, expected, atol=1e-11)
        stream, each = Stream(folded), folded.pool == "none"
        fired = np.zeros((1, len(sample), folded.neurons), np.uint8)
        scores = stream.feed(sample[None], every=each, spikes=fired)[0]
        np.testing.assert_allclose(scores, expected, atol=1e-11)
        np.testing.assert_array_equal(fired[0], np.concatenate(run(folded, sample).spikes, 1))
        # Pieces of any size, from a saved state, give the same bits.
        pieces, saved = Stream(folded), None
        for start in range(0, len(sample), 7):
            if saved is not None:
                pieces.reset()
                pieces.restore(saved)
            last = pieces.feed(sample[None, start : start + 7])[0]
            saved = pieces.save()
        np.testing.assert_array_equal(last, scores[-1] if each else scores)


def test_every_neuron_of_the_library_in_a_plain_network(subtests):
    x = 2 * torch.randn(1, 80, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for name, config in neuron_names().items():
        if "." in name or name in ("psn", "recurrent"):
            continue
        with subtests.test(name), torch.no_grad():
            torch.manual_seed(0)
            model = FeedforwardConfig(sizes=(2, 12, 8, 3), neuron=config(), gain=4.0).build().double().eval()
            scores = Stream(fold(model)).feed(x.numpy())
            np.testing.assert_allclose(scores, model(x).numpy(), atol=1e-11)
            assert np.abs(scores - scores.mean()).max() > 1e-3


@compiled
@pytest.mark.parametrize("readout", ["window:5", "leaky:1000", "mean"])
def test_readouts(readout):
    config = replace(BASE, neuron=nn.AHP.config(), depth=1)
    folded = fold(network(config, torch.float32)).with_readout(readout)
    # Longer than two windows, so that its sum is computed afresh.
    assert verified(folded, samples(config, 2, 13))["largest_deviation"] < 1e-5


@compiled
def test_the_header_stands_alone(tmp_path):
    config = OWN["tokens"]
    # The network is in double, the file is not.
    files = c.prepare(fold(network(config)), samples(config), "edge_1", numbers="float").files()
    code = re.sub(r"/\*.*?\*/", "", files["edge_1.h"], flags=re.S)
    assert re.findall(r"#include (.*)", code) == ["<stdint.h>", "<string.h>"]
    assert not re.search(r"\b(double|malloc|calloc|free|printf)\b|\d\.\d+[^\df]", code)
    defined = re.findall(r"^(?:static (?:inline )?(?:const )?\w+ |} )\*?(\w+)", code, flags=re.M)
    assert len(defined) > 20
    assert all(name.startswith("edge_1_") for name in defined)
    # All layers of the same neurons with the same numbers share a function: one for TC-LIF, one for spatial neurons.
    assert code.count("static int edge_1_neuron") == 2
    main = '#include <stdio.h>\n#include "edge_1.h"\nint main(void)\n{\n    static edge_1_state s;\n'
    main += '    printf("%d %d %s", edge_1_step(&s, 3), edge_1_step(&s, 11), edge_1_class_name(1));\n    return 0;\n}\n'
    for name, text in {**files, "main.c": main}.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["cc", *c_run.FLAGS, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout == '0 -1 b "'


def test_numbers_are_written_so_that_they_come_back():
    values = np.random.default_rng(0).standard_normal(1000) * 10.0 ** np.arange(-20, 20, 0.04)
    for real, dtype in (("float", np.float32), ("double", np.float64)):
        for value in values.astype(dtype):
            assert dtype(literal(value, real).strip("()f")) == value
    assert [literal(each) for each in (2, -0.0, np.inf, -np.inf, np.nan)] == [
        "2.0f", "(-0.0f)", "INFINITY", "-INFINITY", "NAN",
    ]  # fmt: skip


def test_a_step_keeps_states_apart_until_all_are_known():
    program = trace(lambda i, s, c, spike: (spike(i - c.p), {"a": s.b, "b": s.a}), ("a", "b"), ("p",), "Own")
    text = step_source(program, "swap", {"p": 0.5})
    assert text.startswith("static int swap(float current, float *state)\n")
    assert "const float next0 = state[1];\n    const float next1 = state[0];\n    state[0] = next0;" in text


def test_what_cannot_take_any_neuron_says_so(tmp_path):
    model = ClassifierConfig(inputs=2, classes=3, features=8, depth=1, neuron=nn.BHRF).build().eval()
    x = [np.zeros((20, 2), np.float32)]
    folded = fold(model)
    assert isinstance(folded.layers[0].neurons[0].equation, Equation)
    for to in ("nir", "onnx", "onnx-step", "safetensors"):
        with pytest.raises(ExportError, match=f"to '{to}' takes PRF and LIF neurons, got BHRF; c takes any neuron"):
            export(model, to, tmp_path / "a", x)
    with pytest.raises(ExportError, match=r"fixed point takes PRF and LIF neurons, got BHRF; .*\(--numbers float\)"):
        export(model, "c", tmp_path / "a", x)
    with pytest.raises(ExportError, match="numbers must be fixed or float, got 'int8'"):
        export(model, "c", tmp_path / "a", x, numbers="int8")
    with pytest.raises(ExportError, match="weight_bits is for fixed point, got numbers 'float'"):
        export(model, "c", tmp_path / "a", x, numbers="float", weight_bits=8)
    with pytest.raises(ValueError, match="quantize: folded must have PRF and LIF neurons, got BHRF"):
        quantize(folded, x)
    with pytest.raises(ValueError, match="save: folded must have PRF and LIF neurons, got BHRF"):
        safetensors.encode(folded)
    for neuron, reason in (
        (nn.PSN.config(steps=20), r"token_neuron \(PSN\) cannot be folded: it has no equation of one time step"),
        (nn.Recurrent, r"token_neuron \(Recurrent\) cannot be folded"),
    ):
        with pytest.raises(FoldError, match=reason):
            export(replace(model.config, neuron=neuron).build(), "c", tmp_path / "a", x, numbers="float")
    both = replace(model.config, bidirectional=True).build().eval()
    with pytest.raises(ExportError, match="the network is bidirectional"):
        export(both, "c", tmp_path / "a", x, numbers="float")
    assert not list(tmp_path.iterdir())


def test_operations_of_a_folded_network_count_the_equation():
    model = ClassifierConfig(inputs=2, classes=3, features=8, depth=1, neuron=nn.TCLIF).build().eval()
    counted = operations(fold(model), [0.1, 0.2], 10).only("temporal neuron")
    # β₁ u, β₂ d and the gain of the norm; three sums, two resets and the offset of the norm; one comparison.
    assert (counted.per_step("multiply"), counted.per_step("add"), counted.per_step("compare")) == (24, 48, 8)
