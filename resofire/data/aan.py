"""Retrieval (Long Range Arena): does one of two papers of the ACL Anthology Network cite the other? By characters.

Three files, `new_aan_pairs.{train,eval,test}.tsv`, of 147,086 / 18,090 / 17,437 lines without header: label, id 1,
id 2, text 1, text 2, separated by tabs, without quoting. Texts are cut at 3,999 characters, then an end mark; the
vocabulary is that of the cut training texts (98 tokens: pad, unk, eos, then by frequency). The files may not be
redistributed, so there is no download. Packed.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .files import Folder, RawFile, RawFiles, prepared_from, read_lines
from .imdb import END, code_points, lookup, vocabulary
from .registry import dataset
from .store import Prepared
from .task import DataError, Task, make_splits, require_counts

VERSION = 1
CUT = 3_999
# Bytes of a line, of two whole papers.
LONGEST = 1 << 26
SIZES = (147_086, 18_090, 17_437)
FIELDS = ("label", "id 1", "id 2", "text 1", "text 2")
RAW = RawFiles(
    ("retrieval", "aan", "AAN", "tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data"),
    {
        split: RawFile(
            (f"new_aan_pairs.{name}.tsv",),
            source="the release of https://github.com/google-research/long-range-arena (we may not redistribute it)",
        )
        for split, name in (("train", "train"), ("validation", "eval"), ("test", "test"))
    },
)


@dataset("retrieval", about="AAN: do two papers cite each other? by characters (Long Range Arena)")
def retrieval(data_dir: Folder = None, *, sizes: tuple[int, int, int] | None = SIZES) -> Task:
    """Load Retrieval.

    Args:
        data_dir: Folder with the raw files.
        sizes: Pairs in train, validation and test; other files are refused. None accepts any number.

    Returns:
        The task, of pairs.
    """
    if sizes is not None:
        require_counts("retrieval", "sizes", sizes)
    settings = {"version": VERSION, "cut": CUT, "sizes": sizes}
    arrays, facts = prepared_from("retrieval", RAW, data_dir, settings, lambda places: _make(places, sizes))
    splits = make_splits(arrays, "tokens", pairs=True)
    symbols = tuple(facts["symbols"])
    return Task(
        "retrieval", "tokens", 2, splits, vocabulary=len(symbols), pairs=True, symbols=symbols,
        class_names=("unrelated", "cited"),
    )  # fmt: skip


def read_pairs(file: Path, most: int | None = None) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Iterate over label and two texts of each line, as code points, cut; DataError above `most` lines."""
    for number, line in enumerate(read_lines(file, LONGEST), 1):
        fields = line.split(b"\t")
        where = f"{file}, line {number},"
        if most is not None and number > most:
            raise DataError(f"{file} must hold {most} pairs, got more: it is another file")
        if len(fields) != len(FIELDS):
            raise DataError(f"{where} must have {len(FIELDS)} fields ({', '.join(FIELDS)}), got {len(fields)}")
        if fields[0] not in (b"0", b"1", b"0.0", b"1.0"):
            raise DataError(f"{where} must have label 0 or 1, got {fields[0][:20].decode('latin1')!r}")
        yield int(fields[0][:1]), code_points(where, fields[3], CUT), code_points(where, fields[4], CUT)


def _make(places: dict[str, Path], sizes: tuple[int, int, int] | None) -> Prepared:
    most = dict(zip(places, sizes or (None,) * len(places), strict=True))
    symbols = vocabulary((text for _, *pair in read_pairs(places["train"], most["train"]) for text in pair), 1)
    table = lookup(symbols)
    end = np.array([END], table.dtype).tobytes()
    arrays = {}
    for split, file in places.items():
        # A growing bytearray: a list of arrays would need twice the memory when it is joined.
        packed, lengths, labels = bytearray(), [0], []
        for label, *pair in read_pairs(file, most[split]):
            labels.append(label)
            for text in pair:
                packed += table[text].tobytes() + end
                lengths.append(len(text) + 1)
        if not labels:
            raise DataError(f"{file} must hold pairs, one a line, got none")
        if most[split] not in (None, len(labels)):
            raise DataError(f"{file} must hold {most[split]} pairs, got {len(labels)}: it is truncated or another file")
        arrays[f"{split}_x"] = np.frombuffer(packed, table.dtype)
        arrays[f"{split}_bounds"] = np.cumsum(lengths)
        arrays[f"{split}_labels"] = np.array(labels, np.uint8)
    return arrays, {"symbols": symbols}
