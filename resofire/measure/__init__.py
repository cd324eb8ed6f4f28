"""Fire rates, operations and energy of a network, as the paper would publish them and as they are; and its peers'."""

from .account import compare_published, measure, peer_network
from .costs import COSTS, Costs, Energy, energy
from .counts import Count, Counts
from .network import count_ops
from .peers import PEERS, complexity, peer
from .rates import fire_rates
from .report import report, report_published

__all__ = [
    "COSTS",
    "PEERS",
    "Costs",
    "Count",
    "Counts",
    "Energy",
    "compare_published",
    "complexity",
    "count_ops",
    "energy",
    "fire_rates",
    "measure",
    "peer",
    "peer_network",
    "report",
    "report_published",
]
