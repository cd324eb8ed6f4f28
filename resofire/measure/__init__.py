"""Fire rates, operation counts and energy of a network and of its peers."""

from ..nn.counts import Count, CountError, Counts
from .account import account, count_ops, measure, peer_network
from .costs import COSTS, Costs, Energy, energy
from .peers import PEERS, complexity, peer
from .rates import fire_rates
from .report import report

__all__ = [
    "COSTS", "PEERS", "Costs", "Count", "CountError", "Counts", "Energy", "account", "complexity", "count_ops",
    "energy", "fire_rates", "measure", "peer", "peer_network", "report",
]  # fmt: skip
