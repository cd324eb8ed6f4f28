"""Retrieval (Long Range Arena): whether two papers of the ACL Anthology Network cite each other, by their characters.

Three files, `new_aan_pairs.{train,eval,test}.tsv`, of 147,086 / 18,090 / 17,437 lines without a header: label, id 1, id
2, text 1, text 2, separated by tabs, without quoting. Texts are cut at 3,999 characters, then an end; the vocabulary is
that of the cut training texts (98 tokens: pad, unk, eos, then characters, the frequent first). The files may not be
redistributed, so there is no download. Packed: texts 2i and 2i + 1 are pair i. While it is prepared, a file is held in
memory whole, beside its tokens.
"""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .files import DataError, Wanted, origin, prepared_from, read
from .store import Arrays
from .task import Form, Split, Task
from .text import END, code_points, lookup, vocabulary

VERSION = 1
CUT = 3_999
SIZES = (147_086, 18_090, 17_437)
FIELDS = ("label", "id 1", "id 2", "text 1", "text 2")
FOLDERS = ("retrieval", "aan", "AAN", "tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data")
FILES = {
    split: Wanted(
        (f"new_aan_pairs.{name}.tsv",),
        source="the release of https://github.com/google-research/long-range-arena (we may not pass it on)",
    )
    for split, name in (("train", "train"), ("validation", "eval"), ("test", "test"))
}


def load(data_dir: str | os.PathLike[str] | None = None, *, sizes: tuple[int, int, int] | None = SIZES) -> Task:
    """AAN's files.

    sizes    pairs in train, validation and test; files that have another number are refused. None takes any number.
    """
    if sizes is not None and (
        not isinstance(sizes, tuple | list) or len(sizes) != len(FILES) or not all(type(size) is int for size in sizes)
    ):
        raise ValueError(
            f"retrieval: sizes must be three numbers, of train, validation and test, or None, got {sizes!r}"
        )

    def make(found: dict[str, Path]) -> tuple[Arrays, dict[str, Any]]:
        sources = {name: text for file in found.values() for name, text in origin(file).items()}
        arrays, symbols = _make(found, sizes)
        return arrays, {"sources": sources, "symbols": symbols}

    settings = {"version": VERSION, "cut": CUT, "sizes": sizes}
    arrays, facts = prepared_from("retrieval", FOLDERS, FILES, data_dir, settings, make)
    splits = {
        split: Split(
            arrays[f"{split}_x"], arrays[f"{split}_labels"], kind="tokens", form=Form(),
            bounds=arrays[f"{split}_bounds"], pairs=True,
        )
        for split in FILES
    }  # fmt: skip
    symbols = tuple(facts["symbols"])
    return Task("retrieval", "tokens", 2, splits, vocabulary=len(symbols), symbols=symbols, pairs=True)


def read_pairs(file: Path, raw: bytes) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Label and the two texts of each line, as code points, cut."""
    for number, line in enumerate(io.BytesIO(raw), 1):
        fields = line.rstrip(b"\r\n").split(b"\t")
        where = f"{file}, line {number},"
        if len(fields) != len(FIELDS):
            raise DataError(f"{where} must have {len(FIELDS)} fields ({', '.join(FIELDS)}), got {len(fields)}")
        if fields[0] not in (b"0", b"1", b"0.0", b"1.0"):
            raise DataError(f"{where} must have label 0 or 1, got {fields[0][:20].decode('latin1')!r}")
        yield int(fields[0][:1]), code_points(where, fields[3], CUT), code_points(where, fields[4], CUT)


def _make(found: dict[str, Path], sizes: tuple[int, int, int] | None) -> tuple[Arrays, list[str]]:
    raw = read(found["train"])
    symbols = vocabulary((text for _, *pair in read_pairs(found["train"], raw) for text in pair), 1)
    table = lookup(symbols)
    end = np.array([END], table.dtype).tobytes()
    arrays = {}
    for number, (split, file) in enumerate(found.items()):
        # One growing row of bytes: a list of arrays would hold all texts twice when it is joined.
        packed, lengths, labels = bytearray(), [0], []
        for label, *pair in read_pairs(file, raw if split == "train" else read(file)):
            labels.append(label)
            for text in pair:
                packed += table[text].tobytes() + end
                lengths.append(len(text) + 1)
        if not labels:
            raise DataError(f"{file} must hold pairs, one a line, got none")
        if sizes is not None and len(labels) != sizes[number]:
            raise DataError(
                f"{file} must hold {sizes[number]} pairs, got {len(labels)}: it is truncated or another file"
            )
        raw = b""
        arrays[f"{split}_x"] = np.frombuffer(packed, table.dtype)
        arrays[f"{split}_bounds"] = np.cumsum(lengths)
        arrays[f"{split}_labels"] = np.array(labels, np.uint8)
    return arrays, symbols
