"""ListOps (Long Range Arena): evaluate nested lists of digits under MIN, MAX, median and sum modulo 10. Packed.

LRA's files if the user has them, else our generator with LRA's distribution. Draw i is a tree: a node at depth below 10
(the root has depth 1) is an operator with probability 1/4, with 2 to 10 arguments, else a digit; at depth 10 it is a
digit. Unique draws of 501 to 1,999 tokens are kept, about 8 %, in the order of i: first training, then validation, then
test. All random numbers are integers: a seed gives the same bytes on any machine with any number of workers.

    pipeline "s4"     cut at 2,047 tokens, then <eos>
    pipeline "lra"    cut at 2,000 tokens, no <eos>
"""

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .files import Folder, RawFile, RawFiles, find, read_lines
from .registry import dataset
from .store import Prepared, checksum, prepared
from .task import SPLITS, DataError, Task, make_splits, require_counts, require_setting

VERSION = 1
SYMBOLS = ("<pad>", "<unk>", "<eos>", "[MIN", "[MAX", "[MED", "[SM", "]", *"0123456789")
EOS = SYMBOLS.index("<eos>")
RAW = RawFiles(
    ("listops", "listops-1000", "lra_release/listops-1000", "lra_release/lra_release/listops-1000"),
    {name: RawFile((name,)) for name in ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")},
)
SIZES = (96_000, 2_000, 2_000)
# Length at which each pipeline cuts, and what it appends.
CUT = {"s4": (2_047, (EOS,)), "lra": (2_000, ())}
# Draws per call of the compiled code: some 650 kept samples, a tenth of a second.
BLOCK = 8192
# Bytes of a line in LRA's files, whose expressions have 2,000 tokens at most, with parentheses.
LONGEST = 1 << 16


class Expressions(NamedTuple):
    """Expressions end to end, without <eos>: tokens [S] uint8, bounds [N + 1] int64, their values [N] uint8."""

    tokens: np.ndarray
    bounds: np.ndarray
    values: np.ndarray


@dataset("listops-lra", about="the same without an end mark, as in the Long Range Arena", pipeline="lra")
@dataset("listops", about="nested operations on lists (Long Range Arena, as in S4)", pipeline="s4")
def listops(
    data_dir: Folder = None, *, pipeline: str = "s4", seed: int = 0, sizes: tuple[int, int, int] = SIZES,
    lengths: tuple[int, int] | None = None, workers: int | None = None,
) -> Task:  # fmt: skip
    """Load ListOps: LRA's tsv files if they are in the user's folder, else generated.

    Args:
        data_dir: Folder with LRA's files.
        pipeline: "s4" or "lra".
        seed: Seed of the generator.
        sizes: Samples in train, validation and test; files with other numbers of lines are refused.
        lengths: Shortest and longest sequence to train on, in tokens, for a curriculum: one sub-expression of that
            length of each training expression that has any. Validation and test stay whole.
        workers: Threads that generate; the result does not depend on it.

    Returns:
        The task.
    """
    require_setting("listops", "pipeline", pipeline, tuple(CUT))
    _require_generator(seed, sizes, workers)
    if lengths is not None:
        _require_lengths(lengths)
    files = _find(data_dir)
    settings: dict[str, Any] = {"version": VERSION, "pipeline": pipeline, "sizes": list(sizes)}
    settings |= {"files": [checksum(file) for file in files]} if files else {"seed": seed}
    if lengths is not None:
        settings |= {"seed": seed, "lengths": list(lengths)}

    def make() -> Prepared:
        if files:
            sets = tuple(_read(file, size) for file, size in zip(files, sizes, strict=True))
        else:
            sets = generate(seed, sizes, workers=workers)
        if lengths is not None:
            sets = (_parts(sets[0], lengths, seed), *sets[1:])
        arrays = {}
        for split, expressions in zip(SPLITS, sets, strict=True):
            arrays[f"{split}-tokens"], arrays[f"{split}-bounds"] = _cut(expressions, pipeline)
            arrays[f"{split}-labels"] = expressions.values
        return arrays, {"origin": "files" if files else "generated"}

    stored, _ = prepared("listops", settings, make)
    arrays = {name.replace("-tokens", "_x").replace("-", "_"): array for name, array in stored.items()}
    splits = make_splits(arrays, "tokens")
    return Task(
        "listops", "tokens", 10, splits, vocabulary=len(SYMBOLS), symbols=SYMBOLS, class_names=tuple("0123456789")
    )


def generate(
    seed: int = 0, sizes: tuple[int, int, int] = SIZES, *, workers: int | None = None
) -> tuple[Expressions, ...]:
    """Generate train, validation and test; see `listops`."""
    _require_generator(seed, sizes, workers)
    total = sum(sizes)
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
            if digest in seen or len(lengths) == total:
                continue
            seen.add(digest)
            tokens.append(piece)
            lengths.append(length)
            values.append(value)
        if len(lengths) == total:
            break
    sets, first = [], 0
    for size in sizes:
        last = first + size
        joined = np.concatenate([np.empty(0, np.uint8), *tokens[first:last]])
        bounds = np.cumsum([0, *lengths[first:last]], dtype=np.int64)
        sets.append(Expressions(joined, bounds, np.array(values[first:last], np.uint8)))
        first = last
    return tuple(sets)


def _parts(expressions: Expressions, lengths: tuple[int, int], seed: int) -> Expressions:
    """One sub-expression of each expression that has one of `lengths`."""
    from . import listops_kernels as kernels

    key = np.uint64(seed % 2**64)
    starts, sizes = kernels.parts(expressions.tokens, expressions.bounds, *lengths, key)
    pieces = [
        expressions.tokens[start : start + size] for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        if size
    ]  # fmt: skip
    if not pieces:
        raise ValueError(f"listops: no training expression has a part of lengths={lengths!r} tokens")
    values = np.array([kernels.evaluated(piece) for piece in pieces], np.uint8)
    return Expressions(np.concatenate(pieces), np.cumsum([0, *map(len, pieces)], dtype=np.int64), values)


def _require_lengths(lengths: object) -> None:
    fits = isinstance(lengths, tuple | list) and len(lengths) == 2 and all(type(each) is int for each in lengths)
    if not fits or not 4 <= lengths[0] <= lengths[1]:  # type: ignore[index]
        raise ValueError(f"listops: lengths must be two integers of at least 4, in order, got {lengths!r}")


def _require_generator(seed: int, sizes: tuple[int, int, int], workers: int | None) -> None:
    if type(seed) is not int:
        raise ValueError(f"listops: seed must be an integer, got {seed!r}")
    require_counts("listops", "sizes", sizes)
    if workers is not None and (type(workers) is not int or workers < 1):
        raise ValueError(f"listops: workers must be a positive integer, got {workers!r}")


def _blocks(seed: int, workers: int | None) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield blocks of accepted samples in order, endlessly; a few are generated ahead."""
    from . import listops_kernels as kernels

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


def _cut(expressions: Expressions, pipeline: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and bounds of a pipeline."""
    limit, ending = CUT[pipeline]
    end = np.array(ending, np.uint8)
    pieces, lengths = [np.empty(0, np.uint8)], [0]
    for start, stop in zip(expressions.bounds[:-1].tolist(), expressions.bounds[1:].tolist(), strict=True):
        piece = expressions.tokens[start : min(stop, start + limit)]
        pieces += [piece, end]
        lengths.append(len(piece) + len(end))
    return np.concatenate(pieces), np.cumsum(lengths, dtype=np.int64)


def _find(folder: Folder) -> list[Path]:
    """The user's three files; none if none of them is there."""
    files = {name: find(RAW, name, folder) for name in RAW.files}
    present = [file for file in files.values() if file is not None]
    if present and len(present) < len(files):
        missing = ", ".join(name for name, file in files.items() if file is None)
        place, name = present[0].parent, present[0].name
        raise DataError(f"listops: {place} has {name} but not {missing}: put all three files there, or none")
    return present


def _read(file: Path, count: int) -> Expressions:
    """The expressions of one of LRA's files. Every label is recomputed, so that corrupt lines are refused."""
    from . import listops_kernels as kernels

    lines = read_lines(file, LONGEST)
    if next(lines, b"").split(b"\t") != [b"Source", b"Target"]:
        raise DataError(f"{file}, line 1 must be the header Source and Target, separated by a tab")
    pieces, lengths = [np.empty(0, np.uint8)], [0]
    values: list[int] = []
    for number, line in enumerate(lines, 2):
        if len(values) == count:
            raise DataError(f"{file} must have {count} samples, got more: it is another file")
        columns = line.split(b"\t")
        if len(columns) != 2:
            raise DataError(f"{file}, line {number} must have 2 columns, Source and Target, got {len(columns)}")
        source, target = columns
        text = np.frombuffer(source, np.uint8)
        tokens = np.empty(len(text), np.uint8)
        length = kernels.parsed(text, tokens)
        if length < 0:
            piece = source[-1 - length :][:12].decode("ascii", "replace")
            raise DataError(
                f"{file}, line {number}, character {-length} must be an operator, ] or a digit, got {piece!r}"
            )
        tokens = tokens[:length].copy()
        value = kernels.evaluated(tokens)
        if value < 0:
            raise DataError(
                f"{file}, line {number} must have one complete expression as its Source: a bracket is missing"
            )
        if target.strip() != b"%d" % value:
            shown = target.strip()[:12].decode("ascii", "replace")
            raise DataError(
                f"{file}, line {number} must have the Target {value}, the expression's value, got {shown!r}"
            )
        # No pipeline needs more of it.
        pieces.append(tokens[: max(limit for limit, _ in CUT.values())])
        lengths.append(len(pieces[-1]))
        values.append(value)
    if len(values) != count:
        raise DataError(f"{file} must have {count} samples, got {len(values)}: it is truncated or another file")
    return Expressions(np.concatenate(pieces), np.cumsum(lengths, dtype=np.int64), np.array(values, np.uint8))
