"""The command line. Exit codes: 0 success, 1 failed verification, 2 usage error in one sentence, 130 interrupted.

Little is imported up here: Ctrl-C must not meet a traceback while Python still loads the rest.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from . import __version__, extras


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Everything after the program's name; by default those of this process.

    Returns:
        The exit code.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        _tolerate_encoding()
        try:
            code = _run(arguments)
        except SystemExit:
            # Help is printed, and must have arrived, too.
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    except BrokenPipeError:
        # Whoever read the output, e.g. head, has enough.
        _drop_output()
        return 1
    except OSError as error:
        return _fail(_unwritten(error), 1)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        print(f"resofire {__version__}")
        return 0
    try:
        from .commands.imports import import_module, take_imports
        from .commands.usage import UsageError
    except ModuleNotFoundError as error:
        return _fail(_missing(error), 2)
    try:
        modules, arguments = take_imports(arguments)
        with _terminable(), _starting(arguments):
            command = _command(arguments, modules, import_module)
        with _terminable():
            return command.run()
    except UsageError as error:
        return _fail(str(error), 2)
    except ModuleNotFoundError as error:
        return _fail(_missing(error), 2)


def _command(arguments: list[str], modules: list[str], import_module: Any) -> Any:
    from .commands import COMMANDS, UsageError, overview, parse_command

    if not arguments:
        raise UsageError(f"command must be one of {', '.join(COMMANDS)}; see resofire --help")
    if arguments[0] in ("-h", "--help"):
        print(overview())
        raise SystemExit(0)
    for module in modules:
        import_module(module)
    return parse_command(arguments)


def _fail(sentence: str, code: int) -> int:
    print(f"resofire: {sentence}", file=sys.stderr)
    return code


def _missing(error: ModuleNotFoundError) -> str:
    """One sentence for a package of an extra; anything else is a broken installation and keeps its traceback."""
    if isinstance(error, extras.MissingExtraError):
        return str(error)
    sentence = extras.advice(error.name)
    if sentence is None:
        raise error
    return sentence


def _unwritten(error: OSError) -> str:
    """Whether it was standard output that failed: then what it holds still cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as again:
        _drop_output()
        return f"standard output cannot be written: {again.strerror}"
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _drop_output() -> None:
    """Send what standard output still holds nowhere, or Python complains once more when it closes it."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tolerate_encoding() -> None:
    """Print letters that the terminal does not have as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _starting(arguments: list[str]) -> Iterator[None]:
    """Show a line in a terminal at once: recipes need torch, which takes seconds to import."""
    shown = arguments[:1] == ["train"] and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if shown:
        print("resofire: starting ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Inside it, SIGTERM unwinds as Ctrl-C does, so that what is half written is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
