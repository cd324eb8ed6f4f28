"""Callbacks: hooks into a run. Checkpoints, logs and the progress display are callbacks."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..models.storage import save
from . import checkpoints
from .diverged import require_finite
from .evaluation import Score
from .processes import Interrupted

if TYPE_CHECKING:
    from .logs import Logs
    from .loop import Run


@dataclass(frozen=True)
class Figures:
    """A training step, over all processes.

    Attributes:
        loss: Mean loss of the batch.
        accuracy: Share of correct answers.
        fire_rate: Mean over the layers; 0 for a network without neurons.
        tokens: Time steps in the batch.
        lr: Learning rate of the weights.
        gradient: Norm of the gradient before clipping.
    """

    loss: float
    accuracy: float
    fire_rate: float
    tokens: int
    lr: float
    gradient: float


class Callback:
    """Base class of callbacks. All methods are optional; any object that has one of them is a callback.

    Methods are called in every process of a run (`run.rank` tells which), before the checkpoint of the step is
    written. A resumed run repeats the steps after its checkpoint, and with them the calls.

    Example:
        >>> class Printer(train.Callback):
        ...     def on_validation(self, run, score):
        ...         print(run.step, score.accuracy)
    """

    def on_start(self, run: "Run") -> None:
        """Called before the first step, or the first one after resuming."""

    def on_step(self, run: "Run", figures: Figures) -> None:
        """Called after each step; `run.step` counts it."""

    def on_validation(self, run: "Run", score: Score) -> None:
        """Called after each validation, with the score of `run.chosen`."""

    def on_end(self, run: "Run", result: dict[str, Any] | None) -> None:
        """Called after the final evaluation; `result` is that of `train.evaluate`, None in processes of rank > 0."""


def notify(callbacks: Iterable[object], event: str, *arguments: Any) -> None:
    """Call a method of every callback that has it, in their order."""
    for callback in callbacks:
        method = getattr(callback, event, None)
        if method is not None:
            method(*arguments)


class Saver(Callback):
    """Writes checkpoints and the best network so far, and ends the run when a stop was requested.

    Args:
        logs: The logs, whose state a checkpoint carries; None in processes that do not write.
        minutes: Time between checkpoints.
    """

    def __init__(self, logs: "Logs | None", minutes: float) -> None:
        self.logs, self.minutes = logs, minutes
        self._last = time.monotonic()

    def on_step(self, run: "Run", figures: Figures) -> None:
        # Before a validation no checkpoint is written: `on_validation` writes it with the score.
        if run.plan.validates(run.step):
            return
        if run.stopping or time.monotonic() - self._last >= 60 * self.minutes:
            self.write(run)
        if run.stopping:
            raise Interrupted

    def on_validation(self, run: "Run", score: Score) -> None:
        require_finite(run.step, (run.model, run.chosen), run.optimizer)
        best = run.best
        if (
            best is None
            or run.config.select == "last"
            or (score.accuracy, -score.mean_loss) > (best["accuracy"], -best["loss"])
        ):
            run.best = {"step": run.step, **score.as_dict()}
            if self.logs is not None:
                save(run.chosen, run.folder)  # type: ignore[arg-type] # checked before the first step
        self.write(run)
        if run.stopping and run.step < run.plan.steps:
            raise Interrupted

    def write(self, run: "Run") -> None:
        """Write a checkpoint, in the first process."""
        if self.logs is not None:
            require_finite(run.step, (run.model, run.chosen), run.optimizer)
            state = {
                "step": run.step,
                "model": run.model.state_dict(),
                "average": None if run.average is None else run.average.model.state_dict(),
                "optimiser": run.optimizer.state_dict(),
                "best": run.best,
                "logs": self.logs.state(),
            }
            checkpoints.write(run.folder, state)
        self._last = time.monotonic()
