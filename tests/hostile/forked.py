"""Commands in forked children of a warm process: torch is imported once, not for each of hundreds of commands."""

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from resofire import cli

# Seconds after which a command that should have ended hangs; other programs may use the machine, too.
PATIENCE = 120.0
# Bytes of addresses above those of the parent.
ADDRESSES = 6 << 30
# What a child returns for an exception that leaves `main`.
ESCAPED = 70
CODES = (0, 1, 2, 130, 128 + signal.SIGTERM)


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        code: Its exit code, negative for a signal; None: it had to be killed.
        out: Standard output.
        err: Standard error.
        sent: The signal that was sent to it; 0: it ended before.
    """

    code: int | None
    out: str
    err: str
    sent: int


class Place:
    """A folder for one case: work/, where commands run, tmp/ and cache/ for their temporary files and data sets."""

    def __init__(self, root: Path) -> None:
        self.root, self.work, self.tmp, self.cache = root, root / "work", root / "tmp", root / "cache"
        for folder in (self.work, self.tmp, self.cache):
            folder.mkdir(parents=True, exist_ok=True)

    def run(
        self, words: list[str], *, send: int = 0, after: float = PATIENCE, closed: bool = False,
        encoding: str = "utf-8",
    ) -> Ended:  # fmt: skip
        """Run one command.

        Args:
            words: What follows the program's name.
            send: A signal to send if it still runs after some time; 0: none.
            after: Seconds.
            closed: Without a standard input; otherwise it is empty.
            encoding: Of standard output and standard error.
        """
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._child(words, writer, closed, encoding)
        os.close(writer)
        os.read(reader, 1)  # until its main begins
        os.close(reader)
        status, sent = (wait(child, after), 0) if send else (None, 0)
        if status is None and send:
            os.kill(child, send)
            sent = send
        if status is None:
            status = wait(child, PATIENCE)
        if status is None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        texts = ((self.root / name).read_text("utf-8", "replace") for name in ("out", "err"))
        return Ended(status, *texts, sent)

    def _child(self, words: list[str], writer: int, closed: bool, encoding: str) -> None:
        code = ESCAPED
        try:
            os.setsid()
            os.chdir(self.work)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(self.root / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.stdin = open(0, closefd=False)  # noqa: SIM115 - lives as long as the process
            if closed:
                os.close(0)
                sys.stdin = None
            sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", encoding=encoding, buffering=1, closefd=False)  # noqa: SIM115
            # No download leaves this machine.
            environment = {"RESOFIRE_CACHE": self.cache, "TMPDIR": self.tmp, "COLUMNS": "80"}
            environment |= dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
            os.environ |= {name: str(value) for name, value in environment.items()}
            os.environ.pop("RESOFIRE_DATA", None)
            tempfile.tempdir = None
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + ADDRESSES
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.write(writer, b"x")
            code = cli.main(words)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 0
        except KeyboardInterrupt:  # before main could handle it
            print("resofire: stopped", file=sys.stderr)
            code = 130
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except BaseException:
                    code = code or 1
            os._exit(code)

    def files(self) -> dict[str, bytes]:
        """Everything below the folder but the output."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and path.parent != self.root
        }

    def clear(self) -> None:
        """Begin again."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.__init__(self.root)  # type: ignore[misc]


def wait(child: int, seconds: float) -> int | None:
    """The exit code of a child, or None if it still runs after some seconds."""
    until = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(0.002)


def fault(ended: Ended, place: Place) -> tuple[str, str] | None:
    """What is wrong with how a command ended: a kind of `report.KINDS`, and more; None: nothing."""
    tail = " | ".join(ended.err.strip().splitlines()[-3:])[-400:]
    if ended.code is None:
        return "hang", tail
    if ended.code < 0 and -ended.code != ended.sent:
        return "crash", f"{signal.Signals(-ended.code).name}: {tail}"
    if "Traceback" in ended.err + ended.out or ended.code == ESCAPED:
        return "traceback", tail
    if ended.code not in CODES and ended.code >= 0:
        return "crash", f"exit code {ended.code}: {tail}"
    if ended.code > 0 and ended.code != 128 + signal.SIGTERM and not tail and not ended.out:
        return "traceback", f"exit code {ended.code} without a sentence"
    if ended.code == 2 and len(ended.err.strip().splitlines()[-1]) > 2000:
        return "traceback", f"a sentence of {len(ended.err)} letters: {tail}"
    left = [
        name for name in (path.relative_to(place.root).as_posix() for path in place.root.rglob("*"))
        if name.startswith("tmp/") or name.endswith(".part")
    ]  # fmt: skip
    return ("leftover", ", ".join(left)) if left else None
