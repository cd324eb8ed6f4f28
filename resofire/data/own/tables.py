"""Text tables: a series in each line, a step in each line with the id of its series, or a whole file as one series.

Separators, headers, byte order marks, line ends and decimal commas are recognised; empty cells and words such as NaN
are missing values. Lines that begin with # are comments.
"""

import codecs
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..files import read
from ..task import DataError
from .recordings import LARGEST, Recordings, Settings

SEPARATORS = ("\t", ";", ",", "|")
MISSING = {"", "nan", "na", "n/a", "null", "none", "?"}
LABELS = {"label", "class", "target"}
# Lines from which the separator is recognised.
FIRST = 20


class Row(NamedTuple):
    """A line of a table: its number in the file, from 1, and its cells."""

    line: int
    cells: list[str]


class Table(NamedTuple):
    """A file, the cells of its header (None if there is none) and its lines."""

    file: Path
    header: list[str] | None
    rows: list[Row]


def read_table(file: Path, settings: Settings) -> Recordings:
    """Read a table of labelled series: one in each line or, with `id`, one step in each line."""
    rows = [*_rows(file, settings.separator)]
    table = _with_header(file, rows, settings)
    return _long(table, settings) if settings.id is not None else _wide(table, settings)


def read_signal(file: Path, separator: str | None = None) -> tuple[np.ndarray, list[int]]:
    """Read a file that is one series: a step in each line, or all in one. Returns [T, C] and the lines of the steps."""
    rows = [*_rows(file, separator)]
    if rows and any(number(cell) is None for cell in rows[0].cells):
        rows = rows[1:]
    if not rows:
        raise DataError(f"from_path: {file} must hold numbers, got none")
    width = len(rows[0].cells)
    for row in rows:
        if len(row.cells) != width:
            raise DataError(f"from_path: {file}, line {row.line} must have {width} columns, got {len(row.cells)}")
    values = np.stack([_numbers(file, row, range(width)) for row in rows])
    return (values, [row.line for row in rows]) if len(rows) > 1 else (values.T, [rows[0].line] * width)


def _rows(file: Path, separator: str | None) -> Iterator[Row]:
    """The lines of a file that are neither empty nor comments."""
    lines = decoded_lines(file)
    if separator is None:
        first = [line for line in lines if line.strip() and not line.startswith("#")][:FIRST]
        separator = next((each for each in SEPARATORS if first and all(each in line for line in first)), None)
    if separator is None or separator == " ":
        cells: Iterator[Row] = (Row(number, line.split()) for number, line in enumerate(lines, 1))
    else:
        cells = _quoted(file, lines, separator)
    for row in cells:
        if any(cell.strip() for cell in row.cells) and not row.cells[0].startswith("#"):
            yield Row(row.line, [cell.strip() for cell in row.cells])


def _quoted(file: Path, lines: list[str], separator: str) -> Iterator[Row]:
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    try:
        for cells in reader:
            yield Row(reader.line_num, cells)
    except csv.Error as error:
        raise DataError(f"from_path: {file}, line {reader.line_num} cannot be read: {error}") from None


def decoded_lines(file: Path) -> list[str]:
    """The lines of a text file, in UTF-8, or in UTF-16 with its mark.

    Raises:
        DataError: It cannot be read or is not text.
    """
    raw = read(file, LARGEST)
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(f"from_path: {file}, line {line} must be UTF-8 text, got other bytes") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DataError(f"from_path: {file}, line {line} must be text, got a zero byte")
    # Not `splitlines`, which also splits at characters that may be part of a cell.
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def _with_header(file: Path, rows: list[Row], settings: Settings) -> Table:
    if not rows:
        raise DataError(f"from_path: {file} must hold lines of a table, got none")
    names = [settings.label, settings.id]
    # In a header two cells at least are words; one word may be the label of the first series.
    words = [cell for cell in rows[0].cells if cell.lower() not in MISSING and number(cell) is None]
    named = any(isinstance(name, str) and not _is_integer(name) for name in names)
    if not named and len(words) < 2:
        return Table(file, None, rows)
    header = rows[0].cells
    for setting in ("label", "id"):
        value = getattr(settings, setting)
        if isinstance(value, str) and value not in header and not _is_integer(value):
            known = ", ".join(header[:10])[:200]
            raise DataError(f"from_path: {setting} must be a column of {file} ({known}), got {value!r}")
    twice = next((name for number, name in enumerate(header) if name and name in header[:number]), None)
    if twice is not None and twice in names:
        raise DataError(f"from_path: {file}, line {rows[0].line} must name the column {twice!r} once, got it twice")
    for row in rows[1:]:
        if len(row.cells) > len(header) and any(row.cells[len(header) :]):
            got = f"{len(row.cells)} columns, the header {len(header)}"
            raise DataError(f"from_path: {file}, line {row.line} must fit its header, got {got}")
    return Table(file, header, rows[1:])


def _column(table: Table, name: str, value: str | int) -> int:
    """The place of a column, by its name or its number from 1; −1 is the last."""
    width = max((len(row.cells) for row in table.rows), default=0) if table.header is None else len(table.header)
    named = isinstance(value, str) and value in (table.header or ())
    if not named and (isinstance(value, int) or _is_integer(value)):
        number = int(value)
        if 1 <= number <= width or number == -1:
            return number - 1 if number > 0 else width - 1
        raise DataError(f"from_path: {name} must be a column from 1 to {width} of {table.file}, got {value}")
    return (table.header or []).index(str(value))


def _label_column(table: Table, settings: Settings, others: tuple[int, ...] = ()) -> int:
    """The column of the label: the one that was named, else one called label, class or target, else the first."""
    if settings.label is not None:
        return _column(table, "label", settings.label)
    called = [number for number, name in enumerate(table.header or []) if name.lower() in LABELS]
    return called[0] if called else next(number for number in range(len(others) + 1) if number not in others)


def _label(table: Table, row: Row, column: int) -> str:
    label = row.cells[column] if column < len(row.cells) else ""
    if label.lower() in MISSING:
        got = label or "an empty cell"
        raise DataError(f"from_path: {table.file}, line {row.line} must have a label in column {column + 1}, got {got}")
    return label


def _wide(table: Table, settings: Settings) -> Recordings:
    column = _label_column(table, settings)
    x, y = [], []
    for row in table.rows:
        y.append(_label(table, row, column))
        columns = [number for number in range(len(row.cells)) if number != column]
        if not columns:
            raise DataError(
                f"from_path: {table.file}, line {row.line} must have a label and values, got one column; "
                f"name the separator if it is unusual"
            )
        try:
            x.append(_numbers(table.file, row, columns))
        except DataError as error:
            if settings.label is not None:
                raise
            raise DataError(f"{error}; labels are read from column {column + 1}, label chooses another") from None

    def where(sequence: int, step: int | None = None, channel: int | None = None) -> str:
        line = f"{table.file}, line {table.rows[sequence].line}"
        return line if step is None else f"{line}, column {step + 1 + (step >= column)}"

    return Recordings(x, y, where)


def _long(table: Table, settings: Settings) -> Recordings:
    assert settings.id is not None
    key = _column(table, "id", settings.id)
    column = _label_column(table, settings, (key,))
    if key == column:
        raise DataError(f"from_path: id and label must be different columns of {table.file}, got {key + 1} for both")
    width = max(len(row.cells) for row in table.rows) if table.header is None else len(table.header)
    columns = [number for number in range(width) if number not in (key, column)]
    if not columns:
        raise DataError(f"from_path: {table.file} must have columns of values besides id and label, got none")
    series: dict[str, list[Row]] = {}
    for row in table.rows:
        if len(row.cells) < width:
            raise DataError(f"from_path: {table.file}, line {row.line} must have {width} columns, got {len(row.cells)}")
        series.setdefault(row.cells[key], []).append(row)
    x, y, groups = [], [], [*series.values()]
    for name, group in series.items():
        labels = [_label(table, row, column) for row in group]
        other = next((number for number, label in enumerate(labels) if label != labels[0]), None)
        if other is not None and not settings.per_step:
            raise DataError(
                f"from_path: {table.file}, line {group[other].line} must have the label {labels[0]!r} of its series "
                f"{name!r}, got {labels[other]!r}; per_step=True takes one for each step"
            )
        y.append(labels if settings.per_step else labels[0])
        x.append(np.stack([_numbers(table.file, row, columns) for row in group]))

    def where(sequence: int, step: int | None = None, channel: int | None = None) -> str:
        line = f"{table.file}, line {groups[sequence][step or 0].line}"
        return line if channel is None else f"{line}, column {columns[channel] + 1}"

    return Recordings(x, y, where)


def _numbers(file: Path, row: Row, columns: Any) -> np.ndarray:
    """Cells of a line as float64, missing ones as NaN."""
    cells = [row.cells[column] for column in columns]
    try:
        return np.array(cells, np.float64)
    except ValueError:
        values = [number(cell) for cell in cells]
    for column, cell, value in zip(columns, cells, values, strict=True):
        if value is None:
            raise DataError(
                f"from_path: {file}, line {row.line}, column {column + 1} must be a number, got {cell[:40]!r}"
            )
    return np.array(values, np.float64)


def number(cell: str) -> float | None:
    """A cell as a number, NaN if it is missing, None if it is a word."""
    if cell.lower() in MISSING:
        return float("nan")
    for text in (cell, cell.replace(",", ".", 1)):
        try:
            return float(text)
        except ValueError:
            continue
    return None


def _is_integer(text: str | int) -> bool:
    return isinstance(text, int) or text.removeprefix("-").isdecimal()
