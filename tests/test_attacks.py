"""A small share of the attacks, for `make test-all`; `python -m tests.hostile --minutes M` runs more."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.deep
def test_attacks():
    # A process of its own, without threads, because the attacks fork.
    words = [sys.executable, "-m", "tests.hostile", "--minutes", "2"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


PLANTED = """
import ctypes, os, pathlib
from tests.hostile import worker
from tests.hostile.mutations import any_bytes
from tests.hostile.report import Budget, Report

class Ours(Exception):
    pass

def refuse(text):
    raise Ours(text)

def hang():
    while True:
        pass

worker.PROCESSOR = 1
READERS = {
    "loaded": lambda root: None,
    "refused": lambda root: refuse("one sentence"),
    "crash": lambda root: ctypes.string_at(0),
    "hang": lambda root: hang(),
    "memory": lambda root: bytearray(1 << 30).count(1),
    "traceback": lambda root: 1 / 0,
    "traceback ": lambda root: refuse("two\\nlines"),
    "leftover": lambda root: (root / "tmp/left").touch(),
}
for kind, read in READERS.items():
    # Valid files are read before every child and in it, within its limits.
    def mutated(root, read=read):
        return None if (root / "data/a").read_bytes() == b"abc" else read(root)
    report = Report()
    target = worker.Target(kind, lambda: {"data/a": b"abc"}, {"*": any_bytes}, mutated, (Ours,))
    target.scenario().run(0, Budget(cases=3), report)
    kinds = {failure.kind for failure in report.failures} or {outcome for _, outcome in report.outcomes}
    assert kinds == {kind.strip()}, (kind, report.text())
    assert report.cases[f"files/{kind}"] == 3, report.text()
"""


@pytest.mark.deep
def test_planted_failures_are_reported():
    done = subprocess.run([sys.executable, "-c", PLANTED], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


PLANTED_COMMANDS = """
import os, pathlib, signal, sys, tempfile, time
from resofire import cli
from tests.hostile import forked

forked.PATIENCE = 1.0

def leave(name):
    pathlib.Path(os.environ["TMPDIR"], name).touch()
    return 0

COMMANDS = {
    "": lambda: 0,
    " ": lambda: cli._fail("one sentence", 2),
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "crash ": lambda: 77,
    "hang": lambda: time.sleep(60),
    "traceback": lambda: 1 / 0,
    "traceback ": lambda: 2,
    "traceback  ": lambda: cli._fail("Traceback (most recent call last)", 2),
    "leftover": lambda: leave("left"),
}
with tempfile.TemporaryDirectory() as folder:
    for kind, command in COMMANDS.items():
        cli.main = lambda words, command=command: command()
        place = forked.Place(pathlib.Path(folder, "case"))
        wrong = forked.fault(place.run([]), place)
        assert (wrong[0] if wrong else "") == kind.strip(), (kind, wrong)
        place.clear()
    # A signal that was sent is no crash.
    cli.main = lambda words: time.sleep(60)
    place = forked.Place(pathlib.Path(folder, "case"))
    ended = place.run([], send=signal.SIGTERM, after=0.1)
    assert (ended.code, ended.sent, forked.fault(ended, place)) == (-signal.SIGTERM, signal.SIGTERM, None), ended
"""


@pytest.mark.deep
def test_planted_failures_of_commands_are_reported():
    words = [sys.executable, "-c", PLANTED_COMMANDS]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
