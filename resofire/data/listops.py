"""ListOps: nested lists of digits under MIN, MAX, median and sum modulo 10, to be evaluated. 500 to 2,000 tokens.

LRA's files if the user has them, else our own generator with LRA's distribution. Draw i is a tree: a node at depth
below 10 (the root has depth 1) is an operator with probability 1/4, with 2 to 10 arguments, else a digit, as it is at
depth 10. Draws of 501 to 1,999 tokens are kept, about 8 %, in the order of i, each but once; the first are for
training, the next for validation, the last for testing. Random numbers and all else are integers: one seed gives
the same bytes on any machine with any number of workers.

    pipeline "s4"     cut at 2,047 tokens, then <eos>
    pipeline "lra"    cut at 2,000 tokens, no <eos>
"""

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import _listops_kernels as kernels
from .files import COMPRESSIONS, DataError, data_dir, read
from .store import checksum, prepared
from .task import Form, Split, Task

VERSION = 1
SYMBOLS = ("<pad>", "<unk>", "<eos>", "[MIN", "[MAX", "[MED", "[SM", "]", *"0123456789")
EOS = SYMBOLS.index("<eos>")
SPLITS = ("train", "validation", "test")
FILES = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")
FOLDERS = ("listops", "listops-1000", "lra_release/listops-1000", "lra_release/lra_release/listops-1000")
SIZES = (96_000, 2_000, 2_000)
PIPELINES = ("s4", "lra")
# Draws that one call of the compiled code makes: some 650 kept samples, a tenth of a second.
BLOCK = 8192


class Expressions(NamedTuple):
    """Expressions end to end, without <eos>: tokens [S] uint8, bounds [N + 1] int64, their values [N] uint8."""

    tokens: np.ndarray
    bounds: np.ndarray
    values: np.ndarray


def load(
    data_dir: str | os.PathLike[str] | None = None, *, pipeline: str = "s4", seed: int = 0,
    sizes: tuple[int, int, int] = SIZES, workers: int | None = None,
) -> Task:  # fmt: skip
    """LRA's tsv files if they are in the user's folder (the seed then does not matter), else generated.

    sizes      samples in train, validation and test; files that have another number of lines are refused
    workers    threads that generate; the result does not depend on it
    """
    if pipeline not in PIPELINES:
        raise ValueError(f"listops: pipeline must be one of {', '.join(PIPELINES)}, got {pipeline!r}")
    _require_sizes(seed, sizes)
    found = _found(data_dir)
    settings = {"version": VERSION, "pipeline": pipeline, "sizes": list(sizes)}
    if found is None:
        settings |= {"seed": seed}
    else:
        settings |= {"files": [checksum(file) for file in found]}

    def make() -> tuple[dict[str, np.ndarray], dict[str, object]]:
        if found is None:
            sets = generate(seed, sizes, workers=workers)
        else:
            sets = tuple(_read(file, size) for file, size in zip(found, sizes, strict=True))
        arrays = {}
        for name, each in zip(SPLITS, sets, strict=True):
            arrays[f"{name}-tokens"], arrays[f"{name}-bounds"] = _cut(each, pipeline)
            arrays[f"{name}-labels"] = each.values
        return arrays, {"origin": "generated" if found is None else "files"}

    arrays, _ = prepared("listops", settings, make)
    splits = {
        name: Split(arrays[f"{name}-tokens"], arrays[f"{name}-labels"], kind="tokens", form=Form(),
                    bounds=arrays[f"{name}-bounds"])
        for name in SPLITS
    }  # fmt: skip
    return Task("listops", "tokens", 10, splits, vocabulary=len(SYMBOLS), symbols=SYMBOLS)


def generate(
    seed: int = 0, sizes: tuple[int, int, int] = SIZES, *, workers: int | None = None
) -> tuple[Expressions, ...]:
    """Train, validation and test."""
    _require_sizes(seed, sizes)
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ValueError(f"listops: workers must be a positive integer, got {workers!r}")
    wanted = sum(sizes)
    tokens: list[np.ndarray] = []
    lengths: list[int] = []
    values: list[int] = []
    seen = set()
    for block_tokens, block_lengths, block_values in _blocks(seed, workers):
        start = 0
        for length, value in zip(block_lengths.tolist(), block_values.tolist(), strict=True):
            piece = block_tokens[start : start + length]
            start += length
            digest = hashlib.blake2b(piece.tobytes(), digest_size=16).digest()
            if digest in seen or len(lengths) == wanted:
                continue
            seen.add(digest)
            tokens.append(piece)
            lengths.append(length)
            values.append(value)
        if len(lengths) == wanted:
            break
    sets, first = [], 0
    for size in sizes:
        last = first + size
        joined = np.concatenate(tokens[first:last]) if size else np.empty(0, np.uint8)
        bounds = np.cumsum([0, *lengths[first:last]], dtype=np.int64)
        sets.append(Expressions(joined, bounds, np.array(values[first:last], np.uint8)))
        first = last
    return tuple(sets)


def _blocks(seed: int, workers: int | None) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Blocks of kept draws in their order, without end; a few are made ahead."""
    count = workers or os.cpu_count() or 1
    key = np.uint64(seed % 2**64)
    with ThreadPoolExecutor(count) as pool:
        ahead: deque[Future[tuple[np.ndarray, np.ndarray, np.ndarray]]] = deque()
        first = 0
        try:
            while True:
                while len(ahead) <= 2 * count:
                    ahead.append(pool.submit(kernels.draws, key, first, BLOCK))
                    first += BLOCK
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def _require_sizes(seed: int, sizes: tuple[int, int, int]) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ValueError(f"listops: seed must be an integer, got {seed!r}")
    if len(sizes) != 3 or any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in sizes):
        raise ValueError(f"listops: sizes must be three numbers, of train, validation and test, got {sizes!r}")


def _cut(each: Expressions, pipeline: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and bounds as a pipeline has them."""
    limit, ending = (2047, [EOS]) if pipeline == "s4" else (2000, [])
    eos = np.array(ending, np.uint8)
    pieces, lengths = [np.empty(0, np.uint8)], [0]
    for start, end in zip(each.bounds[:-1].tolist(), each.bounds[1:].tolist(), strict=True):
        end = min(end, start + limit)
        pieces += [each.tokens[start:end], eos]
        lengths.append(end - start + len(eos))
    return np.concatenate(pieces), np.cumsum(lengths, dtype=np.int64)


def _found(given: str | os.PathLike[str] | None) -> tuple[Path, ...] | None:
    """The user's three files, or None if there is none of them."""
    base = data_dir(given)
    if base is None:
        return None
    for place in (base, *(base / folder for folder in FOLDERS)):
        names = [[place / (name + ending) for ending in COMPRESSIONS] for name in FILES]
        files = [next((file for file in usual if file.is_file()), None) for usual in names]
        there = tuple(file for file in files if file is not None)
        if len(there) == len(FILES):
            return there
        if there:
            missing = ", ".join(name for name, file in zip(FILES, files, strict=True) if file is None)
            raise DataError(
                f"listops: {place} has {there[0].name} but not {missing}: put all three files there, or none"
            )
    return None


def _read(file: Path, wanted: int) -> Expressions:
    """The expressions of one of LRA's files. Every label is recomputed: what is corrupt does not get through."""
    lines = read(file).splitlines()
    if not lines or lines[0].split(b"\t") != [b"Source", b"Target"]:
        raise DataError(f"{file}, line 1 must be the header Source and Target, separated by a tab")
    if len(lines) - 1 != wanted:
        raise DataError(f"{file} must have {wanted} samples, got {len(lines) - 1}: it is truncated or another file")
    pieces, lengths, values = [np.empty(0, np.uint8)], [0], np.empty(wanted, np.uint8)
    for number, line in enumerate(lines[1:], 2):
        columns = line.split(b"\t")
        if len(columns) != 2:
            raise DataError(f"{file}, line {number} must have 2 columns, Source and Target, got {len(columns)}")
        source, target = columns
        text = np.frombuffer(source, np.uint8)
        tokens = np.empty(len(text), np.uint8)
        count = kernels.parsed(text, tokens)
        if count < 0:
            piece = source[-1 - count :][:12].decode("ascii", "replace")
            raise DataError(
                f"{file}, line {number}, character {-count} must be an operator, ] or a digit, got {piece!r}"
            )
        tokens = tokens[:count].copy()
        value = kernels.evaluated(tokens)
        if value < 0:
            raise DataError(f"{file}, line {number} must have one whole expression as its Source: a bracket is missing")
        if target.strip() != b"%d" % value:
            shown = target.strip()[:12].decode("ascii", "replace")
            raise DataError(
                f"{file}, line {number} must have the Target {value}, the expression's value, got {shown!r}"
            )
        pieces.append(tokens)
        lengths.append(count)
        values[number - 2] = value
    return Expressions(np.concatenate(pieces), np.cumsum(lengths, dtype=np.int64), values)
