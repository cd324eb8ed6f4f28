"""What a user can put right, in one sentence."""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path


class UsageError(Exception):
    """Something the user can put right. Its text is the sentence that is shown."""


def hint(word: str, valid: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(valid), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def require_writable(flag: str, file: Path) -> None:
    """Makes the folder of a result, before anything is worked out for it."""
    try:
        if file.is_dir():
            raise UsageError(f"{flag} must name a file, got the folder {file}")
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{flag} {file} cannot be written: {error.strerror}") from None
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UsageError(f"{flag} {file} cannot be written: permission denied")
