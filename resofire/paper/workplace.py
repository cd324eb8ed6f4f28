"""What an experiment is given: a budget, the data, and trainings that are kept and gone on with."""

import csv
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from .. import data
from ..atomic import write_atomic
from ..models import build
from ..ops import retain_buffers
from ..train import RunConfig, RunError, Stopped, read, recorded, resume, train

INTERRUPTED = 130


@dataclass(frozen=True)
class Trained:
    """A finished run: its folder, its config, its result.json, the rows of its metrics.csv, the size of its task."""

    folder: Path
    config: RunConfig
    result: dict[str, Any]
    rows: list[dict[str, str]]
    sequences: int

    @property
    def epochs(self) -> float:
        """How often it saw each sequence."""
        assert self.config.steps is not None
        return self.config.steps * self.config.batch / self.sequences

    @property
    def tested(self) -> int:
        """On how many sequences its test accuracy was counted."""
        return self.result["correct"]["test"][1]

    def curve(self, split: str, quantity: str = "accuracy") -> tuple[list[int], list[float]]:
        """Steps and what was measured at each."""
        rows = [row for row in self.rows if row["split"] == split]
        return [int(row["step"]) for row in rows], [float(row[quantity]) for row in rows]


@dataclass(frozen=True)
class Workplace:
    """Where an experiment runs."""

    name: str
    minutes: float
    runs: Path
    data_dir: Path | None = None

    @property
    def folder(self) -> Path:
        return self.runs / f"{self.name}-{self.minutes:g}min"

    def task(self, name: str, **settings: Any) -> data.Task:
        return data.load(name, self.data_dir, **settings)

    def train(
        self, configs: dict[str, RunConfig], validations: int, *, part: str = "", share: float = 1.0, thin: bool = False
    ) -> dict[str, Trained]:
        """Trains each config for the same number of steps, as many as the budget has room for.

        The number is found once, by timing some steps of each, and kept. A run that is there is gone on with, or read
        if it is finished.

        part     a folder within this one's, for these runs and a number of steps of their own
        share    how much of the budget they may take
        thin     evaluate on as many sequences of a split as a quarter of the time has room for; otherwise on all
        """
        tasks = {label: self.task(config.task, **config.task_settings) for label, config in configs.items()}
        folder = self.folder / part
        plan = _planned(folder, configs, tasks, share * self.minutes * 60, validations if thin else None)
        if "evaluated" in plan:
            tasks = {label: _thinned(task, plan["evaluated"]) for label, task in tasks.items()}
        lengths = {"steps": plan["steps"], "validate_every": max(1, plan["steps"] // validations)}
        return {
            label: self._trained(replace(config, **lengths), tasks[label], folder / label)
            for label, config in configs.items()
        }

    def _trained(self, config: RunConfig, task: data.Task, folder: Path) -> Trained:
        known = (folder / "run.json").exists()
        if known and RunConfig.from_json(read(folder)["config"]) != config:
            raise RunError(f"reproduce: {folder} holds a run with other settings; move it away")
        if recorded(folder) is None:
            try:
                if known:
                    resume(folder, task)
                else:
                    train(config, task, folder)
            except Stopped as stopped:
                # It also says how to go on with the run by itself, which would then be evaluated on other sequences.
                why = str(stopped).partition(";")[0]
                how = "; the same command goes on from there" if stopped.code == INTERRUPTED else ""
                raise Stopped(f"{folder}: {why}{how}", stopped.code) from None
        result = recorded(folder)
        assert result is not None
        with (folder / "metrics.csv").open() as stream:
            return Trained(folder, config, result, list(csv.DictReader(stream)), len(task["train"]))


def _planned(
    folder: Path, configs: dict[str, RunConfig], tasks: dict[str, data.Task], budget: float, validations: int | None
) -> dict[str, Any]:
    """How many steps fit into `budget` seconds; with `validations`, on how many sequences to evaluate as well."""
    file = folder / "plan.json"
    if file.exists():
        return read_kept(file)
    retain_buffers()
    seconds = sum(_seconds_per_step(config, tasks[label]) for label, config in configs.items())
    most = min(config.epochs * -(-len(tasks[label]["train"]) // config.batch) for label, config in configs.items())
    # The rest is for validation and the last evaluation.
    training = 0.9 if validations is None else 0.7
    plan = {"steps": max(1, min(most, int(training * budget / seconds))), "seconds_per_step_of_all": seconds}
    if validations is not None:
        # A forward pass takes a third of a step, or less; at the end three splits are evaluated once more.
        batch = min(config.batch for config in configs.values())
        plan["evaluated"] = max(batch, int(batch * 0.25 * budget / (seconds / 3) / (validations + 3)))
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(file, (json.dumps(plan) + "\n").encode())
    return plan


def read_kept(file: Path) -> Any:
    """What an experiment wrote into a JSON file of its folder."""
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"reproduce: {file} cannot be read: {error}; move it away") from None


class _Some(data.Split):
    """Some sequences of a split, evenly spread over it, since those of one class may lie together."""

    def __init__(self, split: data.Split, most: int) -> None:
        super().__init__(
            split.stored, split.labels, kind=split.kind, form=split.form, bounds=split.bounds, pairs=split.pairs,
            per_step=split.per_step,
        )  # fmt: skip
        count = min(most, len(split))
        self.chosen = np.arange(count) * len(split) // count

    def __len__(self) -> int:
        return len(self.chosen)

    def batch(self, chosen: np.ndarray, by: np.ndarray | None = None) -> data.Batch:
        return super().batch(self.chosen[chosen], by)


def _thinned(task: data.Task, most: int) -> data.Task:
    """All sequences to train on, and at most so many of each other split."""
    splits = {name: split if name == "train" else _Some(split, most) for name, split in task.splits.items()}
    return replace(task, splits=splits)


def _seconds_per_step(config: RunConfig, task: data.Task) -> float:
    """The best of three steps, after one to warm up."""
    torch.manual_seed(config.seed)
    model = build(config.model)
    taken = []
    for batch in islice(task["train"].batches(config.batch, seed=0, epoch=0), 4):
        begun = time.perf_counter()
        cross_entropy(model(batch.x, cu_seqlens=batch.cu_seqlens), batch.labels).backward()
        taken.append(time.perf_counter() - begun)
    return min(taken[1:] or taken)


# By how many standard errors the best and the worst of so many differ by chance in one case of twenty: the studentised
# range, for large samples.
RANGES = {2: 2.77, 3: 3.31, 4: 3.63, 5: 3.86}


def by_chance(percentages: Iterable[float], count: int) -> float:
    """How far apart these may come, counted on `count` sequences each, if all are alike: more is one case of twenty.

    It knows of the chance that is in the test sequences, not of that which is in a seed.
    """
    shares = [percentage / 100 for percentage in percentages]
    # Two right and two wrong answers more, so that it is not 0 where all are right.
    share = (sum(shares) / len(shares) * count + 2) / (count + 4)
    return 100 * RANGES[len(shares)] * (share * (1 - share) / count) ** 0.5
