"""resofire fit: train on your own files without a recipe."""

import contextlib
import shlex
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from .parsing import Count, Folder, Switch
from .train import train_in_folder
from .usage import UsageError, require_minutes, require_positive

Word = Annotated[str | None, tyro.conf.arg(metavar="COLUMN", help_behavior_hint="")]
# Fraction of the data that is held out as a test split if there is none.
HELD_OUT = 0.2
# Most classes that are listed one by one.
LISTED = 20


@dataclass(frozen=True)
class Fit:
    """Train on your own files; settings are chosen from the data."""

    path: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PATH")]
    """npz, csv, tsv, txt, ts, h5, or a folder with a sub-folder for each class; see docs/own-data.md."""
    test: Annotated[str | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Test data, or the fraction of PATH to hold out. Default: the test split in PATH, else 0.2."""
    minutes: float = 5.0
    """Time budget. A few steps are timed, then the number of steps is fixed."""
    out: Folder = None
    """Folder of the run. Default: a new one under runs/."""
    label: Word = None
    """Column of the labels in a table, by name or number. Default: label, class or target, else the first one."""
    id: Word = None
    """Column that names the series, in tables with one step in each line."""
    per_step: Switch = False
    """The table has a label for each step, not for each series."""
    missing: str = "refuse"
    """Missing values: refuse, zero, previous or interpolate."""
    frame: Count = None
    """Consecutive steps to merge into one with more channels. Default: 1; for wav, at most 500 steps on average."""
    bin: float = 0.01
    """Seconds in a step, for events (h5)."""
    pool: int = 1
    """Merge this many neighbouring units into one channel, for events (h5)."""
    balanced: Switch = False
    """Give every class the same total weight in the loss."""
    bidirectional: Switch = False
    """Also run over sequences in reverse; such a network cannot be streamed or exported to C."""
    epochs: Count = None
    """Maximum number of passes over the training data. Default: chosen."""
    features: Count = None
    """Channels of the network. Default: chosen."""
    depth: Count = None
    """Blocks of the network. Default: chosen."""
    seed: int = 0
    """Determines the initial weights, the order of the batches and dropout."""

    def run(self) -> int:
        for name in ("epochs", "features", "depth", "frame", "pool"):
            require_positive(f"fit: --{name}", getattr(self, name))
        require_minutes("fit: --minutes", self.minutes)
        if self.seed < 0:
            raise UsageError(f"fit: --seed must be at least 0, got {self.seed}")
        from .. import automatic, train
        from ..train.folder import require_empty

        try:
            if self.out is not None:
                require_empty(self.out)
            task = self._task()
            print("\n".join(describe(task, self.missing)), flush=True)
            weights = automatic.balanced_weights(task) if self.balanced else None
            config = automatic.choose(
                task, minutes=self.minutes, epochs=self.epochs, seed=self.seed, features=self.features,
                depth=self.depth, bidirectional=self.bidirectional, class_weights=weights,
            )  # fmt: skip
            print("\n".join(f"  {line}" for line in automatic.describe(config, task)), flush=True)
            folder, result = train_in_folder(config, task, self.out)
        except train.Stopped as stopped:
            print(f"resofire: {stopped}", file=sys.stderr)
            return stopped.code
        except (train.RunError, ValueError) as error:
            raise UsageError(str(error)) from None
        if result is not None:
            print(f"use it with: resofire evaluate | measure | export | stream | report {shlex.quote(str(folder))}")
            print(train.report(folder, result))
        return 0

    def _task(self) -> Any:
        from .. import data

        test: str | float = HELD_OUT if self.test is None else self.test
        with contextlib.suppress(ValueError):
            test = float(test)
        return data.from_path(
            self.path, test=test, validation=None, label=self.label, id=self.id, per_step=self.per_step, bin=self.bin,
            pool=self.pool, frame=self.frame, missing=self.missing,
        )  # fmt: skip


def describe(task: Any, missing: str) -> list[str]:
    """Summarise the data: sequences, lengths, channels, classes, missing values."""
    from ..data import show

    splits = show.facts(task)["splits"]
    lengths = [split["length_quartiles"] for split in splits.values()]
    low, high = min(each[0] for each in lengths), max(each[-1] for each in lengths)
    steps = f"{high:,.0f} steps" if low == high else f"{low:,.0f} to {high:,.0f} steps"
    total = sum(split["size"] for split in splits.values())
    channels = f"{task.inputs:,} channel{'s' if task.inputs != 1 else ''}"
    labels = ", a label for each step" if task.per_step else ""
    lines = [f"{task.name}: {total:,} sequences of {steps} in {channels}, {task.classes} classes{labels}"]
    lines.append("  " + ", ".join(f"{name} {split['size']:,}" for name, split in splits.items()))
    counts = {name: sum(split["labels"][k] for split in splits.values()) for k, name in enumerate(task.class_names)}
    shown = [f"{name} {count:,}" for name, count in counts.items()]
    more = f", and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    lines.append(f"  classes   {', '.join(shown[:LISTED])}{more}")
    frame = task.source["settings"]["frame"]
    lines += [f"  frames    {frame} samples in a step"] if frame > 1 else []
    filled = f"{task.missing:,}, filled with {missing}" if task.missing else "none"
    lines.append(f"  missing   {filled}")
    return lines
