"""resofire train."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from .runs import open_task, read_run
from .usage import UsageError


@dataclass(frozen=True)
class Train:
    """Train a network by a recipe, or go on with a run: resofire train RECIPE [flags], resofire train --resume RUN."""

    # A RunConfig; its type is not named here because that would import torch for every command.
    config: Annotated[Any, tyro.conf.arg(name="")] = None
    out: Path | None = None
    """The folder of the run; otherwise a new one under runs/."""
    resume: Path | None = None
    """Go on with the run in this folder; its config counts, other flags about it are refused."""
    data_dir: Path | None = None
    """Where the data set's files are; see resofire data."""
    devices: int | None = None
    """Processes on this machine (CPU) or GPUs; 1 if not given."""

    def run(self) -> int:
        from .. import train

        described = None if self.resume is None else read_run(self.resume)
        config = self.config if described is None else train.RunConfig.from_json(described["config"])
        assert config is not None
        if self.devices is not None and self.devices < 1:
            raise UsageError(f"train: --devices must be a positive integer, got {self.devices}")
        task = open_task(config, self.data_dir)
        try:
            if self.resume is not None:
                folder, result = train.resume(self.resume, task, devices=self.devices)
            else:
                out = self.out or _new_folder(Path("runs") / config.name)
                folder, result = train.train(config, task, out, devices=self.devices or 1)
        except train.Stopped as stopped:
            print(f"resofire: {stopped}", file=sys.stderr)
            return stopped.code
        except train.RunError as error:
            raise UsageError(str(error)) from None
        if result is not None:
            print(train.report(folder, result))
            print(f"to measure it again: resofire evaluate {folder}")
        return 0


def _new_folder(first: Path) -> Path:
    """A folder that is not there yet: runs/name, runs/name-2, …"""
    folder, number = first, 1
    while folder.exists():
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    return folder
