"""The figures of a run as they come: metrics.csv for any program, and TensorBoard's events.

A run that goes on from an older step drops the rows after it; TensorBoard is told to do the same.
"""

import csv
import io
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorboardX.proto import event_pb2, summary_pb2
from tensorboardX.record_writer import RecordWriter

from ..atomic import write_atomic
from .score import Score

if TYPE_CHECKING:
    from .module import Figures, Trainee

FILE = "metrics.csv"
MEANS = ("loss", "accuracy", "fire_rate", "lr", "gradient")
COLUMNS = ("step", "epoch", "split", *MEANS, "tokens", "seconds")


class Logs:
    """Training figures are the means of the steps since the last row, one row every `every` steps."""

    def __init__(self, run: Path, step: int = 0, state: dict[str, Any] | None = None, every: int = 20) -> None:
        self.file, self.every = run / FILE, every
        self._begun = time.monotonic()
        self._seconds: float = 0.0 if state is None else state["seconds"]
        self._since: list[list[float]] = [] if state is None else list(state["since"])
        _cut(self.file, step)
        folder = run / "tensorboard"
        folder.mkdir(exist_ok=True)
        # A file of its own for each start, and in their order: one that is there would be written over.
        self._events = RecordWriter(str(folder / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}"))
        self._event(event_pb2.Event(file_version="brain.Event:2"))
        started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._event(event_pb2.Event(step=step, session_log=started))

    def close(self) -> None:
        self._events.close()

    def elapsed(self) -> float:
        """Seconds of training, those before an interruption included."""
        return self._seconds + time.monotonic() - self._begun

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: the time, and the steps of the row to come."""
        return {"seconds": self.elapsed(), "since": self._since}

    def started(self, run: "Trainee") -> None:
        self._begun = time.monotonic()

    def trained(self, run: "Trainee", figures: "Figures", stop: bool) -> None:
        self._since.append([getattr(figures, name) for name in (*MEANS, "tokens")])
        if run.step % self.every == 0 or run.step == run.plan.stop(run.step - 1):
            *sums, tokens = (sum(column) for column in zip(*self._since, strict=True))
            means = {name: total / len(self._since) for name, total in zip(MEANS, sums, strict=True)}
            self._since = []
            self._row(run, "train", {**means, "tokens": tokens})

    def validated(self, run: "Trainee", score: Score, stop: bool) -> None:
        self._row(run, run.config.select, {"loss": score.mean_loss, "accuracy": score.accuracy})

    def _row(self, run: "Trainee", split: str, values: dict[str, float]) -> None:
        place = {"step": run.step, "epoch": run.step / run.plan.epoch, "split": split, "seconds": self.elapsed()}
        row = {**values, **place}
        with self.file.open("a", newline="") as stream:
            csv.writer(stream).writerow([_short(row.get(name, "")) for name in COLUMNS])
        shown = [summary_pb2.Summary.Value(tag=f"{split}/{name}", simple_value=value) for name, value in values.items()]
        self._event(event_pb2.Event(step=run.step, summary=summary_pb2.Summary(value=shown)))

    def _event(self, event: event_pb2.Event) -> None:
        event.wall_time = time.time()
        self._events.write(event.SerializeToString())
        self._events.flush()


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def _cut(file: Path, step: int) -> None:
    """Drops the rows after a step, and one that was cut off in the middle; writes the head of a new file."""
    rows: list[list[str]] = []
    if file.exists():
        lines = file.read_bytes().decode(errors="replace").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n") and "\0" not in line]
        rows = [row for row in csv.reader(whole) if len(row) == len(COLUMNS) and row[0].isdecimal()]
    text = io.StringIO()
    written = csv.writer(text)
    written.writerow(COLUMNS)
    written.writerows(row for row in rows if int(row[0]) <= step)
    write_atomic(file, text.getvalue().encode())
