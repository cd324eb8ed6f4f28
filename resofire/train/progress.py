"""What a person sees of a run: one live line in a terminal, or a line now and then in a file or pipe."""

import sys
import time
from typing import TYPE_CHECKING

from tqdm import tqdm

from .config import RunConfig
from .score import Score
from .stream import Plan

if TYPE_CHECKING:
    from .module import Figures, Trainee

# Seconds between lines that are not overwritten.
QUIET = 60.0
# How much of the shown loss and accuracy is the latest step.
FRESH = 0.05


class Progress:
    """Loss and accuracy are running means; validation results stay as lines of their own."""

    def __init__(self, config: RunConfig, plan: Plan, step: int) -> None:
        self.config, self.plan, self._first = config, plan, step
        self._live = sys.stderr.isatty()
        self._loss = self._accuracy = self._fire = 0.0
        self._weight = 0.0
        self._tokens, self._begun = 0, time.monotonic()
        self._shown = self._begun
        self._bar: tqdm | None = None

    def started(self, run: "Trainee") -> None:
        self._begun = self._shown = time.monotonic()
        if self._live:
            # Words before the bar: a narrow window cuts off the end of the line.
            form = "{desc} {percentage:3.0f}% {postfix} |{bar}|"
            self._bar = tqdm(
                total=self.plan.steps, initial=run.step, desc=self.config.name, bar_format=form, dynamic_ncols=True,
                leave=False, mininterval=0.1,
            )  # fmt: skip

    def trained(self, run: "Trainee", figures: "Figures", stop: bool) -> None:
        self._weight = (1 - FRESH) * self._weight + FRESH
        for name, value in (("_loss", figures.loss), ("_accuracy", figures.accuracy), ("_fire", figures.fire_rate)):
            setattr(self, name, getattr(self, name) * (1 - FRESH) + value * FRESH)
        self._tokens += figures.tokens
        now = time.monotonic()
        if self._bar is not None:
            self._bar.set_postfix_str(self._said(run.step, now), refresh=False)
            self._bar.update(1)
        elif now - self._shown >= QUIET:
            self._line(f"{self._where(run.step)}  {self._said(run.step, now)}")

    def validated(self, run: "Trainee", score: Score, stop: bool) -> None:
        label = self.config.select
        told = f"{label} {100 * score.accuracy:.2f} %"
        self._line(f"{self._where(run.step)}  {told}  {self._said(run.step, time.monotonic())}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _line(self, text: str) -> None:
        self._shown = time.monotonic()
        if self._bar is not None:
            tqdm.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)

    def _where(self, step: int) -> str:
        width = len(str(self.plan.steps))
        return f"{self.config.name}: step {step:{width}d}/{self.plan.steps}, epoch {step / self.plan.epoch:.3g}"

    def _said(self, step: int, now: float) -> str:
        loss, accuracy, fire = (value / max(self._weight, 1e-9) for value in (self._loss, self._accuracy, self._fire))
        speed = self._tokens / max(1e-9, now - self._begun)
        left = (now - self._begun) * (self.plan.steps - step) / max(1, step - self._first)
        return (
            f"loss {loss:.3f}, accuracy {100 * accuracy:.1f} %, fire rate {100 * fire:.1f} %, "
            f"{_counted(speed)} tokens/s, {_time(left)} left"
        )


def _counted(number: float) -> str:
    return f"{number / 1e6:.1f}M" if number >= 1e6 else f"{number / 1e3:.0f}k" if number >= 1e3 else f"{number:.0f}"


def _time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
