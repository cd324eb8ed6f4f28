"""Numeric arrays in MATLAB 5 files (.mat). SciPy's reader can be crashed by a damaged file and trusts its sizes.

A file is a header of 128 bytes, then one element per variable: a tag (type, bytes) and data, which may be compressed.
An array holds four elements: flags, dimensions, name and numbers, the first index varying fastest.
"""

import math
import struct
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

COMPRESSED, MATRIX = 15, 14
# Types of elements that hold numbers, and classes of arrays of numbers: double to uint64.
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = range(6, 16)
COMPLEX = 0x08
# Bytes in which flags, dimensions and name of any array that we need are.
HEAD = 1024


class MatError(ValueError):
    """An invalid file. The text follows the name of the file: "must hold x of shape …"."""


def read_arrays(raw: bytes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Read arrays of known names and shapes, in the types they are stored in; other variables are skipped.

    Raises:
        MatError: The file is damaged, lacks an array, or has one of another shape.
    """
    arrays = {}
    try:
        order = {b"IM": "<", b"MI": ">"}[raw[126:128]]
        for kind, body in _elements(memoryview(raw)[128:], order):
            unpacker, head = None, body[:HEAD]
            if kind == COMPRESSED:
                # Without its own tag, which says that it is an array and how large.
                unpacker = zlib.decompressobj()
                head = memoryview(unpacker.decompress(body, HEAD))
                kind, head = struct.unpack_from(f"{order}I", head)[0], head[8:]
            if kind != MATRIX:
                continue
            (_, flags), (_, dimensions), (_, name) = _elements(head, order, 3)
            key, shape = bytes(name).decode("latin1"), struct.unpack(f"{order}{len(dimensions) // 4}i", dimensions)
            if key not in shapes:
                continue
            if shape != shapes[key]:
                raise MatError(f"must hold {key} of shape {shapes[key]}, got {shape}")
            if flags[0 if order == "<" else 3] not in CLASSES or flags[1 if order == "<" else 2] & COMPLEX:
                raise MatError(f"must hold real numbers in {key}")
            if unpacker is not None:
                rest = unpacker.decompress(unpacker.unconsumed_tail, 8 * math.prod(shape) + HEAD)
                if not unpacker.eof:
                    raise ValueError(f"{key} is cut off or has too many bytes")
                body = memoryview(bytes(head) + rest)
            *_, (kind, numbers) = _elements(body, order, 4)
            arrays[key] = np.frombuffer(numbers, order + NUMBERS[kind]).reshape(shape, order="F")
    except MatError:
        raise
    except (ValueError, KeyError, IndexError, struct.error, zlib.error, MemoryError) as error:
        raise MatError(f"must be a MATLAB 5 file, it is truncated or corrupt: {error}") from None
    for key, shape in shapes.items():
        if key not in arrays:
            raise MatError(f"must hold {key} of shape {shape}, got None")
    return arrays


def _elements(data: memoryview, order: str, count: int | None = None) -> Iterator[tuple[int, memoryview]]:
    """Type and data of each element; with `count`, of the first ones, which must be there."""
    at = number = 0
    while at < len(data) and number != count:
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start = at + 8
        if kind >> 16:  # up to four bytes of data, inside of the tag
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
        if size > (4 if start == at + 4 else len(data) - start):
            raise ValueError(f"an element has {size} bytes, which are not there")
        yield kind, data[start : start + size]
        # Elements begin at multiples of eight bytes, unless they are compressed.
        at = at + 8 if start == at + 4 else start + (size if kind == COMPRESSED else -(-size // 8) * 8)
        number += 1
    if count is not None and number < count:
        raise ValueError("an array is incomplete")
