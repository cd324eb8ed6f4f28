"""Shared by the pages and figures of the experiments: tables in Markdown, rounding, line styles."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from torch import Tensor

from ..plot import lines

# Guide lines: a threshold, chance, the paper's value.
DOTTED: Any = {"color": "#6b6b6b", "linestyle": ":", "linewidth": 1.5}


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write a Markdown table."""
    first, *others = (f"| {' | '.join(map(str, row))} |" for row in (head, *rows))
    return "\n".join([first, "|---" * len(head) + "|", *others])


def percent(share: float, digits: int = 1) -> str:
    """Write a share as a percentage."""
    return f"{100 * share:.{digits}f} %"


def percentages(shares: Iterable[float]) -> list[float]:
    return [100 * share for share in shares]


def rounded(values: Tensor | Iterable[float], digits: int = 4) -> list[float]:
    """Round the numbers of a tensor for JSON."""
    return [round(value, digits) for value in (values.flatten().tolist() if isinstance(values, Tensor) else values)]


def short(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")


def plain_lines(count: int) -> list[dict[str, Any]]:
    """Return the first line styles, without markers."""
    return [{**style, "marker": ""} for style in islice(lines(), count)]
