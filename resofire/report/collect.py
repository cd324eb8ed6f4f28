"""Collect everything that the page of a run shows, as plain values; a missing part is replaced by a sentence."""

import datetime
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import data, measure, models, train
from ..data import Batch, Split, Task
from ..data.show import evenly_spaced
from ..measure.rates import rates_and_length
from ..models.storage import WEIGHTS
from . import curves
from .drawing import drawing
from .plane import initial_network, neuron_rates, plane
from .raster import raster
from .recording import place
from .summary import details, network_words, tiles
from .tally import Tally

# Time steps of test sequences that are read unless `count` says otherwise, and for the fire rate of each neuron.
READ, RATES = 8_000_000, 200_000
# Rasters that the page chooses, and the most that fit into its size.
RASTERS, MOST = 4, 6
# Classes of a confusion matrix that is still legible.
LARGEST = 100


@dataclass(frozen=True)
class Request:
    """The inputs of a run's page besides its folder.

    Attributes:
        data_dir: Folder of the data set's raw files; None is the one the run was begun with.
        count: Number of test sequences to read; None: all, up to READ time steps.
        samples: Sequences of the split to draw as rasters; None chooses.
        paper: The paper's fire rates, `{"name", "temporal", "spatial"}`, in per cent; None if it has none.
        command: What reproduces the run.
        progress: Called with a line now and then.
    """

    data_dir: str | os.PathLike[str] | None = None
    count: int | None = None
    samples: tuple[int, ...] | None = None
    paper: dict[str, Any] | None = None
    command: str | None = None
    progress: Callable[[str], None] = field(default=lambda line: None)


def run_data(folder: str | os.PathLike[str], request: Request | None = None) -> dict[str, Any]:
    """Collect the page of a run: its record, and its network run on its data.

    Args:
        folder: The run folder, finished or not, with a network or not yet.
        request: What else to show.

    Returns:
        A dict ready for JSON, for `page`.

    Raises:
        RunError: The folder is not a run.
        ValueError: `samples` or `count` is out of range.
    """
    request = request or Request()
    return joined(Path(folder), network_data(Path(folder), request), request)


def joined(folder: Path, network: dict[str, Any], request: Request) -> dict[str, Any]:
    """The page from the run's record, read now, and from `network_data`, which may be older."""
    record = train.read(folder)
    config, result = train.RunConfig.from_json(record["config"]), train.recorded(folder)
    rows = curves.read(folder)
    chosen = (result or {}).get("best") or {}
    step = chosen.get("step", curves.best(rows, config.select))
    split = "train" if config.select == "last" else config.select
    return {
        "kind": "run",
        "title": config.name,
        "task": config.task,
        "folder": str(folder),
        "finished": result is not None,
        "written": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "tiles": tiles(record, result, network, rows, config),
        "details": details(record, result, config, rows, step=step, command=request.command),
        "curves": {
            "splits": {name: curves.thinned(curve) for name, curve in rows.items()}, "select": config.select,
            "split": split, "chosen": _at(rows, config.select, step),
        },
        **{name: value for name, value in network.items() if name != "summary"},
    }  # fmt: skip


def _at(rows: dict[str, Any], select: str, step: int | None) -> dict[str, Any] | None:
    """The row of the chosen step."""
    curve = rows.get(select)
    if curve is None or step is None or step not in curve["step"]:
        return None
    at = curve["step"].index(step)
    return {name: column[at] for name, column in curve.items()}


def network_data(folder: Path, request: Request) -> dict[str, Any]:
    """The sections that need the network: answers, rasters, neurons, fire rates, energy.

    Of a finished run the test split is read; of one in training the split that selects its weights, so that nobody
    looks at the test split before the end.
    """
    if not (folder / WEIGHTS).exists():
        return without("The run has not saved a network yet: the first one is written after the first validation.")
    record = train.read(folder)
    config = train.RunConfig.from_json(record["config"])
    try:
        model: Any = models.load(folder)
    except models.StorageError as error:
        return without(f"The network cannot be loaded: {error}.")
    finished = train.recorded(folder)
    task, name, reason = opened(folder, config, finished is not None, request.data_dir)
    if task is None:
        return without(str(reason))
    split = task[name]
    names = task.class_names or getattr(model.config, "class_names", None)
    classes = [str(each) for each in names] if names else [str(number) for number in range(task.classes)]
    read = _chosen(split, request.count)
    tally = Tally(task.classes)
    rates, length = _run(model, split, read, tally, request, size=config.batch)
    known = finished["fire_rates"] if finished is not None and {*finished["fire_rates"]} == {*rates} else rates
    request.progress("energy")
    energy = _energy(model, known, length)
    place_of = {"split": name, "count": len(read), "of": len(split), "note": reason}
    samples = _samples(tally, len(split), request.samples)
    sections: dict[str, Any] = {"data": place_of, "classes": classes, "network": network_words(model)}
    sections["answers"] = _answers(tally, classes) if reason is None else {"missing": reason}
    request.progress("rasters")
    share = min(1.0, RASTERS / max(1, len(samples)))
    sections["rasters"] = [raster(model, task, split, row, share) for row in samples]
    request.progress("neurons")
    sections["plane"] = _plane(model, config, record, split)
    sections["rates"] = {
        "layers": [{**place(layer)._asdict(), "name": layer, "rate": rate} for layer, rate in known.items()],
        "paper": request.paper,
    }
    sections["energy"] = energy
    sections["mistakes"] = [] if reason is not None else [
        {**mistake._asdict(), "drawing": drawing(task, split, mistake.row)} for mistake in tally.worst()
    ]  # fmt: skip
    sections["summary"] = {
        "rates": known,
        "energy": energy,
        "split": name,
        "tally": [int(np.trace(tally.confusion)), tally.count],
    }
    return sections


def without(reason: str) -> dict[str, Any]:
    """The sections of a page without a network, and why it has none."""
    missing = {"missing": reason}
    return {"classes": [], "answers": missing, "rasters": missing, "plane": missing, "rates": missing,
            "energy": missing, "mistakes": missing, "summary": {}}  # fmt: skip


def opened(
    folder: Path, config: train.RunConfig, finished: bool, data_dir: str | os.PathLike[str] | None
) -> tuple[Task | None, str, str | None]:
    """The data, the split to read, and why it is not the right one if it is not."""
    try:
        task = train.load_task(folder, data_dir=data_dir)
    except (data.DataError, train.RunError, ValueError, TypeError, OSError) as error:
        try:
            samples = train.load_samples(folder)
        except train.RunError:
            samples = None
        if samples is None:
            return None, "", f"The data of the run cannot be opened: {error}."
        return samples, "train", (
            f"The data set cannot be opened ({error}), so answers are not counted; rasters and fire rates of neurons "
            f"are those of the {len(samples['train'])} training sequences that come with the network."
        )  # fmt: skip
    preferred = ("test", "validation", "train") if finished else (config.select, "validation", "train")
    return task, next(name for name in preferred if name in task.splits), None


def _chosen(split: Split, count: int | None) -> list[int]:
    """The sequences to read, evenly spaced."""
    if count is not None and count < 1:
        raise ValueError(f"report: count must be a positive integer, got {count!r}")
    if count is None:
        mean = max(1.0, float(split.lengths.reshape(len(split), -1).sum(1).mean())) if len(split) else 1.0
        count = max(1, int(READ / mean))
    return evenly_spaced(len(split), min(count, len(split)))


def _run(
    model: Any, split: Split, rows: list[int], tally: Tally, request: Request, *, size: int
) -> tuple[dict[str, float], float]:
    """Read the sequences once: their answers into the tally, fire rates, and the mean length."""
    pieces = [np.array(rows[first : first + size]) for first in range(0, len(rows), size)]
    order = iter(pieces)

    def batches() -> Iterator[Batch]:
        for number, piece in enumerate(pieces):
            request.progress(f"reading sequence {number * size + len(piece):,} of {len(rows):,}")
            yield split.batch(piece)

    def each(batch: Batch, logits: Tensor) -> None:
        piece = next(order)
        flat, labels = logits.flatten(0, -2), batch.labels.flatten()
        lengths = np.ones(len(piece), int)
        if split.per_step:
            lengths = np.full(len(piece), batch.x.shape[1]) if batch.cu_seqlens is None else np.diff(batch.cu_seqlens)
        steps = np.concatenate([np.arange(length) for length in lengths])
        tally.add(flat.cpu(), labels, np.repeat(piece, lengths), steps)

    return rates_and_length(model, batches(), each)


def _energy(model: Any, rates: dict[str, float], length: float) -> dict[str, Any]:
    try:
        return measure.account(model, rates, length, against=("s4", "transformer"))
    except ValueError as error:
        return {"missing": f"The energy cannot be computed: {error}."}


def _answers(tally: Tally, classes: list[str]) -> dict[str, Any]:
    """Confusions and figures of each class; of very many classes, those with the most mistakes."""
    wrong = tally.confusion.sum(1) - tally.confusion.diagonal()
    kept = np.sort(np.argsort(-wrong, kind="stable")[:LARGEST])
    by_class = tally.by_class()
    return {
        "classes": [classes[number] for number in kept], "confusion": tally.confusion[np.ix_(kept, kept)].tolist(),
        "by_class": [by_class[number] for number in kept], "left_out": len(classes) - len(kept),
        "calibration": tally.calibration(), "correct": int(np.trace(tally.confusion)), "count": tally.count,
    }  # fmt: skip


def _samples(tally: Tally, size: int, asked: tuple[int, ...] | None) -> list[int]:
    """The sequences to draw: those asked for, or some right answers and the most confident mistake."""
    if len(asked or ()) > MOST:
        raise ValueError(f"report: samples must be at most {MOST}, got {len(asked or ())}")
    for row in asked or ():
        if not 0 <= row < size:
            raise ValueError(f"report: samples must be from 0 to {size - 1}, got {row}")
    if asked:
        return list(dict.fromkeys(asked))
    wrong = [mistake.row for mistake in tally.worst()][:1]
    rows = [*tally.correct[: RASTERS - len(wrong)], *wrong, *[mistake.row for mistake in tally.worst()[1:]]]
    return list(dict.fromkeys(rows))[:RASTERS]


def _plane(model: Any, config: train.RunConfig, record: dict[str, Any], split: Split) -> dict[str, Any]:
    mean = max(1.0, float(split.lengths.reshape(len(split), -1).sum(1).mean()))
    rows = evenly_spaced(len(split), max(1, min(len(split), int(RATES / mean))))
    size = max(1, min(config.batch, len(rows)))
    batches = (split.batch(np.array(rows[first : first + size])) for first in range(0, len(rows), size))
    rates = neuron_rates(model, batches)
    reason, initial = None, None
    if "model" in (record.get("own") or {}):
        reason = "The run began with a network passed to it, so its initial neurons are not known."
    else:
        try:
            initial = initial_network(config)
        except (ValueError, TypeError, RuntimeError) as error:
            reason = f"The initial network cannot be built again: {error}."
    with torch.no_grad():
        layers = plane(model, initial, rates)
    if not layers:
        return {"missing": "No layer of this network is a recurrence with a frequency and a memory."}
    return {"layers": layers, "note": reason, "sequences": len(rows)}
