"""Your own files as a task: `from_path` recognises their kind and hands them to a reader.

    npz                       arrays x [n, T] or [n, T, C] and y; or x_train, y_train, x_test, y_test     binary.py
    csv, tsv, txt             a labelled series in each line, or a step in each line with an id           tables.py
    ts                        the format of the UEA and UCR archives                                       ts.py
    h5, hdf5                  events: spikes/times, spikes/units, labels                                   events.py
    folder                    a sub-folder for each class: wav, npy, csv, tsv or txt, one sequence each     binary.py

Text files may be compressed (gz, bz2, xz, zip). What is read is checked as `from_arrays` does.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..arrays import make_task
from ..samples import Reading, Samples
from ..store import checksum
from ..task import DataError, Task
from . import binary, events, tables, ts
from .recordings import Recordings, Settings

KINDS: dict[str, Callable[[Path, Settings], Recordings | None]] = {
    ".csv": tables.read_table, ".tsv": tables.read_table, ".txt": tables.read_table, ".ts": ts.read_ts,
    ".h5": events.read_events, ".hdf5": events.read_events, ".npz": binary.read_npz,
}  # fmt: skip
# Settings that say how files are read, whichever they are.
READING = ("label", "id", "per_step", "separator", "bin", "pool", "units", "rate", "frame", "missing", "padded")
COMPRESSED = (".gz", ".bz2", ".xz", ".zip")
PARTS = ("train", "test", "validation")
# Sound is framed so that recordings have at most this many steps on average, see docs/experiments/spoken-digits.md.
SOUND = 500


def from_path(
    path: str | os.PathLike[str], *, test: str | os.PathLike[str] | float | None = None,
    validation: str | os.PathLike[str] | float | None = 0.1, label: str | int | None = None,
    id: str | int | None = None, per_step: bool = False, separator: str | None = None, bin: float = 0.01,
    pool: int = 1, units: int | None = None, rate: int | None = None, frame: int | None = None,
    missing: str = "refuse", padded: bool = True, name: str | None = None, class_names: Sequence[str] | None = None,
) -> Task:  # fmt: skip
    """Make a task of files: npz, csv, tsv, txt, ts, h5, or a folder for each class.

    A folder with sub-folders `train` and `test` (and `validation`), or an npz with x_test and y_test, brings its own
    test data; a fraction to hold out then has no effect.

    Args:
        path: A file or folder.
        test: File or folder of test data, or the fraction of `path` to hold out; None for no test split.
        validation: File or folder of validation data, or the fraction to hold out of what remains; None as in
            `from_arrays`.
        label: Column of the labels in a table, by its name or its number from 1 (−1 is the last), or array of the
            labels in an npz. By default a column called label, class or target, else the first one.
        id: Column that names the series, in tables with one step in each line. None: one series in each line.
        per_step: Whether such tables have a label for each step.
        separator: The character between two cells; None recognises it.
        bin: Seconds in a time step, for events.
        pool: Neighbouring units that become one channel, for events.
        units: Number of units, for events; None is the largest that occurs.
        rate: Samples a second that wav files must have; None takes any, the same in all.
        frame: Consecutive steps that become one, with as many more channels: shorter sequences. None: 1, and for wav
            files a power of two with which recordings have at most 500 steps on average.
        missing: What to do with missing values, see `from_arrays`.
        padded: Whether missing values at the end of a sequence are padding, to be cut.
        name: Name of the task; None is that of the file.
        class_names: The classes in their order; None takes those that occur, sorted.

    Returns:
        The task. Its `source` records path, settings and checksums.

    Raises:
        DataError: If a file is missing, damaged or unfit; names the file, line and column.

    Example:
        >>> task = from_path("machines.csv", label="state", test=0.2)
    """
    settings = Settings(
        label=label, id=id, per_step=per_step, separator=separator, bin=bin, pool=pool, units=units,
        rate=rate,
    )  # fmt: skip
    if frame is not None and (isinstance(frame, bool) or not isinstance(frame, int) or frame < 1):
        raise DataError(f"from_path: frame must be a positive integer, got {frame!r}")
    reading = Reading("from_path", missing, padded)
    paths, held_out = _parts(path, test, validation)
    if settings.units is None and _kind(paths["train"]) in (".h5", ".hdf5"):
        settings = replace(settings, units=max(events.count_units(file) for file in paths.values()))
    recordings = {}
    for split, file in paths.items():
        recordings[split] = _read(file, settings)
        settings = replace(settings, rate=recordings["train"].rate if settings.rate is None else settings.rate)
    frame = _frame([*recordings.values()]) if frame is None else frame
    if paths["train"].suffix.lower() == ".npz" and "test" not in paths:
        own = binary.read_npz(paths["train"], settings, "test")
        recordings |= {} if own is None else {"test": own}
    numeric = all(_is_number(label) for label in _flat(recordings["train"].y))
    samples: dict[str, Any] = {}
    for split, recording in recordings.items():
        which = "" if split == "train" else f"{split} "
        labels = [_as_number(label) for label in recording.y] if numeric else recording.y
        here = replace(reading, which=which, where=recording.where)
        samples[split] = _framed(Samples.of(here, recording.x, labels), frame)
    task = make_task(
        samples["train"], test=samples.get("test", held_out["test"]),
        validation=samples.get("validation", held_out["validation"]), name=name or _name(path),
        class_names=class_names,
    )  # fmt: skip
    options = {
        **asdict(settings), "frame": frame, "missing": missing, "padded": padded, "name": name, **held_out,
        "class_names": None if class_names is None else [*class_names],
    }  # fmt: skip
    source = {
        "path": os.path.abspath(path),
        # No validation data is a choice of its own.
        "settings": {key: value for key, value in options.items() if value is not None or key == "validation"},
        "checksum": {str(file.absolute()): _checksum(file) for file in paths.values()},
    }
    return replace(task, source=source)


def _parts(path: Any, test: Any, validation: Any) -> tuple[dict[str, Path], dict[str, Any]]:
    """The files or folders of each split, and what the caller asked for as JSON types."""
    root = _existing("path", path)
    paths = {"train": root}
    inside = {place.name for place in root.iterdir() if place.is_dir()} if root.is_dir() else set()
    if "train" in inside and inside <= {*PARTS}:
        paths = {part: root / part for part in PARTS if part in inside}
    held_out = {"test": test, "validation": validation}
    for split, part in held_out.items():
        if isinstance(part, str | os.PathLike):
            paths[split] = _existing(split, part)
            held_out[split] = str(paths[split].absolute())
    return paths, held_out


def _name(path: str | os.PathLike[str]) -> str:
    """The name of a file without its endings."""
    whole = Path(os.path.abspath(path)).name
    return whole.split(".")[0] or whole or "own"


def _existing(name: str, path: Any) -> Path:
    try:
        place = Path(path).expanduser()
        exists = place.exists()
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"from_path: {name} must be a file or folder, got {path!r}: {error}") from None
    # An empty text would be the folder one is in.
    if not exists or path == "":
        got = "an empty text" if path == "" else f"{place}, which does not exist"
        raise DataError(f"from_path: {name} must be a file or folder, got {got}")
    if not os.access(place, os.R_OK | (os.X_OK if place.is_dir() else 0)):
        raise DataError(f"from_path: {name} {place} cannot be read: permission denied")
    return place


def _kind(file: Path) -> str:
    endings = [ending.lower() for ending in file.suffixes]
    return endings[-2] if len(endings) > 1 and endings[-1] in COMPRESSED else (endings or [""])[-1]


def _read(file: Path, settings: Settings) -> Recordings:
    if file.is_dir():
        return binary.read_folder(file, settings)
    kind = _kind(file)
    if kind not in KINDS:
        raise DataError(f"from_path: {file} must be a folder or a file of type {', '.join(KINDS)}, got {kind or file}")
    recordings = KINDS[kind](file, settings)
    assert recordings is not None
    if not recordings.x:
        raise DataError(f"from_path: {file} must hold sequences, got none")
    return recordings


def _frame(recordings: list[Recordings]) -> int:
    """The default number of steps to merge: 1, except for sound; at most the length of the shortest recording."""
    if recordings[0].rate is None:
        return 1
    lengths = [len(sequence) for each in recordings for sequence in each.x]
    frame = 1
    while sum(lengths) / len(lengths) > SOUND * frame and 2 * frame <= min(lengths):
        frame *= 2
    return frame


def _framed(samples: Samples, frame: int) -> Samples:
    """The sequences with `frame` steps in one; steps left over at the end are dropped."""
    if frame == 1:
        return samples
    if samples.per_step:
        raise DataError(f"from_path: frame must be 1 with labels per step, got {frame}")
    framed = []
    for number, sequence in enumerate(samples.sequences):
        steps = len(sequence) // frame
        if not steps:
            where = samples.reading.where(number, None, None)
            raise DataError(f"from_path: frame must be at most the {len(sequence)} steps of {where}, got {frame}")
        framed.append(sequence[: steps * frame].reshape(steps, -1))
    return replace(samples, sequences=framed)


def _flat(labels: list[Any]) -> list[Any]:
    return [each for label in labels for each in (label if isinstance(label, list) else [label])]


def _is_number(label: Any) -> bool:
    try:
        return isinstance(label, str) and abs(float(label)) < float("inf")
    except ValueError:
        return False


def _as_number(label: Any) -> Any:
    """A label of a text file as a number where it is one; "1" and "1.0" are the same class."""
    if isinstance(label, list):
        return [_as_number(each) for each in label]
    return float(label) if _is_number(label) else label


def _checksum(place: Path) -> str:
    if not place.is_dir():
        return f"sha256:{checksum(place)}"
    digest = hashlib.sha256()
    for file in sorted(place.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(place).as_posix()} {checksum(file)}\n".encode())
    return f"sha256:{digest.hexdigest()}"
