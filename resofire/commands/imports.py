"""Import the user's modules: `--import MODULE`, and `resofire train MODULE:FUNCTION`."""

import importlib
import os
import sys
import traceback
from typing import Any

from .usage import UsageError, hint

FLAG = "--import"
# Modules of the user that this command has imported.
_imported: list[str] = []


def take_imports(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split the modules of `--import MODULE` from the other arguments."""
    # Another command of this process may have imported others.
    _imported.clear()
    modules, others = [], []
    rest = iter(arguments)
    for argument in rest:
        flag, equals, module = argument.partition("=")
        if flag != FLAG:
            others.append(argument)
            continue
        module = module if equals else next(rest, "")
        if not module or module.startswith("-"):
            raise UsageError(f"{FLAG} needs a value: the name of a module, such as package.module")
        modules.append(module)
    return modules, others


def import_module(name: str, what: str = FLAG) -> Any:
    """Import a module by the name that the user wrote, with the current folder on the path, as `python -m` does.

    Raises:
        UsageError: There is no such module, or it fails; the sentence names the file and line.
    """
    if name.endswith(".py") or os.sep in name:
        dotted = name.removesuffix(".py").removeprefix(f".{os.sep}").replace(os.sep, ".")
        raise UsageError(f"{what} {name} must be the name of a module, not a file; perhaps {dotted}")
    if os.getcwd() not in map(os.path.abspath, sys.path):
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(name)
        _imported.append(name)
        return module
    except Exception as error:
        raise UsageError(f"{what} {name} cannot be imported: {_described(error)}") from error


def import_flags() -> str:
    """The flags with which another command imports the same modules."""
    return "".join(f" {FLAG} {name}" for name in dict.fromkeys(_imported))


def call(target: str, owner: str = "train:") -> Any:
    """Call a function without arguments, named as "package.module:function", and return its result.

    Raises:
        UsageError: There is no such function, or it fails.
    """
    module_name, _, name = target.partition(":")
    module = import_module(module_name, owner)
    function = getattr(module, name, None)
    if not callable(function):
        names = [each for each, value in vars(module).items() if callable(value)]
        raise UsageError(f"{owner} {module_name} has no function {name!r}{hint(name, names)}")
    try:
        return function()
    except Exception as error:
        raise UsageError(f"{owner} {target} failed: {_described(error)}") from error


def _described(error: Exception) -> str:
    """An exception of the user's code with the file and line it was raised at."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, SyntaxError):
        return text
    # Frames of the import machinery do not show the bug.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    frames = [frame for frame in frames if frame.filename not in (__file__, importlib.__file__)]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{place}"
