"""The style of all figures: size, type, colours that differ in grey as well, and how files are written."""

import functools
import io
import os
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..atomic import write_atomic

P = ParamSpec("P")
# From dark to light, so that grey print keeps them apart; dashes and markers do the rest.
COLOURS = ("#0b3c5d", "#d9730d", "#5aa9dd", "#8f2d56", "#7a9e3a", "#6b6b6b", "#e0a800", "#3d3d8f")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# The paper's numbers, in every figure: black and hollow.
PAPER: Any = {"color": "black", "linestyle": "none", "marker": "*", "markersize": 12, "markerfacecolor": "white"}
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "|||", "ooo", "---")
SETTINGS: Any = {
    "font.family": "DejaVu Sans", "font.size": 11, "axes.titlesize": 12, "axes.titleweight": "bold",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd",
    "grid.linewidth": 0.7, "lines.linewidth": 1.9, "lines.markersize": 5.5, "legend.frameon": False,
    "legend.fontsize": 10, "svg.hashsalt": "resofire", "svg.fonttype": "path",
}  # fmt: skip


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a function that draws a figure, so that it uses these settings."""

    @functools.wraps(draw)
    def drawn(*arguments: P.args, **named: P.kwargs) -> Figure:
        with mpl.rc_context(SETTINGS):
            return draw(*arguments, **named)

    return drawn


def figure(columns: int = 1, rows: int = 1, *, width: float = 5.2, height: float = 3.7) -> tuple[Figure, list[Axes]]:
    """Create a figure of panels of `width` by `height` inches; return it and its panels row by row."""
    made = Figure(figsize=(columns * width, rows * height), layout="constrained")
    return made, list(made.subplots(rows, columns, squeeze=False).flat)


def lines() -> Iterator[dict[str, Any]]:
    """Yield line styles: `panel.plot(x, y, **next(style))`."""
    for colour, dash, marker in zip(cycle(COLOURS), cycle(DASHES), cycle(MARKERS), strict=False):
        yield {"color": colour, "linestyle": dash, "marker": marker}


def hatches() -> Iterator[dict[str, Any]]:
    """Yield bar styles: `panel.bar(x, y, **next(style))`."""
    for colour, hatch in zip(cycle(COLOURS), cycle(HATCHES), strict=False):
        yield {"facecolor": colour, "hatch": hatch, "edgecolor": "white"}


def save(drawn: Figure, stem: str | os.PathLike[str], kinds: tuple[str, ...] = ("png", "svg")) -> list[Path]:
    """Write stem.png and stem.svg, atomically, with the same bytes for the same figure; return the files."""
    files = []
    for kind in kinds:
        file = Path(f"{os.fspath(stem)}.{kind}")
        drawing = io.BytesIO()
        with mpl.rc_context(SETTINGS):
            drawn.savefig(drawing, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
        write_atomic(file, drawing.getvalue())
        files.append(file)
    return files
