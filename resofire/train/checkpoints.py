"""Checkpoints: what resuming a run needs. Each is written atomically and carries a checksum in its name.

    checkpoints/step-00001200-3f2a….pt

The last two are kept. One that does not match its name is skipped for the one before.
"""

import hashlib
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ..atomic import write_atomic

FOLDER = "checkpoints"
FORMAT = 1
KEPT = 2
# The parts of a checkpoint with their types, and the keys that those of plain values must have.
PARTS = {"step": int, "model": dict, "average": dict | None, "optimiser": dict, "best": dict | None, "logs": dict}
KEYS = {"optimiser": {"state", "param_groups"}, "best": {"step", "accuracy", "loss"}, "logs": {"seconds", "since"}}
NAME = re.compile(r"step-(\d{8})-([0-9a-f]{16})\.pt")


class Checkpoint(NamedTuple):
    """The newest intact checkpoint of a run.

    Attributes:
        state: Its content.
        file: Its file.
        damaged: Damaged newer checkpoints.
    """

    state: dict[str, Any]
    file: Path
    damaged: list[Path]


def listed(run: Path) -> list[Path]:
    """The checkpoint files of a run, newest first."""
    return sorted((file for file in (run / FOLDER).glob("step-*.pt") if NAME.fullmatch(file.name)), reverse=True)


def write(run: Path, state: dict[str, Any]) -> Path:
    """Write a checkpoint of state["step"] and keep the one before it.

    Checkpoints of later steps are deleted: they are damaged ones that a resumed run has skipped.

    Returns:
        Its file.
    """
    stream = io.BytesIO()
    torch.save({"format": FORMAT, **state}, stream)
    data = stream.getvalue()
    file = run / FOLDER / f"step-{state['step']:08d}-{hashlib.sha256(data).hexdigest()[:16]}.pt"
    file.parent.mkdir(exist_ok=True)
    # Half-written files of a process that was killed.
    for part in file.parent.glob(".step-*.part"):
        part.unlink(missing_ok=True)
    write_atomic(file, data)
    others = [each for each in listed(run) if each != file]
    before = [each for each in others if step_of(each) < state["step"]]
    for each in set(others) - set(before[: KEPT - 1]):
        each.unlink(missing_ok=True)
    return file


def newest(run: Path) -> Checkpoint | None:
    """The newest intact checkpoint; None if there is none."""
    damaged: list[Path] = []
    for file in listed(run):
        state = _read(file)
        if state is not None:
            return Checkpoint(state, file, damaged)
        damaged.append(file)
    return None


def fault(state: dict[str, Any], model: nn.Module, *, averaged: bool, steps: int) -> str | None:
    """Why a run cannot continue from a checkpoint, for example because it belongs to another config; None if it can."""
    for name, kind in PARTS.items():
        if not isinstance(state.get(name), kind) or isinstance(state[name], bool):
            return f"{name} is {type(state[name]).__name__}" if name in state else f"{name} is missing"
    if not 0 <= state["step"] <= steps:
        return f"step is {state['step']}, the run has {steps}"
    for name, keys in KEYS.items():
        if state[name] is not None and not state[name].keys() >= keys:
            return f"{name} lacks {', '.join(sorted(keys - state[name].keys()))}"
    if averaged != (state["average"] is not None):
        return "average is missing" if averaged else "it has an average, the run has none"
    expected = {name: list(value.shape) for name, value in model.state_dict().items()}
    for part in ("model", "average") if averaged else ("model",):
        shapes = {name: list(value.shape) for name, value in state[part].items() if torch.is_tensor(value)}
        for name in {**expected, **shapes}:
            if shapes.get(name) != expected.get(name):
                has, needs = (each.get(name, "no tensor") for each in (shapes, expected))
                return f"{part} has {has} for {str(name)[:100]}, the network {needs}"
    return None


def step_of(file: Path) -> int:
    """The step of a checkpoint file."""
    return int(file.name.split("-")[1])


def _read(file: Path) -> dict[str, Any] | None:
    named = NAME.fullmatch(file.name)
    try:
        data = file.read_bytes()
        if named is None or hashlib.sha256(data).hexdigest()[:16] != named[2]:
            return None
        state = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception:  # whatever a damaged file makes torch raise
        return None
    return state if isinstance(state, dict) and state.get("format") == FORMAT else None
