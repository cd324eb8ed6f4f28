"""What a run leaves on disk while it goes: checkpoints, the best network so far; and stopping when asked to."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..models.storage import save
from . import checkpoints
from .diverged import Diverged
from .logs import Logs
from .score import Score

if TYPE_CHECKING:
    from .module import Figures, Trainee


class Interrupted(BaseException):
    """The user stopped the run. Like KeyboardInterrupt no Exception, which code on the way might make do with."""


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Keeping:
    """Writes for the first process; the others only stop with it."""

    def __init__(self, run: Path, logs: Logs | None, best: dict[str, Any] | None, minutes: float) -> None:
        self.run, self.logs, self.best, self.minutes = run, logs, best, minutes
        self._last = time.monotonic()

    def started(self, run: "Trainee") -> None:
        # Not before: Lightning installs handlers of its own when a fit begins.
        if threading.current_thread() is threading.main_thread():
            _listen(run)

    def trained(self, run: "Trainee", figures: "Figures", stop: bool) -> None:
        # At the end of a stretch it is written after the validation, which then need not be done again.
        at_end = run.step == run.plan.stop(run.step - 1)
        due = time.monotonic() - self._last >= 60 * self.minutes
        if (due or stop) and not at_end:
            self._write(run)
        if stop and not at_end:
            raise Interrupted

    def validated(self, run: "Trainee", score: Score, stop: bool) -> None:
        _require_finite(run)
        if self.best is None or (score.accuracy, -score.mean_loss) > (self.best["accuracy"], -self.best["loss"]):
            self.best = {"step": run.step, **score.as_dict()}
            if self.logs is not None:
                save(run.chosen, self.run)
        self._write(run)
        if stop and run.step < run.plan.steps:
            raise Interrupted

    def _write(self, run: "Trainee") -> None:
        if self.logs is not None:
            _require_finite(run)
            state = {
                "step": run.step,
                "model": run.model.state_dict(),
                "average": None if run.average is None else run.average.model.state_dict(),
                "optimiser": run.optimiser_state(),
                "best": self.best,
                "logs": self.logs.state(),
            }
            checkpoints.write(self.run, state)
        self._last = time.monotonic()


def _require_finite(run: "Trainee") -> None:
    """A step may leave what the next would trip over; a checkpoint with that in it could not go on."""
    for name, value in (*run.model.state_dict().items(), *run.chosen.state_dict().items()):
        if not bool(value.isfinite().all()):
            raise Diverged(run.step, f"the weights {name} are not finite")
    held = run.optimizers(use_pl_optimizer=False).state  # type: ignore[union-attr]
    for name, parameter in run.model.named_parameters():
        if not all(bool(value.isfinite().all()) for value in held.get(parameter, {}).values()):
            raise Diverged(run.step, f"the optimiser's state of {name} is not finite")


def _listen(run: "Trainee") -> None:
    """From now on, Ctrl-C or SIGTERM asks the run to stop after its step; a second one stops it at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        if run.asked_to_stop:
            raise Interrupted
        run.asked_to_stop = True

    for number in SIGNALS:
        signal.signal(number, ask)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside it, Ctrl-C and SIGTERM raise `Interrupted`, but for the time in which a run in training hears them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
