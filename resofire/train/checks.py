"""Checks before step 1: refuse networks that do not fit their data, and those that could not be loaded again."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .. import models
from ..data import Batch, Task
from ..data.task import IGNORED
from ..models import StorageError
from ..models.storage import unsaved_tensor
from ..nn import BatchNorm
from .callbacks import Callback
from .config import RunConfig
from .evaluation import Loss, call
from .record import RunError

EVENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


def require_parts(config: object, task: object, loss: object, optimizer: object, callbacks: object) -> None:
    """Refuse arguments of `train` and `resume` that are not of their type.

    Raises:
        RunError: The first that is not.
    """
    if not isinstance(config, RunConfig):
        raise RunError(f"train: config must be a RunConfig, got {_describe(config)}")
    if not isinstance(task, Task):
        raise RunError(f"train: task must be a data.Task, such as data.from_arrays returns, got {_describe(task)}")
    if loss is not None and not callable(loss):
        raise RunError(f"train: loss must be a function of (logits, labels), got {_describe(loss)}")
    if isinstance(loss, type):
        raise RunError(f"train: loss must be a function of (logits, labels), got the class {loss.__name__}; call it")
    if optimizer is not None and not callable(optimizer):
        raise RunError(
            "train: optimizer must be a function that makes one from parameter groups, "
            f"such as lambda groups: torch.optim.SGD(groups, lr=0.1), got {_describe(optimizer)}"
        )
    if not isinstance(callbacks, Sequence):
        raise RunError(f"train: callbacks must be a list of objects, got {_describe(callbacks)}")
    for callback in callbacks:
        if isinstance(callback, type):
            raise RunError(f"train: callbacks must be objects, got the class {callback.__name__}; call it")
        if not any(hasattr(callback, event) for event in EVENTS):
            raise RunError(f"train: a callback must have one of {', '.join(EVENTS)}, got {_describe(callback)}")


def require_optimizer(value: object) -> Optimizer:
    """Check that the user's `optimizer` returned an optimiser, and return it.

    Raises:
        RunError: It returned something else.
    """
    if not isinstance(value, Optimizer):
        raise RunError(f"train: optimizer must return a torch.optim.Optimizer, got {_describe(value)}")
    return value


def require_step(model: nn.Module, task: Task, batch: Batch, loss: Loss | None) -> None:
    """Try the forward pass and the loss on a small batch, before anything is written.

    Raises:
        RunError: The logits or the loss have the wrong form, or the loss has no gradient.
    """
    with torch.no_grad():
        logits = call(model.eval(), batch)
    labels = batch.labels
    if not isinstance(logits, Tensor) or logits.shape != (*labels.shape, task.classes):
        expected = [*labels.shape, task.classes]
        raise RunError(f"train: model must return logits of shape {expected} for a batch, got {_describe(logits)}")
    if loss is None:
        return
    logits = logits.detach().requires_grad_()
    value: object = loss(logits, labels)
    if not isinstance(value, Tensor) or value.dim() > 0:
        raise RunError(f"train: loss must return the mean over the batch, a scalar tensor, got {_describe(value)}")
    if not value.requires_grad:
        raise RunError("train: loss must be differentiable in the logits, got a tensor without gradient")


def _describe(value: object) -> str:
    """A value for an error message: a tensor by its shape, a number or text itself, anything else by its type."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {[*value.shape]}"
    if isinstance(value, bool | int | float | str | None):
        return f"{value!r:.80}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


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
        advice = "; data.from_arrays(..., validation=0.1) makes one" if config.select == "validation" else ""
        raise RunError(f"train: select must be a split of {name} ({splits}), got {config.select!r}{advice}")
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


def require_labels(task: Task) -> None:
    """Refuse labels outside of the classes, which cross entropy cannot take.

    Raises:
        RunError: The first such label.
    """
    for name, split in task.splits.items():
        labels = np.asarray(split.labels)
        wrong = (labels != IGNORED) & ((labels < 0) | (labels >= task.classes))
        if wrong.any():
            place = tuple(int(each) for each in np.argwhere(wrong)[0])
            at = f"at step {place[0]}" if split.bounds is not None and task.per_step else f"of sequence {place[0]}"
            raise RunError(
                f"train: labels of the {name} split of {task.name} must be from 0 to {task.classes - 1}, "
                f"got {labels[place]} {at}; data.from_arrays numbers labels of any kind"
            )


def require_statistics(model: nn.Module, task: Task, batch: int) -> None:
    """Refuse batches of a single time step for networks with batch norm: one value has no variance.

    Raises:
        RunError: A training batch may have a single time step in all.
    """
    lengths = task.splits["train"].lengths
    shortest = np.sort(lengths.reshape(len(lengths), -1).sum(1))[:batch]
    if shortest.sum() < 2 and any(isinstance(module, BatchNorm) for module in model.modules()):
        raise RunError(f"train: batch must be at least 2, since batch norm needs two time steps, got {batch}")


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
    lost = unsaved_tensor(built)
    if lost is not None:
        raise RunError(f"train: {lost}")
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
