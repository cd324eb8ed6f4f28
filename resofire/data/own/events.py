"""Event files in HDF5 as SHD and SSC have them: spikes/times in seconds, spikes/units, labels, extra/keys for names."""

from pathlib import Path
from typing import Any

import numpy as np

from ..task import DataError
from .recordings import Recordings, Settings, in_file

# Steps times channels of a recording: 268 MB as float32.
LARGEST_RECORDING = 1 << 26
SETS, KEYS = ("spikes/times", "spikes/units", "labels"), ("extra/keys",)


def count_units(file: Path) -> int:
    """The number of units of a file: one more than the largest."""
    _, units, _ = _opened(file)
    return max((int(each.max()) + 1 for each in units if len(each)), default=1)


def read_events(file: Path, settings: Settings) -> Recordings:
    """Count events in bins of `bin` seconds and `pool` neighbouring units: [T, C] uint8 for each recording."""
    times, units, labels = _opened(file)
    total = settings.units or max((int(each.max()) + 1 for each in units if len(each)), default=1)
    channels = -(-total // settings.pool)
    x = []
    for number, (when, which) in enumerate(zip(times, units, strict=True)):
        where = f"{file}, sequence {number}"
        if len(when) != len(which):
            raise DataError(f"from_path: {where} must have as many times as units, got {len(when)} and {len(which)}")
        if len(which) and not 0 <= which.min() <= which.max() < total:
            bad = which.min() if which.min() < 0 else which.max()
            raise DataError(f"from_path: {where} must have units from 0 to {total - 1}, got {bad}")
        if len(when) and not (np.isfinite(when).all() and when.min() >= 0):
            raise DataError(f"from_path: {where} must have times of at least 0, got {when[~(when >= 0)][:1]}")
        # Times are float32 as a rule: 0.02 s is in the third bin of 0.01 s.
        steps = np.floor(when / settings.bin + 1e-5)
        if len(when) and steps.max() >= 1e6:
            most = f"{when.max():g} s in bins of {settings.bin:g} s"
            raise DataError(f"from_path: {where} must have fewer than a million steps, got {most}; use a larger bin")
        length = int(steps.max()) + 1 if len(when) else 1
        if length * channels > LARGEST_RECORDING:
            got = f"{length} of {channels}; use a larger bin or pool"
            raise DataError(f"from_path: {where} must have at most {LARGEST_RECORDING} steps x channels, got {got}")
        places, times_there = np.unique(steps.astype(np.int64) * channels + which // settings.pool, return_counts=True)
        counts = np.zeros((length, channels), np.uint8)
        counts.reshape(-1)[places] = np.minimum(times_there, 255)
        x.append(counts)
    return Recordings(x, labels, in_file(file))


def _opened(file: Path) -> tuple[list[np.ndarray], list[np.ndarray], list[Any]]:
    """Times and units of each recording, and its label: a name if the file has names for the classes."""
    import h5py

    try:
        with h5py.File(file, "r") as stored:
            sets = {name: stored[name] for name in (*SETS, *KEYS) if name in SETS or name in stored}
            for name, each in sets.items():
                # A recording takes some bytes: a damaged size would be read for hours.
                if len(each.shape) != 1 or len(each) > file.stat().st_size:
                    raise ValueError(f"{name} has the shape {each.shape}")
            times = [np.asarray(each, np.float64) for each in sets["spikes/times"]]
            units = [np.asarray(each, np.int64) for each in sets["spikes/units"]]
            labels = np.asarray(sets["labels"]).tolist()
            names = [_text(name) for name in sets["extra/keys"]] if "extra/keys" in sets else None
    except KeyError:
        raise DataError(f"from_path: {file} must hold spikes/times, spikes/units and labels, one is missing") from None
    except (OSError, ValueError, TypeError, RuntimeError, AttributeError, MemoryError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"from_path: {file} must be an HDF5 file of events, it cannot be read: {reason}") from None
    if not len(times) == len(units) == len(labels):
        got = f"{len(times)} times, {len(units)} units and {len(labels)} labels"
        raise DataError(f"from_path: {file} must hold times, units and a label for each recording, got {got}")
    if names is not None and all(isinstance(label, int) and 0 <= label < len(names) for label in labels):
        labels = [names[label] for label in labels]
    return times, units, labels


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
