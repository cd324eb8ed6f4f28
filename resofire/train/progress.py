"""The progress display on stderr: a live bar (rich) in a terminal, elsewhere a plain line once a minute."""

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from .callbacks import Callback, Figures
from .evaluation import Score

if TYPE_CHECKING:
    from .loop import Run

# Seconds between plain lines, and between updates of the live line.
PLAIN_INTERVAL = 60.0
LIVE_INTERVAL = 0.1
# Least width of the terminal, in columns, for a short bar and for a long one.
SHORT_BAR_WIDTH, LONG_BAR_WIDTH = 60, 110
# Validations that the trend shows with a short bar, and with a long one.
TREND_LENGTHS = (8, 16)
LEVELS = "▁▂▃▄▅▆▇█"
# Weight of the latest step in the running means of loss, accuracy and fire rate.
SMOOTHING = 0.05


_SILENT: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def silent() -> Iterator[None]:
    """Context manager: runs inside it show no progress."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


def is_silent() -> bool:
    """Whether runs show no progress."""
    return _SILENT.get()


class Display(Callback):
    """Shows running means of the training figures; validation results stay as lines of their own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._means, self._weight = [0.0, 0.0, 0.0], 0.0
        self._tokens, self._begun, self._first = 0, 0.0, 0
        self._scores: list[float] = []
        self._shown = time.monotonic()

    def on_start(self, run: "Run") -> None:
        self._shown = time.monotonic()
        length = f"from step {run.step} of {run.plan.steps}" if run.step else f"{run.plan.steps} steps"
        self._line(Text.assemble((self.name, "bold"), f": {length}, in {self.folder}"))
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._line(Text(f"watch it with: resofire watch {shlex.quote(str(self.folder))}", style="dim"))
            # In a narrow window the figures need the room of the bar.
            bar = BarColumn(bar_width=20 if self._roomy else 8)
            bars: list[ProgressColumn] = [bar] if self._console.width >= SHORT_BAR_WIDTH else []
            if not self._console.options.ascii_only:
                bars.append(TextColumn("{task.fields[trend]}", markup=False, style="cyan"))
            # Refreshed by hand: a thread that redraws would take turns with the training's own.
            self._bar = Progress(
                TextColumn("{task.percentage:3.0f}%"), *bars,
                TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
                console=self._console, auto_refresh=False, transient=True, redirect_stdout=False,
                redirect_stderr=False, expand=True,
            )  # fmt: skip
            self._bar.add_task("", total=run.plan.steps, completed=run.step, trend="")
            self._bar.start()

    def on_step(self, run: "Run", figures: Figures) -> None:
        self._weight = (1 - SMOOTHING) * self._weight + SMOOTHING
        latest = (figures.loss, figures.accuracy, figures.fire_rate)
        pairs = zip(self._means, latest, strict=True)
        self._means = [(1 - SMOOTHING) * mean + SMOOTHING * value for mean, value in pairs]
        now = time.monotonic()
        if not self._begun:
            # The first step is not timed: kernels are compiled in it.
            self._begun, self._first = now, run.step
        else:
            self._tokens += figures.tokens
        live = self._bar is not None
        # The last step before a validation is always shown: its line stays for a while.
        if now - self._shown >= (LIVE_INTERVAL if live else PLAIN_INTERVAL) or (live and run.plan.validates(run.step)):
            self._shown = now
            if self._bar is None:
                self._line(f"{self._where(run)}: {self._figures(run, now)}")
            else:
                self._bar.update(self._bar.task_ids[0], completed=run.step, description=self._figures(run, now))
                self._bar.refresh()

    def on_validation(self, run: "Run", score: Score) -> None:
        self._shown = time.monotonic()
        split = "train" if run.config.select == "last" else run.config.select
        best = not self._scores or score.accuracy > max(self._scores)
        self._scores.append(score.accuracy)
        figure = (f"{100 * score.accuracy:.2f} %", "bold green" if best else "bold")
        figures = self._figures(run, self._shown)
        line = Text.assemble(f"{self._where(run)}: {split} ", figure, f", training {figures}")
        if self._bar is not None:
            # Figures that do not fit the window are dropped, the last ones first; the live line shows them.
            while figures and line.cell_len > self._console.width:
                figures = figures.rpartition(", ")[0]
                parts = (f", {figures}" if figures else "",)
                line = Text.assemble(f"epoch {run.step / run.plan.epoch:.3g}: {split} ", figure, *parts)
            trend = sparkline(self._scores[-TREND_LENGTHS[self._roomy] :])
            self._bar.update(self._bar.task_ids[0], trend=f"{split} {trend}" if self._roomy else trend)
        self._line(line)

    @property
    def _roomy(self) -> bool:
        return self._console.width >= LONG_BAR_WIDTH

    def close(self) -> None:
        """Remove the live line."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _where(self, run: "Run") -> str:
        width = len(str(run.plan.steps))
        return f"{self.name} step {run.step:{width}d}/{run.plan.steps}, epoch {run.step / run.plan.epoch:.3g}"

    def _figures(self, run: "Run", now: float) -> str:
        """Loss, accuracy and fire rate; from the second step on also speed and time left."""
        loss, accuracy, fire = (mean / max(self._weight, 1e-9) for mean in self._means)
        parts = [f"loss {loss:.3f}", f"accuracy {100 * accuracy:.1f} %", f"fire rate {100 * fire:.1f} %"]
        if run.step > self._first:
            seconds = max(1e-9, now - self._begun)
            left = seconds * (run.plan.steps - run.step) / (run.step - self._first)
            parts += [f"{_time(left)} left", f"{_count(self._tokens / seconds)} tokens/s"]
        return ", ".join(parts)

    def _line(self, text: str | Text) -> None:
        # Above the live line if there is one. In a terminal long lines wrap; elsewhere they stay whole.
        self._console.print(Text(text) if isinstance(text, str) else text, soft_wrap=True)


def sparkline(values: Sequence[float]) -> str:
    """Values as a line of block characters, scaled from the lowest value to the highest."""
    low, high = min(values), max(values)
    levels = (round((value - low) / (high - low) * (len(LEVELS) - 1)) if high > low else 0 for value in values)
    return "".join(LEVELS[level] for level in levels)


def _count(number: float) -> str:
    return f"{number / 1e6:.1f}M" if number >= 1e6 else f"{number / 1e3:.0f}k" if number >= 1e3 else f"{number:.0f}"


def _time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
