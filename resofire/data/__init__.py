"""Data sets, from files or a generator to batches. `load(name)` gives any of them; each has a file of its own."""

import dataclasses
import difflib
import importlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from .files import DataError
from .task import Batch, Split, Task

__all__ = ["NAMES", "Batch", "DataError", "Split", "Task", "about", "load"]


class _Entry(NamedTuple):
    module: str
    settings: dict[str, Any]
    about: str


_SETS = {
    "digits": _Entry("digits", {}, "1,797 handwritten digits of 8 x 8 pixels; comes with scikit-learn"),
    "smnist": _Entry("smnist", {}, "MNIST pixel by pixel"),
    "psmnist-bitrev": _Entry("psmnist", {"permutation": "bitrev"}, "MNIST, pixels in bit-reversed order"),
    "psmnist-random": _Entry("psmnist", {"permutation": "random"}, "MNIST, pixels in one random order"),
    "fashion": _Entry("fashion", {}, "Fashion-MNIST pixel by pixel"),
    "image": _Entry("image", {}, "CIFAR-10 in grey, pixel by pixel (Long Range Arena)"),
    "scifar": _Entry("scifar", {}, "CIFAR-10 in colour, pixel by pixel"),
    "text": _Entry("text", {"pipeline": "s4"}, "IMDB reviews by characters (Long Range Arena, as S4 does it)"),
    "text-lra": _Entry("text", {"pipeline": "lra"}, "IMDB reviews by bytes (as the Long Range Arena does it)"),
    "retrieval": _Entry("retrieval", {}, "AAN: do two papers cite each other? by characters (Long Range Arena)"),
    "speech": _Entry("speech", {}, "spoken digits, raw wave at 8 kHz"),
    "ecg": _Entry("ecg", {}, "electrocardiograms, a label for each time step"),
    "listops": _Entry("listops", {"pipeline": "s4"}, "nested operations on lists (Long Range Arena, as S4 does it)"),
    "listops-lra": _Entry(
        "listops", {"pipeline": "lra"}, "the same without an end mark, as the Long Range Arena does it"
    ),
    "pathfinder": _Entry("pathfinder", {"size": 32}, "are two dots on one path? 32 x 32 (Long Range Arena)"),
    "pathx": _Entry("pathfinder", {"size": 128}, "the same, 128 x 128"),
}
NAMES = tuple(_SETS)


def _entry(name: str) -> _Entry:
    if name not in _SETS:
        close = difflib.get_close_matches(str(name), NAMES, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise DataError(f"data: name must be one of {', '.join(NAMES)}{hint}, got {name!r}")
    return _SETS[name]


def about(name: str) -> str:
    """One line on a data set."""
    return _entry(name).about


def load(name: str, data_dir: str | os.PathLike[str] | None = None, **settings: Any) -> Task:
    """A data set by its name, prepared if this is the first time.

    data_dir    where its files are; otherwise RESOFIRE_DATA; a set that is neither there nor prepared is downloaded
    settings    of the set itself, see its file
    """
    entry = _entry(name)
    for key, value in entry.settings.items():
        if settings.get(key, value) != value:
            raise ValueError(f"{name}: {key} must be {value!r}, got {settings[key]!r}")
    module = importlib.import_module(f"{__name__}.{entry.module}")
    task = module.load(data_dir, **{**entry.settings, **settings})
    folder = None if data_dir is None else str(Path(data_dir).expanduser().resolve())
    return dataclasses.replace(task, name=name, source={"name": name, "settings": settings, "data_dir": folder})
