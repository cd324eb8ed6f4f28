"""ListOps: the distribution, the bytes, the labels by another evaluator, and LRA's files."""

import gzip
import hashlib

import numpy as np
import pytest

from resofire.data import DataError, listops, load
from resofire.data import listops_kernels as kernels

SIZES = (1500, 300, 200)


@pytest.fixture(scope="module")
def sets():
    return listops.generate(0, SIZES, workers=1)


def sequences(each):
    return [each.tokens[a:b] for a, b in zip(each.bounds[:-1], each.bounds[1:], strict=True)]


def value(words):
    """A plain stack machine; knows nothing of the generator but what the words mean."""
    stack = []
    for word in words:
        if word.startswith("["):
            stack.append(word)
        elif word == "]":
            arguments = []
            while isinstance(stack[-1], int):
                arguments.append(stack.pop())
            assert 2 <= len(arguments) <= 10
            does = {"[MIN": min, "[MAX": max, "[SM": lambda a: sum(a) % 10, "[MED": lambda a: int(np.median(a))}
            stack.append(does[stack.pop()](arguments))
        else:
            stack.append(int(word))
    assert len(stack) == 1
    return stack[0]


def words(tokens):
    return [listops.SYMBOLS[token] for token in tokens]


def test_labels_are_the_values(sets):
    for each, size in zip(sets, SIZES, strict=True):
        assert len(each.values) == size
        assert [value(words(tokens)) for tokens in sequences(each)] == each.values.tolist()


def test_depth(sets):
    depths = []
    for tokens in sequences(sets[0]):
        opened = np.where((tokens >= 3) & (tokens <= 6), 1, 0) - np.where(tokens == 7, 1, 0)
        depths.append(np.cumsum(opened).max())
    assert max(depths) == 9  # operators within operators; digits are at depth 10


def test_unique(sets):
    everything = [tokens.tobytes() for each in sets for tokens in sequences(each)]
    assert len(set(everything)) == len(everything) == sum(SIZES)


def test_lengths():
    lengths = np.diff(listops.generate(1, (20_000, 0, 0))[0].bounds)
    assert lengths.min() > 500
    assert lengths.max() < 2000
    # Sampling errors of 20,000: 2.8 for the mean, about 3, 4 and 6 for the quartiles.
    assert lengths.mean() == pytest.approx(1038, abs=12)
    assert np.percentile(lengths, 25) == pytest.approx(704, abs=12)
    assert np.percentile(lengths, 50) == pytest.approx(957, abs=16)
    assert np.percentile(lengths, 75) == pytest.approx(1317, abs=24)


def test_bytes(sets):
    """On any machine. Another sum here means another data set: then VERSION must change with it."""
    digest = hashlib.sha256()
    for each in sets:
        digest.update(each.tokens.tobytes() + each.values.tobytes())
    assert digest.hexdigest() == "7d7f9c6f5929b6c4ee5c3d3f601c2370d6dd9b594b712de77d9767e7a735aa14"


def test_workers_do_not_matter(sets):
    for one, two in zip(sets, listops.generate(0, SIZES, workers=2), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert listops.generate(1, (5, 0, 0))[0].tokens.tobytes() != sets[0].tokens[:5000].tobytes()


@pytest.mark.parametrize(("pipeline", "more"), [("s4", 1), ("lra", 0)])
def test_task(sets, pipeline, more):
    task = listops.listops(pipeline=pipeline, sizes=SIZES)
    assert (task.kind, task.classes, task.vocabulary, len(task.symbols)) == ("tokens", 10, 18, 18)
    assert [len(task[name]) for name in ("train", "validation", "test")] == list(SIZES)
    split = task["validation"]
    assert np.array_equal(split.lengths, np.diff(sets[1].bounds) + more)
    batch = next(split.batches(3))
    assert batch.labels.tolist() == sets[1].values[:3].tolist()
    first = batch.x[0, : batch.cu_seqlens[1]].tolist()
    assert first == [*sequences(sets[1])[0].tolist(), *[listops.EOS] * more]
    assert split.stored.dtype == np.uint8


def test_cut():
    tokens = np.full(2100, 8, np.uint8)
    each = listops.Expressions(tokens, np.array([0, 2100]), np.array([0], np.uint8))
    s4, bounds = listops._cut(each, "s4")
    assert bounds.tolist() == [0, 2048]
    assert s4[-2:].tolist() == [8, listops.EOS]
    assert listops._cut(each, "lra")[1].tolist() == [0, 2000]


def test_parts_of_training_expressions(sets):
    whole, easy = (listops.listops(sizes=SIZES, lengths=lengths) for lengths in (None, (20, 60)))
    for split in ("validation", "test"):
        assert np.array_equal(whole[split].stored, easy[split].stored)
        assert np.array_equal(whole[split].labels, easy[split].labels)
    parts = [tokens[:-1] for tokens in np.split(easy["train"].stored, easy["train"].bounds[1:-1])]
    assert all(20 <= len(part) <= 60 for part in parts)
    assert [value(words(part)) for part in parts] == easy["train"].labels.tolist()
    expressions = sequences(sets[0])
    # Every long expression has such a part, and it is a part of that expression.
    assert len(parts) == len(expressions)
    assert all(part.tobytes() in tokens.tobytes() for part, tokens in zip(parts, expressions, strict=True))
    assert len({len(part) for part in parts}) > 10


def test_expressions_without_a_part_of_that_length_are_left_out():
    text = ["[MIN", "1", "[MAX", "2", "3", "]", "]", "[SM", "4", "5", "6", "7", "]"]
    tokens = np.array([listops.SYMBOLS.index(word) for word in text], np.uint8)
    each = listops.Expressions(tokens, np.array([0, 7, 13]), np.array([1, 2], np.uint8))
    part = listops._parts(each, (4, 4), 0)
    assert words(part.tokens) == ["[MAX", "2", "3", "]"]
    assert (part.bounds.tolist(), part.values.tolist()) == ([0, 4], [3])
    with pytest.raises(ValueError, match=r"no training expression has a part of lengths=\(8, 9\) tokens"):
        listops._parts(each, (8, 9), 0)


GOOD = [
    ("( ( ( [MIN 4 ) 2 ) ] )", 2),
    ("( ( ( ( [SM 9 ) ( ( ( [MED 1 ) 4 ) ] ) ) 8 ) ] )", 9),
    ("7", 7),
    ("( ( ( [MAX 0 ) 5 ) ] )", 5),
]


def write(folder, name, rows, ending="\r\n", pack=False):
    folder.mkdir(exist_ok=True)
    text = ending.join(["Source\tTarget", *(f"{source}\t{target}" for source, target in rows), ""]).encode()
    (folder / (name + ".gz" if pack else name)).write_bytes(gzip.compress(text) if pack else text)


@pytest.mark.parametrize(("sub", "pack"), [(".", False), ("listops-1000", True)])
def test_reads_tsv(tmp_path, sub, pack):
    for name, rows in zip(listops.RAW.files, (GOOD, GOOD[:1], GOOD[1:3]), strict=True):
        write(tmp_path / sub, name, rows, pack=pack)
    task = load("listops", tmp_path, sizes=(4, 1, 2))
    assert task["train"].labels.tolist() == [2, 9, 7, 5]
    assert " ".join(words(task["test"].stored)) == "[SM 9 [MED 1 4 ] 8 ] <eos> 7 <eos>"
    assert task["test"].bounds.tolist() == [0, 9, 11]


CORRUPT_LINES = [
    (("( ( [MIN 4 ) 2", 2), "line 3 must have one complete expression"),
    (("( ( ( [MIN 4 ) 2 ) ] )", 4), "line 3 must have the Target 2, .* got '4'"),
    (("( ( ( [MIN 4 ) x ) ] )", 2), "line 3, character 16 must be an operator, .* got 'x"),
    (("( ( ( [MAN 4 ) 2 ) ] )", 2), "line 3, character 7 must be an operator"),
    (("12", 2), "line 3, character 2 must be"),
    (("1 2", 2), "line 3 must have one complete expression"),
    (("", 2), "line 3 must have one complete expression"),
    (("1\t1", 1), "line 3 must have 2 columns, .* got 3"),
    (("[MAX " + "1 " * 40_000 + "]", 1), "line 3, must have at most 65536 bytes"),
]


def test_refuses_a_corrupt_line(subtests, tmp_path):
    for row, message in CORRUPT_LINES:
        with subtests.test(message, row=row):
            for name in listops.RAW.files:
                write(tmp_path, name, GOOD[:2])
            write(tmp_path, "basic_val.tsv", [GOOD[0], row])
            with pytest.raises(DataError, match=r"basic_val\.tsv.*" + message):
                load("listops", tmp_path, sizes=(2, 2, 2))


def test_refuses_other_files(tmp_path):
    write(tmp_path, "basic_train.tsv", GOOD)
    with pytest.raises(DataError, match=r"has basic_train\.tsv but not basic_val\.tsv, basic_test\.tsv"):
        load("listops", tmp_path, sizes=(4, 4, 4))
    write(tmp_path, "basic_val.tsv", GOOD[:3])
    write(tmp_path, "basic_test.tsv", GOOD)
    with pytest.raises(DataError, match=r"basic_val\.tsv must have 4 samples, got 3"):
        load("listops", tmp_path, sizes=(4, 4, 4))
    (tmp_path / "basic_val.tsv").write_text("nothing\n")
    with pytest.raises(DataError, match="line 1 must be the header"):
        load("listops", tmp_path, sizes=(4, 4, 4))


WRONG_ARGUMENTS = [
    *(({"workers": workers}, "workers must be a positive integer, got") for workers in (0, 1.5, True)),
    ({"pipeline": "s5"}, "pipeline must be one of s4, lra"),
    ({"sizes": (1, 2)}, "sizes must be three"),
    ({"sizes": (1, 2, -3)}, "sizes must be three"),
    ({"seed": 1.5}, "seed must be an integer"),
    ({"lengths": (3, 9)}, "lengths must be two integers of at least 4, in order, got"),
    ({"lengths": (9, 8)}, "lengths must be two integers of at least 4, in order, got"),
    ({"lengths": 9}, "lengths must be two integers of at least 4, in order, got 9"),
]


def test_refuses_wrong_arguments(subtests):
    for wrong, message in WRONG_ARGUMENTS:
        with subtests.test(message, wrong=wrong), pytest.raises(ValueError, match=message):
            listops.listops(**wrong)


@pytest.mark.parametrize("operator", ["[MIN", "[MAX", "[MED", "[SM"])
def test_wide_expressions(operator):
    for count in (9, 10, 11, 12, 1000):
        digits = np.random.RandomState(count).randint(0, 10, count).tolist()
        expected = {"[MIN": min, "[MAX": max, "[SM": lambda d: sum(d) % 10, "[MED": lambda d: int(np.median(d))}
        tokens = [listops.SYMBOLS.index(word) for word in (operator, *map(str, digits), "]")]
        assert kernels.evaluated(np.array(tokens, np.uint8)) == expected[operator](digits)
