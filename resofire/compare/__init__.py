"""Networks compared under equal conditions: same data, recipe, budget and number of parameters.

`run` trains every network of a comparison, resuming what exists, and returns a table; `write` saves it as Markdown,
JSON and a figure. `NETWORKS` has the networks by name.
"""

from .networks import NETWORKS, Contender, own
from .run import Budget, Comparison, run
from .table import markdown, write

__all__ = ["NETWORKS", "Budget", "Comparison", "Contender", "markdown", "own", "run", "write"]
