"""A run as a value: what is trained, on what, and how. A recipe returns one."""

import math
import sys
from dataclasses import dataclass, field, replace
from typing import Any

from ..models.config import NetworkConfig, require_count
from ..models.storage import CONFIGS, from_json, to_json

SELECT = ("validation", "test")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The whole of a run. Two runs with equal configs, on one machine and thread count, end in the same bits."""

    name: str
    """What the run is called; the recipe's name."""
    task: str
    """The data set, see resofire data list."""
    model: NetworkConfig
    """The network."""
    task_settings: dict[str, Any] = field(default_factory=dict)
    """What the data set is told besides, see its file."""
    seed: int = 0
    """Decides the first weights, the order of the batches and what dropout drops."""
    batch: int = 64
    """Sequences in a step, over all devices."""
    epochs: int = 10
    """How often all training sequences are seen."""
    steps: int | None = None
    """Steps instead of epochs, if given."""
    validate_every: int | None = None
    """Steps between validations; otherwise once an epoch."""
    lr: float = 5e-3
    """The highest learning rate of weights."""
    neuron_lr: float = 1e-3
    """The highest learning rate of Δ, θ, τ and α, which have no weight decay."""
    weight_decay: float = 0.05
    """Of weights; biases, norms and embeddings have none."""
    warmup: float = 0.05
    """The share of all steps in which the learning rate rises; then it falls along a cosine."""
    final_lr: float = 0.0
    """Where it ends, as a share of the highest."""
    clip: float | None = 1.0
    """The largest norm of the gradient; a longer one is shortened."""
    ema: float | None = None
    """Keep a running average of the weights with this decay, and validate and ship that."""
    recalibrate: int = 0
    """Before each validation, take the statistics of norms anew from so many batches without augmentation."""
    label_smoothing: float = 0.0
    """The share of the target that is spread over all classes."""
    select: str = "validation"
    """The split whose accuracy chooses the weights to keep: validation, or test, which is then no fair measure."""
    checkpoint_minutes: float = 2.0
    """Time between checkpoints."""

    def __post_init__(self) -> None:
        for name in ("name", "task"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"RunConfig: {name} must be a word, got {value!r}")
        if not isinstance(self.model, NetworkConfig):
            raise ValueError(f"RunConfig: model must be the config of a network, got {self.model!r}")
        if not isinstance(self.task_settings, dict):
            raise ValueError(f"RunConfig: task_settings must be a dict, got {self.task_settings!r}")
        for name in ("batch", "epochs"):
            require_count("RunConfig", name, getattr(self, name))
        for name in ("steps", "validate_every"):
            if getattr(self, name) is not None:
                require_count("RunConfig", name, getattr(self, name))
        for name in ("seed", "recalibrate"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"RunConfig: {name} must be an integer of at least 0, got {value!r}")
        for name, low, high in (
            ("lr", 0, math.inf), ("neuron_lr", 0, math.inf), ("weight_decay", 0, math.inf), ("warmup", 0, 1),
            ("final_lr", 0, 1), ("label_smoothing", 0, 1), ("checkpoint_minutes", 0, math.inf),
        ):  # fmt: skip
            value = getattr(self, name)
            if not _finite(value) or not low <= value <= high:
                allowed = f"from {low} to {high}" if high < math.inf else f"a number of at least {low}"
                raise ValueError(f"RunConfig: {name} must be {allowed}, got {value!r}")
        if self.clip is not None and not (_finite(self.clip) and self.clip > 0):
            raise ValueError(f"RunConfig: clip must be a positive number or None, got {self.clip!r}")
        if self.ema is not None and not (_finite(self.ema) and 0 <= self.ema < 1):
            raise ValueError(f"RunConfig: ema must be from 0 up to, but not, 1, or None, got {self.ema!r}")
        if self.select not in SELECT:
            raise ValueError(f"RunConfig: select must be one of {', '.join(SELECT)}, got {self.select!r}")

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @staticmethod
    def from_json(described: Any) -> "RunConfig":
        """The config that was written; ValueError or TypeError if it is none."""
        settings = {}
        if isinstance(described, dict) and isinstance(described.get("task_settings"), dict):
            # A data set may well have a setting called kind.
            settings = {name: from_json(value) for name, value in described["task_settings"].items()}
            described = {**described, "task_settings": {}}
        config = from_json(described, {**CONFIGS, "RunConfig": RunConfig})
        if not isinstance(config, RunConfig):
            raise ValueError(f"a run's config must be a RunConfig, got {type(config).__name__}")
        return replace(config, task_settings={**config.task_settings, **settings})


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
