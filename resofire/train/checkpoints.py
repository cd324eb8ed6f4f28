"""Checkpoints: what a run needs to go on, written whole or not at all, and known by a checksum in their names.

    checkpoints/step-00001200-3f2a….pt

The two last written are kept. One that does not match its name is passed over for the one before.
"""

import hashlib
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..atomic import write_atomic

FOLDER = "checkpoints"
FORMAT = 1
KEPT = 2
NAME = re.compile(r"step-(\d{8})-([0-9a-f]{16})\.pt")


class Found(NamedTuple):
    """A checkpoint that is whole, and those newer ones that are not."""

    state: dict[str, Any]
    file: Path
    passed_over: list[Path]


def listed(run: Path) -> list[Path]:
    """The checkpoints of a run, the newest first."""
    return sorted((file for file in (run / FOLDER).glob("step-*.pt") if NAME.fullmatch(file.name)), reverse=True)


def write(run: Path, state: dict[str, Any]) -> Path:
    """Adds one for state["step"] and keeps the one before it.

    Of later steps there are only damaged ones, which a run that goes on has passed over: they are dropped."""
    held = io.BytesIO()
    torch.save({"format": FORMAT, **state}, held)
    data = held.getvalue()
    file = run / FOLDER / f"step-{state['step']:08d}-{hashlib.sha256(data).hexdigest()[:16]}.pt"
    file.parent.mkdir(exist_ok=True)
    # What a process that was killed had half written.
    for part in file.parent.glob(".step-*.pt.part"):
        part.unlink(missing_ok=True)
    write_atomic(file, data)
    others = [each for each in listed(run) if each != file]
    before = [each for each in others if _step(each) < state["step"]]
    for each in set(others) - set(before[: KEPT - 1]):
        each.unlink(missing_ok=True)
    return file


def newest(run: Path) -> Found | None:
    """The newest one that is whole, or None if there is none."""
    damaged: list[Path] = []
    for file in listed(run):
        state = _read(file)
        if state is not None:
            return Found(state, file, damaged)
        damaged.append(file)
    return None


def _step(file: Path) -> int:
    return int(file.name.split("-")[1])


def _read(file: Path) -> dict[str, Any] | None:
    named = NAME.fullmatch(file.name)
    try:
        data = file.read_bytes()
        if named is None or hashlib.sha256(data).hexdigest()[:16] != named[2]:
            return None
        state = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception:  # whatever a damaged file makes torch say
        return None
    return state if isinstance(state, dict) and state.get("format") == FORMAT else None
