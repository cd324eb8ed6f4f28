"""resofire watch: the page of a run while it trains."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from .parsing import Count, Folder
from .report import request
from .runs import find_run
from .usage import UsageError, require_positive

Run = Annotated[tyro.conf.Positional[str], tyro.conf.arg(name="run", metavar="RUN")]
# The first port that is tried, and how many.
PORT, TRIES = 8321, 20


@dataclass(frozen=True)
class Watch:
    """Serve the report of a run, updated while it trains."""

    folder: Run
    """A run folder."""
    port: Count = None
    """Port on 127.0.0.1. Default: the first free one from 8321 on."""
    count: Count = None
    """Number of sequences to evaluate when the network has changed. Default: 256; all once it is finished."""
    data_dir: Folder = None
    """Folder with the files of the data set; see resofire data --help."""

    def run(self) -> int:
        if self.port is not None and not 0 <= self.port < 65536:
            raise UsageError(f"watch: --port must be from 0 to 65535, got {self.port}")
        require_positive("watch: --count", self.count)
        folder = find_run(self.folder)
        server = self._server(folder)
        print(f"watching {folder} at {server.address} (Ctrl-C ends it)", flush=True)
        import torch

        # The training needs the cores.
        torch.set_num_threads(1)
        stop = threading.Event()
        follower = threading.Thread(target=server.live.follow, args=(stop,), daemon=True)
        follower.start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
        finally:
            stop.set()
            server.server_close()
        return 0

    def _server(self, folder: Path) -> Any:
        from ..report.live import Live, Server

        live = Live(folder, request(folder, self.data_dir, self.count))
        ports = range(PORT, PORT + TRIES) if self.port is None else (self.port,)
        for port in ports:
            try:
                return Server(live, port)
            except OSError as error:
                reason = error.strerror
        raise UsageError(f"watch: --port {ports[-1]} cannot be used: {reason}")
