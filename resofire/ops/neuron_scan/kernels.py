"""What kernels are made of, in Numba: rows and tiles of lanes, places in memory, compilation.

Compiled code: the types are Numba's, taken from the call. The kernels of neurons are made by `ops.equation.emit`.
"""

import inspect
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from .. import surrogate as surrogates
from . import CHUNK, TILE_BYTES, simd
from .simd import differs, load, lowest, store, stream

inline = njit(error_model="numpy", fastmath={"contract"}, forceinline=True)


@overload(surrogates.like)
def _like(x, value):
    kind = x.dtype if isinstance(x, simd.Vector) else x
    return lambda x, value: kind(value)


@inline
def _put(array, at, value, past_cache):
    if past_cache:
        stream(array, at, value)
    else:
        store(array, at, value)


@inline
def _gather(source, at, row, lane, steps, lanes, width, tile):
    """tile[t, j] = source[at + t * row + j * lane], and 0 in the lanes that the source does not have."""
    for t in range(steps):
        for j in range(lanes):
            tile[t * width + j] = source[at + t * row + j * lane]
        for j in range(lanes, width):
            tile[t * width + j] = 0


@inline
def _scatter(tile, steps, lanes, width, target, at, row, lane):
    for t in range(steps):
        for j in range(lanes):
            target[at + t * row + j * lane] = tile[t * width + j]


@inline
def _clear_bits(bits, at, row, steps, lanes, width):
    """Clear the bits of the lanes from `lanes` to `width` in each row of a tile; `at` counts bytes."""
    for t in range(steps):
        for j in range(lanes, width):
            bits[at + t * row + j // 8] &= np.uint8(255 - (1 << (j % 8)))


@inline
def _list_active(spikes, at, lanes, width, pitch, active):
    """Write the lanes that are not 0 in the row at spikes[at] to `active`; returns how many there are."""
    count = 0
    for lane in range(0, pitch, width):
        word = differs(load(spikes, at + lane), 0.0)
        while word != 0:
            place = lane + np.int64(lowest(word))
            if place < lanes:
                active[count] = place
                count += 1
            word &= word - np.uint64(1)
    return count


@inline
def _place(plan, sequence, strides, reverse):
    """Where a sequence's first step lies in a tensor of these strides, and how far it is to the next."""
    row = strides[1]
    at = strides[3] + plan[sequence, 0] * strides[0] + plan[sequence, 1] * row
    if reverse:
        return at + (plan[sequence, 2] - 1) * row, -row
    return at, row


def compiled(function: Callable[..., Any], keep: bool) -> Callable[..., Any]:
    """Compiles a kernel; `keep` says whether Numba may keep it on disk."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        return njit(cache=keep, **options)(function)
    except RuntimeError:  # no folder that Numba could write its cache to: compile in every process
        return njit(**options)(function)


def fingerprint(*parts: Any) -> int:
    """Numba's cache looks at the file of the kernel only; this makes a change in what a kernel takes from elsewhere,
    from this file or from `parts` (modules and functions), a miss. (A kernel with another CHUNK than the memory was
    laid out for would write where it must not.)"""
    code = (
        f"{__name__} {CHUNK} {TILE_BYTES} {inspect.getsource(simd)}{inspect.getsource(sys.modules[__name__])}".encode()
    )
    for part in parts:
        if inspect.ismodule(part):
            code += inspect.getsource(part).encode()
        else:
            code += part.__code__.co_code + repr(part.__code__.co_consts).encode()
    return zlib.crc32(code)
