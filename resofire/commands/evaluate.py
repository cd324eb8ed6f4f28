"""resofire evaluate."""

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from .runs import SCALES_FROM, open_run, open_task, sequences
from .usage import UsageError


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained network again, on its own data set, and compare with what its run recorded."""

    model: tyro.conf.Positional[str]
    """A run folder, or the name of a network that comes with the package."""
    data_dir: Path | None = None
    """Where the data set's files are; see resofire data."""
    json: bool = False
    """Print it as JSON."""
    fixed_point: bool = False
    """Instead, in integers of every width: accuracy on the test split, and how far spikes part from float's."""
    count: int | None = None
    """Of how many test sequences, with --fixed-point; otherwise all."""

    def run(self) -> int:
        from .. import train

        folder, config, model = open_run("evaluate", self.model)
        if self.count is not None and not self.fixed_point:
            raise UsageError(f"evaluate: --count is for --fixed-point, got {self.count} without it")
        if self.fixed_point:
            return self._fixed_point(config, model)
        if model.config != config.model:
            print(f"resofire: {self.model} holds another network than the run trained", file=sys.stderr)
            return 1
        found = train.evaluate(model, open_task(config, self.data_dir), config.batch)
        recorded = train.recorded(folder)
        same = recorded is None or recorded["correct"] == found["correct"]
        if self.json:
            print(json.dumps({**found, "same as recorded": recorded and same}, indent=2))
        else:
            print(train.report(Path(self.model), found))
            if recorded is not None:
                print("the same as the run recorded" if same else f"not as recorded: {recorded['correct']}")
        return 0 if same else 1

    def _fixed_point(self, config: Any, model: Any) -> int:
        import numpy as np

        from .. import deploy
        from ..deploy import compare

        if self.count is not None and self.count < 1:
            raise UsageError(f"evaluate: --count must be a positive integer, got {self.count}")
        task = open_task(config, self.data_dir)
        if task.pairs or task.per_step:
            raise UsageError(f"evaluate: --fixed-point is for one label a sequence, {task.name} has others")
        scales, _ = sequences(task["train"], SCALES_FROM)
        x, labels = sequences(task["test"], self.count)
        try:
            rows = compare.table(deploy.fold(model), scales, x, np.array(labels))
        except (TypeError, ValueError) as error:
            raise UsageError(str(error)) from None
        if self.json:
            print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
        else:
            print(f"{self.model}: {task.name}, {len(x):,} test sequences, scales from {len(scales)} for training\n")
            print(compare.text(rows))
        return 0
