"""Whole networks, each made from a frozen config: model(x, *, lengths=None, cu_seqlens=None) -> logits."""

# Networks of them can be loaded wherever this package is imported.
from . import baselines as baselines
from .classifier import Classifier, ClassifierConfig
from .config import NetworkConfig
from .feedforward import Feedforward, FeedforwardConfig
from .network import Network
from .retrieval import Retrieval, RetrievalConfig
from .storage import StorageError, find, load, require_saveable, save, shipped

__all__ = [
    "Classifier",
    "ClassifierConfig",
    "Feedforward",
    "FeedforwardConfig",
    "Network",
    "NetworkConfig",
    "Retrieval",
    "RetrievalConfig",
    "StorageError",
    "build",
    "find",
    "load",
    "require_saveable",
    "save",
    "shipped",
]


def build(config: NetworkConfig) -> Network:
    """Build the network that a config describes, with freshly initialised weights: `config.build()`."""
    if not isinstance(config, NetworkConfig):
        raise TypeError(f"build: config must be the config of a network, got {type(config).__name__}")
    return config.build()
