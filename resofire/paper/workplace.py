"""What an experiment works with: its budget, its data and its trainings, which are resumed; and finished runs."""

import csv
import json
import time
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from .. import data
from ..atomic import write_atomic
from ..models import build
from ..ops import retain_buffers
from ..train import RunConfig, RunError, complete, read, recorded


@dataclass(frozen=True)
class Trained:
    """A finished run: its folder, config, result.json, rows of metrics.csv, and the number of training sequences."""

    folder: Path
    config: RunConfig
    result: dict[str, Any]
    rows: list[dict[str, str]]
    sequences: int

    @property
    def scale(self) -> dict[str, Any]:
        """Steps, batch size, epochs, and the number of test sequences evaluated."""
        steps, batch = self.config.steps, self.config.batch
        assert steps is not None
        epochs = steps * batch / self.sequences
        return {"steps": steps, "batch": batch, "epochs": epochs, "tested": self.result["correct"]["test"][1]}

    def curve(self, split: str, quantity: str = "accuracy") -> tuple[list[int], list[float]]:
        """Return steps and the quantity recorded at each."""
        rows = [row for row in self.rows if row["split"] == split]
        return [int(row["step"]) for row in rows], [float(row[quantity]) for row in rows]


@dataclass(frozen=True)
class Workplace:
    """Budget, data and folder of one experiment."""

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
        """Train each config for the same number of steps, as many as fit the budget.

        The number is determined once, by timing a few steps of each, and kept. An existing run is resumed, or read if
        it is finished.

        Args:
            configs: By label.
            validations: Validations per run.
            part: Subfolder for these runs, with a number of steps of its own.
            share: Share of the budget.
            thin: Evaluate on as many sequences of each split as fit a quarter of the time; otherwise on all.
        """
        tasks = {label: self.task(config.task, **config.task_settings) for label, config in configs.items()}
        folder = self.folder / part
        plan = _plan(folder, configs, tasks, share * self.minutes * 60, validations if thin else None)
        if "evaluated" in plan:
            tasks = {label: _thinned(task, plan["evaluated"]) for label, task in tasks.items()}
        lengths = {"steps": plan["steps"], "validate_every": max(1, plan["steps"] // validations)}
        return {
            label: self._trained(replace(config, **lengths), tasks[label], folder / label)
            for label, config in configs.items()
        }

    def _trained(self, config: RunConfig, task: data.Task, folder: Path) -> Trained:
        result = complete("reproduce", config, task, folder)
        with (folder / "metrics.csv").open() as stream:
            return Trained(folder, config, result, list(csv.DictReader(stream)), len(task["train"]))


def _plan(
    folder: Path, configs: dict[str, RunConfig], tasks: dict[str, data.Task], budget: float, validations: int | None
) -> dict[str, Any]:
    """How many steps fit into `budget` seconds; with `validations`, also on how many sequences to evaluate."""
    file = folder / "plan.json"
    if file.exists():
        return read_json(file)
    retain_buffers()
    seconds = sum(_seconds_per_step(config, tasks[label]) for label, config in configs.items())
    most = min(config.epochs * -(-len(tasks[label]["train"]) // config.batch) for label, config in configs.items())
    # The rest is for validation and the final evaluation.
    training = 0.9 if validations is None else 0.7
    plan = {"steps": max(1, min(most, int(training * budget / seconds))), "seconds_per_step_of_all": seconds}
    if validations is not None:
        # A forward pass takes at most a third of a step; the final evaluation covers three splits.
        batch = min(config.batch for config in configs.values())
        plan["evaluated"] = max(batch, int(batch * 0.25 * budget / (seconds / 3) / (validations + 3)))
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(file, (json.dumps(plan) + "\n").encode())
    return plan


def read_json(file: Path) -> Any:
    """Read a JSON file that an experiment has written into its folder."""
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"reproduce: {file} cannot be read: {error}; move it away") from None


class _Some(data.Split):
    """Evenly spaced sequences of a split, since those of one class may be adjacent."""

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
    """All training sequences, and at most `most` of each other split."""
    splits = {name: split if name == "train" else _Some(split, most) for name, split in task.splits.items()}
    return replace(task, splits=splits)


def _seconds_per_step(config: RunConfig, task: data.Task) -> float:
    """The best of three steps, after one to warm up."""
    torch.manual_seed(config.seed)
    model = build(config.model)
    seconds = []
    for batch in islice(task["train"].batches(config.batch, seed=0, epoch=0), 4):
        start = time.perf_counter()
        cross_entropy(model(batch.x, cu_seqlens=batch.cu_seqlens), batch.labels).backward()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:] or seconds)


# The 95 % quantile of the studentised range for large samples: of so many equal networks, the best and the worst differ
# by more standard errors than this in one case of twenty.
RANGES = {2: 2.77, 3: 3.31, 4: 3.63, 5: 3.86}


def by_chance(percentages: Iterable[float], count: int) -> float:
    """Return how far apart equal networks come on `count` test sequences: more happens in one case of twenty.

    This covers the sampling of test sequences, not the variation between seeds.
    """
    shares = [percentage / 100 for percentage in percentages]
    # Two more right and two more wrong answers (Agresti and Coull), so that it is not 0 where all are right.
    share = (sum(shares) / len(shares) * count + 2) / (count + 4)
    return 100 * RANGES[len(shares)] * (share * (1 - share) / count) ** 0.5


class Finished(NamedTuple):
    """A run that was trained elsewhere: its config, and what a page needs of its result."""

    config: RunConfig
    row: dict[str, Any]


def finished(tasks: Container[str], *folders: Path) -> list[Finished]:
    """Find finished runs under some folders, except those within a budget or selected on the test split."""
    runs = (_finished(file.parent, folder) for folder in folders for file in sorted(folder.glob("**/result.json")))
    return [run for run in runs if run is not None and run.config.task in tasks]


def _finished(run_folder: Path, folder: Path) -> Finished | None:
    result = recorded(run_folder)
    try:
        config = RunConfig.from_json(read(run_folder)["config"])
    except RunError:
        return None
    # Runs of the other pages are cut to a number of steps, those of a comparison to epochs too: both have a plan.
    planned = config.steps is not None or (run_folder.parent / "plan.json").exists()
    if result is None or result.get("selected_on") != "validation" or planned:
        return None
    return Finished(config, {
        "task": config.task, "run": str(run_folder.relative_to(folder)), "recipe": config.name, "seed": config.seed,
        "parameters": result["parameters"], "epochs": config.epochs, "batch": config.batch,
        "validation": result["accuracy"]["validation"], "test": result["accuracy"]["test"],
        "tested": result["correct"]["test"][1], "fire_rate": result["mean_fire_rate"],
    })  # fmt: skip
