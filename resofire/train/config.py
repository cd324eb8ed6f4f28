"""The config of a run: network, data and training settings. A recipe returns one."""

import math
import sys
from dataclasses import dataclass, field, replace
from typing import Any

from ..models import NetworkConfig
from ..models.storage import from_json, to_json
from ..nn import Config
from ..nn.config import added
from ..ops.checks import require_count

SELECT = ("validation", "test", "last")
GRADIENT_DTYPES = ("float32", "bfloat16", "auto")


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """All settings of a run. Equal configs on one machine and thread count give the same bits."""

    name: str
    """Name of the run, usually the recipe's."""
    task: str
    """The data set, see resofire data list."""
    model: NetworkConfig
    """The network."""
    task_settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the data set, see its function."""
    seed: int = 0
    """Determines the initial weights, the order of the batches and dropout."""
    batch: int = 64
    """Sequences per step, over all devices."""
    epochs: int = 10
    """Passes over the training split."""
    steps: int | None = None
    """Number of steps; replaces epochs."""
    validate_every: int | None = None
    """Steps between validations; None: once per epoch."""
    lr: float = 5e-3
    """Highest learning rate of weights."""
    neuron_lr: float = 1e-3
    """Highest learning rate of neurons' parameters and amplitudes, which have no weight decay."""
    weight_decay: float = 0.05
    """Weight decay of matrices; biases, norms and embeddings have none."""
    warmup: float = 0.05
    """Share of the steps in which the learning rate rises linearly; then it falls along a cosine."""
    final_lr: float = 0.0
    """Final learning rate, as a share of the highest."""
    clip: float | None = 1.0
    """Clip the norm of the gradient to this; None: do not clip."""
    ema: float | None = None
    """Decay of a moving average of the weights, which is then validated and saved; None: no average."""
    recalibrate: int = 0
    """Recompute the statistics of norms from this many unaugmented batches before each validation; 0: do not."""
    label_smoothing: float = 0.0
    """Share of the target that is distributed evenly over all classes."""
    class_weights: tuple[float, ...] | None = None
    """Weight of each class in the training loss, for unbalanced data; None: all count alike."""
    select: str = "validation"
    """Split whose accuracy selects the weights: validation, test (a biased choice), or last: those of the last step."""
    checkpoint_minutes: float = 2.0
    """Minutes between checkpoints."""
    gradient_dtype: str = "float32"
    """Type of the blocks' gradient products: float32, bfloat16 (needs AVX512-BF16 or AMX) or auto, the faster one."""
    init: str | None = added(None)
    """Start from the weights of this network, a shipped name, run folder or file of weights; None: initialise them."""

    def __post_init__(self) -> None:
        for name in ("name", "task"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"RunConfig: {name} must be a word, got {value!r}")
        if self.init is not None and (not isinstance(self.init, str) or not self.init):
            raise ValueError(f"RunConfig: init must name a network or be None, got {self.init!r}")
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
        weights = self.class_weights
        if weights is not None and not (
            isinstance(weights, tuple) and all(_finite(weight) and weight >= 0 for weight in weights) and any(weights)
        ):
            raise ValueError(f"RunConfig: class_weights must be numbers of at least 0 or None, got {weights!r}")
        if self.select not in SELECT:
            raise ValueError(f"RunConfig: select must be one of {', '.join(SELECT)}, got {self.select!r}")
        if self.gradient_dtype not in GRADIENT_DTYPES:
            raise ValueError(
                f"RunConfig: gradient_dtype must be one of {', '.join(GRADIENT_DTYPES)}, got {self.gradient_dtype!r}"
            )

    def to_json(self) -> dict[str, Any]:
        """The config as plain values."""
        return to_json(self)

    @staticmethod
    def from_json(described: Any) -> "RunConfig":
        """The config that `to_json` described.

        Raises:
            ValueError, TypeError: It is not the config of a run.
        """
        settings = {}
        if isinstance(described, dict) and isinstance(described.get("task_settings"), dict):
            # A data set may well have a setting called kind.
            settings = {name: from_json(value) for name, value in described["task_settings"].items()}
            described = {**described, "task_settings": {}}
        config = from_json(described)
        if not isinstance(config, RunConfig):
            raise ValueError(f"a run's config must be a RunConfig, got {type(config).__name__}")
        return replace(config, task_settings={**config.task_settings, **settings})


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
