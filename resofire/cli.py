"""The command line. Exit codes: 0 success, 1 failed verification, 2 usage error in one sentence, 130 interrupted.

Little is imported up here: Ctrl-C must not meet a traceback while Python still loads the rest.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import __version__, extras

# Longer messages are shortened: they may quote an argument of any length.
LONGEST = 1500


class OutputError(OSError):
    """Standard output cannot be written, for instance because the disk is full."""


class _Output:
    """Standard output that raises `OutputError`, to tell its errors from those of files."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> Any:
        return self._attempt(self._stream.write, text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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
        with _guarded_output() as output:
            try:
                code = _run(arguments)
            except SystemExit:
                # Printed help must be flushed, too.
                output.flush()
                raise
            output.flush()
            return code
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    except BrokenPipeError:
        # The reader, e.g. head, has closed the pipe.
        _drop_output()
        return 1
    except OutputError as error:
        _drop_output()
        return _fail(f"standard output cannot be written: {error.strerror}", 1)
    except OSError as error:
        return _fail(f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}", 1)


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
        with _starting(arguments):
            command = _command(arguments, modules, import_module)
        with _handling(_terminated, signal.SIGTERM), _no_lost_signals():
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
    command = parse_command(arguments)
    if any(hasattr(command, name) for name in ("model", "runs", "folder")):
        # Its network needs torch: better here, where a signal ends the import at once.
        from .commands.runs import preload

        preload()
    return command


def _fail(sentence: str, code: int) -> int:
    if len(sentence) > LONGEST:
        sentence = f"{sentence[: LONGEST // 2]} ... {sentence[-LONGEST // 4 :]}"
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


def _drop_output() -> None:
    """Discard what standard output still buffers, or Python complains again when it closes it."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tolerate_encoding() -> None:
    """Print characters that the terminal does not have as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _guarded_output() -> Iterator[_Output]:
    """Inside it, a failing standard output raises OutputError."""
    before, output = sys.stdout, _Output(sys.stdout)
    sys.stdout = output
    try:
        yield output
    finally:
        sys.stdout = before


@contextlib.contextmanager
def _starting(arguments: list[str]) -> Iterator[None]:
    """While modules load: a first line in a terminal at once, and signals that end the process at once.

    torch takes seconds to import. An exception raised there by a signal may be swallowed by whatever is being imported,
    and there is nothing to clean up yet.
    """
    shown = arguments[:1] in (["train"], ["fit"]) and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    erase = "\r\x1b[K" if shown else ""

    def leave(number: int, frame: object) -> None:
        os.write(2, f"{erase}resofire: stopped\n".encode())
        os._exit(128 + number)

    if shown:
        print("resofire: starting ...", end="", file=sys.stderr, flush=True)
    try:
        with _handling(leave, signal.SIGINT, signal.SIGTERM):
            yield
    finally:
        print(erase, end="", file=sys.stderr, flush=True)


def _terminated(number: int, frame: object) -> None:
    """Unwind as Ctrl-C does, so that what is half written is removed."""
    sys.exit(128 + number)


@contextlib.contextmanager
def _no_lost_signals() -> Iterator[None]:
    """Inside it, a signal that arrives in a destructor or a library's callback is sent again.

    Python only prints an exception that is raised there, with its traceback.
    """
    before, timers = sys.unraisablehook, list[threading.Timer]()

    def again(ignored: Any) -> None:
        if not isinstance(ignored.exc_value, BaseException) or isinstance(ignored.exc_value, Exception | GeneratorExit):
            before(ignored)
            return
        number = signal.SIGTERM if isinstance(ignored.exc_value, SystemExit) else signal.SIGINT
        timers.append(threading.Timer(0.05, os.kill, (os.getpid(), number)))
        timers[-1].daemon = True
        timers[-1].start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()


@contextlib.contextmanager
def _handling(handler: Callable[[int, Any], None], *signals: signal.Signals) -> Iterator[None]:
    """Inside it, a handler for some signals. Only the main thread may have one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, handler) for each in signals}
    try:
        yield
    finally:
        for each, previous in before.items():
            signal.signal(each, previous)


if __name__ == "__main__":
    sys.exit(main())
