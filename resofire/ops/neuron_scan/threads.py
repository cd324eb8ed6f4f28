"""Run kernels on torch's own threads.

torch's OpenMP threads spin for some milliseconds after each parallel region. A second pool, whether Numba's OpenMP or
Python threads, competes with them for the cores: that cost up to a third of a neuron's time
(docs/experiments/threads-and-malloc.md). So kernels run on torch's OpenMP library through its entry point
GOMP_parallel. If torch uses another runtime, a Python thread pool does the same, slightly slower.
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


# A fork copies the pool but not its threads. OpenMP's threads do not survive it either: a forked child must set torch
# to one thread, as torch's data loader does for its workers. Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def share_out(run: Callable[[Share], None], shares: Sequence[Share], threads: int) -> None:
    """Call run(share) for every share on several threads; each thread takes the next share when it is idle.

    Args:
        run: Should spend its time in compiled code that releases the GIL.
        shares: The pieces of work.
        threads: The number of threads, this one included.

    Raises:
        BaseException: The first exception of `run`, after all threads have stopped.
    """
    remaining = iter(shares)
    raised: list[BaseException] = []

    def work(_: object = None) -> None:
        try:
            for share in remaining:
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
