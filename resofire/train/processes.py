"""The processes of a run: ranks, watching whether the others are alive, and the signals that stop a run."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Environment variable with the first process's id, for those that it starts.
PARENT = "RESOFIRE_PARENT"
# Seconds that a process may take to exit after its connections have closed.
PATIENCE = 10.0


def rank() -> int:
    """The rank among the processes of all machines. torchrun sets RANK; Fabric, on one machine, LOCAL_RANK."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0)))


def on_this_machine(devices: int) -> int:
    """The number of processes on this machine: torchrun's if it started them, otherwise `devices`."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", devices))


def world(devices: int) -> int:
    """The number of processes on all machines: torchrun's if it started them, otherwise `devices`."""
    return int(os.environ.get("WORLD_SIZE", devices))


def training_device() -> torch.device:
    """The kind of device that a run trains on: a GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def end_with_the_first() -> None:
    """Make processes started by the first one exit when it does, even while they wait for it to connect.

    Call it in each process before connecting. Under torchrun it does nothing: torchrun ends all processes itself.
    """
    if rank() == 0:
        os.environ[PARENT] = str(os.getpid())
        return
    parent = os.environ.get(PARENT)

    def watch() -> None:
        while str(os.getppid()) == parent:
            time.sleep(0.2)
        os._exit(1)

    if parent is not None:
        threading.Thread(target=watch, daemon=True).start()


class Interrupted(BaseException):
    """The user stopped the run. A BaseException, so that `except Exception` does not swallow it."""


class StopSignals:
    """Handles SIGINT and SIGTERM inside a `with` block and restores the old handlers after it.

    Attributes:
        deferred: Set by the training loop. While False, a signal raises `Interrupted` at once; while True, the first
            one only sets `requested`, so that the step can finish, and the second raises.
        requested: Whether a stop was requested.
    """

    def __init__(self) -> None:
        self.deferred = self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        # Only the main thread may install handlers.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.deferred or self.requested:
            raise Interrupted
        self.requested = True


class Children:
    """The child processes that this one starts. If one ends too early, a thread explains why and exits this process.

    While it connects, this process waits inside torch, where neither a signal nor an exception reaches it. Fabric's own
    observer would kill it without a message.

    Args:
        started: The list to which Fabric's launcher appends the processes. They are removed from it, so that Fabric
            does not observe them.
        explain: Prints why this process ends; called with whether the user interrupted the child.
    """

    def __init__(self, started: list[Any], explain: Callable[[bool], None]) -> None:
        self.processes: list[Any] = []
        self._started, self._explain = started, explain
        self._connected, self._closed = threading.Event(), threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def connect(self) -> None:
        """Called when all have connected; from then on the next exchange fails if one is lost."""
        self._take()
        self._connected.set()

    def close(self) -> None:
        """Called when the run has ended; from then on children may end."""
        self._closed.set()
        self._connected.set()

    def ended(self) -> bool:
        """Whether a child has ended."""
        return any(child.poll() is not None for child in self.processes)

    def _take(self) -> None:
        """Move new processes from the launcher's list to `processes`."""
        while self._started:
            self.processes.append(self._started.pop(0))

    def _watch(self) -> None:
        while not self._connected.wait(0.1):
            self._take()
            if self.ended():
                break
        else:
            # An exchange between GPUs would wait forever for a process that has failed.
            while not any(child.poll() for child in self.processes):
                if self._closed.wait(1.0):
                    return
            if self._closed.wait(3 * PATIENCE):
                return
        # A child that was interrupted prints nothing: this process does.
        interrupted = all(child.poll() in (None, 0, 130, 143) for child in self.processes)
        self._explain(interrupted)
        os._exit(130 if interrupted else 1)


class Peers:
    """The other processes of a distributed run.

    Gloo reports a lost connection as a plain RuntimeError, so `ended` asks the system whether one is gone.

    Args:
        children: The processes that this one started, as `Children.processes`.
    """

    def __init__(self, children: Any = ()) -> None:
        self._children, self._parent = list(children), os.getppid()
        mine = (socket.gethostname(), os.getpid())
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
        self._pids = [pid for host, pid in everyone if host == mine[0] and pid != mine[1]]

    def ended(self, seconds: float = PATIENCE) -> bool:
        """Whether a process on this machine has ended; waits up to `seconds` for one that is exiting."""
        until = time.monotonic() + seconds
        while not self._one_is_gone():
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)
        return True

    def _one_is_gone(self) -> bool:
        # A child that has ended keeps its id until it is polled; a process whose parent has ended gets a new parent.
        if os.getppid() != self._parent or any(child.poll() is not None for child in self._children):
            return True
        return os.name != "nt" and not all(_exists(pid) for pid in self._pids)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
