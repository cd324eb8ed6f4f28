"""A run from its config to its folder: train, go on after an interruption, and evaluate the result.

run.json             config, seed, data, versions, commit, backends; at which steps it was resumed, and with what
metrics.csv          figures as they come; tensorboard/ the same
checkpoints/         what is needed to go on
model.safetensors    the best network so far, with config.json
result.json          accuracy on each split, fire rate of each layer, parameters, time
"""

import fcntl
import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from ..atomic import write_atomic
from ..models import FeedforwardConfig, RetrievalConfig, build
from ..models.network import Network
from ..models.storage import StorageError, load
from ..ops import retain_buffers
from . import checkpoints
from .config import RunConfig
from .diverged import Diverged
from .keeping import Interrupted, Keeping, interruptible
from .logs import Logs
from .manifest import conditions, fingerprints, manifest
from .precision import apply_gradient_dtype, resume_gradient_dtype
from .processes import on_this_machine, rank, world
from .progress import Progress
from .result import RESULT, evaluate
from .stream import Plan, Task

RUN = "run.json"
# What torch says, of a connection, when another process of the run has ended.
ENDED = (" by peer", "Connection was likely closed")


class Described(Task, Protocol):
    """A data set with the facts that a network must fit; `resofire.data` has them."""

    @property
    def inputs(self) -> int | None: ...
    @property
    def vocabulary(self) -> int | None: ...
    @property
    def pairs(self) -> bool: ...
    @property
    def per_step(self) -> bool: ...


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


def train(config: RunConfig, task: Described, folder: str | os.PathLike[str], *, devices: int = 1) -> Outcome:
    """Trains from the beginning, into a folder that must be new or empty."""
    folder = Path(folder)
    if rank() == 0:
        try:
            taken = os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir()))
        except OSError as error:
            raise RunError(f"train: out {folder} cannot be used: {error.strerror}") from None
        if taken:
            raise RunError(f"train: out must be a new or empty folder, got {folder}; to go on with a run, resume it")
    return _run(config, task, folder, devices, None)


def resume(folder: str | os.PathLike[str], task: Described, *, devices: int | None = None) -> Outcome:
    """Goes on with a run from its newest checkpoint, mid-epoch if need be."""
    folder = Path(folder)
    described = read(folder)
    config = RunConfig.from_json(described["config"])
    if (folder / RESULT).exists():
        raise RunError(f"resume: {folder} is finished; see its {RESULT}")
    if "data" in described:
        for split, held in fingerprints(task).items():
            if described["data"].get(split) != held:
                raise RunError(
                    f"resume: {task.name} must be the data that {folder} was begun with, got a {split} split of "
                    f"{held}, not of {described['data'].get(split)}; name the folder of its files with --data-dir"
                )
    found = checkpoints.newest(folder)
    if rank() == 0 and found is not None:
        for file in found.passed_over:
            print(f"{file} is damaged; going on from {found.file.name}, the one before it", file=sys.stderr)
    if found is None and checkpoints.listed(folder):
        raise RunError(f"resume: no checkpoint in {folder / checkpoints.FOLDER} is whole")
    state = None if found is None else found.state
    if state is not None and state["best"] is not None:
        try:
            load(folder)
        except StorageError as error:
            if rank() == 0:
                print(f"{error}; the best network is chosen anew from here on", file=sys.stderr)
            state["best"] = None
    return _run(config, task, folder, devices or described["devices"], state)


def read(folder: Path) -> dict[str, Any]:
    """What run.json says."""
    try:
        described = json.loads((folder / RUN).read_text("utf-8"))
        RunConfig.from_json(described["config"])
        described = {"devices": 1, **described}
        if not isinstance(described["devices"], int) or described["devices"] < 1:
            raise ValueError(f"devices must be a positive integer, got {described['devices']!r}")
        if not isinstance(described.get("data", {}), dict):
            raise ValueError(f"data must be a fingerprint for each split, got {described['data']!r}")
        return described
    except FileNotFoundError:
        raise RunError(f"run: {folder} is not a run folder, it has no {RUN}") from None
    except OSError as error:
        raise RunError(f"run: {folder / RUN} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RunError(f"run: {folder / RUN} cannot be used: {error}") from None


def _run(config: RunConfig, task: Described, folder: Path, devices: int, state: dict[str, Any] | None) -> Outcome:
    devices, first = on_this_machine(devices), rank() == 0
    plan, model = _begin(config, task, world(devices))
    try:
        gradient_dtype = (
            apply_gradient_dtype(model, config.gradient_dtype)
            if state is None
            else resume_gradient_dtype(model, read(folder), first=first)
        )
    except ValueError as error:
        raise RunError(str(error)) from None
    # Lightning takes seconds to import, and nothing else here needs it.
    from .fit import Listener, Trainee, fit

    retain_buffers()
    if first and state is None:
        try:
            described = manifest(config, model, task, devices)
        except (RuntimeError, ValueError, TypeError) as error:
            # Such as a backend that cannot run this network.
            raise RunError(str(error)) from None
        _describe(folder, {**described, "gradient_dtype": gradient_dtype})
    step, best = 0, None
    if state is not None:
        model.load_state_dict(state["model"])
        step, best = state["step"], state["best"]
    trainee: Trainee | None = None
    progress: Progress | None = None
    logs: Logs | None = None
    try:
        with _locked(folder) if first else _nothing(), interruptible():
            if first and state is not None:
                _note_resumption(folder, step, devices, gradient_dtype)
            if first:
                logs, progress = Logs(folder, step, state and state["logs"]), Progress(config, plan, step, folder)
            keeping = Keeping(folder, logs, best, config.checkpoint_minutes)
            listeners: list[Listener] = [each for each in (logs, progress, keeping) if each is not None]
            trainee = Trainee(
                model.train(), config, plan, task.splits["train"], listeners, step, state and state["optimiser"]
            )
            if state is not None and trainee.average is not None:
                trainee.average.model.load_state_dict(state["average"])
            if step < plan.steps:
                fit(trainee, task, devices)
            if progress is not None:
                progress.close()
            if logs is None:
                return Outcome(folder, None)
            seconds = logs.elapsed()
            try:
                found = evaluate(load(folder), task, config.batch)
            except StorageError as error:
                raise RunError(str(error)) from None
            more = {"selected_on": config.select, "best": keeping.best, "seconds": seconds, "seed": config.seed}
            result = {**found, **more}
            write_atomic(folder / RESULT, (json.dumps(result, indent=2) + "\n").encode())
        return Outcome(folder, result)
    except (Interrupted, OSError, RuntimeError) as error:
        ended = any(words in str(error) for words in ENDED)
        if isinstance(error, RuntimeError) and not isinstance(error, Diverged) and not ended:
            raise
        if not first and not isinstance(error, OSError):
            # The first process tells, and may still have to save: were this one to fail, Lightning would kill it.
            return Outcome(folder, None)
        if progress is not None:
            progress.close()
        if isinstance(error, Diverged):
            # No word of how to go on: it would come to the same end.
            raise Stopped(f"{error}; {_last(folder)}") from None
        where = f"stopped in step {step if trainee is None else trainee.step} of {plan.steps}"
        if isinstance(error, Interrupted):
            raise Stopped(f"{where}; {_how_to_go_on(folder)}", 130) from None
        raise Stopped(f"{where}: {_reason(error)}; {_how_to_go_on(folder)}") from None
    finally:
        # What a full disk does not take has been told.
        with suppress(OSError):
            if logs is not None:
                logs.close()


def _begin(config: RunConfig, task: Described, processes: int) -> tuple[Plan, Network]:
    """The plan of a run and its network with the first weights; refuses what cannot be trained."""
    if not {"train", "test"} <= {*task.splits}:
        raise RunError(f"train: {task.name} must have the splits train and test, got {', '.join(task.splits)}")
    if config.select not in task.splits:
        raise RunError(
            f"train: select must be a split of {task.name} ({', '.join(task.splits)}), got {config.select!r}"
        )
    _require_fit(config, task)
    if config.batch < processes:
        raise RunError(f"train: batch must be at least the {processes} devices, got {config.batch}")
    torch.manual_seed(config.seed % 2**64)
    try:
        return Plan.of(config, task.splits["train"]), build(config.model)
    except (ValueError, TypeError) as error:
        raise RunError(str(error)) from None


def _require_fit(config: RunConfig, task: Described) -> None:
    """The network takes what the data set gives, and answers what it asks."""
    model: Any = config.model
    name = task.name
    if task.pairs != isinstance(model, RetrievalConfig):
        wanted = "a RetrievalConfig" if task.pairs else "a ClassifierConfig or FeedforwardConfig"
        has = "pairs" if task.pairs else "no pairs"
        raise RunError(f"train: model must be {wanted}, since {name} has {has}, got a {type(model).__name__}")
    if task.per_step != (model.pool == "none"):
        wanted = "'none'" if task.per_step else "'mean' or 'last'"
        has = "a label for each time step" if task.per_step else "one label for a sequence"
        raise RunError(f"train: model.pool must be {wanted}, since {name} has {has}, got {model.pool!r}")
    places, inputs, vocabulary, classes = (
        (("sizes[0]", "sizes[-1]"), model.sizes[0], None, model.sizes[-1])
        if isinstance(model, FeedforwardConfig)
        else (("inputs", "classes"), model.inputs, model.vocabulary, model.classes)
    )
    if task.vocabulary is None and inputs != task.inputs:
        raise RunError(f"train: model.{places[0]} must be {task.inputs}, the channels of {name}, got {inputs}")
    if task.vocabulary is not None and (vocabulary is None or vocabulary < task.vocabulary):
        least = f"at least {task.vocabulary}, the number of tokens of {name}"
        raise RunError(f"train: model.vocabulary must be {least}, got {vocabulary}")
    if classes != task.classes:
        raise RunError(f"train: model.{places[1]} must be {task.classes}, the classes of {name}, got {classes}")


def _describe(folder: Path, described: dict[str, Any]) -> None:
    """Makes the folder of a run and says what it is; one that cannot be written does not stay."""
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / RUN, (json.dumps(described, indent=2) + "\n").encode())
    except OSError as error:
        if new:
            with suppress(OSError):
                folder.rmdir()
        raise RunError(f"train: out {folder} cannot be written: {error.strerror}") from None


def _note_resumption(folder: Path, step: int, devices: int, gradient_dtype: str) -> None:
    described = read(folder)
    resumed = {"step": step, **conditions(devices), "gradient_dtype": gradient_dtype}
    described["resumed"] = [*described.get("resumed", ()), resumed]
    write_atomic(folder / RUN, (json.dumps(described, indent=2) + "\n").encode())


def _reason(error: OSError | RuntimeError) -> str:
    if isinstance(error, RuntimeError):
        return "another process of the run has ended"
    reason = error.strerror or str(error)
    return f"{error.filename} cannot be written: {reason}" if error.filename else reason


def _last(folder: Path) -> str:
    found = checkpoints.newest(folder)
    return "there is no checkpoint yet" if found is None else f"the last good checkpoint is {found.file}"


def _how_to_go_on(folder: Path) -> str:
    return f"{_last(folder)}; go on with: resofire train --resume {shlex.quote(str(folder))}"


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
