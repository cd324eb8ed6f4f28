"""resofire train: from a recipe or the user's function, or resume a run."""

import contextlib
import dataclasses
import importlib
import shlex
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..extras import MissingExtraError
from .imports import call, import_flags
from .neuron_flag import choose_neurons
from .parsing import FOOTER, Count, Folder, flag_names, parse
from .runs import load_task, open_task, read_config
from .usage import UsageError, hint, require_positive

# The flags that --resume allows.
WITH_RESUME = ("--resume", "--data-dir", "--devices")


@dataclass(frozen=True)
class Train:
    """Train from a recipe or your own function, or resume a run."""

    # A RunConfig. Naming the type would import torch for every command.
    config: Annotated[Any, tyro.conf.arg(name="")] = None
    out: Folder = None
    """Folder of the run. Default: a new one under runs/."""
    resume: Folder = None
    """Resume the run in this folder, with its own settings."""
    data_dir: Folder = None
    """Folder with the files of the data set; see resofire data --help."""
    devices: Count = None
    """Processes on this machine (CPU) or GPUs. Default: 1, or that of the resumed run."""
    task: tyro.conf.Suppress[Any] = None

    def run(self) -> int:
        from .. import train

        require_positive("train: --devices", self.devices)
        try:
            if self.resume is not None:
                task = open_task(self.resume, self.data_dir)
                folder, result = train.resume(self.resume, task, devices=self.devices)
            else:
                task = load_task(self.config, self.data_dir) if self.task is None else self.task
                folder, result = train_in_folder(self.config, task, self.out, self.devices or 1)
        except train.Stopped as stopped:
            print(f"resofire: {stopped}{import_flags() if stopped.by_command else ''}", file=sys.stderr)
            return stopped.code
        except train.RunError as error:
            raise UsageError(str(error)) from None
        if result is not None:
            name = f"{shlex.quote(str(folder))}{import_flags()}"
            print(f"evaluate it with: resofire evaluate {name}")
            print(f"see it with: resofire report {name}")
            print(train.report(folder, result))
        return 0


def train_in_folder(config: Any, task: Any, out: Path | None, devices: int = 1) -> Any:
    """Train in a folder, by default a new one under runs/; remove it again if the run cannot begin."""
    from .. import train
    from ..train.processes import rank

    base = Path("runs") / config.name
    if out is not None or rank() > 0:
        # Only the first process writes; the others create no folder.
        return train.train(config, task, out or base, devices=devices)
    folder = train.new_folder(base)
    try:
        return train.train(config, task, folder, devices=devices)
    except Exception:
        # Both only succeed on an empty folder, that is, if the run has not begun.
        with contextlib.suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()
        raise


def parse_train(arguments: list[str]) -> Train:
    """Parse the arguments. A recipe or function provides the defaults of all flags, so it must come first."""
    first, *flags = arguments or [""]
    if "--resume" in flag_names(arguments):
        return _parse_resume(arguments)
    if first in ("-h", "--help"):
        print(_help())
        raise SystemExit(0)
    config, task = _config_and_task(first)
    config, flags = choose_neurons(config, flags)
    program = f"resofire train {first}"
    command = parse(Train, flags, program, Train(config))
    if command.config.steps is not None and "--epochs" in flag_names(flags):
        raise UsageError(f"train: --epochs has no effect with {command.config.steps} steps; add --steps None")
    if task is not None and command.data_dir is not None:
        raise UsageError(f"train: --data-dir has no effect, {first} returns its own data")
    return dataclasses.replace(command, task=task)


def _config_and_task(name: str) -> tuple[Any, Any]:
    """The RunConfig of a recipe or a function, and the Task if the function returns one."""
    if ":" in name and not name.startswith("-"):
        return _require_run(name, call(name))
    recipes = all_recipes(name)
    if name in recipes:
        return recipes[name](), None
    close = hint(name, recipes)
    if close:
        raise UsageError(f"train: there is no recipe {name!r}{close}; resofire train --help lists them")
    got = f", got {name!r}" if name else ""
    first = " the first word," if name.startswith("-") else ""
    raise UsageError(f"train: recipe must be{first} one of {', '.join(recipes)} or package.module:function{got}")


def all_recipes(name: str = "") -> dict[str, Any]:
    """All registered recipes; those of the paper's ablations are registered by `resofire.paper`."""
    from ..recipes import RECIPES

    if name not in RECIPES:
        with contextlib.suppress(MissingExtraError):
            importlib.import_module("resofire.paper")
    return dict(RECIPES)


def _require_run(name: str, value: Any) -> tuple[Any, Any]:
    """Check what a user's function returned: a RunConfig, or a RunConfig and a Task."""
    from ..data import Task
    from ..train import RunConfig

    pair = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    if not isinstance(pair[0], RunConfig) or not isinstance(pair[1], Task | None):
        kinds = ", ".join(type(each).__name__ for each in pair if each is not None)
        raise UsageError(f"train: {name} must return a RunConfig or a pair (RunConfig, Task), got {kinds or 'None'}")
    return pair


def _parse_resume(arguments: list[str]) -> Train:
    for flag in flag_names(arguments):
        if flag not in (*WITH_RESUME, "--help"):
            raise UsageError(
                f"train: --resume takes the run's own settings: {flag} cannot be given with it{hint(flag, WITH_RESUME)}"
            )
    words = [
        argument
        for before, argument in zip(["", *arguments], arguments, strict=False)
        if not argument.startswith("-") and (not before.startswith("--") or "=" in before)
    ]
    if words:
        raise UsageError("train: --resume takes the run's own settings: no recipe can be given with it")
    command = parse(Resume, arguments, "resofire train")
    read_config(command.resume)
    return Train(resume=command.resume, data_dir=command.data_dir, devices=command.devices)


@dataclass(frozen=True)
class Resume:
    """Resume a run: resofire train --resume RUN."""

    resume: Path
    """Folder of the run."""
    data_dir: Folder = None
    """Folder with the files of the data set; see resofire data --help."""
    devices: Count = None
    """Processes on this machine (CPU) or GPUs. Default: that of the run."""


def _help() -> str:
    names = textwrap.fill(
        ", ".join(all_recipes()), 80, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
    return f"""{Train.__doc__}

  resofire train RECIPE [flags]
  resofire train package.module:function [flags]    a function that returns a RunConfig or (RunConfig, Task)
  resofire train --resume RUN

Recipes:
{names}

All settings of a recipe are flags: resofire train RECIPE --help
{FOOTER}"""
