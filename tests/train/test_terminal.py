"""What a run looks like in a real terminal: a pseudo-terminal with a size, in which windows may be narrow or change."""

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
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from resofire.recipes import digits
from resofire.train.module import Figures
from resofire.train.progress import Progress
from resofire.train.score import Score
from resofire.train.stream import Plan

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
        while not re.search(pattern, self.text):
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


def drawn(text):
    """What is written between one beginning of a line and the next."""
    pieces = [piece for line in text.replace("\r\n", "\n").split("\n") for piece in line.split("\r")]
    return [piece.replace("\x1b[K", "") for piece in pieces if piece.strip("\x1b[K")]


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """A function that shows some steps of a long run in a window and gives what was written there."""

    def show(columns, steps=4, first=0, then=None, kind="xterm", encoding="utf-8"):
        terminal = Terminal(columns)
        monkeypatch.setenv("TERM", kind)
        monkeypatch.setattr("resofire.train.progress.LIVELY", 0.0)
        with os.fdopen(os.dup(terminal.inside), "w", encoding=encoding) as stream, monkeypatch.context() as patched:
            patched.setattr("sys.stderr", stream)
            plan = Plan(epoch=1000, steps=100_000, between=1000)
            run = SimpleNamespace(step=first, plan=plan)
            bar = Progress(replace(digits(), name="a-recipe"), plan, first, tmp_path / "run")
            bar.started(run)
            for step in range(steps):
                run.step += 1
                time.sleep(0.002)
                bar.trained(run, Figures(2.3456, 0.5, 0.125, 100, 1e-3, 1.0), False)
                if then is not None and step == steps // 2:
                    terminal.resize(then)
            bar.validated(run, Score(1234, 2000, 100.0), False)
            bar.close()
        terminal.close()
        return terminal.text

    return show


@pytest.mark.parametrize("columns", [200, 132, 100, 80, 60, 40, 30, 20, 12, 5, 2])
def test_every_line_fits_the_window(shown, columns):
    text = shown(columns)
    head, *lines = drawn(text)
    assert head.startswith("a-recipe: 100000 steps, in ")
    assert max(map(len, lines)) < columns
    # One line is drawn over and over: only the first one and that of the validation are ended.
    assert text.count("\n") == 2
    assert text.endswith("\r\x1b[K")


def test_the_most_important_comes_first(shown):
    def last_bar(columns):
        return drawn(shown(columns))[-2]

    assert re.fullmatch(
        r"a-recipe   0% loss 2\.346, accuracy 50\.0 %, fire rate 12\.5 %, \S+ tokens/s, [\d:]+ left \| {40}\|",
        last_bar(200),
    )
    assert re.fullmatch(r"  0% loss 2\.346, acc 50\.0%, fire 12\.5%, \S+ tok/s, [\d:]+ left( \| +\|)?", last_bar(80))
    assert re.fullmatch(r"0% loss 2\.346, acc 50\.0%, [\d:]+ left", last_bar(40))
    assert last_bar(20) == "0% loss 2.346"


def test_validations_stay(shown):
    assert "a-recipe step      4/100000, epoch 0.004: validation 61.70 %, training loss 2.346, accuracy" in shown(200)
    assert drawn(shown(40))[-1].startswith("validation 61.70 %")
    assert drawn(shown(20))[-1] == "validation 61.70 %"


def test_a_window_that_shrinks(shown):
    _, *lines = drawn(shown(120, steps=9, then=30))
    assert max(map(len, lines[:5])) > 30
    assert max(map(len, lines[5:])) < 30


def test_time_left_after_going_on_counts_the_steps_since(shown):
    """Of the 10 last steps some are left: it is no matter of hours."""
    left = re.findall(r"([\d:]+) left", shown(200, steps=6, first=99_990))
    assert left
    assert {*left} <= {"0:00", "0:01"}


def test_a_terminal_of_plain_letters(shown):
    assert re.search(r"99% .* \|#{30,39} +\|", shown(200, first=99_000, encoding="latin-1"))
    assert re.search(r"99% .* \|█{30,39} +\|", shown(200, first=99_000))


def test_a_window_without_size_and_a_dumb_terminal(shown):
    assert max(map(len, drawn(shown(0))[1:])) < 80
    plain = shown(20, kind="dumb")
    assert "\x1b" not in plain
    assert "validation 61.70 %, training loss 2.346, accuracy 50.0 %, fire rate 12.5 %, " in plain


def test_ctrl_c_in_a_terminal(tmp_path):
    """The whole command: the live line, Ctrl-C, the sentence; nothing on stdout."""
    folder, terminal = tmp_path / "run", Terminal(80)
    with subprocess.Popen(
        [*COMMAND, "--epochs", "1000", "--out", str(folder)], stdin=terminal.inside, stdout=subprocess.PIPE,
        stderr=terminal.inside, text=True, env={**os.environ, "TERM": "xterm"}, start_new_session=True,
        cwd=Path(__file__).parents[2],
    ) as process:  # fmt: skip
        terminal.wait_for(r"% loss .*\n.*% loss")
        terminal.press(b"\x03")
        out, _ = process.communicate(timeout=60)
    terminal.close()
    assert process.returncode == 130
    assert out == ""
    *_, sentence = drawn(terminal.text)
    assert re.match(r"resofire: stopped in step \d+ of 6000; the last good checkpoint is ", sentence)
    assert sentence.endswith(f"; go on with: resofire train --resume {folder}")
    assert "Traceback" not in terminal.text
    bars = [line for line in drawn(terminal.text) if re.match(r" *\d+% loss", line)]
    assert bars
    # With the ^C that a terminal shows behind it.
    assert max(map(len, bars)) < 80
    assert "^C" in terminal.text
