"""Results on disk become figures. Nothing is worked out here, and nothing else of the package is imported.

A figure is read at half a page's width and in grey print: lines differ in dash and marker, areas in hatching.
"""

from ..extras import require

require("report", __name__)

from .style import figure, hatches, lines, save, styled

__all__ = ["figure", "hatches", "lines", "save", "styled"]
