"""Whole networks, each made from a frozen config: model(x, *, lengths=None, cu_seqlens=None) -> logits."""

from .classifier import Classifier, ClassifierConfig
from .config import NetworkConfig
from .feedforward import Feedforward, FeedforwardConfig
from .retrieval import Retrieval, RetrievalConfig
from .storage import StorageError, find, load, save, shipped

__all__ = [
    "Classifier",
    "ClassifierConfig",
    "Feedforward",
    "FeedforwardConfig",
    "Retrieval",
    "RetrievalConfig",
    "StorageError",
    "build",
    "find",
    "load",
    "save",
    "shipped",
]


def build(config: NetworkConfig) -> Classifier | Feedforward | Retrieval:
    """The network that a config describes, its weights freshly drawn."""
    if isinstance(config, ClassifierConfig):
        return Classifier(config)
    if isinstance(config, RetrievalConfig):
        return Retrieval(config)
    if isinstance(config, FeedforwardConfig):
        return Feedforward(config)
    raise TypeError(
        f"build: config must be a ClassifierConfig, RetrievalConfig or FeedforwardConfig, got {type(config).__name__}"
    )
