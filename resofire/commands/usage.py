"""Errors that the user can correct, each one sentence, and the checks that many commands share."""

import contextlib
import difflib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..atomic import require_regular


class UsageError(Exception):
    """An error the user can correct: exit code 2. Its text is the sentence that is shown."""


def hint(word: str, valid: Iterable[str]) -> str:
    """The closest valid word as a suggestion, or nothing."""
    close = difflib.get_close_matches(word, list(valid), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def require_one_of(what: str, word: str, valid: Iterable[str]) -> None:
    """Refuse a word that is not among the valid ones, with a suggestion."""
    valid = list(valid)
    if word not in valid:
        raise UsageError(f"{what} must be one of {', '.join(valid)}, got {word!r}{hint(word, valid)}")


def require_positive(what: str, value: int | None) -> None:
    """Refuse an integer below 1. None means that the flag was not given."""
    if value is not None and value < 1:
        raise UsageError(f"{what} must be a positive integer, got {value}")


def require_minutes(what: str, value: float | None) -> None:
    """Refuse a budget that is not a positive number. None means that the flag was not given."""
    if value is not None and not 0 < value < float("inf"):
        raise UsageError(f"{what} must be a positive number, got {value:g}")


def require_writable(flag: str, file: Path, folder: bool = False) -> None:
    """Create the folder of a target, and refuse one that cannot be written before any work is done."""
    with writing(flag, file):
        if folder and file.exists() and not file.is_dir():
            raise UsageError(f"{flag} must name a folder, got the file {file}")
        if not folder and file.is_dir():
            raise UsageError(f"{flag} must name a file, got the folder {file}")
        if not folder:
            require_regular(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise UsageError(f"{flag} {file} cannot be written: permission denied")


@contextlib.contextmanager
def writing(flag: str, target: Path) -> Iterator[None]:
    """Turn an OSError inside, such as a full disk, into one sentence about the flag and its target."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{flag} {target} cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def as_usage_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds, whose texts are sentences for the user, into usage errors."""
    try:
        yield
    except kinds as error:
        raise UsageError(str(error)) from None
