"""Splits give batches: fixed or packed, in an order that a seed decides, scaled as they are made."""

import numpy as np
import pytest
import torch

from resofire.data.show import facts, picture, report
from resofire.data.task import Form, Split, Task, shuffled


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


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_a_wrong_size_is_named(size):
    with pytest.raises(ValueError, match="batches: size must be a positive whole number, got"):
        next(fixed().batches(size))


def test_facts_report_and_picture():
    task = Task("things", "values", 10, {"train": fixed(Form(scale=1 / 39))}, inputs=1)
    assert facts(task)["splits"]["train"]["size"] == 10
    assert facts(task)["splits"]["train"]["labels"] == [1] * 10
    text = report(task)
    assert "things: values in 1 channel(s), 10 classes" in text
    assert "train[2] label 2: 0.21" in text
    assert picture(task).size == (800, 224)
    words = Task("words", "tokens", 2, {"train": packed()}, vocabulary=9, symbols=tuple("abcdefghi"))
    assert "train[0] label 1: 'abc'" in report(words)
    assert picture(words).size[0] == 800
    with pytest.raises(KeyError, match="words: split must be one of train, got 'test'"):
        words["test"]
