"""Spoken digits: the real recordings where they are at hand, small ones in every form."""

import io
import wave

import numpy as np
import pytest
from archives import pack

from resofire.data import DataError, load


def wav(samples, channels=1, width=2, rate=8000):
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(np.asarray(samples, "<i2").tobytes())
    return out.getvalue()


def recordings(speakers=("ann", "bob")):
    return {
        f"fsdd/recordings/{digit}_{who}_{take}.wav": wav([digit, -take, 32767, -32768][: 3 + take % 2])
        for who in speakers
        for take in range(50)
        for digit in range(10)
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "speech").mkdir()
    return tmp_path


def test_real(real):
    task = load("speech", real("fsdd"))
    assert (task.kind, task.classes, task.inputs) == ("values", 10, 1)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 2400, "validation": 300, "test": 300}
    lengths = np.concatenate([split.lengths for split in task.splits.values()])
    assert (lengths.min(), lengths.max(), np.median(lengths)) == (1148, 18_262, 3358.5)
    for split in task.splits.values():
        assert np.bincount(split.labels).tolist() == [len(split) // 10] * 10
    batch = next(task["train"].batches(16, seed=0))
    assert batch.x.shape == (1, batch.cu_seqlens[-1], 1)
    assert -1 <= batch.x.min() < -0.05
    assert 0.05 < batch.x.max() < 1


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("free-spoken-digit-dataset-1.0.10.tar.gz", "gz"), ("free-spoken-digit-dataset-v1", "folder"),
    ],
)  # fmt: skip
def test_small(folder, name, mode):
    pack(folder / "speech" / name, recordings(), mode)
    task = load("speech", folder)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 800, "validation": 100, "test": 100}
    split = task["test"]
    long = int(np.flatnonzero((split.lengths == 4) & (split.labels == 0))[0])
    assert split.stored[split.bounds[long] :][:4, 0].tolist()[2:] == [32767, -32768]
    assert split.batch([long]).x[0, 2:, 0].tolist() == [32767 / 32768, -1]
    # Not sorted: a few sequences have most digits.
    assert len(set(split.labels[:20].tolist())) >= 7
    takes = {
        name: {-int(split.stored[start + 1, 0]) for start in split.bounds[:-1]} for name, split in task.splits.items()
    }
    assert takes["test"] == {0, 1, 2, 3, 4}
    assert min(takes["validation"]) >= 5
    for digit in range(10):
        assert (task["validation"].labels == digit).sum() == 10


@pytest.mark.parametrize("inner", ["fsdd", "fsdd/recordings"])
def test_the_folder_itself(folder, inner):
    pack(folder, recordings(("jackson",)), "folder")
    assert len(load("speech", folder / inner)["train"]) == 400


WRONG_RECORDINGS = [
    (wav([1, 2], rate=16000), "must have 1 channel of 16 bits at 8000 Hz, got 1 of 16 bits at 16000 Hz"),
    (wav([1, 2], channels=2), "must have 1 channel .* got 2 of 16 bits"),
    (wav([1, 2, 3])[:-3], "must"),
    (wav([]), "must hold 0 samples, got 0"),
    (b"RIFF", "must be a wav file"),
    (wav([1, 2])[:16] + b"\xff\xff\xff\x7f" + wav([1, 2])[20:], "must be a wav file"),
    (b"", "must be a wav file"),
]


def test_wrong_recordings(subtests, folder):
    for raw, message in WRONG_RECORDINGS:
        with subtests.test(message):
            files = recordings(("ann",)) | {"fsdd/recordings/3_ann_7.wav": raw}
            pack(folder / "speech/free-spoken-digit-dataset.zip", files, "zip")
            with pytest.raises(DataError, match=f"dataset.zip: fsdd/recordings/3_ann_7.wav {message}"):
                load("speech", folder)


def test_a_take_is_missing(folder):
    files = recordings()
    del files["fsdd/recordings/9_bob_49.wav"]
    pack(folder / "speech/free-spoken-digit-dataset.zip", files, "zip")
    with pytest.raises(DataError, match=r"dataset.zip must hold takes 0 to 49 .* got no 9_bob_49.wav"):
        load("speech", folder)


def test_no_recordings(folder):
    pack(folder / "speech/free-spoken-digit-dataset.zip", {"README.md": b""}, "zip")
    with pytest.raises(DataError, match=r"must hold recordings named digit_speaker_take.wav, got none"):
        load("speech", folder)


def test_truncated(folder):
    place = folder / "speech/free-spoken-digit-dataset.tar.gz"
    pack(place, recordings(), "gz")
    place.write_bytes(place.read_bytes()[: place.stat().st_size // 2])
    with pytest.raises(DataError, match=r"dataset.tar.gz cannot be read, it is truncated or corrupt"):
        load("speech", folder)
