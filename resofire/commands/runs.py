"""Shared by the commands about a trained network: open its run, its weights, its data and their metadata."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from .usage import UsageError, as_usage_errors

# Training sequences from which the scales of fixed-point numbers are chosen.
SCALES_FROM = 64


class Run(NamedTuple):
    """A run folder with a trained network."""

    folder: Path
    config: Any  # a train.RunConfig
    model: Any  # a models.Network


def preload() -> None:
    """Import what every command about a network needs."""
    from .. import data, models, train  # noqa: F401


def open_run(command: str, name: str) -> Run:
    """The run of a network: a run folder, or a network that comes with the package."""
    from .. import models, ops
    from ..train.evaluation import RESULT

    ops.retain_buffers()
    folder = find_run(name)
    config = read_config(folder)
    if not (folder / models.storage.WEIGHTS).exists():
        state = "has lost its network" if (folder / RESULT).exists() else "has no network yet"
        raise UsageError(f"{command}: {name} {state}; resume it with: resofire train --resume {name}")
    return Run(folder, config, open_model(name))


def open_model(name: str) -> Any:
    """A trained network: of a run, from a weights file, or one that comes with the package."""
    from .. import models

    with as_usage_errors(models.StorageError):
        return models.load(models.find(name))


def find_run(name: str) -> Path:
    """The folder of a run; for a weights file, the one it lies in."""
    from .. import models

    with as_usage_errors(models.StorageError):
        path = models.find(name)
    return path.parent if path.is_file() else path


def output_name(folder: Path, kind: str) -> Path | None:
    """A name in the current folder for what is made of a shipped network; None for a run, which takes it itself."""
    from ..models.storage import SHIPPED

    shipped = folder.resolve().is_relative_to(SHIPPED.resolve())
    return Path(f"{kind}-{folder.resolve().name}") if shipped else None


def read_config(folder: Path) -> Any:
    """The RunConfig of a run folder."""
    from .. import train

    with as_usage_errors(train.RunError):
        return train.RunConfig.from_json(train.read(folder)["config"])


def open_task(folder: Path, data_dir: Path | None) -> Any:
    """The data that a run was trained on."""
    from .. import train

    with as_usage_errors(train.RunError, ValueError, TypeError):
        return train.load_task(folder, data_dir=data_dir)


def open_files(run: Run, path: str, changes: Any) -> Any:
    """Open the user's files as test data of a run.

    They are read with the settings of the run's own data, updated by `changes`, and numbered by its class names.
    """
    from .. import data, train
    from ..data.own import READING

    if run.model.config.inputs is None or run.model.config.pairs:
        raise UsageError(f"evaluate: --data is for networks that read single sequences of values, got {run.folder}")
    source = train.read(run.folder).get("source") or {}
    settings = {key: value for key, value in source.get("settings", {}).items() if key in READING}
    names = run.model.config.class_names or open_task(run.folder, None).class_names
    with as_usage_errors(data.DataError):
        task = data.from_path(path, validation=0, class_names=names, **{**settings, **changes})
    if (task.inputs, task.per_step) != (run.model.config.inputs, run.model.config.pool == "none"):
        per = "step" if run.model.config.pool == "none" else "sequence"
        form = f"{run.model.config.inputs} channels and one label per {per}"
        got = f"{task.inputs} and one per {'step' if task.per_step else 'sequence'}"
        raise UsageError(f"evaluate: --data must have {form}, as the network needs, got {got}")
    return dataclasses.replace(task, splits={"test": task.splits.get("test", task["train"])})


def load_task(config: Any, data_dir: Path | None) -> Any:
    """The data set that a config names."""
    from .. import data

    with as_usage_errors(ValueError, TypeError):
        return data.load(config.task, data_dir, **config.task_settings)


def open_samples(folder: Path) -> Any:
    """The sample sequences stored with a network, a data.Task with the split train; None if it has none."""
    from .. import train

    with as_usage_errors(train.RunError):
        return train.load_samples(folder)


class Metadata(NamedTuple):
    """Metadata of a run's data."""

    class_names: tuple[str, ...] | None = None
    ranges: Any = None  # array [2, inputs], lowest and highest values; None if unknown
    rate: int | None = None  # samples a second of sound
    frame: int = 1  # consecutive steps of the data in a step of the network


def read_metadata(folder: Path, classes: int, inputs: int | None) -> Metadata:
    """Read the metadata from a run's record, else its samples; entries that do not fit the network are ignored."""
    import numpy as np

    from .. import train
    from ..data import speech
    from ..train.record import input_range

    try:
        record = train.read(folder)
    except train.RunError:
        return Metadata()  # a file of weights outside of a run
    names, ranges, samples = record.get("class_names"), record.get("input_range"), open_samples(folder)
    if samples is not None:
        names, ranges = names or samples.class_names, ranges or input_range(samples)
    if not isinstance(names, list | tuple) or len(names) != classes or not all(isinstance(each, str) for each in names):
        names = None
    try:
        low_high = None if ranges is None else np.asarray(ranges, np.float64).T
    except (ValueError, TypeError):
        low_high = None
    if low_high is not None and (low_high.shape != (2, inputs) or not np.isfinite(low_high).all()):
        low_high = None
    settings = (record.get("source") or {}).get("settings", {})
    rate, frame = settings.get("rate"), settings.get("frame", 1)
    if record["config"].get("task") == "speech":
        rate = speech.RATE
    if type(frame) is not int or frame < 1 or inputs is None or inputs % frame:
        frame = 1
    return Metadata(named_classes(names), low_high, rate, frame)


def named_classes(names: Any) -> tuple[str, ...] | None:
    """The class names; None if they are only the numbers of the classes."""
    return None if names is None or list(names) == [str(k) for k in range(len(names))] else tuple(names)


def sequences(split: Any, count: int | None, *, first: int = 0, shuffle: bool = True) -> tuple[list[Any], list[Any]]:
    """Sequences [T, C] or [T] of a split and their labels [] or [T], as NumPy arrays, in a fixed shuffled order.

    Args:
        split: A data.Split.
        count: Number of sequences; None for all from `first` on.
        first: The position in the shuffled order to begin at.
        shuffle: False keeps the stored order; those of `open_samples` are stored in shuffled order already.
    """
    import numpy as np

    from ..train.samples import sample_order

    order = sample_order(len(split)) if shuffle else np.arange(len(split))
    order = order[first : None if count is None else first + count]
    batches = [split.batch(order[i : i + 1]) for i in range(len(order))]
    return [batch.x[0].numpy() for batch in batches], [batch.labels[0].numpy() for batch in batches]
