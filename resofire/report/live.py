"""The page of a run that is still in training: collected again when the run folder changes, served on loopback only.

The server has two addresses, the page and its data, and reads nothing but the run it was started for.
"""

import dataclasses
import hashlib
import http.server
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from .. import train
from ..models.storage import WEIGHTS
from ..train.evaluation import RESULT
from ..train.logs import FILE
from .collect import Request, joined, network_data, without
from .page import embedded, page

LOOPBACK = "127.0.0.1"
DATA = "data.json"
# Sequences that are read while the run trains, and the least time between two readings as a multiple of what one takes.
COUNT, REST = 256, 10.0


class Snapshot(NamedTuple):
    """The data of the page at one time, with a tag that tells it from others."""

    tag: str
    content: bytes


class Live:
    """The content of a live page; `request` as for `run_data`. Raises RunError if the folder is not a run."""

    def __init__(self, folder: Path, request: Request) -> None:
        self.folder, self.request = folder, request
        self._network = without("The network has not been read yet.")
        self._seen: tuple[Any, Any] = (None, None)
        self._next = 0.0
        self._lock = threading.Lock()
        self._publish()

    @property
    def snapshot(self) -> Snapshot:
        """The newest data; safe to call from any thread."""
        with self._lock:
            return self._snapshot

    def html(self) -> bytes:
        """The page with the newest data in it."""
        with self._lock:
            data = self._data
        return page(data, live=DATA).encode()

    def refresh(self) -> bool:
        """Collect again what has changed in the run folder; returns whether anything had.

        Curves follow at once. The network is read when it has changed and long enough after the last time, so that
        watching takes little from the training.
        """
        rows = tuple(_stamp(self.folder / name) for name in (FILE, RESULT))
        weights = (_stamp(self.folder / WEIGHTS), rows[1])
        stale = weights != self._seen[1] and (time.monotonic() >= self._next or rows[1] is not None)
        if rows == self._seen[0] and not stale:
            return False
        if stale:
            begun = time.monotonic()
            request = self.request
            if request.count is None and rows[1] is None:
                request = dataclasses.replace(request, count=COUNT)
            self._network = network_data(self.folder, request)
            self._next = time.monotonic() + REST * (time.monotonic() - begun)
        self._seen = (rows, weights if stale else self._seen[1])
        self._publish()
        return True

    def follow(self, stop: threading.Event, seconds: float = 1.0) -> None:
        """Refresh until `stop` is set; if the folder cannot be read, the page stays as it is."""
        while not stop.wait(seconds):
            try:
                self.refresh()
            except (train.RunError, OSError, ValueError, RuntimeError) as error:
                # Such as a network that is just being replaced, or a folder that was removed.
                self._note(" ".join(str(error).split()))

    def _publish(self) -> None:
        data = joined(self.folder, self._network, self.request)
        steps = max((curve["step"][-1] for curve in data["curves"]["splits"].values()), default=0)
        self._set({**data, "status": f"{int(steps):,} steps so far"})

    def _note(self, text: str) -> None:
        self._set({**self._data, "status": text})

    def _set(self, data: dict[str, Any]) -> None:
        # The time of the page alone is no news.
        content = str(embedded({name: value for name, value in data.items() if name != "written"})).encode()
        tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
        content = str(embedded(data)).encode()
        with self._lock:
            self._data, self._snapshot = data, Snapshot(tag, content)


class Server(http.server.ThreadingHTTPServer):
    """Serves a live page to several viewers on a port of 127.0.0.1; 0 takes a free one, see `address`."""

    daemon_threads = True

    def __init__(self, live: Live, port: int = 0) -> None:
        self.live = live
        super().__init__((LOOPBACK, port), Handler)

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A viewer that goes away in the middle of an answer is no error."""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests for the page and its data; refuses everything else."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "resofire", ""
    timeout = 60
    headers_of_all: ClassVar[dict[str, str]] = {
        "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
    }  # fmt: skip

    def do_GET(self) -> None:
        """Send the page or its data."""
        # Another site may have its name point here (DNS rebinding); its requests carry that name.
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0] not in (f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")):
            self._send(HTTPStatus.FORBIDDEN, b"The request is for another host.\n", "text/plain")
        elif self.path == "/":
            self._send(HTTPStatus.OK, self.server.live.html(), "text/html; charset=utf-8")
        elif self.path == f"/{DATA}":
            tag, content = self.server.live.snapshot
            if self.headers.get("If-None-Match") == tag:
                self._send(HTTPStatus.NOT_MODIFIED, b"", "application/json", tag)
            else:
                self._send(HTTPStatus.OK, content, "application/json", tag)
        else:
            self._send(HTTPStatus.NOT_FOUND, b"There is nothing here.\n", "text/plain")

    do_HEAD = do_GET

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is logged: the terminal shows where the page is."""

    def _send(self, status: HTTPStatus, content: bytes, kind: str, tag: str | None = None) -> None:
        self.send_response(status)
        for name, value in self.headers_of_all.items():
            self.send_header(name, value)
        if tag is not None:
            self.send_header("ETag", tag)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD" and status != HTTPStatus.NOT_MODIFIED:
            self.wfile.write(content)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """A value that changes when a file is written; None if it does not exist."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
