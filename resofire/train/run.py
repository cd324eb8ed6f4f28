"""A run from its config to its folder: train, go on after an interruption, and weigh the result.

run.json             config, seed, versions, commit, backends
metrics.csv          figures as they come; tensorboard/ the same
checkpoints/         what is needed to go on
model.safetensors    the best network so far, with config.json
result.json          accuracy on each split, fire rate of each layer, parameters, time
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..models import build
from ..models.storage import load, replace
from ..ops import retain_buffers
from . import checkpoints
from .config import RunConfig
from .diverged import Diverged
from .keeping import Interrupted, Keeping, signals_restored
from .logs import Logs
from .manifest import manifest
from .processes import rank, world
from .progress import Progress
from .result import RESULT, weigh
from .stream import Plan, Task

RUN = "run.json"


class RunError(Exception):
    """Why a run cannot begin or go on. Its text is one sentence."""


class Stopped(Exception):
    """Why a run ended before its last step; `code` is what the command exits with."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class Outcome(NamedTuple):
    """What a finished run came to; None in processes that only helped."""

    folder: Path
    result: dict[str, Any] | None


def train(config: RunConfig, task: Task, folder: str | os.PathLike[str], *, devices: int = 1) -> Outcome:
    """Trains from the beginning, into a folder that must be new or empty."""
    folder = Path(folder)
    if rank() == 0:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(f"train: out must be a new or empty folder, got {folder}; to go on with a run, resume it")
        folder.mkdir(parents=True, exist_ok=True)
    return _run(config, task, folder, devices, None)


def resume(folder: str | os.PathLike[str], task: Task, *, devices: int | None = None) -> Outcome:
    """Goes on with a run from its newest checkpoint, mid-epoch if need be."""
    folder = Path(folder)
    described = read(folder)
    config = RunConfig.from_json(described["config"])
    if (folder / RESULT).exists():
        raise RunError(f"resume: {folder} is finished; see its {RESULT}")
    found = checkpoints.newest(folder)
    if rank() == 0 and found is not None:
        for file in found.passed_over:
            print(f"{file} is damaged; going on from {found.file.name}, the one before it")
    if found is None and checkpoints.listed(folder):
        raise RunError(f"resume: no checkpoint in {folder / checkpoints.FOLDER} is whole")
    return _run(config, task, folder, devices or described["devices"], None if found is None else found.state)


def read(folder: Path) -> dict[str, Any]:
    """What run.json says."""
    try:
        described = json.loads((folder / RUN).read_text())
        RunConfig.from_json(described["config"])
        return described
    except OSError:
        raise RunError(f"run: {folder} is not a run folder, it has no {RUN}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise RunError(f"run: {folder / RUN} cannot be used: {error}") from None


def _run(config: RunConfig, task: Task, folder: Path, devices: int, state: dict[str, Any] | None) -> Outcome:
    if config.select not in task.splits:
        raise RunError(
            f"train: select must be a split of {task.name} ({', '.join(task.splits)}), got {config.select!r}"
        )
    # Lightning takes seconds to import, and nothing else here needs it.
    from .fit import Listener, Trainee, fit

    retain_buffers()
    plan = Plan.of(config, task.splits["train"])
    count, first = world(devices), rank() == 0
    if config.batch < count:
        raise RunError(f"train: batch must be at least the {count} devices, got {config.batch}")
    torch.manual_seed(config.seed)
    model = build(config.model)
    if first and state is None:
        sample = next(iter(task.splits["train"].batches(min(2, len(task.splits["train"])))))
        described = manifest(config, model, sample, devices)
        replace(folder / RUN, (json.dumps(described, indent=2) + "\n").encode())
    step, best = 0, None
    if state is not None:
        model.load_state_dict(state["model"])
        step, best = state["step"], state["best"]
    with _locked(folder) if first else _nothing(), signals_restored():
        logs = Logs(folder, step, state and state["logs"]) if first else None
        keeping = Keeping(folder, logs, best, config.checkpoint_minutes)
        progress = Progress(config, plan, step) if first else None
        listeners: list[Listener] = [each for each in (logs, progress, keeping) if each is not None]
        trainee = Trainee(model.train(), config, plan, listeners, step, state and state["optimiser"])
        if state is not None and trainee.average is not None:
            trainee.average.model.load_state_dict(state["average"])
        try:
            if step < plan.steps:
                fit(trainee, task, devices)
        except Interrupted:
            raise Stopped(f"stopped in step {trainee.step} of {plan.steps}; {_how_to_go_on(folder)}", 130) from None
        except Diverged as error:
            raise Stopped(f"{error}; {_how_to_go_on(folder)}") from None
        except OSError as error:
            raise Stopped(f"stopped in step {trainee.step}: {error}; {_how_to_go_on(folder)}") from None
        finally:
            for each in (progress, logs):
                if each is not None:
                    each.close()
        if not first or logs is None:
            return Outcome(folder, None)
        seconds = logs.elapsed()
        found = weigh(load(folder), task, config.batch)
        result = {**found, "selected_on": config.select, "best": keeping.best, "seconds": seconds, "seed": config.seed}
        replace(folder / RESULT, (json.dumps(result, indent=2) + "\n").encode())
    return Outcome(folder, result)


def _how_to_go_on(folder: Path) -> str:
    written = checkpoints.listed(folder)
    last = f"the last good checkpoint is {written[0]}" if written else "no checkpoint had been written"
    return f"{last}; go on with: resofire train --resume {folder}"


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps two processes from writing into one run."""
    with (folder / ".lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"train: {folder} is in use by another process") from None
        yield
