"""Folding: the folded network is the trained one, spike for spike, whatever stands where."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from folds import BASE, CASES, given, network, spikes_of

from resofire.deploy import fold
from resofire.deploy.formats.agreement import Agreement
from resofire.deploy.reference import Result, run
from resofire.models import RetrievalConfig, build


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("steps", [1, 63])
def test_the_folded_network_is_the_trained_one(case, steps):
    config = replace(CASES[case], backend="reference")
    model, x = network(config), given(config, steps)
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
        x = given(config, 1000, seed).float()
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
    x = given(BASE, 20)
    with torch.no_grad():
        features = model.encoder(x[None])[0][0]
    np.testing.assert_allclose(run(fold(model.encoder), x.numpy()).scores, features.numpy(), rtol=1e-9, atol=1e-9)


def test_what_cannot_be_folded():
    retrieval = build(RetrievalConfig(vocabulary=5, classes=2, features=4, depth=1))
    with pytest.raises(TypeError, match=r"fold: model must be .*, got Retrieval \(fold its encoder"):
        fold(retrieval)
    with pytest.raises(TypeError, match="got Linear"):
        fold(torch.nn.Linear(2, 2))


def test_layers_come_in_pairs():
    folded = fold(network(BASE))
    kinds = [layer.neurons[0].kind for layer in folded.layers]
    assert kinds == list(itertools.islice(itertools.cycle(("prf", "spatial")), 6))
    assert folded.causal
    assert not fold(network(CASES["bidirectional"])).causal
