"""The settings of a run chosen from its data: what `resofire fit` and `SpikingClassifier` train without tuning.

All choices are here, each with its reason; docs/experiments/automatic-choices.md has the comparison they come from.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real

import numpy as np

from . import train
from .data import Task
from .models import ClassifierConfig
from .nn import PRFConfig
from .train import RunConfig

# Validations in a run, each of which writes a checkpoint: those that select weights, and those that only inform.
VALIDATIONS, INFORMING = 10, 4
# Steps of a run that neither the user nor the budget limits, and passes over large sets.
STEPS, EPOCHS = 3_000, 10
# From this many training sequences on, a network of this many channels.
LARGE, WIDE = 2_000, 160


def choose(
    task: Task, *, minutes: float | None = 5.0, epochs: int | None = None, seed: int = 0, features: int | None = None,
    depth: int | None = None, bidirectional: bool = False, batch: int | None = None, lr: float | None = None,
    class_weights: tuple[float, ...] | None = None,
) -> RunConfig:  # fmt: skip
    """The config of a run on a user's own data.

    Args:
        task: The data, of values.
        minutes: Budget: some steps are timed and discarded, and the rest becomes the number of steps; None: no limit.
        epochs: Most passes over the training data; None chooses.
        seed: Seed of the run.
        features: Channels; None chooses.
        depth: Blocks; None chooses.
        bidirectional: Whether blocks also run in reverse; such a network cannot be streamed or exported to C.
        batch: Sequences per step; None chooses.
        lr: Highest learning rate; None chooses.
        class_weights: Weight of each class in the loss; see `balanced_weights`.

    Returns:
        The config. Its number of steps is fixed, whatever the machine does later.
    """
    counts = {"epochs": epochs, "features": features, "depth": depth, "batch": batch}
    require_positive("automatic.choose", {"minutes": minutes}, counts)
    size, longest = len(task["train"]), int(task["train"].lengths.max())
    if features is None and size >= LARGE and minutes is not None:
        # The wide network, where the budget has time for all its steps.
        wide = choose(
            task, minutes=minutes, epochs=epochs, seed=seed, features=WIDE, depth=depth, bidirectional=bidirectional,
            batch=batch, lr=lr, class_weights=class_weights,
        )  # fmt: skip
        if wide.steps == _planned_steps(size, wide.batch, epochs):
            return wide
    model = ClassifierConfig(
        inputs=task.inputs, classes=task.classes, class_names=task.class_names, standardise=not is_sparse(task),
        features=features or (64 if size < LARGE else 96), depth=depth or 3, neuron=neuron(longest),
        bidirectional=bidirectional, pool="none" if task.per_step else "mean", dropout=0.1,
    )  # fmt: skip
    batch = batch or choose_batch(size, float(task["train"].lengths.mean()))
    per_epoch, steps = max(1, size // batch), _planned_steps(size, batch, epochs)
    config = RunConfig(
        name=task.name, task=task.name, model=model, seed=seed, batch=batch, steps=steps, lr=lr or 5e-3,
        weight_decay=0.05, ema=0.99, recalibrate=min(16, per_epoch), label_smoothing=0.1, class_weights=class_weights,
        select="validation" if "validation" in task.splits else "last", gradient_dtype="auto",
    )  # fmt: skip
    validations = INFORMING if config.select == "last" else VALIDATIONS
    if minutes is not None:
        steps = min(steps, train.steps_within(config, task, minutes, validations))
    return replace(config, steps=steps, validate_every=math.ceil(steps / validations))


def require_positive(owner: str, numbers: Mapping[str, object], integers: Mapping[str, object]) -> None:
    """Refuse settings, by their names, that are neither positive nor None.

    Raises:
        ValueError: The first such setting.
    """
    for settings, kind, noun in ((numbers, Real, "number"), (integers, Integral, "integer")):
        for name, value in settings.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind) or not float(value) > 0):
                raise ValueError(f"{owner}: {name} must be a positive {noun} or None, got {value!r}")


def _planned_steps(size: int, batch: int, epochs: int | None) -> int:
    """The steps of a run that no budget limits."""
    per_epoch = max(1, size // batch)
    return (epochs or max(math.ceil(STEPS / per_epoch), EPOCHS)) * per_epoch


def neuron(longest: int) -> PRFConfig:
    """Neurons whose memories, τ/Δ steps, reach from a few steps to beyond the longest sequence."""
    shortest = min(20.0, max(2.0, longest / 10))
    # 2,000 steps where the shortest memory is 20; in short sequences slower channels would never fire.
    return PRFConfig(tau=shortest, delta=(shortest / max(4.0 * longest, 5 * shortest**2), 1.0))


def is_sparse(task: Task) -> bool:
    """Whether most values are zero, as with events: to divide by a tiny deviation would make the rare ones huge."""
    split = task["train"]
    x = split.batch(np.arange(min(100, len(split)))).x
    return bool((x == 0).float().mean() > 0.8)


def choose_batch(size: int, length: float) -> int:
    """Sequences per step: at least ten steps in an epoch, and few enough time steps that one does not take seconds."""
    return max(1, min(size, max(8, min(64, size // 10)), max(4, int(60_000 / length))))


def balanced_weights(task: Task) -> tuple[float, ...]:
    """Weights of the classes that give each the same share of the loss; their mean over the training labels is 1."""
    labels = np.asarray(task["train"].labels).reshape(-1)
    counts = np.bincount(labels[labels >= 0], minlength=task.classes)
    present = max(1, int((counts > 0).sum()))
    return tuple(float(counts.sum() / (present * count)) if count else 0.0 for count in counts)


def describe(config: RunConfig, task: Task) -> list[str]:
    """Describe the chosen settings, as lines of text."""
    model = config.model
    assert isinstance(model, ClassifierConfig)
    assert isinstance(model.neuron, PRFConfig)
    steps = config.steps or 0
    passes = steps * config.batch / len(task["train"])
    low, high = _memory(model.neuron)
    parameters = sum(value.numel() for value in model.build().parameters())
    way = "both directions" if model.bidirectional else "causal"
    blocks = f"{model.depth} block{'s' if model.depth > 1 else ''}"
    selection = "the last weights" if config.select == "last" else f"the weights best on {config.select}"
    return [
        f"network   {blocks} of {model.features} channels, {way}, {parameters:,} parameters",
        f"memory    {low:,.0f} to {high:,.0f} steps",
        f"training  {_counted(steps, 'step')} of {_counted(config.batch, 'sequence')} ({_counted(passes, 'epoch')}), "
        f"learning rate {config.lr:g}",
        f"keeps     {selection}, averaged",
    ]


def _counted(number: float, noun: str) -> str:
    """A number with its noun; less than ten of something divisible with one decimal."""
    text = f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:,.1f}"
    return f"{text} {noun}{'' if text == '1' else 's'}"


def _memory(neuron: PRFConfig) -> tuple[float, float]:
    """The shortest and longest memory, in steps."""
    taus, deltas = (value if isinstance(value, tuple) else (value, value) for value in (neuron.tau, neuron.delta))
    return taus[0] / deltas[1], taus[1] / deltas[0]
