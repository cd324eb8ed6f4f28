"""The origin of a run's data, recorded so that any command can reopen its task.

run.json records the name, settings and folder of a registered data set. Arrays that were passed in memory or read from
the user's own files are saved in the run folder, as data.npz, up to LIMIT bytes; larger files are read again.
"""

import dataclasses
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from .. import data
from ..atomic import write_atomic
from ..data.archives import BROKEN, Bounds, archived
from ..data.checks import require_sound
from ..data.store import array_from
from ..data.task import Form, Split, Task
from ..data.warps import Warps
from .config import RunConfig
from .record import RunError, read

DATA = "data.npz"
LIMIT = 64 * 2**20
ARRAYS = ("stored", "labels", "bounds")


def npz_to_save(task: Task) -> bytes | None:
    """The data.npz of a task; None if it is a registered data set, too large, or has splits of a user's own class."""
    if "name" in (task.source or {}) or not all(type(split) is Split for split in task.splits.values()):
        return None
    arrays = _arrays(task)
    if sum(array.nbytes for array in arrays.values()) > LIMIT or any(each.dtype.hasobject for each in arrays.values()):
        return None
    return to_npz(task)


def to_npz(task: Task) -> bytes:
    """A task as npz: its arrays, uncompressed, and everything else as JSON in the entry `about`."""
    splits = task.splits
    facts = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    del facts["splits"], facts["source"]
    about = {
        "task": facts,
        "splits": {
            name: {
                "kind": split.kind, "pairs": split.pairs, "per_step": split.per_step, "scale": split.form.scale,
                "shift": split.form.shift, "warps": split.warps and dataclasses.asdict(split.warps),
            }
            for name, split in splits.items()
        },
    }  # fmt: skip
    stream = io.BytesIO()
    np.savez(stream, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **_arrays(task))
    return stream.getvalue()


def _arrays(task: Task) -> dict[str, Any]:
    splits = task.splits
    arrays = {f"{name}/{part}": getattr(split, part) for name, split in splits.items() for part in ARRAYS}
    arrays |= {f"{name}/order": split.form.order for name, split in splits.items()}
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}


def save_arrays(folder: Path, task: Task) -> bool:
    """Write data.npz if `npz_to_save` allows it; return whether it was written."""
    content = npz_to_save(task)
    if content is not None:
        write_atomic(folder / DATA, content)
    return content is not None


def load_task(folder: str | os.PathLike[str], data_dir: str | os.PathLike[str] | None = None) -> Task:
    """Reopen the task of a run.

    Args:
        folder: The run folder.
        data_dir: The folder of the data set's raw files; None is the one the run was begun with, if it still exists.

    Returns:
        The task: from the run's data.npz, or a registered data set loaded by its name and settings.

    Raises:
        RunError: The folder is not a run, or its data were not saved.
        DataError: The data set is not registered or cannot be read.
    """
    folder = Path(folder)
    record = read(folder)
    config, source = RunConfig.from_json(record["config"]), record.get("source")
    if source is not None and "arrays" in source:
        return from_npz(folder / DATA)
    if source is not None and "path" in source:
        return data.from_path(source["path"], **source["settings"])
    if "source" in record and (source is None or "name" not in source):
        raise RunError(
            f"run: {folder} was trained on arrays too large to be saved with it; pass the task to train.evaluate or "
            f"train.resume in Python, or register it with data.dataset"
        )
    # Runs of earlier versions recorded no source; their data set is that of their config.
    name, settings, place = config.task, config.task_settings, None
    if source is not None:
        name, settings, place = source["name"], source["settings"], source.get("data_dir")
    if data_dir is None and place is not None and Path(place).exists():
        data_dir = place
    return data.load(name, data_dir, **settings)


def from_npz(file: Path) -> Task:
    """Read what `to_npz` wrote.

    Raises:
        RunError: The file cannot be read.
    """
    bounds = Bounds(lambda path: LIMIT, kept=2 * LIMIT, total=2 * LIMIT)
    try:
        arrays = {path.removesuffix(".npy"): array_from(raw) for path, raw in archived(file, bounds)}
        about = json.loads(arrays["about"].tobytes())
        splits = {
            name: _split(facts, {part: arrays.get(f"{name}/{part}") for part in (*ARRAYS, "order")})
            for name, facts in about["splits"].items()
        }
        facts: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in about["task"].items()
        }
        task = Task(splits=splits, **facts)
        require_sound(task)
        return task
    except (*BROKEN, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise RunError(f"run: {file} cannot be read: {reason}") from None


def _split(facts: dict[str, Any], arrays: dict[str, Any]) -> Split:
    scale, shift = (tuple(value) if isinstance(value, list) else value for value in (facts["scale"], facts["shift"]))
    return Split(
        arrays["stored"], arrays["labels"], bounds=arrays["bounds"], kind=facts["kind"], pairs=facts["pairs"],
        per_step=facts["per_step"], form=Form(scale, shift, arrays["order"]),
        warps=None if facts["warps"] is None else Warps(**facts["warps"]),
    )  # fmt: skip
