"""Several runs side by side, from their records: no network is run on data."""

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import measure, models, train
from . import curves
from .collect import opened
from .recording import place
from .summary import accuracy, duration, network_words


def comparison_data(
    folders: Sequence[str | os.PathLike[str]], *, title: str = "Comparison", names: Sequence[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Collect the page that compares runs.

    Args:
        folders: Their run folders, finished or not.
        title: The heading of the page.
        names: What the runs are called; None takes the names of their folders.
        data_dir: Folder of the raw files, for the length of a test sequence.

    Returns:
        A dict ready for JSON, for `page`.

    Raises:
        RunError: A folder is not a run.
        ValueError: There is no folder, or not one name for each.
    """
    if not folders or (names is not None and len(names) != len(folders)):
        raise ValueError(f"comparison: one name for each of at least one run, got {names!r} for {len(folders)} runs")
    called = list(names) if names is not None else _names([Path(folder) for folder in folders])
    runs = [_run(Path(folder), name, data_dir) for folder, name in zip(folders, called, strict=True)]
    tasks = list(dict.fromkeys(run["task"] for run in runs))
    written = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = f"{len(runs)} runs on {', '.join(tasks)}; page of {written}"
    if len(tasks) > 1:
        about += ". The runs are on different tasks: their accuracies do not compare."
    return {
        "kind": "comparison", "title": title, "about": about, "classes": [], "runs": runs,
        # Each section is drawn from the runs.
        "scores": None, "progress": None, "tradeoff": None, "layers": None,
    }  # fmt: skip


def _run(folder: Path, name: str, data_dir: str | os.PathLike[str] | None) -> dict[str, Any]:
    record, result = train.read(folder), train.recorded(folder)
    config = train.RunConfig.from_json(record["config"])
    rows = curves.read(folder)
    curve = rows.get(config.select)
    rates = (result or {}).get("fire_rates") or {}
    seconds = (result or {}).get("seconds")
    run: dict[str, Any] = {
        "name": name, "folder": str(folder), "task": config.task, "seed": config.seed, "finished": result is not None,
        "parameters": (result or record).get("parameters"), "accuracy": accuracy(result, {}),
        "selected_on": config.select, "seconds": seconds, "time": None if seconds is None else duration(seconds),
        "rate": sum(rates.values()) / len(rates) if rates else None, "network": None, "energy": None, "note": None,
        "layers": [{**place(layer)._asdict(), "rate": rate} for layer, rate in rates.items()],
        "curve": None if curve is None else curves.thinned(curve),
    }  # fmt: skip
    try:
        model: Any = models.load(folder)
    except models.StorageError as error:
        return {**run, "note": str(error)}
    run["network"] = network_words(model)
    length = None if result is None else _length(folder, config, data_dir)
    # A network that does not spike has no rates.
    if length is not None:
        try:
            run["energy"] = measure.account(model, rates, length)["energy"]["mJ_per_inference"]
        except ValueError as error:
            run["note"] = str(error)
    return run


def _length(folder: Path, config: train.RunConfig, data_dir: str | os.PathLike[str] | None) -> float | None:
    """The mean number of time steps per test inference; of the samples beside the network if there are no data."""
    task, name, _ = opened(folder, config, True, data_dir)
    if task is None or not len(task[name]):
        return None
    return float(task[name].lengths.reshape(len(task[name]), -1).sum(1).mean())


def _names(folders: list[Path]) -> list[str]:
    """The names of the folders, with their parents where two are the same."""
    short = [folder.resolve().name for folder in folders]
    return [name if short.count(name) == 1 else str(folder) for name, folder in zip(short, folders, strict=True)]
