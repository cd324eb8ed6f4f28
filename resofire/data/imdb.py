"""IMDB reviews: Text of the Long Range Arena (sentiment) and films (are two reviews about the same film?). Packed.

    text, s4     Unicode characters (`<br />` and case kept), cut at 4,095, then an end mark; characters seen fewer
                 than 15 times in the cut training files are unknown. 134 tokens: pad, unk, eos, then by frequency.
    text, lra    bytes, cut at 4,096; a token is byte + 1, 0 is padding. 257 tokens.
    films        pairs of reviews, as characters with the vocabulary of text (s4)

The archive has 25,000 reviews for training and 25,000 for the test, half of them positive. It has no validation split:
`text` holds out 2,500 training reviews, half of each kind; `films` holds out one film in eight. The vocabulary is that
of all 25,000 training reviews, as in the reference pipeline.

films. `urls_pos.txt` and `urls_neg.txt` name the film of each review: review `12_7.txt` is line 12, from 0. Films of
training, validation and test are disjoint (one film of the archive is in training and test; it is left out of
training), and repeated texts are left out. A positive pair is two reviews of one film. Every positive pair (a, b) has a
negative pair (a, b'), where b' is the second review of another positive pair: each review is as often first and second
in a negative pair as in a positive one, and b' has the sentiment of b. So neither a single review nor the two
sentiments tell the label. In validation and test each review is in at most one pair of each label; in training each
review opens up to `rounds` positive pairs.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from .files import Folder, RawFile, RawFiles, Remote, members, prepared_from
from .registry import dataset
from .store import Arrays, Prepared
from .task import DataError, Task, make_splits, pack, require_setting, shuffled

VERSION, FILMS_VERSION = 2, 1
SEED = 0
COUNT = 12_500  # of each sentiment, in training and test
VALIDATION = 2_500
FILMS_VALIDATION = 8  # one film in eight
CUT = {"s4": 4_095, "lra": 4_096}
FREQUENCY = 15
SPECIALS = ("<pad>", "<unk>", "<eos>")
UNKNOWN, END = 1, 2
SENTIMENTS = ("neg", "pos")
REVIEW = r"(?:^|/)(train|test)/(pos|neg)/([^/]+\.txt)$"
URLS = r"(?:^|/)(train|test)/urls_(pos|neg)\.txt$"
# The most bytes of each, and of all together; the archive has 14 kB, 0.6 MB and 70 MB.
WANTED = {REVIEW: 1 << 18, URLS: 1 << 22}
KEPT = 1 << 28
ARCHIVE = RawFile(
    ("aclImdb_v1", "aclImdb_labelled", "aclImdb"),
    archive=True,
    remote=Remote(
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz", 84_125_825,
        "sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    ),
    inside=("train/pos",),
)  # fmt: skip
RAW = RawFiles(("imdb", "text", "IMDB", "aclImdb"), {"archive": ARCHIVE})


@dataset("text-lra", about="IMDB reviews by bytes (as in the Long Range Arena)", pipeline="lra")
@dataset("text", about="IMDB reviews by characters (Long Range Arena, as in S4)", pipeline="s4")
def text(data_dir: Folder = None, pipeline: str = "s4") -> Task:
    """Load Text: is a review positive?

    Args:
        data_dir: Folder with the raw files.
        pipeline: "s4" (characters) or "lra" (bytes).

    Returns:
        The task, 22,500 / 2,500 / 25,000 reviews.
    """
    require_setting("text", "pipeline", pipeline, tuple(CUT))
    settings = {
        "version": VERSION, "seed": SEED, "validation": VALIDATION, "pipeline": pipeline, "cut": CUT[pipeline],
        "frequency": FREQUENCY,
    }  # fmt: skip
    arrays, facts = prepared_from(
        f"text-{pipeline}", RAW, data_dir, settings, lambda places: _make_text(places["archive"], pipeline)
    )
    return _task("text", arrays, facts["symbols"], ("negative", "positive"))


@dataset("films", about="IMDB reviews in pairs: are they about the same film?")
def films(data_dir: Folder = None, *, rounds: int = 1) -> Task:
    """Load films: are two reviews about the same film?

    Args:
        data_dir: Folder with the raw files.
        rounds: Positive training pairs that each review opens, where its film has enough reviews.

    Returns:
        The task, of pairs.
    """
    if type(rounds) is not int or rounds < 1:
        raise ValueError(f"films: rounds must be a positive integer, got {rounds!r}")
    settings = {
        "version": FILMS_VERSION, "seed": SEED, "validation": FILMS_VALIDATION, "cut": CUT["s4"],
        "frequency": FREQUENCY, "rounds": rounds,
    }  # fmt: skip
    arrays, facts = prepared_from(
        "films", RAW, data_dir, settings, lambda places: _make_films(places["archive"], rounds)
    )
    return _task("films", arrays, facts["symbols"], ("different films", "same film"), pairs=True)


def _task(name: str, arrays: Arrays, symbols: list[str], class_names: tuple[str, str], pairs: bool = False) -> Task:
    splits = make_splits(arrays, "tokens", pairs=pairs)
    return Task(
        name, "tokens", 2, splits, vocabulary=len(symbols), pairs=pairs, symbols=tuple(symbols), class_names=class_names
    )


class Reviews:
    """The reviews of "train" and "test": negative then positive, each by file name.

    Attributes:
        texts: By part, path -> contents.
        labels: [25000], 1 is positive; the same for both parts.
        urls: By part and sentiment, the contents of the list of films; missing ones are left out.
    """

    def __init__(self, place: Path) -> None:
        files: dict[tuple[str, str], dict[str, bytes]] = {
            (part, sentiment): {} for part in ("train", "test") for sentiment in SENTIMENTS
        }
        self.urls: dict[tuple[str, str], bytes] = {}
        for path, raw in members(place, WANTED, kept=KEPT, remote=ARCHIVE.remote):
            if match := re.search(REVIEW, path):
                files[match[1], match[2]][match[3]] = raw
            elif match := re.search(URLS, path):
                self.urls[match[1], match[2]] = raw
        for (part, sentiment), reviews in files.items():
            if len(reviews) != COUNT:
                raise DataError(f"{place} must hold {COUNT} reviews in {part}/{sentiment}, got {len(reviews)}")
        self.place = place
        self.labels = np.repeat(np.array([0, 1], np.uint8), COUNT)
        self.texts = {
            part: {
                f"{part}/{sentiment}/{name}": raw
                for sentiment in SENTIMENTS
                for name, raw in sorted(files[part, sentiment].items())
            }
            for part in ("train", "test")
        }

    def tokens(self) -> tuple[dict[str, list[np.ndarray]], list[str]]:
        """All reviews as characters, with an end mark, and the symbols."""
        points = {
            part: [code_points(f"{self.place}: {path}", raw, CUT["s4"]) for path, raw in texts.items()]
            for part, texts in self.texts.items()
        }
        symbols = vocabulary(points["train"], FREQUENCY)
        table = lookup(symbols)
        end = np.array([END], table.dtype)
        return {part: [np.append(table[text], end) for text in texts] for part, texts in points.items()}, symbols

    def films(self, part: str) -> list[str]:
        """The film of each review of a part, as IMDb numbers it."""
        listed = {}
        for sentiment in SENTIMENTS:
            name = f"{part}/urls_{sentiment}.txt"
            if (part, sentiment) not in self.urls:
                raise DataError(
                    f"{self.place} must hold {name}, which names the film of each review, but it is missing"
                )
            lines = self.urls[part, sentiment].decode("utf-8", "replace").splitlines()
            if len(lines) != COUNT:
                raise DataError(f"{self.place}: {name} must have {COUNT} lines, one per review, got {len(lines)}")
            for number, line in enumerate(lines):
                if (match := re.search(r"/title/(tt\d+)(?:/|$)", line)) is None:
                    raise DataError(f"{self.place}: {name}, line {number + 1} must hold /title/tt…, got {line[:60]!r}")
                listed[f"{part}/{sentiment}", number] = match[1]
        film_of = []
        for path in self.texts[part]:
            match = re.search(r"(.*)/([0-9]{1,9})_[0-9]+\.txt$", path)
            if match is None or (match[1], int(match[2])) not in listed:
                raise DataError(f"{self.place}: {path} must be named NUMBER_RATING.txt, NUMBER below {COUNT}")
            film_of.append(listed[match[1], int(match[2])])
        return film_of


def code_points(where: str, raw: bytes, cut: int) -> np.ndarray:
    """The first `cut` characters of a UTF-8 text as code points, [T] uint32."""
    try:
        characters = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} must be UTF-8 text: {error}") from None
    return np.frombuffer(characters[:cut].encode("utf-32-le", "surrogatepass"), np.uint32)


def vocabulary(texts: Iterable[np.ndarray], frequency: int) -> list[str]:
    """Specials, then all characters seen at least `frequency` times, by frequency, then by code point."""
    counts = np.zeros(0x110000, np.int64)
    for points in texts:
        present, times = np.unique(points, return_counts=True)
        counts[present] += times
    frequent = np.flatnonzero(counts >= max(frequency, 1))
    ordered = frequent[np.argsort(-counts[frequent], kind="stable")]
    return [*SPECIALS, *map(chr, ordered.tolist())]


def lookup(symbols: list[str]) -> np.ndarray:
    """The token of every code point, in the smallest type that holds them."""
    table = np.full(
        0x110000, UNKNOWN, np.uint8 if len(symbols) <= 256 else np.uint16 if len(symbols) <= 65536 else np.uint32
    )
    for token, symbol in enumerate(symbols[len(SPECIALS) :], len(SPECIALS)):
        table[ord(symbol)] = token
    return table


def _make_text(place: Path, pipeline: str) -> Prepared:
    reviews = Reviews(place)
    if pipeline == "lra":
        symbols = ["<pad>", *(chr(byte) if 32 <= byte < 127 else f"<{byte:02x}>" for byte in range(256))]
        tokens = {
            part: [np.frombuffer(raw[: CUT["lra"]], np.uint8) + np.uint16(1) for raw in texts.values()]
            for part, texts in reviews.texts.items()
        }
    else:
        tokens, symbols = reviews.tokens()
    half = VALIDATION // 2
    held_out = np.sort(np.concatenate([shuffled(COUNT, SEED, 0)[:half], shuffled(COUNT, SEED, 1)[:half] + COUNT]))
    everything = np.arange(2 * COUNT)
    arrays = {}
    for split, part, rows in (
        ("train", "train", np.setdiff1d(everything, held_out)), ("validation", "train", held_out),
        ("test", "test", everything),
    ):  # fmt: skip
        # Shuffled, so that any part of a split has both sentiments.
        chosen = rows[shuffled(len(rows), SEED, 2)]
        arrays[f"{split}_x"], arrays[f"{split}_bounds"] = pack([tokens[part][row] for row in chosen])
        arrays[f"{split}_labels"] = reviews.labels[chosen]
    return arrays, {"symbols": symbols}


def _make_films(place: Path, rounds: int) -> Prepared:
    reviews = Reviews(place)
    film_of = {part: reviews.films(part) for part in ("train", "test")}
    tokens, symbols = reviews.tokens()
    by_film: dict[str, dict[str, list[int]]] = {"test": {}, "train": {}}
    seen: set[bytes] = set()
    for part, grouped in by_film.items():
        for row, (film, raw) in enumerate(zip(film_of[part], reviews.texts[part].values(), strict=True)):
            if raw not in seen and (part == "test" or film not in by_film["test"]):
                seen.add(raw)
                grouped.setdefault(film, []).append(row)
    names = sorted(by_film["train"])
    held_out = {names[number] for number in shuffled(len(names), SEED, 0)[: len(names) // FILMS_VALIDATION]}
    groups = {
        "train": [by_film["train"][film] for film in names if film not in held_out],
        "validation": [by_film["train"][film] for film in names if film in held_out],
        "test": [by_film["test"][film] for film in sorted(by_film["test"])],
    }
    arrays = {}
    for number, (split, group) in enumerate(groups.items()):
        random = np.random.RandomState([SEED, number])
        try:
            pairs, labels = _pairs(group, reviews.labels, rounds if split == "train" else 0, random)
        except DataError as error:
            raise DataError(f"{place}: {split} {error}") from None
        part = "test" if split == "test" else "train"
        arrays[f"{split}_x"], arrays[f"{split}_bounds"] = pack([tokens[part][row] for row in pairs.reshape(-1)])
        arrays[f"{split}_labels"] = labels
    return arrays, {"symbols": symbols}


def _pairs(
    films: list[list[int]], sentiments: np.ndarray, rounds: int, random: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of reviews [2P, 2] and their labels: P of the same film, P of different films, shuffled.

    rounds    pairs that each review opens; 0 puts each review into one pair at most
    """
    positive: list[tuple[int, int, int]] = []  # film, first, second
    for film, rows in enumerate(films):
        ring, count = random.permutation(rows), len(rows)
        if rounds == 0:
            positive += [(film, ring[k], ring[k + 1]) for k in range(0, count - 1, 2)]
        for distance in range(1, min(rounds, count // 2) + 1):
            # At half the ring the pairs repeat, with their reviews exchanged.
            opened = count // 2 if 2 * distance == count else count
            positive += [(film, ring[k], ring[(k + distance) % count]) for k in range(opened)]
    if not positive:
        raise DataError("must have a film with two reviews, got none")
    film_of, first, second = np.array(positive, np.int64).T
    other = np.empty_like(second)
    for sentiment in (0, 1):
        same = np.flatnonzero(sentiments[second] == sentiment)
        other[same] = second[same[_mismatched(film_of[same], random)]]
    pairs = np.concatenate([np.stack([first, second], 1), np.stack([first, other], 1)])
    labels = np.repeat(np.array([1, 0], np.uint8), len(first))
    order = random.permutation(len(pairs))
    return pairs[order], labels[order]


def _mismatched(films: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """A random permutation p with films[p[i]] != films[i] for all i."""
    order = random.permutation(len(films))
    for i in np.flatnonzero(films[order] == films):
        # Exchange with a place where neither of the two then has its own film.
        free = np.flatnonzero((films[order] != films[i]) & (films != films[order[i]]))
        if not len(free):
            raise DataError("must have reviews of more films, got too few for pairs of different films")
        j = free[random.randint(len(free))]
        order[i], order[j] = order[j], order[i]
    return order
