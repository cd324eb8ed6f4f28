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


class Frame:
    """A data frame as far as we look at it, with pandas' NA, which refuses to be compared."""

    class NA:
        def __ne__(self, other):
            raise TypeError("boolean value of NA is ambiguous")

    def __init__(self, rows):
        self.rows = rows

    def to_numpy(self):
        return np.array(self.rows, dtype=object)


def test_frames_and_datasets():
    x, labels = arrays(), np.array(["b", "a"] * 10)
    frames = from_arrays([Frame(row.tolist()) for row in x], Frame(labels), validation=0)
    sequences = [torch.from_numpy(row[: 5 - number % 2]) for number, row in enumerate(x)]
    pairs = [(row, int(label == "b")) for row, label in zip(sequences, labels, strict=True)]
    made = from_arrays(Pairs(pairs), test=Pairs(pairs[:4]), validation=0)
    assert frames.class_names == ("a", "b")
    np.testing.assert_array_equal(frames["train"].stored, x)
    assert (made.class_names, len(made["test"]), made["train"].lengths.tolist()[:2]) == (("0", "1"), 4, [5, 4])
    with pytest.raises(DataError, match=r"from_arrays: x must be a Dataset of pairs \(sequence, label\), item 0 is a "):
        from_arrays(Pairs(sequences))


class Pairs(torch.utils.data.Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        return self.items[number]


def test_missing_values(subtests):
    nan = np.nan
    x = [[[nan, 1], [2, nan], [4, 3], [nan, nan]], [[1, 1], [1, 1], [1, 1], [1, 1]]]
    filled = {
        "zero": [[0, 1], [2, 0], [4, 3], [0, 0]],
        "previous": [[2, 1], [2, 1], [4, 3], [4, 3]],
        "interpolate": [[2, 1], [2, 2], [4, 3], [4, 3]],
    }
    for missing, expected in filled.items():
        with subtests.test(missing):
            task = from_arrays(np.array(x), ["a", "b"], missing=missing, validation=0)
            assert (task["train"].stored[0].tolist(), task.missing) == (expected, 4)
            cut = from_arrays(x, ["a", "b"], missing=missing, padded=True, validation=0)
            assert (cut["train"].stored[:3].tolist(), cut["train"].lengths.tolist()) == (expected[:3], [3, 4])
    steps = from_arrays(x, [[0, 1, 1, nan], [0] * 4], missing="zero", padded=True, validation=0)
    assert steps["train"].labels.tolist() == [0, 1, 1, 0, 0, 0, 0]


def test_classes_by_name():
    task = from_arrays(arrays(4), [2, 1, 2, 1], class_names=["3", "2", "1"], validation=0)
    assert (task.classes, task["train"].labels.tolist()) == (3, [1, 2, 1, 2])
    assert from_arrays(arrays(4), ["10", "9", "9", "10"], validation=0).class_names == ("9", "10")


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
    (arrays(), np.eye(2)[[0, 1] * 10], {}, "sequence 0 has 6 steps and 2 labels; for one-hot labels, pass y.argmax(1)"),
    (arrays(), [["a", None]] * 20, {}, "y must have one label per step, sequence 0 has 6 steps and 2 labels"),
    (arrays(), [[0] * 6, [1] * 5 + [None]] * 10, {}, "y must have a label for sequence 1, step 5, got None"),
    (arrays(), [0, [1] * 6] * 10, {}, "y must have labels of one form, sequence 0 and sequence 1 differ"),
    (arrays(), np.full((20, 6), -100), {}, "y must have at least two classes, got none"),
    (arrays(2), [0, 1], {}, "validation=0.1 needs a class with two sequences, got 2 sequences in 2 classes"),
    (arrays(), None, {"test": 1.5}, "test must be (x, y) or a fraction from 0 to below 1, got 1.5"),
    (arrays(), None, {"validation": True}, "validation must be (x, y) or a fraction from 0 to below 1, got True"),
    (arrays(), None, {"test": (arrays(2), [0, 7])}, "test y must have the classes of y (0, 1), sequence 1 has '7'"),
    (arrays(), None, {"test": (arrays(2, 6, 3), [0, 1])}, "test must have 2 channels and one label per sequence, "),
    (arrays(), None, {"missing": "drop"}, "missing must be one of refuse, zero, previous, interpolate, got 'drop'"),
    (nan(np.inf), None, {"missing": "zero"}, "x must be finite in float32, sequence 3, step 2, channel 1 is inf"),
    (nan(), None, {}, "is nan; the setting missing fills such values (zero, previous, interpolate)"),
    ([[1.0, np.nan], [1.0, 2.0]], [0, 1], {}, "previous, interpolate), padded=True cuts them at the end"),
    ([[np.nan, np.nan], [1.0, 2.0]], [0, 1], {"padded": True}, "x must hold numbers, sequence 0 has none"),
    ([[np.nan], [1.0]], [0, 1], {"missing": "previous"}, "a value to fill others from, sequence 0, channel 0 has none"),
    (arrays(), np.linspace(0, 1, 20), {}, "y must hold classes, got 20 different numbers in 20"),
    (arrays(), [1, "1"] * 10, {}, "y must have different names for different classes, got "),
    (arrays(), None, {"class_names": ["1", "2"]}, "y must have the classes of class_names (1, 2), sequence 0 has '0'"),
    (arrays(), None, {"class_names": ["1", "1"]}, "class_names must be two or more different names, got ['1', '1']"),
    (arrays(), None, {"test": (nan(), [0, 1] * 10)}, "test x must be finite in float32, sequence 3, step 2, "),
]


def test_one_sentence_for_what_is_wrong(subtests):
    for x, y, options, message in WRONG:
        with subtests.test(message):
            pattern = "from_arrays: .*" + ".*".join(map(re.escape, message.split(".*")))
            with pytest.raises(DataError, match=pattern) as refused:
                from_arrays(x, [0, 1] * 10 if y is None else y, **options)
            assert "\n" not in str(refused.value)
            assert isinstance(refused.value, ValueError)
