"""Figures from results on disk. Nothing is computed here, and nothing else of the package is imported.

Figures stay legible at half a page's width and in grey: lines differ in dash and marker, areas in hatching.
"""

from ..extras import require

require("report", __name__)

from .style import figure, hatches, lines, save, styled

__all__ = ["figure", "hatches", "lines", "save", "styled"]
