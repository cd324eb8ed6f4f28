"""Spoken digits (Free Spoken Digit Dataset): raw waveforms at 8 kHz, of different lengths, packed; values in [−1, 1).

Files are `{digit}_{speaker}_{take}.wav`, 16 bits, one channel; every speaker says every digit 50 times. The test is
takes 0 to 4, as its makers say. Of the others, five takes of each speaker, the choice of a fixed seed and the same for
all ten digits, are the validation split: with six speakers 2,400 / 300 / 300. Each split is kept in an order of a fixed
seed, so that any part of it has all digits and speakers.
"""

import io
import os
import re
import wave
from pathlib import Path
from typing import Any

import numpy as np

from .files import BROKEN, DataError, Wanted, members, origin, prepared_from
from .store import Arrays
from .task import Form, Split, Task, shuffled

VERSION = 2
SEED = 0
CLASSES = 10
TAKES, TEST, VALIDATION = 50, 5, 5
RATE = 8_000
FOLDERS = ("fsdd", "speech", "free-spoken-digit-dataset")
FILE = Wanted(
    ("free-spoken-digit-dataset*", "recordings"),
    archive=True,
    source="https://github.com/Jakobovski/free-spoken-digit-dataset (it grows, so that no checksum of it is known)",
    inside=("recordings", "0_jackson_0.wav", "0_george_0.wav"),
)
SPLITS = ("train", "validation", "test")


def load(data_dir: str | os.PathLike[str] | None = None) -> Task:
    def make(found: dict[str, Path]) -> tuple[Arrays, dict[str, Any]]:
        place = found["archive"]
        arrays, speakers = _make(place)
        return arrays, {"sources": origin(place), "speakers": speakers}

    settings = {"version": VERSION, "seed": SEED, "validation": VALIDATION}
    arrays, _ = prepared_from("speech", FOLDERS, {"archive": FILE}, data_dir, settings, make)
    splits = {
        split: Split(
            arrays[f"{split}_x"], arrays[f"{split}_labels"], kind="values", form=Form(scale=1 / 32768),
            bounds=arrays[f"{split}_bounds"],
        )
        for split in SPLITS
    }  # fmt: skip
    return Task("speech", "values", CLASSES, splits, inputs=1)


def read_recordings(place: Path) -> dict[tuple[int, str, int], np.ndarray]:
    """All recordings by digit, speaker and take; each speaker must have said each digit in each take."""
    found = {}
    for path, raw in members(place):
        match = re.search(r"(?:^|/)(\d)_([^/_]+)_(\d+)\.wav$", path)
        if match:
            found[int(match[1]), match[2], int(match[3])] = read_wav(f"{place}: {path}", raw)
    speakers = sorted({speaker for _, speaker, _ in found})
    if not speakers:
        raise DataError(f"{place} must hold recordings named digit_speaker_take.wav, got none")
    wanted = [(digit, who, take) for digit in range(CLASSES) for who in speakers for take in range(TAKES)]
    missing = [key for key in wanted if key not in found]
    if missing:
        name = "{}_{}_{}.wav".format(*missing[0])
        raise DataError(f"{place} must hold takes 0 to {TAKES - 1} of all digits by each speaker, got no {name}")
    return {key: found[key] for key in wanted}


def read_wav(where: str, raw: bytes) -> np.ndarray:
    """The samples of a wav file, [T] int16."""
    try:
        with wave.open(io.BytesIO(raw)) as file:
            form = (file.getnchannels(), 8 * file.getsampwidth(), file.getframerate())
            count, held = file.getnframes(), file.readframes(file.getnframes())
    except (wave.Error, *BROKEN) as error:
        raise DataError(f"{where} must be a wav file, it is truncated or corrupt: {error}") from None
    if form != (1, 16, RATE):
        raise DataError(
            f"{where} must have 1 channel of 16 bits at {RATE} Hz, got {form[0]} of {form[1]} bits at {form[2]} Hz"
        )
    if len(held) != 2 * count or not count:
        raise DataError(f"{where} must hold {count} samples, got {len(held) // 2}: it is truncated or empty")
    return np.frombuffer(held, "<i2").astype(np.int16)


def _make(place: Path) -> tuple[Arrays, list[str]]:
    found = read_recordings(place)
    speakers = sorted({speaker for _, speaker, _ in found})
    aside = {
        speaker: {int(take) + TEST for take in shuffled(TAKES - TEST, SEED, number)[:VALIDATION]}
        for number, speaker in enumerate(speakers)
    }
    chosen: dict[str, list[tuple[int, str, int]]] = {split: [] for split in SPLITS}
    for digit, speaker, take in found:
        split = "test" if take < TEST else "validation" if take in aside[speaker] else "train"
        chosen[split].append((digit, speaker, take))
    arrays = {}
    for split, sorted_keys in chosen.items():
        keys = [sorted_keys[number] for number in shuffled(len(sorted_keys), SEED, 0)]
        arrays[f"{split}_x"] = np.concatenate([found[key] for key in keys])[:, None]
        arrays[f"{split}_bounds"] = np.cumsum([0, *(len(found[key]) for key in keys)])
        arrays[f"{split}_labels"] = np.array([digit for digit, _, _ in keys], np.uint8)
    return arrays, speakers
