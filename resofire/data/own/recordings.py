"""The result of every reader of files, and the settings that they share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..samples import Where, place
from ..task import DataError

# The most bytes of a file of the user's own, unpacked: more is a bomb or does not fit into memory.
LARGEST = 4 * 2**30


class Recordings(NamedTuple):
    """Sequences [T] or [T, C] and their labels, as read, and the function that names the place of a value.

    Of sound also its samples a second.
    """

    x: list[Any]
    y: list[Any]
    where: Where
    rate: int | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to read files; `from_path` documents each."""

    label: str | int | None = None
    id: str | int | None = None
    per_step: bool = False
    separator: str | None = None
    bin: float = 0.01
    pool: int = 1
    units: int | None = None
    rate: int | None = None

    def __post_init__(self) -> None:
        for name in ("label", "id"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, str | int | None) or value == "":
                raise DataError(f"from_path: {name} must be the name or number of a column, got {value!r}")
        if not isinstance(self.per_step, bool):
            raise DataError(f"from_path: per_step must be True or False, got {self.per_step!r}")
        if self.separator is not None and not (isinstance(self.separator, str) and len(self.separator) == 1):
            raise DataError(f"from_path: separator must be one character, got {self.separator!r}")
        if isinstance(self.bin, bool) or not isinstance(self.bin, int | float) or not 0 < self.bin < float("inf"):
            raise DataError(f"from_path: bin must be a positive number of seconds, got {self.bin!r}")
        for name in ("pool", "units", "rate"):
            value = getattr(self, name)
            if value is None and name != "pool":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise DataError(f"from_path: {name} must be a positive integer, got {value!r}")


def in_file(file: Path) -> Where:
    """Places in a file of arrays."""

    def where(sequence: int, step: int | None = None, channel: int | None = None) -> str:
        return f"{file}, {place(sequence, step, channel)}"

    return where
