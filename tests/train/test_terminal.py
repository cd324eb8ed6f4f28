"""The progress display in a real terminal: a pseudo-terminal with a size, perhaps a narrow one."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from resofire.train.batches import Plan
from resofire.train.callbacks import Figures
from resofire.train.evaluation import Score
from resofire.train.progress import LEVELS, Display, sparkline

# Ctrl-C goes to the programs of the session whose terminal it is.
OWNING = """
import fcntl, runpy, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
runpy.run_module("resofire.cli", run_name="__main__")
"""
COMMAND = [
    sys.executable, "-c", OWNING, "train", "digits", "--model.features", "8", "--model.depth", "1", "--batch",
    "200", "--checkpoint-minutes", "0",
]  # fmt: skip


class Terminal:
    """Two ends of a pseudo-terminal: programs write to `inside`, and what they wrote is in `text`."""

    def __init__(self, columns):
        self.outside, self.inside = pty.openpty()
        self.text = ""
        self.resize(columns)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, columns):
        fcntl.ioctl(self.inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def press(self, keys):
        os.write(self.outside, keys)

    def wait_for(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while not re.search(pattern, plain(self.text)):
            assert time.monotonic() < end, f"no {pattern!r} in {self.text!r}"
            time.sleep(0.02)

    def close(self):
        os.close(self.inside)
        self._reader.join(10)
        os.close(self.outside)

    def _read(self):
        while True:
            try:
                got = os.read(self.outside, 65536)
            except OSError:  # the other end is closed
                return
            self.text += got.decode()


def plain(text):
    """Without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """A function that shows some steps of a long run in a window and returns what was written there."""

    def show(columns, first=0, kind="xterm"):
        terminal = Terminal(columns)
        monkeypatch.setenv("TERM", kind)
        # rich asks the process's own terminal, which is not this one.
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr("resofire.train.progress.LIVE_INTERVAL", 0.0)
        with os.fdopen(os.dup(terminal.inside), "w", encoding="utf-8") as stream, monkeypatch.context() as patched:
            patched.setattr("sys.stderr", stream)
            run = SimpleNamespace(
                step=first, plan=Plan(epoch=1000, steps=100_000, between=1000),
                config=SimpleNamespace(select="validation"),
            )  # fmt: skip
            display = Display("a-recipe", tmp_path / "run")
            display.on_start(run)
            for _ in range(4):
                run.step += 1
                time.sleep(0.002)
                display.on_step(run, Figures(2.3456, 0.5, 0.125, 100, 1e-3, 1.0))
            display.on_validation(run, Score(1234, 2000, 100.0))
            run.step += 1
            display.on_step(run, Figures(2.3456, 0.5, 0.125, 100, 1e-3, 1.0))
            display.on_validation(run, Score(1300, 2000, 90.0))
            display._bar and display._bar.refresh()
            display.close()
        terminal.close()
        return terminal.text

    return show


@pytest.mark.parametrize("columns", [200, 80, 40, 20])
def test_the_live_line_fits_the_window_and_goes_away(shown, columns):
    text = shown(columns)
    live = [plain(piece) for piece in re.split(r"[\r\n]", text) if re.match(r" *0%", plain(piece))]
    assert len(live) >= 4
    assert max(map(len, live)) <= columns
    assert columns < 80 or any("loss 2.346, accuracy 50.0 %" in line for line in live)
    # The cursor comes back.
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_validations_stay_as_plain_lines(shown):
    lines = plain(shown(200)).replace("\r", "\n").split("\n")
    assert any(line.startswith("a-recipe: 100000 steps, in ") for line in lines)
    head = "a-recipe step      4/100000, epoch 0.004: validation 61.70 %, training loss 2.346, accuracy 50.0 %"
    assert any(line.startswith(head) for line in lines)


def test_a_terminal_shows_colours_the_trend_and_where_to_watch(shown, monkeypatch):
    monkeypatch.setenv("COLORTERM", "truecolor")
    text = shown(200)
    assert "\x1b[1;32m61.70 %" in text
    assert f"validation {LEVELS[0]}{LEVELS[-1]}" in plain(text)
    assert re.search(r"watch it with: resofire watch \S*run", plain(text).replace("\r\n", ""))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;32m" not in shown(200)


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (80, "epoch 0.004: validation 61.70 %, loss 2.346, accuracy 50.0 %, fire rate 12.5 %"),
        (40, "epoch 0.004: validation 61.70 %"),
    ],
)
def test_a_narrow_terminal_shows_the_trend_and_what_fits(shown, columns, line):
    lines = plain(shown(columns)).replace("\r", "\n").split("\n")
    assert line in [each.rstrip() for each in lines]
    live = [each for each in lines if re.match(r" *0%", each)]
    assert f" {LEVELS[0]}{LEVELS[-1]} loss 2.346" in live[-1]
    assert max(map(len, live)) <= columns


def test_a_sparkline_goes_from_its_lowest_to_its_highest_value():
    assert sparkline([0.1, 0.2, 0.8, 0.46]) == "▁▂█▅"
    assert sparkline([0.5]) == "▁"
    assert sparkline([0.5, 0.5]) == "▁▁"


def test_time_left_after_resuming_counts_the_steps_since(shown):
    """Of the last ten steps some are left: it is not a matter of hours."""
    left = re.findall(r"([\d:]+) left", shown(200, first=99_990))
    assert left
    assert {*left} <= {"0:00", "0:01"}


def test_a_dumb_terminal_gets_plain_lines(shown):
    text = shown(80, kind="dumb")
    assert "\x1b" not in text
    assert "validation 61.70 %, training loss 2.346, accuracy 50.0 %, fire rate 12.5 %, " in text


def test_ctrl_c_in_a_terminal(tmp_path):
    """The whole command: the live line, Ctrl-C, the sentence; nothing on stdout."""
    folder, terminal = tmp_path / "run", Terminal(80)
    with subprocess.Popen(
        [*COMMAND, "--epochs", "1000", "--out", str(folder)], stdin=terminal.inside, stdout=subprocess.PIPE,
        stderr=terminal.inside, text=True, env={**os.environ, "TERM": "xterm"}, start_new_session=True,
        cwd=Path(__file__).parents[2],
    ) as process:  # fmt: skip
        try:
            terminal.wait_for(r"validation \d")
            terminal.press(b"\x03")
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    terminal.close()
    assert process.returncode == 130
    assert out == ""
    text = plain(terminal.text)
    assert re.search(r"resofire: stopped in step \d+ of 6000; the last good checkpoint is ", text)
    assert text.rstrip().endswith(f"; resume with: resofire train --resume {folder}")
    assert "Traceback" not in text
