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
    begun = []
    # The first call is of the valid files.
    def first(root, read=read, begun=begun):
        return read(root) if begun else begun.append(1)
    report = Report()
    target = worker.Target(kind, lambda: {"data/a": b"abc"}, {"*": any_bytes}, first, (Ours,))
    target.scenario().run(0, Budget(cases=3), report)
    kinds = {failure.kind for failure in report.failures} or {outcome for _, outcome in report.outcomes}
    assert kinds == {kind.strip()}, (kind, report.text())
    assert report.cases[f"files/{kind}"] == 3, report.text()
"""


@pytest.mark.deep
def test_planted_failures_are_reported():
    done = subprocess.run([sys.executable, "-c", PLANTED], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
