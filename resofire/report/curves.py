"""The learning curves of a run, read from its metrics.csv while it may still be written."""

import csv
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..train.logs import COLUMNS, FILE

# Points of a curve on the page; more rows are averaged, a few at a time.
POINTS = 800
DRAWN = ("epoch", "loss", "accuracy", "fire_rate", "lr", "seconds")


def read(folder: Path) -> dict[str, dict[str, list[float | None]]]:
    """The columns of metrics.csv by split; a missing file and damaged rows count as nothing.

    Returns:
        Of each split, `step` and the columns of DRAWN, as lists of the same length.
    """
    try:
        text = (folder / FILE).read_bytes().decode(errors="replace")
    except OSError:
        return {}
    # The last line may be half written.
    lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n") and "\0" not in line]
    splits: dict[str, list[list[float]]] = {}
    for row in csv.reader(lines):
        if len(row) == len(COLUMNS) and row[0].isdecimal():
            values = dict(zip(COLUMNS, row, strict=True))
            splits.setdefault(values["split"], []).append([_number(values[name]) for name in ("step", *DRAWN)])
    return {split: _columns(np.array(rows)) for split, rows in splits.items()}


def best(curves: dict[str, dict[str, list[Any]]], select: str) -> int | None:
    """The step whose network is the best so far, by the rule of the training; None before the first validation."""
    rows = curves.get(select)
    if rows is None:
        return None
    if select == "last":
        return int(rows["step"][-1])
    scores = [
        (-1.0 if accuracy is None else accuracy, -math.inf if loss is None else -loss)
        for accuracy, loss in zip(rows["accuracy"], rows["loss"], strict=True)
    ]
    return int(rows["step"][scores.index(max(scores))])


def thinned(curve: dict[str, list[Any]], points: int = POINTS) -> dict[str, list[Any]]:
    """A curve of at most `points` rows, each the mean of as many neighbours."""
    count = len(curve["step"])
    if count <= points:
        return curve
    bounds = np.linspace(0, count, points + 1).astype(int)
    return {name: [_mean(column[a:b]) for a, b in pairwise(bounds)] for name, column in curve.items()}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _columns(rows: np.ndarray) -> dict[str, list[float | None]]:
    return {
        name: [float(value) if math.isfinite(value) else None for value in column]
        for name, column in zip(("step", *DRAWN), rows.T, strict=True)
    }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(f"{sum(known) / len(known):.6g}") if known else None
