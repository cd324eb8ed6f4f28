"""Folding: the folded network fires the spikes of the trained one, for our modules and for a user's own."""

import itertools
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from deploy_cases import BASE, CASES, make_input, network, spikes_of

from resofire.deploy import FoldError, Layer, Stream, export, fold
from resofire.deploy.formats.agreement import Agreement
from resofire.deploy.reference import Result, run
from resofire.models import RetrievalConfig, build
from resofire.nn import SDTCM, SpikeLinear
from resofire.nn.folded import temporal, to_array, weight_rows


@pytest.mark.parametrize("case", CASES)
def test_the_folded_network_is_the_trained_one(subtests, case):
    for steps in [1, 63]:
        with subtests.test(steps=steps):
            config = replace(CASES[case], backend="reference")
            model, x = network(config), make_input(config, steps)
            logits, spikes = spikes_of(model, x)
            scores, fired = run(fold(model), x.numpy())
            assert len(fired) == len(spikes)
            for ours, theirs in zip(fired, spikes, strict=True):
                np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_allclose(scores, logits.numpy(), rtol=1e-9, atol=1e-9)
            assert steps == 1 or all(0.01 < each.mean() < 0.99 for each in spikes), [each.mean() for each in spikes]


def test_norms_of_both_signs_and_none_are_among_them():
    model = network(BASE)
    signs = np.concatenate([layer.neurons[0].sign for layer in fold(model).layers])
    assert {-1, 0, 1} == set(signs.tolist())
    after = fold(network(CASES["postnorm"]))
    assert any(layer.clear is not None and layer.clear.any() for layer in after.layers)


@pytest.mark.parametrize("case", ["prenorm", "postnorm", "lif", "feedforward"])
def test_in_float32_it_is_no_further_off_than_rounding(case):
    """Than the model's own rounding: spikes differ only at ties."""
    config = replace(CASES[case], backend="reference")
    model = network(config, torch.float32)
    folded, seen = fold(model), Agreement()
    assert folded.dtype == np.float32
    for seed in range(5):
        x = make_input(config, 1000, seed).float()
        logits, spikes = spikes_of(model, x)
        seen.add(folded, x.numpy(), run(folded, x.numpy()), Result(logits.numpy(), spikes))
    assert seen.compared > 0.9 * seen.spikes
    assert seen.scores


def test_the_model_is_left_as_it_was():
    model = network(BASE)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fold(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_encoder_gives_its_features():
    model = network(BASE)
    x = make_input(BASE, 20)
    with torch.no_grad():
        features = model.encoder(x[None])[0][0]
    np.testing.assert_allclose(run(fold(model.encoder), x.numpy()).scores, features.numpy(), rtol=1e-9, atol=1e-9)


def test_what_cannot_be_folded():
    retrieval = build(RetrievalConfig(vocabulary=5, classes=2, features=4, depth=1))
    with pytest.raises(FoldError, match="fold: Retrieval cannot be folded: it has no method `fold`; fold its encoder"):
        fold(retrieval)
    with pytest.raises(TypeError, match=r"fold: Linear cannot be folded: it has no method `fold`$"):
        fold(torch.nn.Linear(2, 2))
    model = network(BASE)
    model.encoder.blocks[1].token_neuron = torch.nn.Identity()
    with pytest.raises(FoldError, match=r"fold: encoder\.blocks\.1\.token_neuron \(Identity\) cannot be folded"):
        fold(model)
    model.encoder.blocks[0] = torch.nn.Identity()
    with pytest.raises(FoldError, match=r"fold: encoder\.blocks\.0 \(Identity\) cannot be folded: it has no method"):
        fold(model)
    model.fold = lambda floor: None
    with pytest.raises(TypeError, match=r"Classifier\.fold must return a Folded, got NoneType"):
        fold(model)


def test_layers_come_in_pairs():
    folded = fold(network(BASE))
    kinds = [layer.neurons[0].kind for layer in folded.layers]
    assert kinds == list(itertools.islice(itertools.cycle(("prf", "spatial")), 6))
    assert folded.causal
    assert not fold(network(CASES["bidirectional"])).causal


class Leaky(torch.nn.Module):
    """A user's neuron, v = 0.8 v + 2 x with a soft reset at 0.5, written without any class of ours."""

    def __init__(self, features):
        super().__init__()
        self.features = features

    def step(self, x, state):
        v = 2 * x if state is None else 0.8 * state + 2 * x
        spikes = (v >= 0.5).to(x.dtype)
        return spikes, v - 0.5 * spikes

    def scan(self, x, state=None, *, cu_seqlens=None, reverse=False):
        spikes = []
        for t in range(x.shape[1]):
            fired, state = self.step(x[:, t], state)
            spikes.append(fired)
        return torch.stack(spikes, 1), state

    def fold(self, a, b):
        decay, zero = np.full(self.features, 0.8), np.zeros(self.features)
        gain = np.full(self.features, 2.0)
        return temporal("lif", phi_re=decay, phi_im=zero, gain=gain, threshold=0.5, reset="soft", a=a, b=b)


class Plain(torch.nn.Module):
    """A user's block: a spiking layer without shortcut and norm."""

    def __init__(self, features):
        super().__init__()
        self.neuron, self.linear = Leaky(features), SpikeLinear(features, features, backend="reference")

    def forward(self, u, *, cu_seqlens=None):
        return self.linear(self.neuron.scan(u)[0])

    def fold(self, c, d, floor):
        layer = Layer((self.neuron.fold(c, d),), weight_rows(self.linear.weight), fresh=True)
        return [layer], np.ones_like(c), to_array(self.linear.bias)


def own_network():
    model = network(replace(BASE, backend="reference"))
    own = Plain(6).double()
    with torch.no_grad():
        own.linear.weight.mul_(4)
    model.encoder.blocks[0] = own
    model.encoder.blocks[2] = SDTCM(6, neuron=Leaky, norm="none").double()
    return model.eval()


def test_a_block_and_a_neuron_of_a_user():
    model, x = own_network(), make_input(BASE, 60)
    with torch.no_grad():
        logits = model(x[None])[0].numpy()
    folded = fold(model)
    assert [layer.neurons[0].kind for layer in folded.layers] == ["lif", "prf", "spatial", "lif", "spatial"]
    result = run(folded, x.numpy())
    np.testing.assert_allclose(result.scores, logits, rtol=1e-9, atol=1e-9)
    assert all(0.01 < fired.mean() < 0.99 for fired in result.spikes)
    np.testing.assert_allclose(Stream(model).feed(x.numpy()[None])[0], logits, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("to", "package"), [("safetensors", None), ("nir", "nir"), ("onnx", "onnxruntime"), ("c", None)]
)
def test_a_network_of_a_user_is_exported(to, package, tmp_path):
    if package:
        pytest.importorskip(package)
    if to == "c" and not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    samples = [make_input(BASE, 60, seed).numpy() for seed in range(4)]
    assert export(own_network(), to, tmp_path / "own", samples)["spikes_different"] == 0
    assert (tmp_path / "own").stat().st_size
