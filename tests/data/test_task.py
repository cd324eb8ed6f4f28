"""Splits give batches: fixed or packed, in an order that a seed decides, scaled as they are made."""

from itertools import chain

import numpy as np
import pytest
import torch

from resofire.data.show import evenly_spaced, facts, picture, report
from resofire.data.task import DataError, Form, Split, Task, shuffled


def fixed(form=None, count=10):
    stored = np.arange(count * 4, dtype=np.uint8).reshape(count, 4, 1)
    return Split(stored, np.arange(count, dtype=np.uint8), kind="values", form=form or Form())


def packed(pairs=False, per_step=False):
    bounds = np.array([0, 3, 3, 5, 9])
    labels = np.arange(9) if per_step else np.array([1, 0]) if pairs else np.array([1, 0, 1, 0])
    stored = np.arange(9, dtype=np.uint16)
    return Split(stored, labels, kind="tokens", form=Form(), bounds=bounds, pairs=pairs, per_step=per_step)


def test_fixed_batches_in_the_stored_order():
    batches = list(fixed().batches(4))
    assert [len(batch.labels) for batch in batches] == [4, 4, 2]
    assert batches[0].x.shape == (4, 4, 1)
    assert batches[0].x.dtype == torch.float32
    assert batches[0].cu_seqlens is None
    assert torch.cat([batch.labels for batch in batches]).tolist() == list(range(10))
    assert len(list(fixed().batches(4, last=False))) == 2


def test_a_split_prints_its_size():
    assert repr(packed(pairs=True)) == "Split(2 pairs of tokens)"
    assert repr(fixed(count=1_000)) == "Split(1,000 sequences of values)"


def test_values_are_scaled_and_reordered_when_a_batch_is_made():
    form = Form(scale=0.5, shift=-1.0, order=np.array([3, 2, 1, 0]))
    assert fixed(form).batch(np.array([1])).x.flatten().tolist() == [2.5, 2.0, 1.5, 1.0]
    stored = np.array([[[10, 20], [30, 40]]], dtype=np.uint8)
    two = Split(stored, np.zeros(1), kind="values", form=Form(scale=(0.1, 0.5), shift=(0.0, 1.0)))
    torch.testing.assert_close(two.batch(np.array([0])).x, torch.tensor([[[1.0, 11.0], [3.0, 21.0]]]))


def test_packed_batches():
    batch = packed().batch(np.array([3, 0, 1]))
    assert batch.x.tolist() == [[5, 6, 7, 8, 0, 1, 2]]
    assert batch.x.dtype == torch.int64
    assert batch.cu_seqlens.tolist() == [0, 4, 7, 7]
    assert batch.cu_seqlens.dtype == torch.int32
    assert batch.labels.tolist() == [0, 1, 0]
    assert packed().lengths.tolist() == [3, 0, 2, 4]


def test_pairs_lie_side_by_side():
    split = packed(pairs=True)
    assert len(split) == 2
    batch = split.batch(np.array([1, 0]))
    assert batch.x.tolist() == [[3, 4, 5, 6, 7, 8, 0, 1, 2]]
    assert batch.cu_seqlens.tolist() == [0, 2, 6, 9, 9]
    assert batch.labels.tolist() == [0, 1]
    assert split.lengths.tolist() == [[3, 0], [2, 4]]


def test_a_label_for_each_step():
    batch = packed(per_step=True).batch(np.array([2, 0]))
    assert batch.labels.tolist() == [[3, 4, 0, 1, 2]]


def test_the_order_is_the_seeds_and_the_epochs():
    def order(**options):
        return torch.cat([batch.labels for batch in fixed(count=100).batches(7, **options)]).tolist()

    assert order(seed=3, epoch=1) == order(seed=3, epoch=1)
    assert order(seed=3, epoch=1) != order(seed=3, epoch=2)
    assert order(seed=3, epoch=1) != order(seed=4, epoch=1)
    assert sorted(order(seed=3)) == list(range(100))
    assert order(seed=3, start=5) == order(seed=3)[35:]
    # The same on every machine.
    assert shuffled(8, 3, 1).tolist() == [1, 3, 6, 0, 7, 2, 4, 5]


def shares(split, size, world, **options):
    """The labels of each batch's shares."""
    walks = [split.batches(size, rank=rank, world=world, **options) for rank in range(world)]
    return [[batch.labels.flatten().tolist() for batch in parts] for parts in zip(*walks, strict=True)]


def test_shares_of_one_length_are_stretches_of_the_batch():
    assert shares(fixed(), 7, 3) == [[[0, 1, 2], [3, 4], [5, 6]], [[7], [8], [9]]]
    assert shares(fixed(), 8, 4, start=1) == [[[8], [9], [], []]]
    whole = [batch.labels.tolist() for batch in fixed(count=50).batches(9, seed=2, epoch=3)]
    assert [list(chain(*parts)) for parts in shares(fixed(count=50), 9, 4, seed=2, epoch=3)] == whole


def lengthy(lengths, **settings):
    """Packed sequences, each one's label its number."""
    bounds = np.cumsum([0, *lengths])
    stored, labels = np.arange(bounds[-1]), np.arange(len(lengths) // (2 if settings.get("pairs") else 1))
    return Split(stored, labels, kind="tokens", form=Form(), bounds=bounds, **settings)


def test_packed_shares_have_about_as_many_steps():
    assert shares(lengthy([3, 9, 4, 4, 2]), 9, 2) == [[[1, 4], [0, 2, 3]]]  # 9 | 4 4 3, then 2 to the lighter
    assert shares(lengthy([5, 5, 5, 5]), 9, 2) == [[[0, 2], [1, 3]]]
    assert shares(lengthy([7, 0, 0]), 9, 2) == [[[0], [1, 2]]]
    assert shares(lengthy([0, 0]), 9, 2) == [[[0], [1]]]
    assert shares(lengthy([6]), 9, 2) == [[[0], []]]


def test_packed_shares_are_the_batch():
    lengths = np.random.RandomState(1).randint(0, 50, 48)
    split = lengthy(lengths)
    batches = split.batches(12, seed=4)
    for batch, parts in zip(batches, shares(split, 12, 5, seed=4), strict=True):
        order = batch.labels.tolist()
        assert sorted(chain(*parts)) == sorted(order)
        for part in parts:
            assert part
            assert part == sorted(part, key=order.index)
        # The heaviest share has its last sequence from when it was the lightest.
        loads = [int(lengths[part].sum()) for part in parts]
        assert max(loads) - min(loads) <= max(lengths[order])


def test_shares_keep_pairs_together():
    split = lengthy([1, 1, 4, 5, 3, 3, 0, 1], pairs=True)
    assert shares(split, 4, 2) == [[[1], [0, 2, 3]]]
    first, second = (next(split.batches(4, rank=rank, world=2)) for rank in range(2))
    assert first.cu_seqlens.tolist() == [0, 4, 9]
    assert second.cu_seqlens.tolist() == [0, 1, 2, 5, 8, 8, 9]
    assert first.x.flatten().tolist() == list(range(2, 11))


def test_a_share_may_be_empty():
    batch = next(packed(per_step=True).batches(1, rank=1, world=2))
    assert (batch.x.shape, batch.labels.shape, batch.cu_seqlens.tolist()) == ((1, 0), (1, 0), [0])


def test_wrong_arguments_are_named():
    for options, message in (
        ({"size": 0}, "size must be a positive integer, got 0"),
        ({"size": 2.5}, "size must be a positive integer, got 2.5"),
        ({"size": True}, "size must be a positive integer, got True"),
        ({"world": 0}, "world must be a positive integer, got 0"),
        ({"world": True}, "world must be a positive integer, got True"),
        ({"rank": 2, "world": 2}, "rank must be an integer from 0 to world - 1 = 1, got 2"),
        ({"rank": -1, "world": 2}, "rank must be an integer from 0 to world - 1 = 1, got -1"),
        ({"rank": 0.0}, "rank must be an integer from 0 to world - 1 = 0, got 0.0"),
    ):
        with pytest.raises(ValueError, match=f"batches: {message}"):
            next(fixed().batches(**{"size": 4, **options}))


def test_facts_report_and_picture():
    task = Task("things", "values", 10, {"train": fixed(Form(scale=1 / 39))}, inputs=1)
    assert facts(task)["splits"]["train"]["size"] == 10
    assert facts(task)["splits"]["train"]["labels"] == [1] * 10
    text = report(task)
    assert "things: values in 1 channel(s), 10 classes" in text
    assert "train[6] label 6: 0.62" in text
    assert picture(task).size == (800, 224)
    symbols, names = tuple("abcdefghi"), ("no", "yes")
    words = Task("words", "tokens", 2, {"train": packed()}, vocabulary=9, symbols=symbols, class_names=names)
    assert "train[0] label 1 (yes): 'abc'" in report(words)
    assert facts(words)["class_names"] == names
    steps = Task("steps", "tokens", 9, {"train": packed(per_step=True)}, vocabulary=9, symbols=symbols)
    assert "train[0] labels [0, 1, 2]" in report(steps)
    assert picture(words).size[0] == 800
    with pytest.raises(KeyError, match="words: split must be one of train, got 'test'"):
        words["test"]


def test_samples_that_are_shown_are_evenly_spaced():
    assert evenly_spaced(100, 4) == [0, 25, 50, 75]
    assert evenly_spaced(3, 4) == [0, 1, 2]
    assert evenly_spaced(0, 3) == evenly_spaced(5, 0) == []


def test_errors_are_one_printable_line():
    assert str(DataError("a\n\tb \x1b[31m\udcff é")) == "a b ?[31m? é"
    assert len(str(DataError("x" * 10**6))) < 1000
