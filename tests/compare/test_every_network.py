"""Every network through a whole run: trained, interrupted, resumed to the same bits, evaluated, measured."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from resofire import data, measure, train
from resofire.compare import NETWORKS
from resofire.models import load
from resofire.models.config import EncoderConfig
from resofire.recipes import digits_small

STEPS = 4


class Interruption(Exception):
    """Ends a run in the middle."""


class Interrupter(train.Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, run, figures):
        if run.step == self.step:
            raise Interruption


def sequences():
    """Two classes, waves of two frequencies, of different lengths: packed batches."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=40)
    lengths = rng.integers(6, 20, size=40)
    x = [np.sin((1 + label) * np.arange(n) + rng.random())[:, None] for label, n in zip(labels, lengths, strict=True)]
    return data.from_arrays(x, labels, test=0.25, validation=0.25, name="waves")


@pytest.mark.deep
@pytest.mark.parametrize("name", NETWORKS)
def test_a_run_is_resumed_to_the_same_bits_evaluated_and_measured(name, tmp_path):
    task = sequences()
    recipe = replace(digits_small(), task=task.name, batch=4, steps=STEPS, validate_every=2, checkpoint_minutes=0.0)
    recipe = replace(recipe, model=replace(recipe.model, classes=2))
    model = NETWORKS[name].sized(recipe, 12.0, 1_000)
    config = replace(recipe, model=model, **NETWORKS[name].settings)
    whole = train.train(config, task, tmp_path / "whole").folder
    with pytest.raises(Interruption):
        train.train(config, task, tmp_path / "parts", callbacks=[Interrupter(3)])
    folder, result = train.resume(tmp_path / "parts", task, callbacks=[Interrupter(None)])
    first, second = load(whole).state_dict(), load(folder).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert train.evaluate(load(folder), task, config.batch)["correct"] == result["correct"]
    measured = measure.measure(load(folder), task["test"].batches(config.batch), against=("s4",))
    assert measured["rates"]["layers"] == pytest.approx(result["fire_rates"])
    spiking = not isinstance(model, EncoderConfig) or name not in ("s4d", "transformer", "elm")
    assert bool(result["fire_rates"]) == spiking
