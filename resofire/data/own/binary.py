"""Arrays and sound on disk: npz with sequences and labels, and npy, wav and text files that are one sequence each."""

import io
import wave
from pathlib import Path
from typing import Any

import numpy as np

from ..archives import BROKEN, Bounds, archived
from ..files import read
from ..samples import Where
from ..store import array_from
from ..task import DataError
from .recordings import LARGEST, Recordings, Settings, in_file
from .tables import read_signal

X, Y = ("x", "X", "data", "sequences"), ("y", "Y", "labels", "label")
SIGNALS = (".wav", ".npy", ".csv", ".tsv", ".txt")


def read_npz(file: Path, settings: Settings, split: str = "train") -> Recordings | None:
    """Read the arrays x and y of an npz, or x_SPLIT and y_SPLIT; None if it has none for the test split."""
    try:
        bounds = Bounds(lambda path: LARGEST, kept=LARGEST, total=LARGEST)
        arrays = {path.removesuffix(".npy"): array_from(raw) for path, raw in archived(file, bounds)}
    except BROKEN as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"from_path: {file} must be an npz of plain arrays, it cannot be read: {reason}") from None
    forms = [f"{{}}_{split}", f"{split}_{{}}", *(["{}"] if split == "train" else [])]
    for form in forms:
        for x in X:
            for y in Y if settings.label is None else (settings.label,):
                names = form.format(x), str(y) if settings.label is not None else form.format(y)
                if names[0] in arrays and names[1] in arrays:
                    sequences, labels = (_items(file, name, arrays[name]) for name in names)
                    return Recordings(sequences, labels, in_file(file))
    if split == "test":
        return None
    names_there = ", ".join([*arrays][:10]) or "none"
    expected = "x and y" if settings.label is None else f"x and {settings.label}"
    raise DataError(f"from_path: {file} must hold arrays {expected} (or x_train, y_train), got {names_there}")


def _items(file: Path, name: str, array: np.ndarray) -> list[Any]:
    if array.ndim == 0:
        raise DataError(f"from_path: {file} must hold an array of sequences or labels in {name}, got a single value")
    return [*array] if array.ndim > 1 else array.tolist()


def read_folder(folder: Path, settings: Settings) -> Recordings:
    """Read a folder with a sub-folder for each class, whose files are one sequence each."""
    classes = sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))
    x, y = [], []
    places: list[Where] = []
    rates: dict[int, Path] = {}
    for place in classes:
        files = sorted(file for file in place.iterdir() if file.suffix.lower() in SIGNALS and _visible(file))
        if not files:
            raise DataError(f"from_path: {place} must hold files of type {', '.join(SIGNALS)}, got none")
        for file in files:
            values, inside, rate = read_one(file, settings)
            if rate is not None:
                rates.setdefault(rate, file)
            x.append(values)
            y.append(place.name)
            places.append(inside)
    if len(rates) > 1:
        (rate, file), (other, second) = [*rates.items()][:2]
        raise DataError(f"from_path: {second} must have {rate} samples a second like {file}, got {other}")
    for rate, file in rates.items():
        if settings.rate not in (None, rate):
            raise DataError(f"from_path: {file} must have {settings.rate} samples a second, got {rate}")
    if not classes:
        raise DataError(f"from_path: {folder} must hold a folder for each class, got none")

    def where(sequence: int, step: int | None = None, channel: int | None = None) -> str:
        return places[sequence](sequence, step, channel)

    return Recordings(x, y, where, next(iter(rates), None))


def read_one(file: Path, settings: Settings) -> tuple[np.ndarray, Where, int | None]:
    """Read a file that is one sequence: [T] or [T, C], the names of its places and, of sound, its sampling rate."""
    kind, rate = file.suffix.lower(), None
    lines: list[int] | None = None
    if kind == ".wav":
        values, rate = read_wav(file, read(file, LARGEST))
    elif kind == ".npy":
        raw = read(file, LARGEST)
        try:
            values = array_from(raw)
        except ValueError as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"from_path: {file} must be an array, it cannot be read: {reason}") from None
    else:
        values, lines = read_signal(file, settings.separator)

    def where(sequence: int, step: int | None = None, channel: int | None = None) -> str:
        if step is None:
            return str(file)
        if lines is None:
            return f"{file}, step {step}" + ("" if channel is None else f", channel {channel}")
        one_line = len({*lines}) == 1
        column = step if one_line else channel
        return f"{file}, line {lines[step]}" + ("" if column is None else f", column {column + 1}")

    return values, where, rate


def read_wav(file: Path, raw: bytes) -> tuple[np.ndarray, int]:
    """Read the samples of a wav file with PCM samples of 8 to 32 bits: [T, channels] float32 in [−1, 1), and its rate.

    Raises:
        DataError: It is damaged, empty or malformed.
    """
    try:
        with wave.open(io.BytesIO(raw)) as opened:
            channels, width, rate = opened.getnchannels(), opened.getsampwidth(), opened.getframerate()
            frames = opened.readframes(opened.getnframes())
    except (wave.Error, *BROKEN) as error:
        reason = " ".join(str(error).split())[:200] or "it ends too early"
        raise DataError(f"from_path: {file} must be a wav with PCM samples, it cannot be read: {reason}") from None
    count = len(frames) // (channels * width)
    if not count or width not in (1, 2, 3, 4):
        raise DataError(f"from_path: {file} must hold samples of 8 to 32 bits, got {count} of {8 * width}")
    octets = np.frombuffer(frames, np.uint8)[: count * channels * width].reshape(count, channels, width)
    if width == 1:
        return (octets[..., 0].astype(np.float32) - 128) / 128, rate
    # The bytes of a sample as the upper ones of 32 bits.
    padded = np.zeros((count, channels, 4), np.uint8)
    padded[..., 4 - width :] = octets
    return (padded.view("<i4")[..., 0] / 2.0**31).astype(np.float32), rate


def _visible(file: Path) -> bool:
    return file.is_file() and not file.name.startswith(".")
