"""Running kernels on the threads that torch already has.

torch computes on a pool of OpenMP threads that spin for some milliseconds after each piece of work. A second pool, be
it Numba's own OpenMP or one of Python, then shares the cores with threads that do nothing but wait: that cost up to a
third of a neuron's time (docs/experiments/threads-and-malloc.md). So kernels are handed to torch's OpenMP library
itself, through its entry point GOMP_parallel.
Where torch comes with another runtime, a pool of sleeping threads does the same, a little slower.
"""

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch

Share = TypeVar("Share")

_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@functools.cache
def _openmp() -> Any:
    """torch's own OpenMP library, or None if it does not come with GNU's."""
    for file in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        return ctypes.CDLL(str(file)).GOMP_parallel
    return None


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="resofire")


# A fork copies a pool but not its threads. (OpenMP's do not survive it either: a forked child must set torch to one
# thread, as torch's data loader does for its workers. Windows knows no fork.)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def share_out(run: Callable[[Share], None], shares: Sequence[Share], threads: int) -> None:
    """Calls run(share) for every share, on `threads` threads; each takes the next share when it is done with one.

    `run` should spend its time in compiled code that lets go of the interpreter's lock. An exception is raised again
    here when all threads have stopped.
    """
    todo = iter(shares)
    raised: list[BaseException] = []

    def work(_: object = None) -> None:
        try:
            for share in todo:
                run(share)
        except BaseException as error:
            raised.append(error)

    start = _openmp()
    if threads == 1:
        work()
    elif start is not None:
        start(_BODY(work), None, threads, 0)
    else:
        others = [_pool().submit(work) for _ in range(threads - 1)]
        work()
        for other in others:
            other.result()
    if raised:
        raise raised[0]
