"""Keeping large buffers in the process instead of handing them back to the system after every step.

glibc returns a freed tensor of more than 32 MB to the system at once, and the next one of its size is made of fresh
pages, each zeroed by a page fault: that can cost more than the computation. Raising two thresholds of malloc ends it.
It changes the whole process (memory once used stays with it), so it must be asked for: training does, and commands
that walk through a split do, and benchmarks; a network that is called does not.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE = 2**31 - 1


def retain_buffers() -> bool:
    """Asks malloc to keep what is freed, for the rest of the process. False where the C library cannot do it."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    return bool(libc.mallopt(_M_MMAP_THRESHOLD, _LARGE // 2)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, _LARGE))
