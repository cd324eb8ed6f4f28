"""Training that is stopped: by signals, other processes, full disks, divergence, damaged checkpoints."""

import errno
import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import STEPS, at, begin, go_on, last_line, weights

from resofire import data, train
from resofire.commands.imports import import_flags
from resofire.data import task as tasks
from resofire.train import callbacks, checkpoints, logs, loop, run


@pytest.mark.parametrize(
    ("number", "place", "count", "step"),
    [
        (signal.SIGINT, (loop, "_step"), 3, 3),
        (signal.SIGTERM, (loop, "_step"), 3, 3),
        (signal.SIGINT, (loop, "_step"), 4, 4),  # the last one before a validation
        (signal.SIGTERM, (loop, "_validate"), 1, 4),
        (signal.SIGINT, (torch.nn.utils, "clip_grad_norm_"), 6, 7),  # after the processes have agreed to go on
    ],
)
def test_a_signal_saves_and_says_how_to_resume(number, place, count, step, whole, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    before = signal.getsignal(number)
    with monkeypatch.context() as patched:
        at(patched, *place, count, lambda: os.kill(os.getpid(), number))
        assert begin(folder) == 130
    assert signal.getsignal(number) == before
    newest = checkpoints.listed(folder)[0]
    assert checkpoints.newest(folder).state["step"] == step
    assert last_line(capsys) == (
        f"resofire: stopped in step {step} of {STEPS}; the last good checkpoint is {newest}; "
        f"resume with: resofire train --resume {folder}{import_flags()}"
    )
    assert go_on(folder) == 0
    assert f"digits: from step {step} of {STEPS}, in {folder}" in capsys.readouterr().err
    assert weights(folder) == weights(whole)


def test_the_command_is_quoted_for_the_shell_and_imports_the_same_modules(tmp_path, capsys, monkeypatch):
    at(monkeypatch, loop, "_step", 1, lambda: os.kill(os.getpid(), signal.SIGINT))
    (tmp_path / "my_neurons.py").touch()
    monkeypatch.chdir(tmp_path)
    assert begin(tmp_path / "my run", "--import", "my_neurons") == 130
    command = f"resofire train --resume '{tmp_path / 'my run'}' --import my_neurons"
    assert last_line(capsys).endswith(f"resume with: {command}")
    # The next command of this process does not import it.
    at(monkeypatch, loop, "_step", 1, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert begin(tmp_path / "run") == 130
    assert last_line(capsys).endswith(f"resume with: resofire train --resume {tmp_path / 'run'}")


def lose():
    """What happens to a process when another one has ended."""
    raise torch.distributed.DistNetworkError("anything")


@pytest.mark.parametrize("action", [lambda: os.kill(os.getpid(), signal.SIGINT), lose], ids=["signal", "lost"])
def test_other_processes_leave_the_message_to_the_first(action, tmp_path, capsys, monkeypatch):
    """If one failed, Fabric would kill the first, which may still be writing the checkpoint."""
    monkeypatch.setattr(run, "rank", lambda: 1)
    at(monkeypatch, loop, "_step", 3, action)
    assert begin(tmp_path / "run") == 0
    assert capsys.readouterr() == ("", "")


def test_the_first_process_reports_that_another_has_ended(tmp_path, capsys, monkeypatch):
    at(monkeypatch, loop, "_step", 3, lose)
    assert begin(tmp_path / "run") == 1
    assert "stopped in step 2 of 8: another process of the run has ended; the last good" in last_line(capsys)


def test_another_process_reports_an_error_of_its_own(tmp_path, capsys, monkeypatch):
    def unreadable():
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(run, "rank", lambda: 1)
    at(monkeypatch, loop, "_step", 3, unreadable)
    assert begin(tmp_path / "run") == 1
    assert "stopped in step 2 of 8: Input/output error;" in last_line(capsys)


def test_a_second_signal_stops_at_once(whole, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"

    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("it went on")

    with monkeypatch.context() as patched:
        at(patched, loop, "_step", 4, twice)
        assert begin(folder) == 130
    assert "stopped in step 3 of 8; the last good checkpoint is" in last_line(capsys)
    assert go_on(folder) == 0
    assert weights(folder) == weights(whole)


def test_a_signal_during_the_final_evaluation(whole, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        at(patched, run, "evaluate", 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert begin(folder) == 130
    assert "stopped in step 8 of 8;" in last_line(capsys)
    assert go_on(folder) == 0
    assert json.loads((folder / "result.json").read_text())["correct"] == train.recorded(whole)["correct"]
    capsys.readouterr()
    assert go_on(folder) == 2
    assert last_line(capsys) == f"resofire: resume: {folder} is finished; see its result.json"


@pytest.mark.parametrize(
    ("owner", "name", "count"),
    [(checkpoints, "write_atomic", 4), (callbacks, "save", 1), (logs.Logs, "_row", 2)],
    ids=["checkpoint", "network", "metrics"],
)
def test_a_full_disk_stops_the_run_which_can_be_resumed(owner, name, count, whole, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"

    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        at(patched, owner, name, count, full)
        assert begin(folder) == 1
    checkpoint = checkpoints.newest(folder)
    assert checkpoint.damaged == []
    sentence = last_line(capsys)
    assert sentence.startswith("resofire: stopped in step ")
    assert " of 8: No space left on device; " in sentence
    assert sentence.endswith(
        f"; the last good checkpoint is {checkpoint.file}; resume with: resofire train --resume {folder}"
    )
    assert go_on(folder) == 0
    assert weights(folder) == weights(whole)


def finite(value):
    if isinstance(value, dict):
        return all(finite(each) for each in value.values())
    return not torch.is_tensor(value) or bool(value.isfinite().all())


@pytest.mark.parametrize("rate", ["1e30", "3e38"], ids=["in the second step", "at the end of the first"])
def test_divergence_names_step_layer_and_checkpoint(rate, tmp_path, capsys):
    folder = tmp_path / "run"
    assert begin(folder, "--lr", rate, "--clip", "None", "--warmup", "0.5") == 1
    sentence = last_line(capsys)
    assert sentence.startswith("resofire: training diverged in step ")
    checkpoint = checkpoints.newest(folder)
    if rate == "1e30":
        assert sentence.endswith(f"not finite; the last good checkpoint is {checkpoint.file}")
        assert finite(checkpoint.state)
    else:
        assert sentence.endswith("not finite; there is no checkpoint yet")
        assert checkpoint is None


def test_a_nan_in_the_data_is_named(tmp_path, capsys, monkeypatch):
    task = data.load("digits")
    old = task["train"]
    stored = old.stored.astype(np.float32)
    stored[1::2] = np.nan
    broken = tasks.Split(stored, old.labels, kind=old.kind, form=old.form)
    monkeypatch.setattr(data, "load", lambda *_, **__: replace(task, splits={**task.splits, "train": broken}))
    assert begin(tmp_path / "run") == 1
    assert last_line(capsys).endswith(": the input is not finite; there is no checkpoint yet")


def test_weights_that_a_step_made_infinite_are_not_kept(tmp_path, capsys, monkeypatch):
    """The loss of the step was still fine."""
    real = loop._step

    def broken(run, *rest):
        figures = real(run, *rest)
        if run.step == 4:
            with torch.no_grad():
                next(run.model.parameters()).fill_(torch.inf)
        return figures

    monkeypatch.setattr(loop, "_step", broken)
    assert begin(tmp_path / "run") == 1
    assert "training diverged in step 4: the weights encoder.input.weight are not finite" in last_line(capsys)
    state = checkpoints.newest(tmp_path / "run").state
    assert state["step"] == 3
    assert finite(state)


def test_a_damaged_checkpoint_is_skipped_and_named(whole, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        at(patched, loop, "_step", 4, lambda: os.kill(os.getpid(), signal.SIGINT))
        assert begin(folder) == 130
    capsys.readouterr()
    newest, before = checkpoints.listed(folder)
    newest.write_bytes(newest.read_bytes()[:-100])
    assert go_on(folder) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0] == f"{newest} is damaged; resuming from {before.name}, the one before it"
    assert captured.out.splitlines()[2].startswith(f"{folder}: digits, ")
    assert weights(folder) == weights(whole)
