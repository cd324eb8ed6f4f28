"""AAN's tsv files, written small by the tests: the real ones may not be passed on."""

import gzip

import pytest

from resofire.data import DataError, load

LINES = {
    "train": ["1\tA\tB\tabcab\tba", '0.0\tC\tD\t"a quote" b\t', "1.0\tE\tF\té\taaaa"],
    "eval": ["0\tA\tB\tzz\tab"],
    "test": ["1\tA\tB\tab\tc", "0\tA\tB\tc\tab"],
}
PACK = {"": bytes, ".gz": gzip.compress}


@pytest.fixture
def write(tmp_path):
    def files(ending="", folder="retrieval", **changed):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for name, lines in (LINES | changed).items():
            raw = "".join(f"{line}\n" for line in lines).encode()
            (tmp_path / folder / f"new_aan_pairs.{name}.tsv{ending}").write_bytes(PACK[ending](raw))
        return tmp_path

    return files


@pytest.mark.parametrize(("folder", "ending"), [("retrieval", ""), ("lra_release/lra_release/tsv_data", ".gz")])
def test_pairs(write, folder, ending):
    task = load("retrieval", write(ending, folder), sizes=(3, 1, 2))
    assert (task.kind, task.classes, task.pairs) == ("tokens", 2, True)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 3, "validation": 1, "test": 2}
    assert task.symbols[:5] == ("<pad>", "<unk>", "<eos>", "a", "b")
    assert set(task.symbols[3:]) == set('abc"quote é')
    assert task.vocabulary == len(task.symbols)
    assert task["train"].labels.tolist() == [1, 0, 1]
    assert task["train"].lengths.tolist() == [[6, 3], [12, 1], [2, 5]]
    batch = task["test"].batch([1, 0])
    c = task.symbols.index("c")
    assert batch.x.tolist() == [[c, 2, 3, 4, 2, 3, 4, 2, c, 2]]
    assert batch.cu_seqlens.tolist() == [0, 2, 5, 8, 10]
    assert batch.labels.tolist() == [0, 1]
    assert task["validation"].stored[:3].tolist() == [1, 1, 2]


def test_cut_then_end(write):
    task = load("retrieval", write(test=["1\tA\tB\t" + "ab" * 3000 + "\t" + "a" * 3999]), sizes=None)
    assert task["test"].lengths.tolist() == [[4000, 4000]]
    assert task["test"].stored[3999] == task["test"].stored[7999] == 2


WRONG_LINES = [
    (["1\tA\tB\tab\tc", "1\tA\tB\tab"], r"line 2, must have 5 fields .* got 4"),
    (["1\tA\tB\tab\tc\td"], r"line 1, must have 5 fields .* got 6"),
    (["label\tA\tB\tab\tc"], r"line 1, must have label 0 or 1, got 'label'"),
    (["2\tA\tB\tab\tc"], r"line 1, must have label 0 or 1, got '2'"),
    ([], "must hold pairs, one a line, got none"),
]


def test_wrong_lines(subtests, write):
    for lines, message in WRONG_LINES:
        with subtests.test(message), pytest.raises(DataError, match=rf"new_aan_pairs.test.tsv,? {message}"):
            load("retrieval", write(test=lines), sizes=None)


def test_truncated(write, tmp_path):
    folder = write(".gz")
    file = folder / "retrieval/new_aan_pairs.eval.tsv.gz"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"new_aan_pairs.eval.tsv.gz cannot be read"):
        load("retrieval", folder, sizes=None)


def test_wrong_counts(write):
    folder = write()
    with pytest.raises(DataError, match=r"new_aan_pairs.train.tsv must hold 147086 pairs, got 3: it is truncated"):
        load("retrieval", folder)
    with pytest.raises(DataError, match=r"new_aan_pairs.test.tsv must hold 3 pairs, got 2"):
        load("retrieval", folder, sizes=(3, 1, 3))
    for sizes in (3, (1, 2), (1, 2, "3")):
        with pytest.raises(ValueError, match="sizes must be three numbers, of train, validation and test, got"):
            load("retrieval", sizes=sizes)


def test_missing_files_say_what_to_put_where(tmp_path):
    with pytest.raises(
        DataError, match=r"new_aan_pairs.train.tsv .* is missing: .* may not .* put it into .*retrieval"
    ):
        load("retrieval", tmp_path)
