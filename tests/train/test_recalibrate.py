"""Recalibrated norms have the statistics of the batches they were recalibrated on."""

from dataclasses import replace

import pytest
import torch

from resofire import data, models, train
from resofire.models import ClassifierConfig, build
from resofire.nn import BatchNorm
from resofire.recipes import digits_small


def network(**settings):
    torch.manual_seed(0)
    return build(ClassifierConfig(inputs=1, classes=10, features=8, depth=2, **settings))


def norms(model):
    return [each for each in model.modules() if isinstance(each, BatchNorm)]


def double_batches():
    """In float64 no spike falls the other way by rounding."""
    return [each._replace(x=each.x.double()) for each in train.evenly_spaced(data.load("digits")["train"], 50, 4)]


@pytest.mark.parametrize("prenorm", [True, False])
def test_statistics_are_the_mean_over_batches(prenorm):
    """Against hooks that record what comes into each norm in training, without dropout."""
    plain, dropping = (network(prenorm=prenorm, dropout=share, backend="reference").double() for share in (0.0, 0.5))
    dropping.load_state_dict(plain.state_dict())
    batches = double_batches()
    seen = {norm: [] for norm in norms(plain)}
    for norm in seen:
        norm.register_forward_pre_hook(lambda norm, inputs: seen[norm].append(inputs[0].flatten(0, -2).detach()))
    for batch in batches:
        plain.train()(batch.x)
    before = {name: value.clone() for name, value in dropping.named_parameters()}

    train.recalibrate(dropping.train(), batches)
    for norm, other in zip(norms(dropping), norms(plain), strict=True):
        if seen[other]:  # the last one is part of the pooling, and is not called
            torch.testing.assert_close(norm.running_mean, torch.stack([x.mean(0) for x in seen[other]]).mean(0))
            torch.testing.assert_close(norm.running_var, torch.stack([x.var(0) for x in seen[other]]).mean(0))
        assert not norm.training
        assert norm.momentum == other.momentum == 0.1
    assert sum(bool(x) for x in seen.values()) >= 2
    assert not dropping.training
    assert all(torch.equal(value, before[name]) for name, value in dropping.named_parameters())


def test_backends_agree():
    batches = double_batches()
    networks = [network(backend=backend).double() for backend in ("reference", "fused")]
    for model in networks:
        train.recalibrate(model, batches)
    for one, other in zip(norms(networks[0]), norms(networks[1]), strict=True):
        torch.testing.assert_close(one.running_mean, other.running_mean)
        torch.testing.assert_close(one.running_var, other.running_var)


def test_without_batches_nothing_changes():
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    train.recalibrate(model, [])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def training(folder):
    """The rows of training, without the time."""
    rows = (folder / "metrics.csv").read_text().splitlines()
    return [row.rpartition(",")[0] for row in rows if ",train," in row]


@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_run_validates_and_keeps_recalibrated_norms(ema, tmp_path):
    base = digits_small()
    small = replace(base.model, features=8, depth=1)
    config = replace(base, model=small, steps=6, validate_every=3, batch=100, recalibrate=4, ema=ema)
    task = data.load("digits")
    loaded = {}
    for count in (0, 4):
        result = train.train(replace(config, recalibrate=count), task, tmp_path / str(count)).result
        loaded[count] = models.load(tmp_path / str(count))
        step = result["best"]["step"]
        rows = (tmp_path / str(count) / "metrics.csv").read_text().splitlines()
        (logged,) = [row.split(",") for row in rows if row.startswith(f"{step},") and ",validation," in row]
        # What was validated is what was saved.
        assert float(logged[4]) == pytest.approx(result["accuracy"]["validation"], rel=1e-5)
    again = models.load(tmp_path / "4")
    train.recalibrate(again, train.evenly_spaced(task["train"], 100, 4))
    for one, other in zip(norms(again), norms(loaded[4]), strict=True):
        assert torch.equal(one.running_mean, other.running_mean)
    assert any(
        not torch.allclose(one.running_mean, other.running_mean, rtol=1e-3)
        for one, other in zip(norms(loaded[0]), norms(loaded[4]), strict=True)
    )
    # Training itself does not look at them.
    assert training(tmp_path / "0") == training(tmp_path / "4")
