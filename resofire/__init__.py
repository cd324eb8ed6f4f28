"""Resofire: long-sequence spiking neural networks in PyTorch."""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimator import SpikingClassifier as SpikingClassifier
    from .models.network import Network

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`SpikingClassifier` when it is asked for: it needs scikit-learn and the training extra."""
    if name == "SpikingClassifier":
        from .estimator import SpikingClassifier

        return SpikingClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load(path: str | os.PathLike[str]) -> "Network":
    """The trained network in a run folder or a file model.safetensors, ready to be used."""
    from . import models

    return models.load(path)


def pretrained(name: str) -> "Network":
    """A trained network that comes with the package, such as "smnist"; `models.shipped()` has all names."""
    from . import models

    if name not in models.shipped():
        raise ValueError(f"pretrained: name must be one of {', '.join(models.shipped())}, got {name!r}")
    return models.load(models.find(name))
