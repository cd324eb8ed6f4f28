"""Batches: step n is the same wherever a run resumes, and processes share it without loss."""

import numpy as np
import pytest
import torch

from resofire.data.task import Form, Split
from resofire.data.warps import Warps
from resofire.models import ClassifierConfig
from resofire.train import RunConfig
from resofire.train.batches import Plan, evenly_spaced, training_batches

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


def trained(split: Split, config: RunConfig, step: int = 0, **share: int) -> list:
    """The batches of the steps after `step`."""
    return list(training_batches(split, config, Plan.of(config, split), step, **share))


def assert_equal(one: list, other: list) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.labels, b.labels)
        assert torch.equal(a.x, b.x)
        assert (a.cu_seqlens is None) == (b.cu_seqlens is None)
        assert a.cu_seqlens is None or torch.equal(a.cu_seqlens, b.cu_seqlens)


def test_a_plan_knows_when_validations_come(subtests):
    for name, (count, settings) in SETTINGS.items():
        with subtests.test(name):
            config = run(**settings)
            plan = Plan.of(config, fixed(count))
            assert plan.epoch == count // config.batch
            assert plan.steps == (config.steps or config.epochs * plan.epoch)
            # After every `between` steps, counted from the first one, and after the last.
            due = sorted({*range(plan.between, plan.steps, plan.between), plan.steps})
            assert [step for step in range(1, plan.steps + 1) if plan.validates(step)] == due
            assert all(
                plan.next_validation(step) == next(each for each in due if each > step) for step in range(plan.steps)
            )


def test_a_batch_above_the_training_split_is_refused():
    with pytest.raises(ValueError, match="batch must not be above the 23 training sequences of test, got 24"):
        Plan.of(run(batch=24), fixed(23))
    assert Plan.of(run(batch=23), fixed(23)).epoch == 1


@pytest.mark.parametrize("kind", SPLITS)
def test_a_run_resumes_with_the_same_batches_from_any_step(subtests, kind):
    for name, (count, settings) in SETTINGS.items():
        with subtests.test(name):
            split, config = SPLITS[kind](count), run(**settings)
            whole = trained(split, config)
            assert len(whole) == Plan.of(config, split).steps
            for step in range(len(whole) + 1):
                assert_equal(trained(split, config, step), whole[step:])


def test_an_epoch_uses_no_sequence_twice_and_each_epoch_and_seed_has_its_own_order():
    orders = set()
    for seed in range(3):
        whole = trained(fixed(24), run(batch=4, epochs=3, seed=seed))
        epochs = torch.cat([batch.labels for batch in whole]).reshape(3, 24).tolist()
        assert all(sorted(epoch) == list(range(24)) for epoch in epochs)
        orders |= {tuple(epoch) for epoch in epochs}
    assert len(orders) == 9


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("kind", SPLITS)
def test_the_shares_of_all_processes_are_the_batch(kind, world):
    split, config = SPLITS[kind](23), run(batch=5, epochs=2)
    whole = trained(split, config)
    shares = [trained(split, config, rank=rank, world=world) for rank in range(world)]
    assert all(len(share) == len(whole) == 8 for share in shares)
    for batch, *parts in zip(whole, *shares, strict=True):
        assert sorted(torch.cat([part.labels for part in parts]).tolist()) == sorted(batch.labels.tolist())
        steps = torch.cat([part.x.flatten() for part in parts])
        assert torch.equal(steps.sort().values, batch.x.flatten().sort().values)


def test_evenly_spaced_batches_are_in_order_and_not_warped():
    stored = np.arange(23, dtype=np.uint8).repeat(9).reshape(23, 9, 1)
    split = Split(stored, np.arange(23), kind="values", form=Form(), warps=Warps(3, shift=1.0))

    def labels(size, count):
        return [batch.labels.tolist() for batch in evenly_spaced(split, size, count)]

    assert labels(4, 2) == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert labels(4, 5) == labels(4, 99) == [[4 * n + i for i in range(4)] for n in range(5)]
    assert labels(50, 3) == [list(range(23))]
    (batch,) = evenly_spaced(split, 50, 1)
    assert np.array_equal(batch.x.numpy(), stored)
