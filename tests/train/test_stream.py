"""The stream of batches: step n is the same wherever a run goes on, and processes share it without loss."""

import itertools

import numpy as np
import pytest
import torch

from resofire import data
from resofire.data.task import Form, Split
from resofire.models import ClassifierConfig
from resofire.train import RunConfig
from resofire.train.stream import Plan, Training, Watching

MODEL = ClassifierConfig(inputs=1, classes=10, features=4, depth=1)


def run(**settings) -> RunConfig:
    return RunConfig(**{"name": "test", "task": "test", "model": MODEL, **settings})


def fixed(count: int) -> Split:
    """Sequences of length 3 whose label is their number."""
    stored = np.arange(3 * count, dtype=np.float32).reshape(count, 3, 1)
    return Split(stored, np.arange(count), kind="values", form=Form())


def packed(count: int) -> Split:
    """Sequences of 0 to 8 tokens, each the number of its sequence, which is its label, too."""
    lengths = np.random.RandomState(0).randint(0, 9, count)
    stored = np.repeat(np.arange(count), lengths)
    return Split(stored, np.arange(count), kind="tokens", form=Form(), bounds=np.cumsum([0, *lengths]))


SPLITS = {"fixed": fixed, "packed": packed}
# sequences, batch and settings: whole epochs, a remainder, validations between and across epochs, steps for epochs
SETTINGS = {
    "an epoch at a time": (24, {"batch": 4, "epochs": 3}),
    "sequences left over": (23, {"batch": 4, "epochs": 3}),
    "validation within an epoch": (23, {"batch": 4, "epochs": 3, "validate_every": 2}),
    "validation that does not divide an epoch": (30, {"batch": 4, "epochs": 3, "validate_every": 4}),
    "validation across epochs": (23, {"batch": 4, "epochs": 3, "validate_every": 13}),
    "validation at the end only": (23, {"batch": 4, "epochs": 2, "validate_every": 100}),
    "validation at each step": (9, {"batch": 4, "epochs": 3, "validate_every": 1}),
    "steps for epochs": (23, {"batch": 4, "epochs": 99, "steps": 17, "validate_every": 7}),
    "less than an epoch": (100, {"batch": 4, "steps": 3}),
    "one batch": (4, {"batch": 4, "epochs": 2}),
}


def walked(split: Split, config: RunConfig, step: int = 0, **share: int) -> list[list[tuple]]:
    """The batches of each stretch from a step on."""
    plan = Plan.of(config, split)
    training = Training(split, config, plan, step, **share)
    stretches = [list(training) for _ in range(plan.stretches(step))]
    assert training.step == max(step, plan.steps)
    assert list(training) == []
    return stretches


def assert_equal(one: list, other: list) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.labels, b.labels)
        assert torch.equal(a.x, b.x)
        assert (a.cu_seqlens is None) == (b.cu_seqlens is None)
        assert a.cu_seqlens is None or torch.equal(a.cu_seqlens, b.cu_seqlens)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_plan_says_at_every_step_what_is_to_come(name):
    count, settings = SETTINGS[name]
    config = run(**settings)
    plan = Plan.of(config, fixed(count))
    assert plan.epoch == count // config.batch
    assert plan.steps == (config.steps or config.epochs * plan.epoch)
    assert plan.between == (config.validate_every or plan.epoch)
    # A validation comes after every `between` steps, counted from the first one, and after the last.
    due = sorted({*range(plan.between, plan.steps, plan.between), plan.steps})
    for step in range(plan.steps):
        assert plan.stop(step) == next(stop for stop in due if stop > step)
        assert plan.stretches(step) == sum(stop > step for stop in due)
    assert plan.stop(plan.steps) == plan.steps
    assert plan.stretches(plan.steps) == plan.stretches(plan.steps + 1) == 0


def test_a_batch_above_the_training_split_is_refused():
    with pytest.raises(ValueError, match="batch must not be above the 23 training sequences of test, got 24"):
        Plan.of(run(batch=24), fixed(23))
    assert Plan.of(run(batch=23), fixed(23)).epoch == 1


@pytest.mark.parametrize("kind", SPLITS)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_goes_on_with_the_same_batches_from_any_step(name, kind):
    count, settings = SETTINGS[name]
    split, config = SPLITS[kind](count), run(**settings, seed=5)
    plan = Plan.of(config, split)
    stretches = walked(split, config)
    whole = list(itertools.chain(*stretches))
    assert len(whole) == plan.steps
    assert all(len(batch.labels) == config.batch for batch in whole)
    for step in range(plan.steps + 1):
        rest = walked(split, config, step)
        assert_equal(list(itertools.chain(*rest)), whole[step:])
        # The stretches end where they did.
        assert [len(each) for each in rest[1:]] == [len(each) for each in stretches[len(stretches) - len(rest) + 1 :]]


def test_an_epoch_sees_no_sequence_twice_and_each_epoch_has_an_order_of_its_own():
    split, config = fixed(24), run(batch=4, epochs=3, validate_every=5)
    labels = torch.cat([batch.labels for batch in itertools.chain(*walked(split, config))]).reshape(3, 24)
    assert all(sorted(epoch) == list(range(24)) for epoch in labels.tolist())
    assert len({tuple(epoch) for epoch in labels.tolist()}) == 3


def test_another_seed_gives_another_order():
    runs = [walked(fixed(24), run(batch=4, epochs=1, seed=seed)) for seed in range(3)]
    orders = {tuple(label for batch in stretch for label in batch.labels.tolist()) for (stretch,) in runs}
    assert len(orders) == 3


def test_an_interrupted_walk_has_not_moved_on():
    training = Training(fixed(24), run(batch=4, epochs=2), Plan(6, 12, 6))
    first = list(itertools.islice(training, 4))
    assert training.step == 0
    assert_equal(list(training)[:4], first)
    assert training.step == 6


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("kind", SPLITS)
def test_the_shares_of_all_processes_are_the_batch(kind, world):
    split, config = SPLITS[kind](23), run(batch=5, epochs=2, validate_every=3)
    whole = list(itertools.chain(*walked(split, config)))
    shares = [list(itertools.chain(*walked(split, config, rank=rank, world=world))) for rank in range(world)]
    assert all(len(share) == len(whole) == 8 for share in shares)
    for batch, *parts in zip(whole, *shares, strict=True):
        assert sorted(torch.cat([part.labels for part in parts]).tolist()) == sorted(batch.labels.tolist())
        steps = torch.cat([part.x.flatten() for part in parts])
        assert torch.equal(steps.sort().values, batch.x.flatten().sort().values)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("kind", SPLITS)
def test_all_processes_together_watch_every_sequence_once(kind, world):
    split = SPLITS[kind](23)
    seen = [list(Watching(split, 4, rank, world)) for rank in range(world)]
    labels = [label for share in seen for batch in share for label in batch.labels.tolist()]
    assert sorted(labels) == list(range(23))
    assert max(len(share) for share in seen) - min(len(share) for share in seen) <= 1


def test_watching_can_be_done_again():
    watching = Watching(fixed(10), 4)
    assert_equal(list(watching), list(watching))
    assert torch.cat([batch.labels for batch in watching]).tolist() == list(range(10))


def test_the_digits_of_a_run_go_on_from_the_middle_of_an_epoch(tmp_path, monkeypatch):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path))
    split = data.load("digits")["train"]
    config = run(batch=32, epochs=2, validate_every=15)
    plan = Plan.of(config, split)
    assert plan == Plan(epoch=40, steps=80, between=15)
    whole = list(itertools.chain(*walked(split, config)))
    assert_equal(list(itertools.chain(*walked(split, config, 38))), whole[38:])
    assert not torch.equal(whole[0].labels, whole[40].labels)
