"""Tasks of arrays: forms of sequences and labels, the splits, and one sentence for whatever is wrong."""

import re

import numpy as np
import pytest
import torch

from resofire.data import DataError, from_arrays


def arrays(count=20, steps=6, channels=2):
    return np.random.RandomState(0).randn(count, steps, channels).astype(np.float32)


def gathered(task):
    """All sequences and class names of a task, split by split."""
    rows = {}
    for name, split in task.splits.items():
        batches = [split.batch(np.array([number])) for number in range(len(split))]
        rows[name] = [(batch.x[0].numpy(), task.class_names[batch.labels.item()]) for batch in batches]
    return rows


def test_forms_of_sequences(subtests):
    for kind in ["array", "float64", "tensor", "list", "nested lists", "object array", "one channel"]:
        with subtests.test(kind):
            x = arrays()
            labels = ["b", "a"] * 10
            form = {
                "array": x, "float64": x.astype(np.float64), "tensor": torch.from_numpy(x).requires_grad_(),
                "list": [*x], "nested lists": x.tolist(), "object array": x.astype(object), "one channel": x[..., 0],
            }[kind]  # fmt: skip
            expected = x[..., :1] if kind == "one channel" else x
            task = from_arrays(form, labels, test=0.25)
            assert (task.name, task.kind, task.classes, task.class_names) == ("own", "values", 2, ("a", "b"))
            assert (task.inputs, task.per_step, task.pairs, task.vocabulary) == (expected.shape[-1], False, False, None)
            assert [(name, len(split)) for name, split in task.splits.items()] == [
                ("train", 13), ("validation", 2), ("test", 5)
            ]  # fmt: skip
            rows = [row for part in gathered(task).values() for row in part]
            assert sorted((sequence.tobytes(), label) for sequence, label in rows) == sorted(
                (sequence.tobytes(), label) for sequence, label in zip(expected, labels, strict=True)
            )
            batch = next(task["train"].batches(4))
            assert (batch.x.shape[:2], batch.x.dtype, batch.cu_seqlens) == ((4, 6), torch.float32, None)


def test_sequences_of_different_lengths_are_packed():
    sequences = [torch.arange(length) for length in range(1, 13)]
    task = from_arrays(sequences, np.arange(12) % 3, validation=0)
    assert list(task.splits) == ["train"]
    batch = task["train"].batch(np.array([3, 1]))
    assert batch.x[0, :, 0].tolist() == [0, 1, 2, 3, 0, 1]
    assert (batch.cu_seqlens.tolist(), batch.labels.tolist()) == ([0, 4, 6], [0, 1])


LABELS = [
    ([3, 1, 2, 1], ("1", "2", "3")),
    ([2.0, 1.0, 2.0, 2.0], ("1", "2")),
    ([0.5, 1.0, 0.5, 1.0], ("0.5", "1")),
    (np.array([True, False, True, True]), ("False", "True")),
    (torch.tensor([7, 5, 7, 7]), ("5", "7")),
    (np.array([[10], [9], [10], [9]]), ("9", "10")),
    (["é", "a", "a", "b"], ("a", "b", "é")),
    (["a", 2, 10, "a"], ("10", "2", "a")),
    (np.array(["x", "y", "x", "y"], dtype=object), ("x", "y")),
]


def test_labels_of_any_type(subtests):
    for labels, names in LABELS:
        with subtests.test(labels=labels):
            task = from_arrays(arrays(4), labels, validation=0)
            assert task.class_names == names
            encoded = [names[number] for number in task["train"].labels]
            flat = [label for row in labels for label in (row if isinstance(row, np.ndarray) else [row])]
            assert [float(name) if re.fullmatch(r"[\d.]+", name) else name for name in encoded] == [
                str(label) if isinstance(label, str | bool | np.bool) else float(label) for label in flat
            ]


@pytest.mark.parametrize("ragged", [False, True])
def test_labels_per_step(ragged):
    x = [row[: 6 - number % 2] for number, row in enumerate(arrays())] if ragged else arrays()
    y = [[number % 3] * len(row) for number, row in enumerate(x)]
    y[0][0] = -100  # no label
    task = from_arrays(x, y, test=(x[:2], y[:2]))
    assert (task.per_step, task.classes, task.class_names) == (True, 3, ("0", "1", "2"))
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 18, "validation": 2, "test": 2}
    batch = task["test"].batch(np.array([1, 0]))
    assert batch.labels.flatten().tolist() == y[1] + y[0]
    assert (batch.cu_seqlens is not None) == ragged


def test_splits_are_stratified():
    labels = ["many"] * 60 + ["some"] * 30 + ["few"] * 9 + ["one"]
    parts = {name: [label for _, label in rows] for name, rows in gathered(from_arrays(arrays(100), labels)).items()}
    assert {label: parts["validation"].count(label) for label in set(labels)} == {
        "many": 6, "some": 3, "few": 1, "one": 0,
    }  # fmt: skip
    # Rare classes together get their share, and each keeps one to train on.
    task = from_arrays(arrays(30), list(range(15)) * 2, validation=0.2, test=0.2)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 19, "validation": 5, "test": 6}
    assert set(task["train"].labels) == set(range(15))
    assert not set(task["validation"].labels) & set(task["test"].labels)
    again = from_arrays(arrays(30), list(range(15)) * 2, validation=0.2, test=0.2)
    assert all(np.array_equal(task[name].stored, again[name].stored) for name in task.splits)


def nan(value=np.nan):
    x = arrays()
    x[3, 2, 1] = value
    return x


WRONG = [
    (nan(), None, {}, "x must be finite in float32, sequence 3, step 2, channel 1 is nan"),
    (nan(-np.inf), None, {}, "x must be finite in float32, sequence 3, step 2, channel 1 is -inf"),
    (arrays().astype(np.float64) * 1e300, None, {}, "x must be finite in float32, sequence 0, step 0, channel 0 is"),
    ([np.ones((3, 2)), np.ones((3, 4))], [0, 1], {}, "x must have the same channels everywhere, sequence 1 has 4, "),
    ([np.ones((3, 2)), np.ones((0, 2))], [0, 1], {}, "x must be .* not empty, sequence 1 has shape [0, 2]"),
    ([[1.0, 2.0], [[1.0], [2.0, 3.0]]], [0, 1], {}, "x must hold numbers, .* sequence 1 is ragged"),
    ([[1.0, 2.0], ["a", "b"]], [0, 1], {}, "x must hold real numbers, sequence 1 has type <U1"),
    (np.ones((2, 3), complex), [0, 1], {}, "x must hold real numbers, sequence 0 has type complex128"),
    ([[1.0, None], [2.0, {}]], [0, 1], {}, "x must be finite in float32, sequence 0, step 1, channel 0 is nan"),
    (np.ones(5), [0, 1], {}, "x must be [n, T], [n, T, C] or a list of [T, C], got shape [5]"),
    ("waves.csv", [0, 1], {}, "x must be an array or a list of arrays, got str"),
    ([], [], {}, "x must hold sequences, got none"),
    (arrays(), [0, 1], {}, "y must have 20 labels, one per sequence, got 2"),
    (arrays(), 3, {}, "y must be a list or an array of labels, got int"),
    (arrays(), ["a"] * 20, {}, "y must have at least two classes, got 'a'"),
    (arrays(), ["a", None] * 10, {}, "y must have a label for sequence 1, got None"),
    (arrays(), [0.0, 1.0, np.nan, 1.0] * 5, {}, "y must have a label for sequence 2, got nan"),
    (arrays(), [[0] * 6, [1] * 5] * 10, {}, "y must have one label per step, sequence 1 has 6 steps and 5 labels"),
    (arrays(), [[0] * 6, [1] * 5 + [None]] * 10, {}, "y must have a label for sequence 1, step 5, got None"),
    (arrays(), [0, [1] * 6] * 10, {}, "y must have labels of one form, sequences 0 and 1 differ"),
    (arrays(), np.full((20, 6), -100), {}, "y must have at least two classes, got none"),
    (arrays(2), [0, 1], {}, "validation=0.1 needs a class with two sequences, got 2 sequences in 2 classes"),
    (arrays(), None, {"test": 1.5}, "test must be (x, y) or a fraction from 0 to below 1, got 1.5"),
    (arrays(), None, {"validation": True}, "validation must be (x, y) or a fraction from 0 to below 1, got True"),
    (arrays(), None, {"test": (arrays(2), [0, 7])}, "test y must have the classes of y, sequence 1 has 7"),
    (arrays(), None, {"test": (arrays(2, 6, 3), [0, 1])}, "test must have 2 channels and one label per sequence, "),
    (arrays(), None, {"test": (nan(), [0, 1] * 10)}, "test x must be finite in float32, sequence 3, step 2, "),
]


def test_one_sentence_for_what_is_wrong(subtests):
    for x, y, options, message in WRONG:
        with subtests.test(message):
            pattern = ".*".join(map(re.escape, f"from_arrays: {message}".split(".*")))
            with pytest.raises(DataError, match=pattern) as refused:
                from_arrays(x, [0, 1] * 10 if y is None else y, **options)
            assert "\n" not in str(refused.value)
            assert isinstance(refused.value, ValueError)
