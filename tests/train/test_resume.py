"""A killed run is resumed to the same bits: dropout, averages, logs and all."""

import copy
import csv
import hashlib
import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from resofire import data, train
from resofire.data.task import Split
from resofire.recipes import digits_small
from resofire.train import checkpoints

BASE = digits_small()
CONFIG = replace(
    BASE, model=replace(BASE.model, features=16, dropout=0.1, rate_target=0.1), batch=100, epochs=3, ema=0.9,
    recalibrate=3, label_smoothing=0.1, validate_every=7, checkpoint_minutes=0.0,
)  # fmt: skip

# A process that runs until it kills itself, after some calls of a function or before them.
KILLED = """
import json, os, signal, sys
import torch
from resofire import data, train
folder, where, count, threads, config = json.loads(sys.argv[1])
torch.set_num_threads(threads)
from resofire.train import checkpoints, loop
owner, name = {"step": (loop, "_step"), "validation": (loop, "_validate"), "writing": (os, "fsync")}[where]
real, seen = getattr(owner, name), 0
def counted(*arguments):
    global seen
    seen += 1
    if seen == count:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
setattr(owner, name, counted)
task = data.load("digits")
if config is None:
    train.resume(folder, task)
else:
    train.train(train.RunConfig.from_json(config), task, folder)
"""


def killed(folder, where, count, config=None):
    arguments = [str(folder), where, count, torch.get_num_threads(), config and config.to_json()]
    done = subprocess.run([sys.executable, "-c", KILLED, json.dumps(arguments)], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr


def put(folder, state):
    """A checkpoint whose name tells the truth about whatever it holds."""
    stream = io.BytesIO()
    torch.save(state, stream)
    digest = hashlib.sha256(stream.getvalue()).hexdigest()[:16]
    (folder / checkpoints.FOLDER).mkdir()
    (folder / checkpoints.FOLDER / f"step-00000009-{digest}.pt").write_bytes(stream.getvalue())


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as stream:
        return [row[:-1] for row in csv.reader(stream)]  # without the time


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    train.train(CONFIG, data.load("digits"), folder)
    return folder


@pytest.fixture(scope="module")
def killed_in_step_10(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed") / "run"
    killed(folder, "step", 10, CONFIG)
    return folder


@pytest.fixture
def interrupted(killed_in_step_10, tmp_path):
    """A copy of a run that was killed in its tenth step."""
    return shutil.copytree(killed_in_step_10, tmp_path / "run")


def test_killed_anywhere_it_ends_in_the_same_bits(whole, interrupted):
    task, folder = data.load("digits"), interrupted
    # In the tenth step; while the third checkpoint after that is written (its file, then its folder, is synced; the
    # first four calls are for run.json and the logs); in a validation.
    assert checkpoints.newest(folder).state["step"] == 9
    killed(folder, "writing", 9)
    at = checkpoints.newest(folder).state["step"]
    assert 9 <= at < 20
    killed(folder, "validation", 3)
    assert checkpoints.newest(folder).state["step"] >= at
    result = train.resume(folder, task).result
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    mine, theirs = checkpoints.newest(folder).state, checkpoints.newest(whole).state
    assert mine["step"] == theirs["step"] == 36
    for part in ("model", "average"):
        assert all(torch.equal(mine[part][name], theirs[part][name]) for name in theirs[part])
    assert rows(folder) == rows(whole)
    resumed = json.loads((folder / "run.json").read_text())["resumed"]
    assert resumed[0]["step"] == 9
    assert len(resumed) == 3
    assert result["correct"] == json.loads((whole / "result.json").read_text())["correct"]


def test_a_run_records_what_it_was(whole):
    described = json.loads((whole / "run.json").read_text())
    assert train.RunConfig.from_json(described["config"]) == CONFIG
    assert described["backends"]["sdtcm"] == ["fused"]
    assert described["versions"]["torch"] == torch.__version__
    result = json.loads((whole / "result.json").read_text())
    assert set(result["accuracy"]) == {"train", "validation", "test"}
    assert result["selected_on"] == "validation"
    assert len(result["fire_rates"]) == 4
    best = max((float(row[4]), int(row[0])) for row in rows(whole) if row[2] == "validation")
    assert result["best"]["accuracy"] == pytest.approx(best[0], abs=1e-6)


def test_another_seed_is_another_run(whole, tmp_path):
    """So that the comparison above can fail."""
    train.train(replace(CONFIG, seed=1), data.load("digits"), tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() != (whole / "model.safetensors").read_bytes()


def test_a_finished_run_is_not_trained_again(whole):
    with pytest.raises(train.RunError, match=r"is finished; see its result\.json"):
        train.resume(whole, data.load("digits"))


def test_other_data_of_the_same_name_are_refused(interrupted):
    folder, task = interrupted, data.load("digits")
    before = sorted(folder.rglob("*"))
    fewer = Split(task["test"].stored[1:], task["test"].labels[1:], kind="values", form=task["test"].form)
    with pytest.raises(train.RunError, match=r"must be the data that .* was begun with, got a test split of 299 "):
        train.resume(folder, replace(task, splits={**task.splits, "test": fewer}))
    without = {name: split for name, split in task.splits.items() if name != "validation"}
    with pytest.raises(train.RunError, match="got no validation split, not a validation split of "):
        train.resume(folder, replace(task, splits=without))
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_lost_network_is_selected_again(damage, interrupted, capsys):
    folder, task = interrupted, data.load("digits")
    file = folder / "model.safetensors"
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-9])
    result = train.resume(folder, task).result
    assert "; the best one from here on takes its place" in capsys.readouterr().err
    assert result["best"]["step"] > 9


DISAGREEMENTS = {
    "step is missing": lambda state: state.pop("step"),
    "step is 99, the run has 36": lambda state: state.update(step=99),
    "model is missing": lambda state: state.pop("model"),
    "model is list": lambda state: state.update(model=[1]),
    "average is missing": lambda state: state.update(average=None),
    "logs lacks seconds, since": lambda state: state.update(logs={}),
    "best lacks accuracy": lambda state: state["best"].pop("accuracy"),
    r"model has \[4\] for head.bias, the network \[10\]": lambda state: state["model"].update(
        {"head.bias": torch.zeros(4)}
    ),
    "model has no tensor for head.bias, the network": lambda state: state["model"].pop("head.bias"),
    r"average has \[1\] for more, the network no tensor": lambda state: state["average"].update(more=torch.zeros(1)),
    "optimiser lacks param_groups": lambda state: state["optimiser"].pop("param_groups"),
    "the optimizer: ValueError": lambda state: state["optimiser"]["param_groups"].pop(),
    "the optimizer: KeyError": lambda state: state["optimiser"]["state"][0].pop("exp_avg"),
    "the optimizer: moments of another": lambda state: state["optimiser"]["state"][0].update(exp_avg=torch.zeros(3)),
}


def test_a_checkpoint_that_disagrees_with_the_config_is_refused(subtests, interrupted):
    """Their checksums are right."""
    task, good = data.load("digits"), checkpoints.newest(interrupted).state
    for words, change in DISAGREEMENTS.items():
        with subtests.test(words):
            state = copy.deepcopy(good)
            change(state)
            shutil.rmtree(interrupted / checkpoints.FOLDER)
            put(interrupted, state)
            with pytest.raises(train.RunError, match=f"^resume: .* does not fit .*{words}"):
                train.resume(interrupted, task)
    shutil.rmtree(interrupted / checkpoints.FOLDER)
    checkpoints.write(interrupted, good)
    record = json.loads((interrupted / "run.json").read_text())
    record["config"]["model"]["features"] = 17
    (interrupted / "run.json").write_text(json.dumps(record))
    with pytest.raises(train.RunError, match=r"does not fit the config in run\.json: model has \[16, 1\] for "):
        train.resume(interrupted, task)


def test_a_seed_of_any_size(tmp_path):
    assert train.train(replace(CONFIG, seed=2**70, steps=1), data.load("digits"), tmp_path / "run").result is not None
