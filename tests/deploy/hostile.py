"""Files damaged at random, and what a loader must do with one: give a network or one sentence."""

import random
import struct

import safetensors.torch

from resofire.models.storage import StorageError

SIZES = (0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 10**9, 10**12)


def mutated(good, seed):
    draw, data = random.Random(seed), bytearray(good)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        if not data:
            break
        # Headers come first and are what a loader trusts.
        at = draw.randrange(len(data) if draw.random() < 0.5 else min(len(data), 4096))
        how = draw.randrange(6)
        if how == 0:
            data[at] ^= 1 << draw.randrange(8)
        elif how == 1:
            data[at] = draw.randrange(256)
        elif how == 2:
            data[at : at + 8] = struct.pack("<Q", draw.choice(SIZES))
        elif how == 3:
            del data[at : at + draw.choice((1, 8, 100, 10**6))]
        elif how == 4:
            data[at:at] = draw.randbytes(draw.choice((1, 8, 100)))
        else:
            length, source = draw.choice((4, 8, 64, 512)), draw.randrange(len(data))
            data[at : at + length] = data[source : source + length]
    return bytes(data)


def without_checksum(file):
    """Remove the checksum of a safetensors file, which would catch the damage before anything else does."""
    with safetensors.safe_open(file, "pt") as opened:
        metadata = {name: text for name, text in opened.metadata().items() if name != "sha256"}
    file.write_bytes(safetensors.torch.save(safetensors.torch.load_file(file), metadata))
    return file.read_bytes()


def tried(load, named=None, kind=StorageError):
    """What a loader gives, or None if it refused in one line."""
    try:
        return load()
    except kind as error:
        text = str(error)
    assert "\n" not in text
    assert len(text) < 1000
    assert named is None or str(named) in text
    return None
