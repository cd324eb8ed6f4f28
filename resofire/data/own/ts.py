"""The .ts format of the UEA and UCR archives: @ settings, then a series in each line, a colon between dimensions."""

from pathlib import Path

import numpy as np

from ..task import DataError
from .recordings import Recordings, Settings
from .tables import decoded_lines, number


def read_ts(file: Path, settings: Settings) -> Recordings:
    """Read a .ts file; values are [T, dimensions], labels those behind the last colon of each line."""
    lines = decoded_lines(file)
    tags, start = _tags(file, lines)
    if tags.get("classlabel", "true").split()[0].lower() != "true":
        raise DataError(f"from_path: {file} must have class labels, its @classLabel is {tags['classlabel']!r}")
    if tags.get("timestamps", "false").lower() == "true":
        raise DataError(f"from_path: {file} must have values without time stamps, its @timeStamps is true")
    x, y, numbers = [], [], []
    for line, text in enumerate(lines[start:], start + 1):
        if not text.strip() or text.startswith("#"):
            continue
        *dimensions, label = text.strip().split(":")
        if not dimensions or not label.strip():
            raise DataError(f"from_path: {file}, line {line} must be values, a colon and a label, got {text[:40]!r}")
        channels = [_values(file, line, text, at) for at, text in enumerate(dimensions, 1)]
        for at, channel in enumerate(channels, 1):
            if len(channel) != len(channels[0]):
                got = f"{len(channel)} in dimension {at} and {len(channels[0])} in dimension 1"
                raise DataError(f"from_path: {file}, line {line} must have equally many values everywhere, got {got}")
        x.append(np.stack(channels, 1))
        y.append(label.strip())
        numbers.append(line)

    def where(sequence: int, step: int | None = None, channel: int | None = None) -> str:
        at = "" if step is None else f", value {step + 1}"
        at += "" if channel is None else f" of dimension {channel + 1}"
        return f"{file}, line {numbers[sequence]}{at}"

    return Recordings(x, y, where)


def _tags(file: Path, lines: list[str]) -> tuple[dict[str, str], int]:
    """The settings, by their names in lower case, and the index of the first line of data."""
    tags: dict[str, str] = {}
    for line, text in enumerate(lines, 1):
        word, _, rest = text.strip().partition(" ")
        if word.lower() == "@data":
            return tags, line
        if word.startswith("@"):
            tags[word[1:].lower()] = rest.strip()
        elif word and not word.startswith("#"):
            raise DataError(f"from_path: {file}, line {line} must be a setting or @data, got {text[:40]!r}")
    raise DataError(f"from_path: {file} must have a line @data, got none")


def _values(file: Path, line: int, text: str, dimension: int) -> np.ndarray:
    cells = [cell.strip() for cell in text.split(",")]
    values = [number(cell) for cell in cells]
    for at, (cell, value) in enumerate(zip(cells, values, strict=True), 1):
        if value is None:
            where = f"{file}, line {line}, value {at} of dimension {dimension}"
            raise DataError(f"from_path: {where} must be a number, got {cell[:40]!r}")
    return np.array(values, np.float64)
