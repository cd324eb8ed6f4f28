"""resofire evaluate."""

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from .parsing import Count, Folder, Model, Switch
from .runs import SCALES_FROM, Run, open_files, open_run, open_task, sequences
from .usage import UsageError, as_usage_errors, require_positive

Word = Annotated[str | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a trained network and compare it with the recorded result."""

    model: Model
    """A shipped network or a run folder."""
    data: Word = None
    """Evaluate on these files instead, read as by resofire fit: a file, or a folder of classes."""
    missing: Annotated[str | None, tyro.conf.arg(metavar="HOW", help_behavior_hint="")] = None
    """Missing values in --data: refuse, zero, previous or interpolate. Default: as for resofire fit."""
    data_dir: Folder = None
    """Folder with the files of the data set; see resofire data --help."""
    json: Switch = False
    """Print JSON."""
    fixed_point: Switch = False
    """Compare fixed point at every bit width with float instead: accuracy and spikes on the test split."""
    count: Count = None
    """Number of test sequences for --fixed-point. Default: all."""

    def run(self) -> int:
        from .. import train
        from ..train.evaluation import RESULT

        run = open_run("evaluate", self.model)
        if self.count is not None and not self.fixed_point:
            raise UsageError(f"evaluate: --count is for --fixed-point, got {self.count} without it")
        if self.data is not None and self.data_dir is not None:
            raise UsageError("evaluate: --data and --data-dir must not both be given")
        if self.missing is not None and self.data is None:
            raise UsageError(f"evaluate: --missing is for --data, got {self.missing} without it")
        if self.fixed_point:
            return self._fixed_point(run)
        if run.model.config != run.config.model:
            print(f"resofire: {self.model} holds another network than the run trained", file=sys.stderr)
            return 1
        result = train.evaluate(run.model, self._task(run), run.config.batch)
        recorded = train.recorded(run.folder) if self.data is None else None
        same = recorded is None or recorded["correct"] == result["correct"]
        if self.json:
            print(json.dumps({**result, "same as recorded": recorded and same}, indent=2))
            return 0 if same else 1
        if recorded is not None:
            print("the same as the run recorded" if same else f"not as recorded: {recorded['correct']}")
        elif self.data is None and (run.folder / RESULT).exists():
            print(f"{run.folder / RESULT} is damaged; write it again with: resofire train --resume {self.model}")
        elif self.data is None:
            print("the run is not finished, this is its best network so far")
        # The accuracies come last, here as after a training.
        print(train.report(Path(self.model), result))
        return 0 if same else 1

    def _task(self, run: Run) -> Any:
        if self.data is None:
            return open_task(run.folder, self.data_dir)
        return open_files(run, self.data, {} if self.missing is None else {"missing": self.missing})

    def _fixed_point(self, run: Run) -> int:
        import numpy as np

        from .. import deploy
        from ..deploy import compare

        require_positive("evaluate: --count", self.count)
        task = self._task(run)
        if task.pairs or task.per_step:
            raise UsageError(f"evaluate: --fixed-point needs one label per sequence, which {task.name} does not have")
        splits = [*task.splits.values()]
        scales, _ = sequences(splits[0], SCALES_FROM)
        x, labels = sequences(splits[-1], self.count)
        with as_usage_errors(TypeError, ValueError):
            rows = compare.table(deploy.fold(run.model), scales, x, np.array(labels))
        if self.json:
            print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
        else:
            print(f"{self.model}: {task.name}, {len(x):,} test sequences, scales from {len(scales)} of training\n")
            print(compare.text(rows))
        return 0
