"""IMDB: the real archive where RESOFIRE_DATA has it (prepared once), and small ones; text and films."""

import re
from collections import Counter

import numpy as np
import pytest
from archives import pack

from resofire.data import DataError, imdb, load
from resofire.data.task import shuffled

COUNT = 6


@pytest.fixture(scope="module")
def real_task(real, tmp_path_factory):
    """A function that loads a data set from the real archive, once."""
    folder, cache = real("imdb"), tmp_path_factory.mktemp("cache")

    def loaded(name):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RESOFIRE_CACHE", str(cache))
            return load(name, folder)

    return loaded


def test_real_characters(real_task):
    task = real_task("text")
    assert (task.kind, task.classes, task.vocabulary, task.pairs) == ("tokens", 2, 134, False)
    sizes = {name: len(split) for name, split in task.splits.items()}
    assert sizes == {"train": 22_500, "validation": 2_500, "test": 25_000}
    for split in task.splits.values():
        assert np.bincount(split.labels).tolist() == [len(split) // 2] * 2
        assert split.lengths.max() == 4096
        assert (split.stored[split.bounds[1:] - 1] == imdb.END).all()
        assert (split.stored == imdb.END).sum() == len(split)
        assert split.stored.max() < 134
        assert split.stored.min() > 0
    assert task.symbols[:5] == ("<pad>", "<unk>", "<eos>", " ", "e")


@pytest.mark.deep
def test_real_bytes_say_the_same(real_task):
    characters, data = real_task("text"), real_task("text-lra")
    assert data.vocabulary == 257
    for name in data.splits:
        for number in range(0, len(data[name]), 500):
            raw = bytes((data[name].stored[slice(*data[name].bounds[number : number + 2])] - 1).astype(np.uint8))
            text = raw.decode(errors="ignore")[:4000]
            start = characters[name].bounds[number]
            tokens = characters[name].stored[start : start + len(text)]
            known = tokens != imdb.UNKNOWN
            assert known.mean() > 0.95
            spelled = np.array([characters.symbols[token] for token in tokens])
            np.testing.assert_array_equal(spelled[known], np.array(list(text))[known])
        assert data[name].lengths.max() == 4096


def test_real_films(real_task):
    task, text = real_task("films"), real_task("text")
    assert (task.kind, task.classes, task.pairs, task.symbols) == ("tokens", 2, True, text.symbols)
    assert task.class_names == ("different films", "same film")
    sizes = {name: len(split) for name, split in task.splits.items()}
    assert sizes == {"train": 41_740, "validation": 2_694, "test": 22_918}
    texts = {}
    for name, split in task.splits.items():
        rows = np.array(
            [hash(split.stored[a:b].tobytes()) for a, b in zip(split.bounds[:-1], split.bounds[1:], strict=True)]
        ).reshape(-1, 2)
        texts[name] = set(rows.ravel().tolist())
        # Of the same film or not, the same reviews come first, the same come second.
        for position in rows.T:
            same, different = (np.sort(position[split.labels == label]) for label in (1, 0))
            np.testing.assert_array_equal(same, different)
        assert (rows[:, 0] != rows[:, 1]).all()
    assert not texts["train"] & texts["validation"]
    assert not (texts["train"] | texts["validation"]) & texts["test"]


def reviews():
    files = {}
    for part in ("train", "test"):
        for sentiment in ("neg", "pos"):
            for number in range(COUNT):
                word = "Good é<br />" if sentiment == "pos" else "bad"
                files[f"aclImdb/{part}/{sentiment}/{number}_{number}.txt"] = f"{part} {word} {number}".encode()
    files["aclImdb/train/unsup/0_0.txt"] = b"left out"
    files["aclImdb/README"] = b"left out"
    return files


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.setattr(imdb, "COUNT", COUNT)
    monkeypatch.setattr(imdb, "VALIDATION", 4)
    monkeypatch.setattr(imdb, "FREQUENCY", 10)
    (tmp_path / "imdb").mkdir()
    return tmp_path


def spelled(task, split):
    split = task[split]
    pieces = zip(split.bounds[:-1], split.bounds[1:], strict=True)
    return ["".join(task.symbols[token] for token in split.stored[a:b]) for a, b in pieces]


@pytest.mark.parametrize(("name", "mode"), [("aclImdb_v1.tar.xz", "xz"), ("aclImdb.zip", "zip"), ("", "folder")])
def test_small(small, name, mode):
    pack(small / "imdb" / name, reviews(), mode)
    task = load("text", small)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 8, "validation": 4, "test": 12}
    # Letters of the test alone, and digits, are too rare to have a token.
    labels = task["test"].labels
    assert spelled(task, "test")[labels.tolist().index(0)] == "t<unk><unk>t bad <unk><eos>"
    assert sorted(labels.tolist()) == [0] * 6 + [1] * 6
    assert sorted(task["validation"].labels.tolist()) == [0, 0, 1, 1]
    # Shuffled, whatever the order of the archive, and alike in both pipelines.
    split = load("text-lra", small)["test"]
    ends = [chr(split.stored[end - 1] - 1) for end in split.bounds[1:]]
    by_name = [(label, str(number)) for label in (0, 1) for number in range(COUNT)]
    expected = [by_name[place] for place in shuffled(len(by_name), imdb.SEED, 2)]
    assert list(zip(split.labels.tolist(), ends, strict=True)) == expected
    assert split.labels.tolist() == labels.tolist() != sorted(labels)


def test_the_folder_itself(small):
    pack(small, reviews(), "folder")
    assert len(load("text", small / "aclImdb")["train"]) == 8
    assert len(load("text", small)["train"]) == 8


def test_bytes(small, monkeypatch):
    monkeypatch.setitem(imdb.CUT, "lra", 14)
    pack(small / "imdb", reviews(), "folder")
    task = load("text-lra", small)
    split = task["test"]
    texts = [
        bytes((split.stored[start:end] - 1).astype(np.uint8))
        for start, end in zip(split.bounds[:-1], split.bounds[1:], strict=True)
    ]
    assert [raw == "test Good é<br />".encode()[:14] for raw in texts] == (split.labels == 1).tolist()
    assert b"test bad 0" in texts
    assert task.vocabulary == len(task.symbols) == 257
    assert task.symbols[ord("a") + 1] == "a"


def test_cut_then_end(small, monkeypatch):
    monkeypatch.setitem(imdb.CUT, "s4", 5)
    pack(small / "imdb", reviews(), "folder")
    task = load("text", small)
    assert set(task["train"].lengths) == {6}
    assert (task["train"].stored[5::6] == imdb.END).all()


def test_frequency_counts_from_the_cut_training_texts():
    texts = [np.frombuffer(part.encode("utf-32-le"), np.uint32) for part in ("bbba", "aabc", "")]
    assert imdb.vocabulary(texts, 3) == [*imdb.SPECIALS, "b", "a"]
    assert imdb.vocabulary(texts, 1) == [*imdb.SPECIALS, "b", "a", "c"]


def test_wrong_settings():
    with pytest.raises(ValueError, match="pipeline must be one of s4, lra, got 'words'"):
        imdb.text(pipeline="words")
    for rounds in (0, 1.5, True):
        with pytest.raises(ValueError, match="films: rounds must be a positive integer, got"):
            load("films", rounds=rounds)


def test_wrong_reviews(small):
    for raw, message in ((None, r"must hold 6 reviews in test/pos, got 5"), (b"\xff", r": .*3_3.txt must be UTF-8")):
        files = reviews() | {"aclImdb/test/pos/3_3.txt": raw}
        pack(small / "imdb/aclImdb.zip", {name: raw for name, raw in files.items() if raw is not None}, "zip")
        with pytest.raises(DataError, match=rf"aclImdb.zip:? ?{message}"):
            load("text", small)


def test_a_repacked_or_truncated_official_file(small):
    place = small / "imdb/aclImdb_v1.tar.gz"
    pack(place, reviews(), "gz")
    load("text", small)
    place.write_bytes(place.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cannot be read, .*official file has 84125825 bytes, this one \d+"):
        load("text", small)


FILMS, EACH = 80, 5  # of each part, and reviews of a film


def film_reviews():
    """Reviews that say film, sentiment and number; films have other numbers than reviews, and one is in both parts."""
    files = {}
    for first, part in enumerate(("test", "train")):
        random = np.random.RandomState(first)
        films = random.permutation(np.repeat(np.arange(FILMS), EACH)) + (FILMS - 1) * first
        for sentiment, listed in zip(("neg", "pos"), np.split(films, 2), strict=True):
            for number, film in enumerate(listed):
                text = f"{part} {sentiment} film{film} {number}."
                files[f"aclImdb/{part}/{sentiment}/{number}_7.txt"] = text.encode()
            lines = [f"http://www.imdb.com/title/tt{film:07}/usercomments\n" for film in listed]
            files[f"aclImdb/{part}/urls_{sentiment}.txt"] = "".join(lines).encode()
    return files


@pytest.fixture
def films(tmp_path, monkeypatch):
    monkeypatch.setattr(imdb, "COUNT", FILMS * EACH // 2)
    monkeypatch.setattr(imdb, "FREQUENCY", 1)
    return tmp_path


def film_pairs(task, split):
    """(part, sentiment, film, number) of both reviews of each pair."""
    texts = [tuple(re.fullmatch(r"(\w+) (\w+) film(\d+) (\d+)\.<eos>", text).groups()) for text in spelled(task, split)]
    return list(zip(texts[::2], texts[1::2], strict=True))


def test_films(films):
    files = film_reviews()
    # A text that occurs twice is used once.
    files["aclImdb/train/neg/1_7.txt"] = files["aclImdb/train/neg/0_7.txt"]
    pack(films, files, "folder")
    task, more = load("films", films), load("films", films, rounds=2)
    used = {}
    for name in ("train", "validation", "test"):
        pairs, labels = film_pairs(task, name), task[name].labels.tolist()
        assert labels.count(0) == labels.count(1) == len(pairs) / 2
        assert labels != sorted(labels)
        same = [pair for pair, label in zip(pairs, labels, strict=True) if label]
        different = [pair for pair, label in zip(pairs, labels, strict=True) if not label]
        assert all(a[2] == b[2] and a != b for a, b in same)
        assert all(a[2] != b[2] for a, b in different)
        assert {part for pair in pairs for part, *_ in pair} == {"test" if name == "test" else "train"}
        # Neither a review nor the two sentiments tell the label.
        for position in (0, 1):
            assert Counter(pair[position] for pair in same) == Counter(pair[position] for pair in different)
        assert Counter((a[1], b[1]) for a, b in same) == Counter((a[1], b[1]) for a, b in different)
        used[name] = {review[2] for pair in pairs for review in pair}
        if name == "train":
            assert max(Counter(a for a, _ in same).values()) == 1
            assert len({frozenset(pair) for pair in same}) == len(same)
            first = Counter(a for (a, _), label in zip(film_pairs(more, name), more[name].labels, strict=True) if label)
            assert max(first.values()) == 2
            assert len(more[name]) > 1.8 * len(task[name])
        else:
            assert max(Counter(review for pair in same for review in pair).values()) == 1
            assert film_pairs(more, name) == pairs
    assert not used["train"] & used["validation"]
    assert not (used["train"] | used["validation"]) & used["test"]
    assert str(FILMS - 1) in used["test"]
    assert len(used["validation"]) == (FILMS - 1) // imdb.FILMS_VALIDATION
    assert task.pairs
    assert task["train"].lengths.shape == (len(task["train"]), 2)


def test_films_need_the_lists(films):
    name = "aclImdb/test/urls_pos.txt"
    lists = film_reviews()[name]
    for raw, message in (
        (None, r"aclImdb.zip must hold test/urls_pos.txt, which names the film of each review, but it is missing"),
        (lists[:-40], r"urls_pos.txt, line 200 must hold /title/tt…, got 'http"),
        (lists[:-60], r"urls_pos.txt must have 200 lines, one per review, got 199"),
    ):
        files = film_reviews() | {name: raw}
        pack(films / "aclImdb.zip", {name: raw for name, raw in files.items() if raw is not None}, "zip")
        with pytest.raises(DataError, match=message):
            load("films", films)
    files = film_reviews()
    files["aclImdb/test/pos/999_7.txt"] = files.pop("aclImdb/test/pos/9_7.txt")
    pack(films / "aclImdb.zip", files, "zip")
    with pytest.raises(DataError, match=r"test/pos/999_7.txt must be named NUMBER_RATING.txt, NUMBER below 200"):
        load("films", films)


def test_films_that_cannot_be_paired(films):
    files = film_reviews()
    for sentiment in ("neg", "pos"):
        files[f"aclImdb/test/urls_{sentiment}.txt"] = b"http://www.imdb.com/title/tt0000001/usercomments\n" * 200
    pack(films / "aclImdb.zip", files, "zip")
    with pytest.raises(DataError, match=r"aclImdb.zip: test must have reviews of more films"):
        load("films", films)
