"""Runs that an earlier release began are resumed to the weights that it would have reached, and its networks load."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kinds import DEVICES, KINDS, config, digest, machine, task
from safetensors.torch import load_file

from resofire import models, train
from resofire.train import checkpoints

FIXTURES = Path(__file__).parent / "fixtures"
# What another order of sums makes of seven steps, and what another processor does.
SAME, CLOSE = {"rtol": 0.0, "atol": 1e-6}, {"rtol": 0.05, "atol": 0.02}


def one_thread(*arguments):
    """Run `kinds.py` as the fixtures were recorded: the number of threads decides the last bits of some sums."""
    package = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name("kinds.py")), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONPATH": package},
        capture_output=True, text=True,
    )  # fmt: skip


def test_interrupted_runs_are_resumed_to_the_recorded_bits(subtests, tmp_path):
    for kind in KINDS:
        shutil.copytree(FIXTURES / kind / "interrupted", tmp_path / kind)
    # Those of one process one after the other in the same program.
    alone = [each for kind in KINDS if kind not in DEVICES for each in (kind, tmp_path / kind)]
    for pairs in (alone, *((kind, tmp_path / kind) for kind in DEVICES)):
        resumed = one_thread("resume", *pairs)
        assert resumed.returncode == 0, resumed.stderr
    for kind in KINDS:
        with subtests.test(kind):
            assert_recorded(kind, tmp_path / kind)


def assert_recorded(kind, folder):
    """To the bit on the processor of the fixtures, to rounding as 0.1.0 did, and closely on any other processor."""
    fixture = FIXTURES / kind
    expected = json.loads((fixture / "expected.json").read_text())
    result = json.loads((folder / "result.json").read_text())
    last, recorded = checkpoints.newest(folder).state["model"], load_file(fixture / "last.safetensors")
    assert last.keys() == recorded.keys()
    if expected["machine"] == machine():
        assert digest(folder) == expected["sha256"]
        assert result["correct"] == expected["correct"]
        assert result["best"] == expected["best"]
    close = SAME if expected["machine"] == machine() else CLOSE
    for name, value in last.items():
        torch.testing.assert_close(value, recorded[name], **close)


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_run_loads_and_evaluates_as_recorded(kind):
    folder = FIXTURES / kind / "finished"
    expected = json.loads((folder.parent / "expected.json").read_text())
    described = train.RunConfig.from_json(train.read(folder)["config"])
    assert described == config(kind)
    result = train.evaluate(models.load(folder), task(kind), described.batch)
    if expected["machine"] == machine():
        assert result["correct"] == expected["correct"]
    for split, (correct, count) in expected["correct"].items():
        assert result["correct"][split][1] == count
        assert abs(result["correct"][split][0] - correct) <= 0.1 * count


@pytest.mark.parametrize("name", models.shipped())
def test_every_shipped_run_is_read(name):
    folder = models.find(name)
    assert train.RunConfig.from_json(train.read(folder)["config"]).model == models.load(folder).config
    assert train.recorded(folder) is not None
