# mypy: ignore-errors
# Compiled by Numba, which infers the types.
"""Random integers for Numba: splitmix64 (Steele, Lea and Flood, 2014).

The state is a uint64 that grows by an odd constant; the output is the state with its bits mixed. No floating point is
involved, so a seed gives the same bytes on any machine. `stream(seed, i)` starts an independent stream for each i:
sample i depends on the seed and i alone, in whatever order samples are made.
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
    """An integer in [0, limit), limit < 2³², from the bits z; uniform up to limit / 2³²."""
    return np.int64(((z >> HALF) * np.uint64(limit)) >> HALF)
