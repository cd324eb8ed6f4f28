"""Keep large buffers in the process instead of returning them to the system after every step.

glibc returns a freed tensor of more than 32 MB to the system at once, and the next one of that size gets fresh pages,
each zeroed by a page fault: that can cost more than the computation. Raising two malloc thresholds prevents it. The
setting affects the whole process, so it is opt-in: training, evaluation commands and benchmarks call it, a network
does not.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE = 2**31 - 1


def retain_buffers() -> bool:
    """Tell malloc to keep freed memory for the rest of the process, so that large buffers are reused.

    The process does not shrink afterwards. Call it once, before the first large tensor.

    Returns:
        Whether the setting took effect; False on systems other than Linux and without glibc's `mallopt`.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    return bool(libc.mallopt(_M_MMAP_THRESHOLD, _LARGE // 2)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, _LARGE))
