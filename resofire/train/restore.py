"""What resuming a run reads from its folder, and what it refuses: finished runs, other data, other parts, damage."""

import os
import sys
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ..data import Task
from ..models.storage import WEIGHTS, StorageError, load
from . import checkpoints
from .batches import Plan
from .config import RunConfig
from .evaluation import RESULT, recorded
from .optimiser import MOMENTS
from .processes import rank
from .record import RUN, RunError, fingerprints


def newest_state(folder: Path, config: RunConfig, plan: Plan, network: nn.Module) -> dict[str, Any] | None:
    """The state in the newest intact checkpoint; None if none was written yet.

    A damaged checkpoint is skipped and reported. If the best network cannot be used, `best` is set to None, so that
    training selects another.

    Raises:
        RunError: No checkpoint is intact, or the newest one belongs to another config.
    """
    newest = checkpoints.newest(folder)
    if newest is None:
        if checkpoints.listed(folder):
            raise RunError(f"resume: no checkpoint in {folder / checkpoints.FOLDER} is intact")
        return None
    for file in newest.damaged if rank() == 0 else ():
        print(f"{file} is damaged; resuming from {newest.file.name}, the one before it", file=sys.stderr)
    state = newest.state
    reason = checkpoints.fault(state, network, averaged=config.ema is not None, steps=plan.steps)
    if reason is not None:
        raise RunError(f"resume: {newest.file} does not fit the config in {RUN}: {reason}")
    if state["best"] is not None:
        reason = _best_fault(folder, config)
        if reason is not None:
            if rank() == 0:
                instead = "the last one" if state["step"] == plan.steps else "the best one from here on"
                print(f"{reason}; {instead} takes its place", file=sys.stderr)
            state["best"] = None
    return state


def _best_fault(folder: Path, config: RunConfig) -> str | None:
    """Why the best network of a run cannot be used; None if it can."""
    try:
        if load(folder).config == config.model:
            return None
        return f"{folder / WEIGHTS} has another config than {RUN}"
    except StorageError as error:
        return str(error)


def restore_optimizer(optimizer: Optimizer, state: dict[str, Any], *, builtin: bool) -> None:
    """Load the optimiser of a checkpoint; of the built-in AdamW also check the shapes of its moments.

    Raises:
        RunError: The state belongs to another optimiser.
    """
    fault = None
    try:
        optimizer.load_state_dict(state["optimiser"])
        if builtin:
            for parameter, moments in optimizer.state.items():
                if moments["step"].shape != () or any(moments[each].shape != parameter.shape for each in MOMENTS):
                    fault = f"moments of another shape than {list(parameter.shape)}"
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError) as error:
        # Optimisers, which may be the user's own, raise any of these for a state of another.
        fault = f"{type(error).__name__}: {error}"
    if fault is not None:
        text = " ".join(fault.split())[:400]
        raise RunError(f"resume: the checkpoint of step {state['step']} does not fit the optimizer: {text}")


def require_same(folder: Path, record: dict[str, Any], task: Task, parts: dict[str, Any]) -> None:
    """Refuse other data, or other parts of the user's own, than the run began with.

    Args:
        folder: The run folder.
        record: Its run.json.
        task: The data it is to be resumed on.
        parts: The names of the user's own parts by argument, see `UserParts.names`.

    Raises:
        RunError: They differ; names the split or the argument.
    """
    recorded_data: dict[str, str] = record.get("data", {})
    current_data = fingerprints(task) if "data" in record else {}
    for split in {**recorded_data, **current_data}:
        if recorded_data.get(split) != current_data.get(split):
            begun, got = (
                f"a {split} split of {data[split]}" if split in data else f"no {split} split"
                for data in (recorded_data, current_data)
            )
            raise RunError(
                f"resume: {task.name} must be the data that {folder} was begun with, got {got}, not {begun}; "
                "name the folder of its files with --data-dir"
            )
    for part in ("loss", "optimizer", "callbacks"):
        before, now = (record.get("own") or {}).get(part), parts.get(part)
        if before is not None and now is None:
            raise RunError(f"resume: {folder} was begun with {part}={before}; pass it again")
        # Other callbacks compute the same weights.
        if part == "callbacks" or now == before:
            continue
        if before is None:
            raise RunError(f"resume: {folder} was begun without {part}, got {part}={now}")
        raise RunError(f"resume: {folder} was begun with {part}={before}, got {part}={now}")


def require_unfinished(folder: Path, config: RunConfig) -> None:
    """Refuse a finished run, unless its network or result is lost: the last checkpoint still has what they need."""
    if recorded(folder) is None or not os.path.lexists(folder / WEIGHTS):
        return
    reason = _best_fault(folder, config)
    if reason is None:
        raise RunError(f"resume: {folder} is finished; see its {RESULT}")
    raise RunError(f"resume: {folder} is finished, but {reason}; delete that file to resume from the last checkpoint")
