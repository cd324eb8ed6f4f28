"""What a person sees of a run: one live line in a terminal, or a line now and then in a file or pipe."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .config import RunConfig
from .score import Score
from .stream import Plan

if TYPE_CHECKING:
    from .module import Figures, Trainee

# Seconds between lines that are not overwritten, and between those that are.
QUIET = 60.0
LIVELY = 0.1
# How much of the shown loss and accuracy is the latest step.
FRESH = 0.05
# A bar is drawn where it has room for this many cells, and with no more than that.
BAR = (8, 40)
ERASE = "\r\x1b[K"


class Progress:
    """Loss and accuracy are running means; validation results stay as lines of their own."""

    def __init__(self, config: RunConfig, plan: Plan, step: int, folder: Path) -> None:
        self.config, self.plan, self._first, self.folder = config, plan, step, folder
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._loss = self._accuracy = self._fire = 0.0
        self._weight = 0.0
        self._tokens, self._begun = 0, 0.0
        self._shown = time.monotonic()

    def started(self, run: "Trainee") -> None:
        self._shown = time.monotonic()
        length = f"from step {run.step} of {self.plan.steps}" if run.step else f"{self.plan.steps} steps"
        _write(f"{self.config.name}: {length}, in {self.folder}\n")

    def trained(self, run: "Trainee", figures: "Figures", stop: bool) -> None:
        self._weight = (1 - FRESH) * self._weight + FRESH
        for name, value in (("_loss", figures.loss), ("_accuracy", figures.accuracy), ("_fire", figures.fire_rate)):
            setattr(self, name, getattr(self, name) * (1 - FRESH) + value * FRESH)
        now = time.monotonic()
        if not self._begun:
            # The first step is not timed: kernels are compiled in it.
            self._begun, self._first = now, run.step
        else:
            self._tokens += figures.tokens
        # The last step before a validation is shown in any case: the line then stands for a while.
        due = now - self._shown >= (LIVELY if self._live else QUIET)
        if due or (self._live and run.step == run.plan.stop(run.step - 1)):
            self._shown = now
            if self._live:
                _write(ERASE + self._bar(run.step, now))
            else:
                _write(f"{self._where(run.step)}: {', '.join(self._said(run.step, now))}\n")

    def validated(self, run: "Trainee", score: Score, stop: bool) -> None:
        found = f"{self.config.select} {100 * score.accuracy:.2f} %"
        head, said = f"{self._where(run.step)}: {found}", self._said(run.step, time.monotonic())
        said[0] = f"training {said[0]}"
        self._shown = time.monotonic()
        if self._live:
            width = _width()
            head = head if len(head) <= width else found
            line = ", ".join([head, *_within(said, width - len(head) - 2)])
            _write(f"{ERASE}{line[:width]}\n")
        else:
            _write(f"{', '.join([head, *said])}\n")

    def close(self) -> None:
        if self._live:
            _write(ERASE)

    def _where(self, step: int) -> str:
        width = len(str(self.plan.steps))
        return f"{self.config.name} step {step:{width}d}/{self.plan.steps}, epoch {step / self.plan.epoch:.3g}"

    def _said(self, step: int, now: float, short: bool = False) -> list[str]:
        """Loss, accuracy, fire rate, speed and time left; the last two are known from the second step on."""
        loss, accuracy, fire = (value / max(self._weight, 1e-9) for value in (self._loss, self._accuracy, self._fire))
        words = ("acc", "fire", "tok/s", "%") if short else ("accuracy", "fire rate", "tokens/s", " %")
        shares = [f"{words[number]} {100 * share:.1f}{words[3]}" for number, share in enumerate((accuracy, fire))]
        said = [f"loss {loss:.3f}", *shares]
        if step > self._first:
            seconds = max(1e-9, now - self._begun)
            left = seconds * (self.plan.steps - step) / (step - self._first)
            said += [f"{_counted(self._tokens / seconds)} {words[2]}", f"{_time(left)} left"]
        return said

    def _bar(self, step: int, now: float) -> str:
        """As much as one line of the window holds: all in words, all in short words, or the most important of it."""
        # A terminal shows a ^C behind it, which is to fit as well.
        width, done = max(1, _width() - 2), f"{100 * step // self.plan.steps:3d}%"
        full, short = ", ".join(self._said(step, now)), self._said(step, now, short=True)
        for line in (f"{self.config.name} {done} {full}", f"{done} {full}", f"{done} {', '.join(short)}"):
            room = min(BAR[1], width - len(line) - 3)
            if room >= BAR[0]:
                cells = room * step // self.plan.steps
                cell = "█" if "utf" in (sys.stderr.encoding or "").lower() else "#"
                return f"{line} |{cell * cells}{' ' * (room - cells)}|"
        done = done.strip()
        return f"{done} {', '.join(_within(short, width - len(done) - 1))}"[:width]


def _within(said: list[str], room: int) -> list[str]:
    """Those that fit, in their order; loss, accuracy and time left go before fire rate and speed."""
    kept: set[int] = set()
    for number in (0, 1, 4, 2, 3):
        if number < len(said) and sum(len(said[each]) + 2 for each in {*kept, number}) - 2 <= room:
            kept.add(number)
    return [said[number] for number in sorted(kept)]


def _width() -> int:
    """The columns of the window that are used; it may change at any time."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    # A line that fills the last column would make some terminals begin a new one.
    return (columns or 80) - 1


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _counted(number: float) -> str:
    return f"{number / 1e6:.1f}M" if number >= 1e6 else f"{number / 1e3:.0f}k" if number >= 1e3 else f"{number:.0f}"


def _time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
