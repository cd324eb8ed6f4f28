"""What commands about a run share: its record and its data set."""

from pathlib import Path
from typing import Any

from .mistake import Mistake


def open_task(config: Any, data_dir: Path | None) -> Any:
    """The data set of a run."""
    from .. import data

    try:
        return data.load(config.task, data_dir, **config.task_settings)
    except (data.DataError, ValueError, TypeError) as error:
        raise Mistake(str(error)) from None


def read_run(folder: Path) -> dict[str, Any]:
    from .. import train

    try:
        return train.read(folder)
    except train.RunError as error:
        raise Mistake(str(error)) from None
