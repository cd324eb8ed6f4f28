"""A run from its config to its folder: train, resume after an interruption, evaluate the result.

run.json             config, seed, data, versions, commit, backends; where and with what it was resumed
data.npz             the data, if they came as arrays
metrics.csv          curves; tensorboard/ the same
checkpoints/         what resuming needs
model.safetensors    the best network so far, with config.json
result.json          accuracy on each split, fire rate of each layer, parameters, time
"""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from ..data import Task, statistics
from ..models import build
from ..models.encoder import Encoder
from ..models.storage import StorageError, find, load, save
from ..ops import retain_buffers
from . import checkpoints
from .batches import Plan
from .checks import (
    require_fit,
    require_labels,
    require_optimizer,
    require_parts,
    require_saveable,
    require_statistics,
    require_step,
)
from .config import RunConfig
from .diverged import Diverged
from .evaluation import RESULT, Loss, evaluate
from .folder import clear, locked, require_empty, write_json
from .memory import require_memory
from .precision import apply_gradient_dtype, resume_gradient_dtype
from .processes import Children, Interrupted, Peers, StopSignals, on_this_machine, rank, world
from .record import RUN, USER_CODE_ERRORS, RunError, conditions, manifest, read, sample, source_line
from .restore import newest_state, require_same, require_unfinished, restore_optimizer
from .source import DATA, save_arrays

if TYPE_CHECKING:
    from .loop import Run

PROCESS_ENDED = "another process of the run has ended"


class Stopped(Exception):
    """A run ended before its last step.

    Attributes:
        why: What happened, without advice: "stopped in step 3 of 9".
        code: Exit code of the command, 130 if the user interrupted it.
        by_command: Whether the text ends with the command that resumes the run.
    """

    def __init__(self, why: str, code: int = 1, advice: str = "", by_command: bool = False) -> None:
        super().__init__(f"{why}; {advice}" if advice else why)
        self.why, self.code, self.by_command = why, code, by_command


class Outcome(NamedTuple):
    """A finished run: its folder and its result, which is None in processes of rank > 0."""

    folder: Path
    result: dict[str, Any] | None


class UserParts(NamedTuple):
    """User-supplied replacements for the built-in parts; see `train`."""

    model: nn.Module | None = None
    loss: Loss | None = None
    optimizer: Callable[[list[dict[str, Any]]], Optimizer] | None = None
    callbacks: Sequence[object] = ()

    def names(self) -> dict[str, Any]:
        """The names that run.json records."""
        parts = {"model": self.model, "loss": self.loss, "optimizer": self.optimizer}
        names: dict[str, Any] = {part: _name(value) for part, value in parts.items() if value is not None}
        return names | ({"callbacks": [_name(each) for each in self.callbacks]} if self.callbacks else {})


def train(
    config: RunConfig, task: Task, folder: str | os.PathLike[str], *, model: nn.Module | None = None,
    loss: Loss | None = None, optimizer: Callable[[list[dict[str, Any]]], Optimizer] | None = None,
    callbacks: Sequence[object] = (), devices: int = 1,
) -> Outcome:  # fmt: skip
    """Train a network from the beginning.

    Args:
        config: The run.
        task: Its data.
        folder: The run folder; must be new or empty.
        model: The network to train, with its initial weights; its config must equal `config.model`. None builds it.
        loss: Mean loss of a batch, called as `loss(logits, labels)` and returning a scalar tensor; `label_smoothing`
            and `class_weights` do not apply to it. None is cross entropy.
        optimizer: Called with the parameter groups (`params`, `weight_decay`, `highest`: the highest learning rate),
            returns an optimiser; its learning rates are set before each step. None is AdamW.
        callbacks: Objects with some of the methods of `Callback`.
        devices: Processes on this machine (CPU) or GPUs.

    Returns:
        The folder and the result.

    Raises:
        RunError: The run cannot begin. Nothing is left on disk.
        Stopped: It was interrupted, diverged, or could not write; it can be resumed.
    """
    require_parts(config, task, loss, optimizer, callbacks)
    folder, own = Path(folder), UserParts(model, loss, optimizer, tuple(callbacks))
    devices = on_this_machine(devices)
    plan, network = _build(config, task, own, devices)
    _load_initial(network, config, own)
    try:
        gradient_dtype = apply_gradient_dtype(network, config.gradient_dtype)
    except ValueError as error:
        raise RunError(str(error)) from None
    if rank() > 0:
        return _execute(config, task, folder, devices=devices, own=own, plan=plan, model=network)
    require_empty(folder)
    try:
        require_step(network, task, sample(task.splits["train"]), loss)
        record = {**manifest(config, network, task, devices, own.names()), "gradient_dtype": gradient_dtype}
    except (RuntimeError, ValueError, TypeError) as error:
        # For example a backend that cannot run this network, or an error in a user's own module.
        raise RunError(f"{error}{source_line(error)}") from error
    except USER_CODE_ERRORS as error:
        place = source_line(error)
        if not place:
            raise
        raise RunError(f"train: {type(error).__name__}: {error}{place}") from error
    with locked(folder, create=True):
        require_empty(folder)
        try:
            if save_arrays(folder, task):
                record["source"] = {**(task.source or {}), "arrays": DATA}
            elif task.source is None:
                print(
                    f"the arrays of {task.name} are too large to be saved with the run (64 MB): evaluate and "
                    "resume it in Python, or register them with data.dataset",
                    file=sys.stderr,
                )
            write_json(folder / RUN, record)
        except OSError as error:
            (folder / DATA).unlink(missing_ok=True)
            raise RunError(f"train: out {folder} cannot be written: {error.strerror}") from None
        try:
            return _execute(config, task, folder, devices=devices, own=own, plan=plan, model=network)
        except Stopped:
            raise
        except Exception:
            # For example an error in a user's own part. Without a checkpoint there is nothing to resume.
            if not any(map(checkpoints.step_of, checkpoints.listed(folder))):
                clear(folder)
            raise


def resume(
    folder: str | os.PathLike[str], task: Task, *, model: nn.Module | None = None, loss: Loss | None = None,
    optimizer: Callable[[list[dict[str, Any]]], Optimizer] | None = None, callbacks: Sequence[object] = (),
    devices: int | None = None,
) -> Outcome:  # fmt: skip
    """Resume a run from its newest checkpoint, to the bits of an uninterrupted one.

    Args:
        folder: The run folder.
        task: The data that the run was begun with; see `load_task`.
        model: A network to load the weights into; None builds it. Without a checkpoint, the same as in `train`.
        loss: The same as in `train`, as are `optimizer` and `callbacks`.
        optimizer: See `loss`.
        callbacks: See `loss`.
        devices: Processes on this machine; None: the same number as before.

    Returns:
        The folder and the result.

    Raises:
        RunError: It cannot be resumed: finished, in use, other data, or a part of the user's own is missing.
        Stopped: As in `train`.
    """
    record = read(folder)
    config = RunConfig.from_json(record["config"])
    require_parts(config, task, loss, optimizer, callbacks)
    folder, own = Path(folder), UserParts(model, loss, optimizer, tuple(callbacks))
    require_unfinished(folder, config)
    require_same(folder, record, task, own.names())
    devices = on_this_machine(devices or record["devices"])
    plan, network = _build(config, task, own, devices)
    gradient_dtype = resume_gradient_dtype(network, record, first=rank() == 0)
    with locked(folder) if rank() == 0 else nullcontext():
        if rank() == 0:
            require_unfinished(folder, config)
        state = newest_state(folder, config, plan, network)
        if state is None and model is None and "model" in (record.get("own") or {}):
            raise RunError(f"resume: {folder} has no checkpoint and was begun with its own model; pass model= again")
        if state is None:
            _load_initial(network, config, own)
        if rank() == 0:
            step = 0 if state is None else state["step"]
            resumption = {"step": step, **conditions(devices), "gradient_dtype": gradient_dtype}
            # There is a result if it is damaged, or if the run had finished and then lost its network.
            (folder / RESULT).unlink(missing_ok=True)
            write_json(folder / RUN, {**record, "resumed": [*record.get("resumed", ()), resumption]})
        return _execute(config, task, folder, devices=devices, own=own, plan=plan, model=network, state=state)


def _build(config: RunConfig, task: Task, own: UserParts, devices: int) -> tuple[Plan, nn.Module]:
    """The plan of a run and its network, with the initial weights of the seed or the user's own.

    Raises:
        RunError: The config, the data and the network do not fit each other or this machine.
    """
    require_fit(config, task, world(devices))
    if own.loss is None:
        require_labels(task)
    require_memory(config, task, devices, devices / world(devices), own.model)
    torch.manual_seed(config.seed % 2**64)
    try:
        plan = Plan.of(config, task.splits["train"])
        network: nn.Module = build(config.model) if own.model is None else own.model
        for module in network.modules() if own.model is None else ():
            if isinstance(module, Encoder) and module.config.standardise:
                module.standardise(*statistics(task.splits["train"]))
    except (ValueError, TypeError) as error:
        raise RunError(str(error)) from None
    require_saveable(network)
    require_statistics(network, task, config.batch)
    if network.config != config.model:
        raise RunError(f"train: model must have the config of the run, {config.model!r}, got {network.config!r}")
    return plan, network


def _load_initial(network: nn.Module, config: RunConfig, own: UserParts) -> None:
    """Load the weights of the network that `config.init` names; a model of the user's own has its weights already."""
    if config.init is None or own.model is not None:
        return
    try:
        weights = load(find(config.init)).state_dict()
    except StorageError as error:
        raise RunError(f"train: init: {error}") from None
    shapes = {name: list(value.shape) for name, value in network.state_dict().items()}
    for name in {**shapes, **weights}:
        shape = list(weights[name].shape) if name in weights else None
        if shape != shapes.get(name):
            raise RunError(
                f"train: init must be a network of the run's own shape, got {config.init} with {name} of shape {shape} "
                f"instead of {shapes.get(name)}"
            )
    network.load_state_dict(weights)


def _execute(
    config: RunConfig, task: Task, folder: Path, *, devices: int, own: UserParts, plan: Plan, model: nn.Module,
    state: dict[str, Any] | None = None,
) -> Outcome:  # fmt: skip
    """Train from a checkpoint's state or the beginning, evaluate, and explain why if it ends early."""
    # Fabric takes a second to import, and other users of this package do not need it.
    from . import loop
    from .callbacks import Saver, notify
    from .logs import Logs
    from .optimiser import Average, adamw, parameter_groups
    from .progress import Display, is_silent

    first_process = rank() == 0
    retain_buffers()
    run = loop.Run(folder, config, plan, model)
    if state is not None:
        model.load_state_dict(state["model"])
        run.step, run.best = state["step"], state["best"]
    display = Display(config.name, folder) if first_process and not is_silent() else None
    logs: Logs | None = None
    peers: Peers | None = None
    children: Children | None = None
    threads = torch.get_num_threads()

    def stopped(reason: str, code: int = 1) -> Stopped:
        how = f"resume with: resofire train --resume {shlex.quote(str(folder))}"
        by_command = not own.names().keys() - {"model"}
        if not by_command:
            how = "resume with resofire.train.resume and the same loss, optimizer and callbacks"
        why = f"stopped in step {run.step} of {plan.steps}{reason}"
        return Stopped(why, code, f"{_last_checkpoint(folder)}; {how}", by_command)

    def explain(interrupted: bool) -> None:
        print(f"resofire: {stopped('' if interrupted else f': {PROCESS_ENDED}')}", file=sys.stderr, flush=True)

    try:
        with StopSignals() as signals:
            logs = Logs(folder, run.step, state and state["logs"]) if first_process else None
            saver = Saver(logs, config.checkpoint_minutes)
            callbacks = [each for each in (logs, display, *own.callbacks, saver) if each is not None]
            if run.step < plan.steps:
                fabric, children = loop.launch(devices, explain)
                run.rank, run.world = fabric.global_rank, fabric.world_size
                # NCCL broadcasts tensors on the GPU only.
                fabric.to_device(model)
                if run.world > 1:
                    peers = Peers(() if children is None else children.processes)
                    _broadcast(model)
            run.average = None if config.ema is None else Average(model, config.ema)
            if own.optimizer is None:
                run.optimizer = adamw(model, config)
            else:
                run.optimizer = require_optimizer(own.optimizer(parameter_groups(model, config)))
            if state is not None:
                restore_optimizer(run.optimizer, state, builtin=own.optimizer is None)
                if run.average is not None:
                    run.average.model.load_state_dict(state["average"])
                if first_process and run.step == plan.steps and run.best is None:
                    # The best network is lost, and no validation is left to select another.
                    save(run.chosen, folder)  # type: ignore[arg-type] # checked before the first step
            elif own.model is not None:
                # The seed cannot reproduce these weights.
                saver.write(run)
            if run.step < plan.steps:
                loop.fit(run, task, fabric, callbacks, signals, loss=own.loss)
                # Fabric divides the cores among the processes; the evaluation uses all, as any later one will.
                torch.set_num_threads(threads)
            if display is not None:
                display.close()
            result = None if logs is None else _write_result(run, task, logs.elapsed())
            notify(callbacks, "on_end", run, result)
        _disconnect(peers)
        return Outcome(folder, result)
    except (Interrupted, Diverged, OSError, RuntimeError) as error:
        failed = isinstance(error, RuntimeError) and not isinstance(error, Diverged)
        if failed and not isinstance(error, dist.DistError):
            # Gloo reports a lost process like this, but so does torch an error in the model.
            one_ended = peers.ended() if peers is not None else children is not None and children.ended()
            if not one_ended:
                raise
        if not first_process and not isinstance(error, OSError):
            # The first process explains and may still be saving; if this one failed, Fabric would kill it.
            return Outcome(folder, None)
        if isinstance(error, Diverged):
            # Resuming would end in the same place.
            raise Stopped(str(error), advice=_last_checkpoint(folder)) from None
        if run.stopping:
            _disconnect(peers)
        if isinstance(error, Interrupted):
            raise stopped("", 130) from None
        raise stopped(f": {_reason(error)}") from None
    finally:
        if children is not None:
            children.close()
        if display is not None:
            display.close()
        # A full disk has been reported.
        with suppress(OSError):
            if logs is not None:
                logs.close()


def _write_result(run: "Run", task: Task, seconds: float) -> dict[str, Any]:
    """Evaluate the best network of a run and write result.json; returns its content."""
    try:
        result = evaluate(load(run.folder), task, run.config.batch)
    except StorageError as error:
        raise RunError(str(error)) from None
    result |= {"selected_on": run.config.select, "best": run.best, "seconds": seconds, "seed": run.config.seed}
    write_json(run.folder / RESULT, result)
    return result


def _broadcast(model: nn.Module) -> None:
    """Start every process with the weights of the first."""
    for value in model.state_dict().values():
        dist.broadcast(value, 0)


def _disconnect(peers: Peers | None) -> None:
    """End torch's threads once all processes have done their last exchange: one that outlives Python aborts it."""
    if peers is not None and dist.is_initialized():
        dist.destroy_process_group()


def _name(value: Any) -> str:
    """The qualified name of a function or class, or of the class of an object."""
    cls = value if hasattr(value, "__qualname__") else type(value)
    return f"{cls.__module__}.{cls.__qualname__}"


def _reason(error: BaseException) -> str:
    """Why a run stopped, as a clause."""
    if not isinstance(error, OSError):
        return PROCESS_ENDED
    reason = error.strerror or str(error)
    return f"{error.filename} cannot be written: {reason}" if error.filename else reason


def _last_checkpoint(folder: Path) -> str:
    """Where the last checkpoint is, as a clause."""
    newest = checkpoints.newest(folder)
    return "there is no checkpoint yet" if newest is None else f"the last good checkpoint is {newest.file}"
