"""Text (Long Range Arena): whether a film review is kind, read character by character or byte by byte; packed.

    s4     Unicode characters as they are (`<br />` and case kept), cut at 4,095, then an end; those seen fewer than 15
           times in the cut training files are unknown. 134 tokens: pad, unk, eos, then characters, the frequent first.
    lra    bytes, cut at 4,096; a token is its byte + 1, and 0 would be padding. 257 tokens.

25,000 reviews for training and 25,000 for the test, half of each kind. No validation split exists: 2,500 training
reviews, the choice of a fixed seed, half of each kind, are set aside, which leaves 22,500. The vocabulary is that of
all 25,000, as in the reference pipeline. Reviews are kept in an order of a fixed seed, so that any part of a split has
both kinds.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .files import DataError, Remote, Wanted, members, origin, prepared_from
from .store import Arrays
from .task import Form, Split, Task, shuffled

VERSION = 2
SEED = 0
COUNT = 12_500  # of each kind, in training and test
VALIDATION = 2_500
CUT = {"s4": 4_095, "lra": 4_096}
FREQUENCY = 15
SPECIALS = ("<pad>", "<unk>", "<eos>")
UNKNOWN, END = 1, 2
KINDS = ("neg", "pos")
FOLDERS = ("imdb", "text", "IMDB", "aclImdb")
FILE = Wanted(
    ("aclImdb_v1", "aclImdb_labelled", "aclImdb"),
    archive=True,
    remote=Remote(
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz", 84_125_825,
        "md5:7c2ac02c03563afcf9b574c7e56c153a",
    ),
    inside=("train/pos",),
)  # fmt: skip


def load(data_dir: str | os.PathLike[str] | None = None, pipeline: str = "s4") -> Task:
    if pipeline not in CUT:
        raise ValueError(f"text: pipeline must be one of {', '.join(CUT)}, got {pipeline!r}")

    def make(found: dict[str, Path]) -> tuple[Arrays, dict[str, Any]]:
        place = found["archive"]
        sources = origin(place, FILE.remote)
        arrays, symbols = _make(place, pipeline)
        return arrays, {"sources": sources, "symbols": symbols}

    settings = {
        "version": VERSION, "seed": SEED, "validation": VALIDATION, "pipeline": pipeline, "cut": CUT[pipeline],
        "frequency": FREQUENCY,
    }  # fmt: skip
    arrays, facts = prepared_from(f"text-{pipeline}", FOLDERS, {"archive": FILE}, data_dir, settings, make)
    splits = {
        split: Split(
            arrays[f"{split}_x"],
            arrays[f"{split}_labels"],
            kind="tokens",
            form=Form(),
            bounds=arrays[f"{split}_bounds"],
        )
        for split in ("train", "validation", "test")
    }
    symbols = tuple(facts["symbols"])
    return Task("text", "tokens", 2, splits, vocabulary=len(symbols), symbols=symbols)


def read_reviews(place: Path) -> dict[str, tuple[dict[str, bytes], np.ndarray]]:
    """The reviews of "train" and "test" by their paths, in order, and their labels (1 is kind)."""
    found: dict[tuple[str, str], dict[str, bytes]] = {(part, kind): {} for part in ("train", "test") for kind in KINDS}
    for path, raw in members(place, FILE.remote):
        match = re.search(r"(?:^|/)(train|test)/(pos|neg)/([^/]+\.txt)$", path)
        if match:
            found[match[1], match[2]][match[3]] = raw
    for (part, kind), reviews in found.items():
        if len(reviews) != COUNT:
            raise DataError(f"{place} must hold {COUNT} reviews in {part}/{kind}, got {len(reviews)}")
    return {
        part: (
            {f"{part}/{kind}/{name}": raw for kind in KINDS for name, raw in sorted(found[part, kind].items())},
            np.repeat(np.array([0, 1], np.uint8), COUNT),
        )
        for part in ("train", "test")
    }


def code_points(where: str, raw: bytes, cut: int) -> np.ndarray:
    """The first characters of a UTF-8 text as numbers."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} must be UTF-8 text: {error}") from None
    return np.frombuffer(text[:cut].encode("utf-32-le", "surrogatepass"), np.uint32)


def vocabulary(texts: Iterable[np.ndarray], frequency: int) -> list[str]:
    """Specials, then the characters seen often enough: the frequent first, equals in their own order."""
    counts = np.zeros(0x110000, np.int64)
    for text in texts:
        found, times = np.unique(text, return_counts=True)
        counts[found] += times
    seen = np.flatnonzero(counts >= max(frequency, 1))
    ordered = seen[np.argsort(-counts[seen], kind="stable")]
    return [*SPECIALS, *map(chr, ordered.tolist())]


def lookup(symbols: list[str]) -> np.ndarray:
    """The token of every code point."""
    table = np.full(
        0x110000, UNKNOWN, np.uint8 if len(symbols) <= 256 else np.uint16 if len(symbols) <= 65536 else np.uint32
    )
    for token, symbol in enumerate(symbols[len(SPECIALS) :], len(SPECIALS)):
        table[ord(symbol)] = token
    return table


def _make(place: Path, pipeline: str) -> tuple[Arrays, list[str]]:
    reviews = read_reviews(place)
    cut = CUT[pipeline]
    tokens: dict[str, list[np.ndarray]]
    if pipeline == "lra":
        symbols = ["<pad>", *(chr(byte) if 32 <= byte < 127 else f"<{byte:02x}>" for byte in range(256))]
        tokens = {
            part: [np.frombuffer(raw[:cut], np.uint8) + np.uint16(1) for raw in texts.values()]
            for part, (texts, _) in reviews.items()
        }
    else:
        points = {
            part: [code_points(f"{place}: {path}", raw, cut) for path, raw in texts.items()]
            for part, (texts, _) in reviews.items()
        }
        symbols = vocabulary(points["train"], FREQUENCY)
        table = lookup(symbols)
        end = np.array([END], table.dtype)
        tokens = {part: [np.append(table[text], end) for text in texts] for part, texts in points.items()}
    choice = shuffled(COUNT, SEED, 0)[: VALIDATION // 2], shuffled(COUNT, SEED, 1)[: VALIDATION // 2] + COUNT
    aside = np.sort(np.concatenate(choice))
    kept = np.setdiff1d(np.arange(2 * COUNT), aside)
    arrays = {}
    for split, part, sorted_choice in (
        ("train", "train", kept), ("validation", "train", aside), ("test", "test", np.arange(2 * COUNT)),
    ):  # fmt: skip
        chosen = sorted_choice[shuffled(len(sorted_choice), SEED, 2)]
        held = [tokens[part][number] for number in chosen]
        arrays[f"{split}_x"] = np.concatenate(held)
        arrays[f"{split}_bounds"] = np.cumsum([0, *map(len, held)])
        arrays[f"{split}_labels"] = reviews[part][1][chosen]
    return arrays, symbols
