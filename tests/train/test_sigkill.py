"""SIGKILL at random moments, resumed: identical bytes. `sigkill.py` does the same for any number of kills."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kinds import KINDS


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_killed_at_random_moments_ends_in_the_same_bytes(kind):
    script = str(Path(__file__).with_name("sigkill.py"))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, script, kind, "5", "1"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 of 5 kills" in done.stdout
