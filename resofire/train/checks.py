"""What is refused before step 1: networks that do not fit their data, and what could not be loaded again."""

from typing import Any

import torch
from torch import nn

from .. import models
from ..data import Task
from ..models import StorageError
from .config import RunConfig
from .record import RunError


def require_fit(config: RunConfig, task: Task, processes: int) -> None:
    """Refuse a config that the data set cannot be trained with.

    Raises:
        RunError: A split is missing, the network does not accept the data, or the batch is too small.
    """
    model: Any = config.model
    name, splits = task.name, ", ".join(task.splits)
    if "train" not in task.splits:
        raise RunError(f"train: {name} must have a split train, got {splits}")
    if config.select not in (*task.splits, "last"):
        raise RunError(f"train: select must be a split of {name} ({splits}), got {config.select!r}")
    if task.pairs != model.pairs:
        needed = "compare pairs" if task.pairs else "classify single sequences"
        raise RunError(f"train: model must {needed}, as {name} needs, got a {type(model).__name__}")
    if task.per_step != (model.pool == "none"):
        allowed, has = ("'none'", "one per time step") if task.per_step else ("'mean' or 'last'", "one per sequence")
        raise RunError(f"train: model.pool must be {allowed}, since the labels of {name} are {has}, got {model.pool!r}")
    if task.vocabulary is None and model.inputs != task.inputs:
        raise RunError(f"train: model.inputs must be {task.inputs}, the channels of {name}, got {model.inputs}")
    if task.vocabulary is not None and (model.vocabulary is None or model.vocabulary < task.vocabulary):
        least = f"at least {task.vocabulary}, the number of tokens of {name}"
        raise RunError(f"train: model.vocabulary must be {least}, got {model.vocabulary}")
    if model.classes != task.classes:
        raise RunError(f"train: model.classes must be {task.classes}, the classes of {name}, got {model.classes}")
    if model.class_names is not None and task.class_names not in (None, model.class_names):
        raise RunError(f"train: model.class_names must be those of {name}, {task.class_names}, got {model.class_names}")
    weights = config.class_weights
    if weights is not None and len(weights) != task.classes:
        raise RunError(f"train: class_weights must be {task.classes}, one for each class of {name}, got {len(weights)}")
    if config.batch < processes:
        raise RunError(f"train: batch must be at least the {processes} devices, got {config.batch}")


def require_saveable(model: nn.Module) -> None:
    """Refuse a model that could not be loaded again in another process.

    Its `config` must pass `models.require_saveable` and build a network of the same class with the same tensors.

    Raises:
        RunError: It could not be loaded again.
    """
    config = getattr(model, "config", None)
    if config is None:
        raise RunError(f"train: model must have a config to be saved with, got a {type(model).__name__} without one")
    if type(model).__module__ == "__main__":
        raise RunError(f"train: {type(model).__name__} is defined in __main__; move it into a module and import it")
    try:
        models.require_saveable(config)
        with torch.device("meta"):
            built = config.build()
    except (StorageError, ValueError, TypeError, RuntimeError) as error:
        raise RunError(f"train: {error}") from None
    if type(built) is not type(model):
        raise RunError(
            f"train: {type(config).__name__} must build a {type(model).__name__}, got {type(built).__name__}"
        )
    shapes, expected = ({name: value.shape for name, value in each.state_dict().items()} for each in (model, built))
    for name in shapes.keys() ^ expected.keys():
        raise RunError(f"train: model must have the tensors that its config builds, got a difference in {name}")
    for name, shape in shapes.items():
        if shape != expected[name]:
            raise RunError(f"train: {name} must have the shape {[*expected[name]]} of the config, got {[*shape]}")
