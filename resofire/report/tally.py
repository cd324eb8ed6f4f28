"""Answers of a network on a split, batch by batch: confusions, calibration, the most confident mistakes."""

import heapq
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data.task import IGNORED

BINS = 10
MISTAKES = 12


class Mistake(NamedTuple):
    """A wrong answer; ordered by confidence."""

    confidence: float
    row: int  # of the sequence or pair in its split
    step: int  # of the label in its sequence; 0 unless each step has one
    label: int
    answer: int


class Tally:
    """Counts over the answers of a network.

    Args:
        classes: Number of classes.

    Attributes:
        confusion: How often each class (row) was answered as each (column), [classes, classes].
        bins: Of each tenth of confidence: answers, correct answers, sum of the confidences, [BINS, 3].
        mistakes: The most confident wrong answers, see `worst`.
    """

    def __init__(self, classes: int) -> None:
        self.confusion = np.zeros((classes, classes), np.int64)
        self.bins = np.zeros((BINS, 3))
        self.correct: list[int] = []
        self._mistakes: list[Mistake] = []

    def add(self, logits: Tensor, labels: Tensor, rows: np.ndarray, steps: np.ndarray) -> None:
        """Add answers: logits [n, classes], labels [n], and the sequence (row of its split) and time step of each."""
        known = (labels != IGNORED).cpu().numpy()
        probabilities = torch.softmax(logits.double(), -1).cpu().numpy()[known]
        label, rows, steps = labels.cpu().numpy()[known], rows[known], steps[known]
        answer, confidence = probabilities.argmax(1), probabilities.max(1, initial=0.0)
        right = answer == label
        np.add.at(self.confusion, (label, answer), 1)
        place = np.minimum((confidence * BINS).astype(int), BINS - 1)
        np.add.at(self.bins, place, np.stack([np.ones_like(confidence), right, confidence], 1))
        if len(self.correct) < MISTAKES:
            self.correct += [int(row) for row in dict.fromkeys(rows[right].tolist())][:MISTAKES]
        wrong = np.flatnonzero(~right)
        for at in wrong[np.argsort(-confidence[wrong], kind="stable")[:MISTAKES]]:
            one = Mistake(float(confidence[at]), int(rows[at]), int(steps[at]), int(label[at]), int(answer[at]))
            (heapq.heappush if len(self._mistakes) < MISTAKES else heapq.heappushpop)(self._mistakes, one)

    def worst(self) -> list[Mistake]:
        """The most confident mistakes, the most confident first."""
        return sorted(self._mistakes, reverse=True)

    @property
    def count(self) -> int:
        return int(self.confusion.sum())

    def by_class(self) -> list[dict[str, Any]]:
        """Precision, recall and F1 of each class; None where a class was never answered or never occurs."""
        hits, occurs, answered = self.confusion.diagonal(), self.confusion.sum(1), self.confusion.sum(0)
        rows = []
        for hit, count, chosen in zip(hits.tolist(), occurs.tolist(), answered.tolist(), strict=True):
            f1 = 2 * hit / (count + chosen) if count + chosen else None
            rows.append({"count": count, "precision": hit / chosen if chosen else None,
                         "recall": hit / count if count else None, "f1": f1})  # fmt: skip
        return rows

    def calibration(self) -> dict[str, Any]:
        """Mean confidence and share of correct answers by tenths of confidence, and their mean gap (ECE)."""
        filled = self.bins[self.bins[:, 0] > 0]
        count, right, confidence = filled.T
        gap = np.abs(right - confidence).sum() / max(1.0, count.sum())
        return {
            "confidence": (confidence / count).tolist(), "accuracy": (right / count).tolist(),
            "count": count.astype(int).tolist(), "error": float(gap),
        }  # fmt: skip


def wilson(correct: int, count: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The Wilson interval of a share, at 95 % unless z says otherwise.

    E. B. Wilson: "Probable inference, the law of succession, and statistical inference", JASA 22, 1927.
    """
    if count < 1 or not 0 <= correct <= count:
        raise ValueError(f"wilson: correct must be from 0 to a count of at least 1, got {correct!r} of {count!r}")
    share, square = correct / count, z * z / count
    middle = (share + square / 2) / (1 + square)
    half = z / (1 + square) * math.sqrt(share * (1 - share) / count + square / (4 * count))
    # Rounding must not move an end past the share itself, which it equals at 0 and 1.
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))
