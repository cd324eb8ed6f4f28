"""The command that trains a recorded run once more."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from .train import all_recipes, parse_train
from .usage import UsageError


def command_of(folder: Path, record: dict[str, Any]) -> str:
    """The command for a run: its recipe and the flags that differ from it, or Python with the recorded config.

    The flags are parsed before they are shown: what they give is the config of the run, or they are not shown.
    """
    from ..train import RunConfig

    config = RunConfig.from_json(record["config"])
    own = record.get("own") or {}
    recipes = all_recipes(config.name)
    if config.name in recipes and not own and "path" not in (record.get("source") or {}):
        words = [config.name, *_flags(recipes[config.name](), config)]
        try:
            if parse_train(words).config == config:
                return f"resofire train {shlex.join(words)}"
        except (UsageError, SystemExit, ValueError, TypeError):
            pass
    run, extra = str(folder), "".join(f", {part}=..." for part in own)
    code = (
        f"from resofire import train; train.train(train.RunConfig.from_json(train.read({run!r})['config']), "
        f"train.load_task({run!r}), {f'{run}-again'!r}{extra})"
    )
    return f"python -c {shlex.quote(code)}"


def _flags(base: Any, target: Any, prefix: str = "--") -> list[str]:
    """The flags that turn one config into another."""
    words: list[str] = []
    for field in dataclasses.fields(target):
        before, after = getattr(base, field.name), getattr(target, field.name)
        name = f"{prefix}{field.name.replace('_', '-')}"
        if before == after:
            continue
        if dataclasses.is_dataclass(after) and type(after) is type(before):
            words += _flags(before, after, f"{name}.")
        elif isinstance(after, dict):
            for key, value in after.items():
                if before.get(key) != value:
                    words += [f"{name}.{key.replace('_', '-')}", *_words(value)]
        elif isinstance(after, bool):
            words.append(name if after else f"{prefix}no-{field.name.replace('_', '-')}")
        else:
            words += [name, *_words(after)]
    return words


def _words(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, tuple) else [str(value)]
