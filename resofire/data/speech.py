"""Spoken digits (Free Spoken Digit Dataset): raw waveforms at 8 kHz in [−1, 1), packed.

Files are `{digit}_{speaker}_{take}.wav`, 16 bits, one channel; every speaker says every digit 50 times. The test is
takes 0 to 4, as its authors define it. Of the others, five random takes of each speaker, the same for all digits, are
the validation split: with six speakers 2,400 / 300 / 300. Each split is shuffled, so that any part of it has all digits
and speakers.
"""

import io
import re
import wave
from pathlib import Path

import numpy as np

from .archives import BROKEN
from .files import Folder, RawFile, RawFiles, members, prepared_from
from .registry import dataset
from .store import Prepared
from .task import SPLITS, DataError, Form, Task, make_splits, pack, shuffled

VERSION = 2
SEED = 0
CLASSES = 10
TAKES, TEST, VALIDATION = 50, 5, 5
RATE = 8_000
NAME = r"(?:^|/)([0-9])_([^/_]+)_([0-9]{1,4})\.wav$"
# Bytes of a recording: a minute.
LARGEST = 2 * 60 * RATE
ARCHIVE = RawFile(
    ("free-spoken-digit-dataset*", "recordings"),
    archive=True,
    source="https://github.com/Jakobovski/free-spoken-digit-dataset (it grows, so it has no fixed checksum)",
    inside=("recordings", "0_jackson_0.wav", "0_george_0.wav"),
)
RAW = RawFiles(("fsdd", "speech", "free-spoken-digit-dataset"), {"archive": ARCHIVE})
Recordings = dict[tuple[int, str, int], np.ndarray]


@dataset("speech", about="spoken digits, raw waveform at 8 kHz")
def speech(data_dir: Folder = None) -> Task:
    """Load spoken digits."""
    settings = {"version": VERSION, "seed": SEED, "validation": VALIDATION}
    arrays, _ = prepared_from("speech", RAW, data_dir, settings, lambda places: _make(places["archive"]))
    splits = make_splits(arrays, "values", Form(scale=1 / 32768))
    return Task("speech", "values", CLASSES, splits, inputs=1, class_names=tuple("0123456789"))


def read_recordings(place: Path) -> Recordings:
    """Read all recordings, by digit, speaker and take.

    Raises:
        DataError: If one is damaged, or a speaker lacks a take of a digit.
    """
    recordings = {}
    for path, raw in members(place, {NAME: LARGEST}, kept=1 << 30):
        match = re.search(NAME, path)
        if match:
            recordings[int(match[1]), match[2], int(match[3])] = read_wav(f"{place}: {path}", raw)
    speakers = sorted({speaker for _, speaker, _ in recordings})
    if not speakers:
        raise DataError(f"{place} must hold recordings named digit_speaker_take.wav, got none")
    keys = [(digit, speaker, take) for digit in range(CLASSES) for speaker in speakers for take in range(TAKES)]
    missing = [key for key in keys if key not in recordings]
    if missing:
        name = "{}_{}_{}.wav".format(*missing[0])
        raise DataError(f"{place} must hold takes 0 to {TAKES - 1} of all digits by each speaker, got no {name}")
    return {key: recordings[key] for key in keys}


def read_wav(where: str, raw: bytes) -> np.ndarray:
    """Read the samples of a wav file, [T] int16; `where` is its name, for messages.

    Raises:
        DataError: It is damaged, empty, or not one channel of 16 bits at 8 kHz.
    """
    try:
        with wave.open(io.BytesIO(raw)) as file:
            form = (file.getnchannels(), 8 * file.getsampwidth(), file.getframerate())
            count, frames = file.getnframes(), file.readframes(file.getnframes())
    except (wave.Error, *BROKEN) as error:
        raise DataError(f"{where} must be a wav file, it is truncated or corrupt: {error}") from None
    if form != (1, 16, RATE):
        raise DataError(
            f"{where} must have 1 channel of 16 bits at {RATE} Hz, got {form[0]} of {form[1]} bits at {form[2]} Hz"
        )
    if len(frames) != 2 * count or not count:
        raise DataError(f"{where} must hold {count} samples, got {len(frames) // 2}: it is truncated or empty")
    return np.frombuffer(frames, "<i2").astype(np.int16)


def _make(place: Path) -> Prepared:
    recordings = read_recordings(place)
    speakers = sorted({speaker for _, speaker, _ in recordings})
    held_out = {
        speaker: {int(take) + TEST for take in shuffled(TAKES - TEST, SEED, number)[:VALIDATION]}
        for number, speaker in enumerate(speakers)
    }
    chosen: dict[str, list[tuple[int, str, int]]] = {split: [] for split in SPLITS}
    for digit, speaker, take in recordings:
        split = "test" if take < TEST else "validation" if take in held_out[speaker] else "train"
        chosen[split].append((digit, speaker, take))
    arrays = {}
    for split, sorted_keys in chosen.items():
        keys = [sorted_keys[number] for number in shuffled(len(sorted_keys), SEED, 0)]
        samples, arrays[f"{split}_bounds"] = pack([recordings[key] for key in keys])
        arrays[f"{split}_x"] = samples[:, None]
        arrays[f"{split}_labels"] = np.array([digit for digit, _, _ in keys], np.uint8)
    return arrays, {"speakers": speakers}
