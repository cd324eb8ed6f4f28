"""IMDB: the real archive where it is at hand (prepared once), small ones in every form."""

from pathlib import Path

import numpy as np
import pytest
from archives import pack

from resofire.data import text
from resofire.data.files import DataError
from resofire.data.task import shuffled

REAL = Path(__file__).parents[3] / "shared" / "data"
real = pytest.mark.skipif(not (REAL / "imdb").is_dir(), reason="IMDB is not in ../shared/data")
COUNT = 6


@pytest.fixture(scope="session")
def imdb(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RESOFIRE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return text.load(REAL), text.load(REAL, pipeline="lra")


@real
def test_real_characters(imdb):
    task = imdb[0]
    assert (task.kind, task.classes, task.vocabulary, task.pairs) == ("tokens", 2, 134, False)
    sizes = {name: len(split) for name, split in task.splits.items()}
    assert sizes == {"train": 22_500, "validation": 2_500, "test": 25_000}
    for split in task.splits.values():
        assert np.bincount(split.labels).tolist() == [len(split) // 2] * 2
        assert split.lengths.max() == 4096
        assert (split.stored[split.bounds[1:] - 1] == text.END).all()
        assert (split.stored == text.END).sum() == len(split)
        assert split.stored.max() < 134
        assert split.stored.min() > 0
    assert task.symbols[:5] == ("<pad>", "<unk>", "<eos>", " ", "e")


@real
def test_real_bytes_say_the_same(imdb):
    characters, data = imdb
    assert data.vocabulary == 257
    for name in data.splits:
        for number in range(0, len(data[name]), 500):
            raw = bytes((data[name].stored[slice(*data[name].bounds[number : number + 2])] - 1).astype(np.uint8))
            said = raw.decode(errors="ignore")[:4000]
            start = characters[name].bounds[number]
            tokens = characters[name].stored[start : start + len(said)]
            known = tokens != text.UNKNOWN
            assert known.mean() > 0.95
            spelled = np.array([characters.symbols[token] for token in tokens])
            np.testing.assert_array_equal(spelled[known], np.array(list(said))[known])
        assert data[name].lengths.max() == 4096


def reviews():
    made = {}
    for part in ("train", "test"):
        for kind in ("neg", "pos"):
            for number in range(COUNT):
                word = "Good é<br />" if kind == "pos" else "bad"
                made[f"aclImdb/{part}/{kind}/{number}_{number}.txt"] = f"{part} {word} {number}".encode()
    made["aclImdb/train/unsup/0_0.txt"] = b"left out"
    made["aclImdb/README"] = b"left out"
    return made


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(text, "COUNT", COUNT)
    monkeypatch.setattr(text, "VALIDATION", 4)
    monkeypatch.setattr(text, "FREQUENCY", 10)
    (tmp_path / "imdb").mkdir()
    return tmp_path


def spelled(task, split, number):
    held = task[split]
    return "".join(task.symbols[token] for token in held.stored[held.bounds[number] : held.bounds[number + 1]])


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("aclImdb_v1.tar.xz", "xz"), ("aclImdb_labelled.tar.gz", "gz"), ("aclImdb.tar.bz2", "bz2"), ("aclImdb.tar", ""),
        ("aclImdb.zip", "zip"), ("", "folder"),
    ],
)  # fmt: skip
def test_small(small, name, mode):
    pack(small / "imdb" / name, reviews(), mode)
    task = text.load(small)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 8, "validation": 4, "test": 12}
    # Letters of the test alone, and digits, are too rare to have a token.
    labels = task["test"].labels
    assert spelled(task, "test", labels.tolist().index(0)) == "t<unk><unk>t bad <unk><eos>"
    assert sorted(labels.tolist()) == [0] * 6 + [1] * 6
    assert sorted(task["validation"].labels.tolist()) == [0, 0, 1, 1]
    # In an order of their own, whatever that of the archive, the same for both pipelines; not sorted.
    held = text.load(small, pipeline="lra")["test"]
    ends = [chr(held.stored[end - 1] - 1) for end in held.bounds[1:]]
    by_name = [(label, str(number)) for label in (0, 1) for number in range(COUNT)]
    wanted = [by_name[place] for place in shuffled(len(by_name), text.SEED, 2)]
    assert list(zip(held.labels.tolist(), ends, strict=True)) == wanted
    assert held.labels.tolist() == labels.tolist() != sorted(labels)


def test_the_folder_itself(small):
    pack(small, reviews(), "folder")
    assert len(text.load(small / "aclImdb")["train"]) == 8
    assert len(text.load(small)["train"]) == 8


def test_bytes(small, monkeypatch):
    monkeypatch.setitem(text.CUT, "lra", 14)
    pack(small / "imdb", reviews(), "folder")
    task = text.load(small, pipeline="lra")
    held = task["test"]
    texts = [
        bytes((held.stored[start:end] - 1).astype(np.uint8))
        for start, end in zip(held.bounds[:-1], held.bounds[1:], strict=True)
    ]
    assert [raw == "test Good é<br />".encode()[:14] for raw in texts] == (held.labels == 1).tolist()
    assert b"test bad 0" in texts
    assert task.vocabulary == len(task.symbols) == 257
    assert task.symbols[ord("a") + 1] == "a"


def test_cut_then_end(small, monkeypatch):
    monkeypatch.setitem(text.CUT, "s4", 5)
    pack(small / "imdb", reviews(), "folder")
    task = text.load(small)
    assert set(task["train"].lengths) == {6}
    assert (task["train"].stored[5::6] == text.END).all()


def test_frequency_counts_from_the_cut_training_texts():
    texts = [np.frombuffer(part.encode("utf-32-le"), np.uint32) for part in ("bbba", "aabc", "")]
    assert text.vocabulary(texts, 3) == [*text.SPECIALS, "b", "a"]
    assert text.vocabulary(texts, 1) == [*text.SPECIALS, "b", "a", "c"]


def test_unknown_pipeline():
    with pytest.raises(ValueError, match="pipeline must be one of s4, lra, got 'words'"):
        text.load(pipeline="words")


def test_a_review_is_missing(small):
    files = reviews()
    del files["aclImdb/test/pos/3_3.txt"]
    pack(small / "imdb/aclImdb.zip", files, "zip")
    with pytest.raises(DataError, match=r"aclImdb.zip must hold 6 reviews in test/pos, got 5"):
        text.load(small)


def test_not_text(small):
    files = reviews()
    files["aclImdb/test/pos/3_3.txt"] = b"\xff\xfe"
    pack(small / "imdb/aclImdb.zip", files, "zip")
    with pytest.raises(DataError, match=r"aclImdb.zip: test/pos/3_3.txt must be UTF-8 text"):
        text.load(small)


@pytest.mark.parametrize(("name", "mode"), [("aclImdb.tar.gz", "gz"), ("aclImdb.tar.xz", "xz"), ("aclImdb.zip", "zip")])
def test_truncated(small, name, mode):
    place = small / "imdb" / name
    pack(place, reviews(), mode)
    place.write_bytes(place.read_bytes()[:200])
    with pytest.raises(DataError, match=f"{name} cannot be read, it is truncated or corrupt"):
        text.load(small)


def test_an_official_name_packed_anew(small):
    pack(small / "imdb/aclImdb_v1.tar.gz", reviews(), "gz")
    text.load(small)


def test_an_official_name_with_other_contents(small):
    pack(small / "imdb/aclImdb_v1.tar.gz", {"aclImdb/train/pos/0_9.txt": b"x"}, "gz")
    with pytest.raises(DataError, match=r"aclImdb_v1.tar.gz must hold .* reviews in train/neg, got 0"):
        text.load(small)


def test_a_truncated_official_file_says_what_was_expected(small):
    place = small / "imdb/aclImdb_v1.tar.gz"
    pack(place, reviews(), "gz")
    place.write_bytes(place.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cannot be read, .*official file has 84125825 bytes, this one \d+"):
        text.load(small)
