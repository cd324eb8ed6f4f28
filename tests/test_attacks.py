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
