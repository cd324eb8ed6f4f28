"""HTML pages: a run, a comparison of runs, the neuron explorer; each one file that needs no network.

Data are collected in Python as plain values (`run_data`, `comparison_data`) and drawn in the browser (`pages/`), so
that a page on disk and a live one (`resofire watch`) are the same.
"""

from ..extras import require

require("report", __name__)
require("train", __name__)

from .collect import Request, run_data
from .comparison import comparison_data
from .page import explorer_page, page

__all__ = ["Request", "comparison_data", "explorer_page", "page", "run_data"]
