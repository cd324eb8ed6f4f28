"""What an experiment is given: a budget, the data, and trainings that are kept and gone on with."""

import csv
import json
import time
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from .. import data
from ..models import build
from ..models.storage import replace as replace_file
from ..ops import retain_buffers
from ..train import RunConfig, RunError, read, recorded, resume, train


@dataclass(frozen=True)
class Trained:
    """A finished run: its config, its result.json and the rows of its metrics.csv."""

    config: RunConfig
    result: dict[str, Any]
    rows: list[dict[str, str]]

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

    def task(self, name: str) -> data.Task:
        return data.load(name, self.data_dir)

    def train(self, configs: dict[str, RunConfig], validations: int) -> dict[str, Trained]:
        """Trains each config for the same number of steps, as many as the budget has room for.

        The number is found once, by timing some steps of each, and kept. A run that is there is gone on with, or read
        if it is finished.
        """
        first = next(iter(configs.values()))
        task = self.task(first.task)
        steps = self._planned(configs, task)
        done = {}
        for label, config in configs.items():
            config = replace(config, steps=steps, validate_every=max(1, steps // validations))
            folder = self.folder / label
            known = (folder / "run.json").exists()
            if known and RunConfig.from_json(read(folder)["config"]) != config:
                raise RunError(f"reproduce: {folder} holds a run with other settings; move it away")
            if recorded(folder) is None:
                if known:
                    resume(folder, task)
                else:
                    train(config, task, folder)
            result = recorded(folder)
            assert result is not None
            with (folder / "metrics.csv").open() as stream:
                done[label] = Trained(config, result, list(csv.DictReader(stream)))
        return done

    def _planned(self, configs: dict[str, RunConfig], task: data.Task) -> int:
        file = self.folder / "plan.json"
        if file.exists():
            return json.loads(file.read_text())["steps"]
        retain_buffers()
        seconds = sum(_seconds_per_step(config, task) for config in configs.values())
        most = min(config.epochs * -(-len(task["train"]) // config.batch) for config in configs.values())
        # A tenth is left for validation and the last evaluation.
        steps = max(1, min(most, int(0.9 * self.minutes * 60 / seconds)))
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(file, (json.dumps({"steps": steps, "seconds_per_step_of_all": seconds}) + "\n").encode())
        return steps


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
