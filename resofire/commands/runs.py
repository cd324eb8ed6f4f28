"""What commands about a run share: its record and its data set."""

from pathlib import Path
from typing import Any, NamedTuple

from .usage import UsageError

# Training sequences from which the scales of integers are chosen.
SCALES_FROM = 64


class Run(NamedTuple):
    """A run that has a network."""

    folder: Path
    config: Any  # a train.RunConfig
    model: Any  # a models.Network


def open_run(command: str, name: str) -> Run:
    """A run folder, or the run of a network that comes with the package; whoever opens one walks through splits."""
    from .. import models, ops, train

    ops.retain_buffers()
    folder = find_run(name)
    config = train.RunConfig.from_json(read_run(folder)["config"])
    if not (folder / models.storage.WEIGHTS).exists():
        raise UsageError(f"{command}: {name} has no network yet; go on with: resofire train --resume {name}")
    return Run(folder, config, open_model(name))


def open_model(name: str) -> Any:
    """A trained network: of a run, of a file of weights, or one that comes with the package."""
    from .. import models

    try:
        return models.load(models.find(name))
    except models.StorageError as error:
        raise UsageError(str(error)) from None


def find_run(name: str) -> Path:
    """The folder of a run; of a file of weights, the one it lies in."""
    from .. import models

    try:
        path = models.find(name)
    except models.StorageError as error:
        raise UsageError(str(error)) from None
    return path.parent if path.is_file() else path


def sequences(split: Any, count: int | None, *, first: int = 0) -> tuple[list[Any], list[Any]]:
    """Some sequences of a split one by one, in a seed's order, and the labels of each."""
    import numpy as np

    order = np.random.RandomState(0).permutation(len(split))[first : None if count is None else first + count]
    batches = [split.batch(order[i : i + 1]) for i in range(len(order))]
    return [batch.x[0].numpy() for batch in batches], [batch.labels[0].numpy() for batch in batches]


def open_task(config: Any, data_dir: Path | None) -> Any:
    """The data set of a run."""
    from .. import data

    try:
        return data.load(config.task, data_dir, **config.task_settings)
    except (data.DataError, ValueError, TypeError) as error:
        raise UsageError(str(error)) from None


def read_run(folder: Path) -> dict[str, Any]:
    from .. import train

    try:
        return train.read(folder)
    except train.RunError as error:
        raise UsageError(str(error)) from None
