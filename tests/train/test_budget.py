"""A budget in minutes, the choices made from data, and runs that keep the last weights."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from resofire import automatic, data, models, train
from resofire.train import budget

SMALL = {"features": 8, "depth": 1}


def task(count=40, steps=20, **options):
    random = np.random.RandomState(0)
    return data.from_arrays(random.randn(count, steps), np.arange(count) % 2, test=0.2, **{"validation": 0, **options})


def test_a_budget_becomes_a_number_of_steps(monkeypatch):
    """On a clock that advances by a second at each look, so that nothing depends on this machine."""
    now = iter(range(10**6))
    monkeypatch.setattr(budget, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    own = task()
    config = automatic.choose(own, minutes=None, epochs=50, **SMALL)
    ten, twenty = (train.steps_within(config, own, minutes) for minutes in (10.0, 20.0))
    assert 300 < 1.9 * ten < twenty < 2.1 * ten < 1_500
    assert train.steps_within(config, own, 10.0, validations=100) < train.steps_within(config, own, 10.0, 0)
    assert automatic.choose(own, minutes=10.0, epochs=50, **SMALL).steps <= 50 * (32 // config.batch)
    few = automatic.choose(own, minutes=0.5, epochs=1000, **SMALL)
    assert 1 <= few.steps < 40
    assert train.steps_within(config, own, 1e-6) == train.steps_within(config, own, 1e-6, validations=3) == 1


def test_choices_follow_the_data():
    config = automatic.choose(task(count=1_500, validation=None), minutes=None)
    assert (config.select, config.batch, config.model.class_names) == ("validation", 64, ("0", "1"))
    assert config.model.standardise
    small = automatic.choose(task(), minutes=None)
    assert (small.select, small.batch) == ("last", 8)
    for steps in (1, 10, 1_000, 100_000):
        neuron = automatic.neuron(steps)
        assert neuron.tau / neuron.delta[0] >= steps
        assert neuron.tau / neuron.delta[1] <= 20
        assert 1 <= automatic.choose_batch(1_000, steps) <= 64
    weights = automatic.balanced_weights(data.from_arrays(np.ones((8, 3)), [0] * 6 + [1] * 2, validation=0))
    assert weights == pytest.approx((8 / 12, 2.0))
    assert "2 epochs" in "\n".join(automatic.describe(automatic.choose(task(), minutes=None, epochs=2), task()))
    one = "\n".join(automatic.describe(replace(automatic.choose(task(), minutes=None), steps=1, batch=1), task()))
    assert "1 step of 1 sequence (0." in one
    for setting in ({"epochs": 0}, {"minutes": -1}, {"depth": 0}):
        ((name, value),) = setting.items()
        with pytest.raises(ValueError, match=f"automatic.choose: {name} must be a positive .* or None, got {value}"):
            automatic.choose(task(), **setting)


def test_the_last_weights_are_kept_and_need_no_other_split(tmp_path):
    own = task()
    alone = replace(own, splits={"train": own["train"]})
    config = replace(automatic.choose(alone, minutes=None, epochs=4, **SMALL), recalibrate=0)
    # However often it is validated, the weights of the last step are kept.
    long = train.train(replace(config, steps=6, validate_every=2), alone, tmp_path / "a")
    short = train.train(replace(config, steps=6, validate_every=6), alone, tmp_path / "b")
    a, b = (models.load(run.folder).state_dict() for run in (long, short))
    assert all(a[name].equal(b[name]) for name in a)
    assert long.result["accuracy"].keys() == {"train"}
    assert long.result["best"]["step"] == 6
    assert math.isfinite(long.result["loss"]["train"])


def test_class_weights_reach_the_loss(tmp_path):
    own = task()
    config = replace(automatic.choose(own, minutes=None, epochs=3, **SMALL), class_weights=(0.0, 1.0), lr=0.05)
    result = train.train(config, own, tmp_path / "run").result
    # Class 0 costs nothing: everything is answered with class 1.
    assert result["classes"] == {"0": [0, 4], "1": [4, 4]}
    with pytest.raises(train.RunError, match="class_weights must be 2, one for each class of own, got 3"):
        train.train(replace(config, class_weights=(1.0, 1.0, 1.0)), own, tmp_path / "other")


def test_the_final_evaluation_counts_unless_it_is_left_out(monkeypatch):
    """Of the training split no more batches are evaluated, and planned, than the test split has."""
    monkeypatch.setattr(budget, "_time_steps", lambda *arguments: 1.0)
    monkeypatch.setattr(budget, "_time_evaluation", lambda *arguments: 1.0)
    own = task(count=320, validation=0.1)
    config = replace(automatic.choose(own, minutes=None, epochs=1, **SMALL), batch=4, recalibrate=0)
    batches = {name: -(-len(split) // 4) for name, split in own.splits.items()}
    assert batches["train"] > batches["test"]
    with_evaluation = train.steps_within(config, own, 10.0, 0)
    alone = train.steps_within(config, own, 10.0, 0, evaluation=False)
    assert abs(alone - with_evaluation - 2 * batches["test"] - batches["validation"]) <= 1


def test_many_sequences_and_time_get_a_wide_network(monkeypatch):
    own = task(count=3_500)
    monkeypatch.setattr(train, "steps_within", lambda *arguments, **named: 10**6)
    assert automatic.choose(own).model.features == 160
    assert automatic.choose(own, features=32).model.features == 32
    monkeypatch.setattr(train, "steps_within", lambda *arguments, **named: 100)
    short = automatic.choose(own)
    assert (short.model.features, short.steps) == (96, 100)
    assert automatic.choose(own, minutes=None).model.features == 96
