"""The curves of a run: metrics.csv, and the same figures as TensorBoard events.

A run resumed from an older step drops the later rows; TensorBoard hides them, too.
"""

import csv
import io
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorboardX import SummaryWriter

from ..atomic import write_atomic
from .callbacks import Callback, Figures
from .evaluation import Score

if TYPE_CHECKING:
    from .loop import Run

FILE = "metrics.csv"
MEANS = ("loss", "accuracy", "fire_rate", "lr", "gradient")
COLUMNS = ("step", "epoch", "split", *MEANS, "tokens", "seconds")


class Logs(Callback):
    """Writes the mean training figures every `every` steps, and the score of each validation.

    Args:
        run: The run folder.
        step: The step at which the run begins or resumes; rows after it are dropped.
        state: The `state()` in the checkpoint of this step; None at the beginning.
        every: Steps between rows.
    """

    def __init__(self, run: Path, step: int = 0, state: dict[str, Any] | None = None, every: int = 20) -> None:
        self.file, self.every = run / FILE, every
        self._begun = time.monotonic()
        self._seconds: float = 0.0 if state is None else state["seconds"]
        self._since: list[list[float]] = [] if state is None else list(state["since"])
        _drop_rows_after(self.file, step)
        # A file of its own for each start, even within one second; purge_step hides what a resumed run repeats.
        self._events = SummaryWriter(
            str(run / "tensorboard"), purge_step=step, flush_secs=10, filename_suffix=f".{time.time_ns()}"
        )

    def close(self) -> None:
        """Flush and close the events."""
        self._events.close()

    def elapsed(self) -> float:
        """Seconds of training, including those before an interruption."""
        return self._seconds + time.monotonic() - self._begun

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint: the time, and the steps of the next row."""
        return {"seconds": self.elapsed(), "since": self._since}

    def on_start(self, run: "Run") -> None:
        self._begun = time.monotonic()

    def on_step(self, run: "Run", figures: Figures) -> None:
        self._since.append([getattr(figures, name) for name in (*MEANS, "tokens")])
        if run.step % self.every == 0 or run.plan.validates(run.step):
            *sums, tokens = (sum(column) for column in zip(*self._since, strict=True))
            means = {name: total / len(self._since) for name, total in zip(MEANS, sums, strict=True)}
            self._since = []
            self._row(run, "train", {**means, "tokens": tokens})

    def on_validation(self, run: "Run", score: Score) -> None:
        self._row(run, run.config.select, {"loss": score.mean_loss, "accuracy": score.accuracy})

    def _row(self, run: "Run", split: str, values: dict[str, float]) -> None:
        place = {"step": run.step, "epoch": run.step / run.plan.epoch, "split": split, "seconds": self.elapsed()}
        row = {**values, **place}
        with self.file.open("a", newline="") as stream:
            csv.writer(stream).writerow([_short(row.get(name, "")) for name in COLUMNS])
        for name, value in values.items():
            self._events.add_scalar(f"{split}/{name}", value, run.step)


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def _drop_rows_after(file: Path, step: int) -> None:
    """Drop rows after a step and damaged rows; write the header of a new file."""
    rows: list[list[str]] = []
    if file.exists():
        lines = file.read_bytes().decode(errors="replace").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n") and "\0" not in line]
        rows = [row for row in csv.reader(whole) if len(row) == len(COLUMNS) and row[0].isdecimal()]
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(COLUMNS)
    table.writerows(row for row in rows if int(row[0]) <= step)
    write_atomic(file, text.getvalue().encode())
