"""Downloads: resumed after an interruption, checked against the known size and checksum, then renamed.

Not with pooch, which starts an interrupted download over and has no limit for the time of a whole one.
"""

import contextlib
import http.client
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .files import Remote
from .store import checksum, locked, write_errors
from .task import DataError

PIECE = 1 << 18
# Seconds: for one answer of the server, and for a whole download.
TIMEOUT, TOTAL = 30.0, 3600.0


def fetch(remote: Remote, folder: Path, name: str) -> Path:
    """Download a file into a folder, or resume its download; `name` is that of the data set, for messages.

    Raises:
        DataError: It cannot be downloaded in time, or is another file. What has arrived is kept to resume from.
    """
    file, partial = folder / remote.name, folder / f"{remote.name}.part"
    with locked(folder.with_suffix(".lock")):
        if file.exists():  # another process was first
            return file
        with write_errors(folder):
            folder.mkdir(exist_ok=True)
            # Its name has to be known to resume it: a link that somebody put there is not written through.
            if partial.is_symlink() or _size(partial) > remote.size:
                partial.unlink()
        try:
            _receive(remote, partial, name)
        except DataError:
            raise
        # A redirection to a malformed address raises ValueError.
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == 416:  # nothing to resume from there
                partial.unlink(missing_ok=True)
            raise _failed(remote, name, getattr(error, "reason", "") or error) from None
        if _size(partial) < remote.size:
            reason = f"it stopped after {_size(partial)} of {remote.size} bytes, try again to resume"
            raise _failed(remote, name, reason)
        kind, expected = remote.checksum.split(":")
        actual = checksum(partial, kind)
        if _size(partial) > remote.size or actual != expected:
            partial.unlink()
            raise DataError(f"{name}: {remote.url} must have {kind} {expected}, got {actual}: it is another file")
        partial.rename(file)
    return file


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _failed(remote: Remote, name: str, reason: object) -> DataError:
    return DataError(
        f"{name}: {remote.url} cannot be downloaded ({reason}); get it elsewhere and put it into a folder that "
        f"--data-dir or RESOFIRE_DATA names, as {remote.name}"
    )


def _receive(remote: Remote, partial: Path, name: str) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    size, deadline = _size(partial), time.monotonic() + TOTAL
    if size == remote.size:
        return
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={size}-"} if size else {})
    with _limited() as opener, opener.open(request, timeout=TIMEOUT) as reply:
        if size and reply.status != 206:  # the server starts over, and so do we
            size = 0
        # None if the server does not say or says no number.
        if reply.length is not None and size + reply.length != remote.size:
            raise _failed(remote, name, f"it must have {remote.size} bytes, got {size + reply.length}: another file")
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with partial.open("ab" if size else "wb") as out, Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task(f"{name}: {remote.name}", total=remote.size, completed=size)
            while size <= remote.size and (piece := reply.read1(PIECE)):
                out.write(piece)
                size += len(piece)
                progress.update(bar, completed=size)
                if time.monotonic() > deadline and size < remote.size:
                    minutes = f"{TOTAL / 60:.0f} minutes"
                    raise _failed(remote, name, f"{size} of {remote.size} bytes in {minutes}, try again to resume")


@contextlib.contextmanager
def _limited() -> Iterator[urllib.request.OpenerDirector]:
    """An opener whose connections end when the time for the whole download does.

    `TIMEOUT` is for each byte: a server that drips its headers would keep us for ever.
    """
    sockets: list[socket.socket] = []

    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            sockets.append(self.sock)

    class Secure(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            sockets.append(self.sock)

    class Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
        def http_open(self, request: Any) -> Any:
            return self.do_open(Plain, request)

        def https_open(self, request: Any) -> Any:
            return self.do_open(Secure, request)

    def end() -> None:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(TOTAL, end)
    timer.daemon = True
    timer.start()
    try:
        yield urllib.request.build_opener(Handler)
    finally:
        timer.cancel()
