"""The run folder on disk: created without races, locked before the first write."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import filelock

from ..atomic import write_atomic
from .record import RunError

LOCK = ".lock"
FILES = ("run.json", "data.npz", "metrics.csv", "model.safetensors", "config.json", "result.json")
FOLDERS = ("checkpoints", "tensorboard")


def new_folder(base: str | os.PathLike[str]) -> Path:
    """Create a folder that did not exist: base, base-2, base-3, … Safe against another process doing the same.

    Raises:
        RunError: The folder cannot be created.
    """
    first, number = Path(base), 1
    try:
        first.parent.mkdir(parents=True, exist_ok=True)
        while True:
            folder = first if number == 1 else first.with_name(f"{first.name}-{number}")
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                number += 1
    except OSError as error:
        raise RunError(f"train: out {first} cannot be created: {error.strerror}") from None


def require_empty(folder: Path) -> None:
    """Refuse a run folder that is not new or empty.

    Raises:
        RunError: It contains files, or is not a folder.
    """
    try:
        others = folder.is_dir() and any(file.name != LOCK for file in folder.iterdir())
        taken = os.path.lexists(folder) and (not folder.is_dir() or others)
    except OSError as error:
        raise RunError(f"train: out {folder} cannot be used: {error.strerror}") from None
    if taken:
        raise RunError(f"train: out must be a new or empty folder, got {folder}; to continue a run, resume it")


@contextmanager
def locked(folder: Path, *, create: bool = False) -> Iterator[None]:
    """Context manager that keeps two processes from writing into one run; enter it before the first write.

    Args:
        folder: The run folder.
        create: Create it. If the block raises and leaves it empty, a folder created here is removed.

    Raises:
        RunError: Another process has the lock, or the folder cannot be written.
    """
    new = create and not folder.exists()
    lock = filelock.FileLock(folder / LOCK, timeout=0)
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout:
        raise RunError(f"train: {folder} is in use by another process") from None
    except OSError as error:
        if new:
            with suppress(OSError):
                folder.rmdir()
        raise RunError(f"train: out {folder} cannot be written: {error.strerror}") from None
    try:
        # Partial files of a process that was killed.
        for part in folder.glob(".*.part"):
            part.unlink(missing_ok=True)
        yield
    except Exception:
        # While we hold the lock, so that no other process has begun to write.
        if [file.name for file in folder.iterdir()] == [LOCK]:
            with suppress(OSError):
                (folder / LOCK).unlink()
                if new:
                    folder.rmdir()
        raise
    finally:
        lock.release()


def clear(folder: Path) -> None:
    """Remove the files of a run, and no others."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    for name in FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_atomic(file, (json.dumps(content, indent=2) + "\n").encode())
