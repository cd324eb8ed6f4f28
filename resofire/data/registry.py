"""The registry of data sets. Your own package registers its data sets as the files in this folder do:

@data.dataset("vibration", about="bearing faults at 12 kHz")
def vibration(data_dir=None, *, window=1024) -> data.Task: ...
"""

import dataclasses
import difflib
import inspect
import os
from collections.abc import Callable, KeysView
from typing import Any, NamedTuple, TypeVar

from .task import DataError, Task

Loader = TypeVar("Loader", bound=Callable[..., Task])


class _Entry(NamedTuple):
    function: Callable[..., Task]
    about: str
    preset: dict[str, Any]


_ENTRIES: dict[str, _Entry] = {}
# A live view: data sets registered later appear in it.
NAMES: KeysView[str] = _ENTRIES.keys()


def register(name: str, function: Callable[..., Task], about: str = "", **preset: Any) -> None:
    """Register a data set.

    Args:
        name: The name `load` finds it by.
        function: Called as `function(**settings)`, with `data_dir=` if one was given; returns the task.
        about: One line for `resofire data list`.
        **preset: Settings that belong to this name; `load` refuses other values for them.

    Raises:
        ValueError: If another function has the name.
    """
    if not isinstance(name, str) or not name or name != name.strip() or ":" in name:
        raise ValueError(f"data: name must be a word without a colon, got {name!r}")
    taken = _ENTRIES.get(name)
    # The same function is registered again when its module is reloaded, as in a notebook.
    if taken is not None and _path(taken.function) != _path(function):
        raise ValueError(f"data: name must be new, got {name!r}, which {_path(taken.function)} has")
    _ENTRIES[name] = _Entry(function, about, preset)


def _path(function: Callable[..., Task]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def dataset(name: str, about: str = "", **preset: Any) -> Callable[[Loader], Loader]:
    """Decorate a function to register it as a data set.

    Args:
        name: The name of the data set.
        about: One line on it, for `resofire data list`.
        preset: Settings that belong to this name; `load` refuses other values for them.

    Returns:
        The decorator; see `register` for what the function must do.
    """

    def decorate(function: Loader) -> Loader:
        register(name, function, about, **preset)
        return function

    return decorate


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        close = difflib.get_close_matches(str(name), NAMES, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise DataError(f"data: name must be one of {', '.join(NAMES)}{hint}, got {name!r}")
    return _ENTRIES[name]


def about(name: str) -> str:
    """One line on a data set.

    Raises:
        DataError: If no data set has the name.
    """
    return _entry(name).about


def load(name: str, data_dir: str | os.PathLike[str] | None = None, **settings: Any) -> Task:
    """Load a data set by name; the first time, prepare it.

    Args:
        name: One of `NAMES`.
        data_dir: Folder with its raw files; otherwise RESOFIRE_DATA. A set that is neither there nor prepared is
            downloaded or generated.
        **settings: Settings of the set, see its function.

    Returns:
        The task. Its `source` records the arguments.

    Raises:
        DataError: If the name is unknown, or a file is missing, damaged or cannot be downloaded.
        ValueError: If a setting is out of range.
    """
    entry = _entry(name)
    for key, value in entry.preset.items():
        if settings.get(key, value) != value:
            raise ValueError(f"{name}: {key} must be {value!r}, got {settings[key]!r}")
    known = inspect.signature(entry.function).parameters
    if not any(each.kind is each.VAR_KEYWORD for each in known.values()):
        for key in settings:
            if key not in known:
                names = ", ".join(each for each in known if each not in {"data_dir", *entry.preset})
                settings_are = f"settings are {names}" if names else "it has none"
                raise DataError(f"{name}: there is no setting {key!r}; {settings_are}")
    place = {"data_dir": data_dir} if data_dir else {}
    task = entry.function(**place, **{**entry.preset, **settings})
    if not isinstance(task, Task):
        raise DataError(f"{name}: {_path(entry.function)} must return a Task, got {type(task).__name__}")
    folder = os.path.abspath(os.path.expanduser(data_dir)) if data_dir else None
    return dataclasses.replace(task, name=name, source={"name": name, "settings": settings, "data_dir": folder})
