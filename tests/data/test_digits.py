"""scikit-learn's digits: sizes, values, labels; no file and no net."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from resofire.data import load


@pytest.fixture
def task():
    return load("digits")


def test_sizes_and_form(task):
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 1297, "validation": 200, "test": 300}
    assert (task.kind, task.classes, task.inputs, task.vocabulary) == ("values", 10, 1, None)
    batch = next(task["train"].batches(8))
    assert batch.x.shape == (8, 64, 1)
    assert batch.x.dtype == torch.float32
    assert batch.cu_seqlens is None


def test_every_image_is_in_one_split_with_its_label(task):
    x, labels = load_digits(return_X_y=True)
    images = [
        (split.stored[i].tobytes(), int(split.labels[i])) for split in task.splits.values() for i in range(len(split))
    ]
    assert sorted(images) == sorted(
        (image.astype(np.uint8).tobytes(), int(label)) for image, label in zip(x, labels, strict=True)
    )


def test_values_are_sixteenths(task):
    x = torch.cat([batch.x for split in task.splits.values() for batch in split.batches(500)])
    assert (x.min(), x.max()) == (0, 1)
    assert torch.equal(x * 16, (x * 16).round())


def test_the_same_again(task, tmp_path, monkeypatch):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "other"))
    again = load("digits")
    for name in task.splits:
        np.testing.assert_array_equal(task[name].stored, again[name].stored)
        np.testing.assert_array_equal(task[name].labels, again[name].labels)
