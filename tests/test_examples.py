"""The examples as a user runs them, from the command line: train, kill, resume, evaluate, measure, export."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHORT = ("--epochs", "1", "--checkpoint-minutes", "0")


def resofire(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(arguments), cwd=cwd, env=_environment(), capture_output=True, text=True)


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "resofire.cli", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


def train_killed_and_resumed(function: str, module: tuple[str, ...], folder: Path, cwd: Path) -> None:
    """Train in a process that is killed once it has a checkpoint, then resume it to its end."""
    arguments = ("train", function, "--out", str(folder), *SHORT)
    process = subprocess.Popen(
        _command(arguments), cwd=cwd, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    end = time.monotonic() + 300
    while process.poll() is None and not list((folder / "checkpoints").glob("step-*")) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate()
    assert list((folder / "checkpoints").glob("step-*")), output.decode()
    if not (folder / "result.json").exists():
        done = resofire("train", "--resume", str(folder), *module, cwd=cwd)
        assert done.returncode == 0, done.stderr
        assert "  test  " in done.stdout


# Function, the module that commands must import, whether measure works, the numbers in which C can be written.
EXAMPLES = {
    "own neuron": ("examples.own_neuron:alif", "examples.own_neuron", True, "float"),
    "own block": ("examples.own_block:recurrent", "examples.own_block", False, None),
    "own data": ("examples.own_data:registered", "examples.own_data", True, "fixed"),
    "own arrays": ("examples.own_data:in_memory", None, True, "fixed"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.deep] if n == "own data" else []) for n in EXAMPLES]
)
def test_a_user_s_own_parts_go_through_every_command(name, tmp_path):
    function, module, measured, exported = EXAMPLES[name]
    imports = ("--import", module) if module else ()
    run = tmp_path / "run"
    train_killed_and_resumed(function, imports, run, tmp_path)
    recorded = json.loads((run / "result.json").read_text())
    again = resofire("evaluate", str(run), *imports, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    correct, count = recorded["correct"]["test"]
    assert f"{correct:,} of {count:,}" in again.stdout
    measure = resofire("measure", str(run), "--batches", "2", *imports, cwd=tmp_path)
    if measured:
        assert measure.returncode == 0, measure.stderr
    else:
        assert measure.returncode == 2
        assert "RecurrentBlock" in measure.stderr
        assert measure.stderr.count("\n") == 1
    out = tmp_path / "network"
    options = ("--to", "c", "--out", str(out), "--samples", "2", "--numbers", exported or "fixed")
    written = resofire("export", str(run), *options, *imports, cwd=tmp_path)
    if exported:
        assert written.returncode == 0, written.stderr
        assert (out / "network.h").exists()
    else:
        assert written.returncode == 2
        assert "cannot be folded" in written.stderr
        assert written.stderr.count("\n") == 1
        assert not out.exists()


def test_without_its_module_a_network_is_refused_with_the_import_it_needs(tmp_path):
    run = tmp_path / "run"
    done = resofire("train", "examples.own_neuron:alif", "--out", str(run), "--steps", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    refused = resofire("evaluate", str(run), cwd=tmp_path)
    assert refused.returncode == 2
    assert "--import examples.own_neuron" in refused.stderr


@pytest.mark.deep
def test_a_sensor_from_csv_to_c(tmp_path):
    code = (
        "import sys, pathlib; from examples.sensor import main; assert main(pathlib.Path(sys.argv[1]), 60, 80, 3) > 0.7"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "a worn machine, streamed: worn" in done.stdout
    assert '"healthy",' in (tmp_path / "machines-c" / "machines.h").read_text()


def test_the_loop_of_one_s_own_learns():
    done = subprocess.run(
        [sys.executable, "-c", "from examples.own_loop import main; assert main(epochs=2) > 0.3"],
        cwd=ROOT, env=_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_each_stage_of_a_curriculum_starts_from_the_one_before(tmp_path, monkeypatch):
    from examples import curriculum
    from resofire.recipes import RECIPES

    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "cache"))
    config = RECIPES["pathfinder-small"]()
    settings = {
        "model": replace(config.model, features=4, depth=1), "batch": 8, "steps": 2, "recalibrate": 1,
        "task_settings": {"counts": (32, 16, 16)}, "gradient_dtype": "float32",
    }  # fmt: skip
    stages = [curriculum.Stage(lengths, 2, curriculum.PATHS) for lengths in ((2, 3), (5, 6))]
    result = curriculum.main("pathfinder-small", tmp_path / "run", stages, **settings)
    assert result["correct"]["test"][1] == 16
    names = ("stage-1", "stage-2", "pathfinder-small")
    configs = [json.loads((tmp_path / "run" / name / "run.json").read_text())["config"] for name in names]
    assert [each.get("init") for each in configs] == [None, *(str(tmp_path / "run" / name) for name in names[:2])]
    assert [each["task_settings"].get("lengths") for each in configs] == [[2, 3], [5, 6], None]
    assert curriculum.main("pathfinder-small", tmp_path / "run", stages, **settings) == result
