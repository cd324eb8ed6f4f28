# mypy: ignore-errors
# Code for another compiler: its types are Numba's.
"""Random numbers that are integers, for Numba: splitmix64 (Steele, Lea and Flood, 2014).

A stream is one uint64 that grows by an odd constant; what it gives is that number with its bits mixed. No floating
point is involved, so a seed gives the same bytes on any machine. `stream(seed, i)` is a stream of its own for each i:
sample i depends on nothing but the seed and i, whoever makes it and in whatever order.
"""

import numpy as np
from numba import njit

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
A, B, C, HALF = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)


@njit(nogil=True, inline="always")
def mixed(z):
    z = (z ^ (z >> A)) * FIRST
    z = (z ^ (z >> B)) * SECOND
    return z ^ (z >> C)


@njit(nogil=True, inline="always")
def stream(seed, i):
    return mixed(mixed(seed + STEP) + np.uint64(i) * STEP)


@njit(nogil=True, inline="always")
def below(z, limit):
    """A integer in [0, limit), limit < 2³², from the bits z; none is favoured by more than limit / 2³²."""
    return np.int64(((z >> HALF) * np.uint64(limit)) >> HALF)
