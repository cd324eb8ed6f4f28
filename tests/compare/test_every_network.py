"""Every network as a user runs it: compared, killed, resumed, evaluated, measured."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resofire.compare import NETWORKS

ROOT = Path(__file__).parents[2]
STEPS = 6


def command(*arguments):
    return [sys.executable, "-m", "resofire.cli", *arguments]


def resofire(*arguments, cwd):
    done = subprocess.run(command(*arguments), cwd=cwd, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


@pytest.mark.deep
@pytest.mark.parametrize("name", NETWORKS)
def test_killed_resumed_evaluated_and_measured(name, tmp_path):
    size = () if NETWORKS[name].fixed else ("--parameters", "2000")
    arguments = ("compare", "digits-small", name, "--steps", str(STEPS), *size, "--out", "out")
    run = tmp_path / "out" / f"{name}-0"
    process = subprocess.Popen(command(*arguments), cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL)
    end = time.monotonic() + 300
    while process.poll() is None and not (run / "model.safetensors").exists() and time.monotonic() < end:
        time.sleep(0.02)
    # The network is saved at the first validation, after one of six steps.
    process.send_signal(signal.SIGINT)
    stopped = process.wait(timeout=120)
    assert stopped in (0, 130)
    assert "| no nonlinear |" in resofire(*arguments, cwd=tmp_path)
    if stopped == 130:
        assert json.loads((run / "run.json").read_text())["resumed"]
    result = json.loads((run / "result.json").read_text())
    correct, count = result["correct"]["test"]
    assert f"{correct:,} of {count:,}" in resofire("evaluate", str(run), cwd=tmp_path)
    measured = json.loads(resofire("measure", str(run), "--against", "s4", "--json", cwd=tmp_path))
    row = json.loads((tmp_path / "out" / "compare.json").read_text())["rows"][0]
    assert measured["energy"]["mJ_per_inference"] == pytest.approx(row["energy"]["audited"], rel=1e-6)
    assert measured["rates"]["layers"] == pytest.approx(result["fire_rates"])
