"""Sequences as a person sees them: pictures, curves or text. Plain values for the page, which draws them."""

import base64
import math
from itertools import pairwise
from typing import Any

import numpy as np

from ..data import Split, Task

LETTERS = 1200
POINTS = 400
CHANNELS = 6
SMALLEST_SIDE = 8


def drawing(task: Task, split: Split, row: int) -> dict[str, Any]:
    """A sample as what it is: a picture, curves, text, or a pair of these.

    Pictures are stored as bytes, in the order of their pixels; a task that permutes them (psMNIST) permutes batches.
    """
    side = picture_side(split)
    if side is not None:
        stored = np.asarray(split.stored[row]).reshape(side * side, -1)
        return {"kind": "image", "width": side, "height": side, "channels": stored.shape[1], "pixels": packed(stored)}
    batch = split.batch(np.array([row]))
    bounds = [0, batch.x.shape[1]] if batch.cu_seqlens is None else batch.cu_seqlens.tolist()
    parts = [_part(task, batch.x[0, start:end].numpy()) for start, end in pairwise(bounds)]
    return parts[0] if len(parts) == 1 else {"kind": "pair", "parts": parts}


def picture_side(split: Split) -> int | None:
    """The width of the square pictures that a split holds; None if it holds other sequences."""
    if split.bounds is not None or split.per_step or split.stored.dtype != np.uint8:
        return None
    side = math.isqrt(split.stored.shape[1])
    channels = 1 if split.stored.ndim == 2 else split.stored.shape[2]
    return side if side**2 == split.stored.shape[1] and side >= SMALLEST_SIDE and channels in (1, 3) else None


def letters(task: Task, tokens: np.ndarray) -> list[str]:
    """The symbol of each token; its number if the task has none."""
    if task.symbols is None:
        return [str(token) for token in tokens.tolist()]
    return [task.symbols[token] for token in tokens.tolist()]


def packed(array: np.ndarray) -> str:
    """Bytes as base64, for the page."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def short(values: np.ndarray, digits: int = 4) -> list[float | None]:
    """Numbers with few digits, NaN and infinity as None."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values.tolist()]


def _part(task: Task, x: np.ndarray) -> dict[str, Any]:
    """One sequence, [T] tokens or [T, C] values."""
    if task.kind == "tokens":
        symbols = letters(task, x[:LETTERS])
        joint = "" if all(len(each) == 1 or each.startswith("<") for each in symbols) else " "
        return {"kind": "text", "text": joint.join(symbols), "more": max(0, len(x) - LETTERS)}
    kept = np.linspace(0, max(0, len(x) - 1), min(len(x), POINTS)).astype(int)
    lines = [short(channel) for channel in x[kept, :CHANNELS].T]
    return {"kind": "wave", "at": kept.tolist(), "lines": lines, "more": max(0, x.shape[1] - CHANNELS)}
