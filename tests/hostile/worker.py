"""Runs cases in limited child processes: memory and time are bounded, and a crash ends the child only.

A child is a fork and runs many cases; after a crash or a hang the next one goes on with the case behind it.
"""

import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from random import Random

from .mutations import Mutation
from .report import Budget, Report, Scenario

# Seconds of one case: of the processor, and by the clock of a machine that does other things, too.
PROCESSOR, CLOCK = 10, 60
# Bytes above those of the process before its first case: of addresses, and of memory that is in use at once.
ADDRESSES, MEMORY = 3 << 30, 400 << 20
BATCH = 50


@dataclass(frozen=True)
class Target:
    """A format that we read.

    Attributes:
        name: Its name, FORMAT-CONTAINER.
        files: Returns valid files by their paths; they begin with data/ or cache/.
        mutations: What may be done to a file, by a pattern of its path.
        read: Reads the files below a folder, as a user would.
        errors: The exceptions with which it may refuse them.
        finish: Changes the files once more after a mutation, such as names that are checksums.
        writes: Whether reading may add files to data/, such as a resumed run.
        share: How much of the time it gets.
    """

    name: str
    files: Callable[[], dict[str, bytes]]
    mutations: dict[str, Mutation]
    read: Callable[[Path], object]
    errors: tuple[type[Exception], ...]
    finish: Callable[[dict[str, bytes]], dict[str, bytes]] = dict
    writes: bool = False
    share: float = 1.0

    def scenario(self) -> Scenario:
        return Scenario(f"files/{self.name}", lambda seed, budget, report: _run(self, seed, budget, report), self.share)

    def mutated(self, valid: dict[str, bytes], seed: int, number: int) -> dict[str, bytes]:
        """The files of a case."""
        random = Random(f"{seed}/{self.name}/{number}")
        files = dict(valid)
        for _ in range(random.choice((1, 1, 1, 2))):
            pattern = random.choice(list(self.mutations))
            victims = sorted(path for path in valid if fnmatch(path, pattern))
            victim = random.choice(victims)
            try:
                files[victim] = self.mutations[pattern](random, files[victim])
            except Exception:  # a second mutation of what is no longer valid
                continue
        return self.finish(files)


def _run(target: Target, seed: int, budget: Budget, report: Report) -> None:
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="hostile-", dir=base) as folder:
        root = Path(folder)
        valid = target.files()
        # The valid files must load; what is compiled or imported on the way, children need not repeat.
        error = _case(target, root / "valid", valid)
        if error != ("loaded", ""):
            raise RuntimeError(f"{target.name}: the valid files are refused: {error}")
        numbers = list[int]()
        for number in budget.numbers():
            numbers.append(number)
            if len(numbers) == BATCH:
                _batch(target, seed, numbers, valid, root, report)
                numbers = []
        _batch(target, seed, numbers, valid, root, report)


def _batch(
    target: Target, seed: int, numbers: list[int], valid: dict[str, bytes], root: Path, report: Report
) -> None:  # fmt: skip
    name = f"files/{target.name}"
    while numbers:
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _child(target, seed, numbers, valid, root, writer)
        os.close(writer)
        hung = False
        with os.fdopen(reader, "rb", buffering=0) as stream:
            while numbers:
                hung = not select.select([stream], [], [], CLOCK)[0]
                line = b"" if hung else stream.readline()
                if not line.endswith(b"\n"):
                    break
                outcome, _, detail = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
                number = numbers.pop(0)
                if outcome in ("loaded", "refused"):
                    report.add(name, outcome)
                else:
                    report.fail(name, number, outcome, detail)
        if hung:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if numbers:
            cause = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            kind = "hang" if hung or cause in (signal.SIGXCPU, signal.SIGKILL) else "crash"
            text = signal.Signals(cause).name if cause else f"exit code {os.WEXITSTATUS(status)}"
            report.fail(name, numbers.pop(0), kind, text)


def _child(target: Target, seed: int, numbers: list[int], valid: dict[str, bytes], root: Path, writer: int) -> None:
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        # Within the limits, too.
        if _case(target, root / "case", valid) != ("loaded", ""):
            os._exit(3)
        for number in numbers:
            used = resource.getrusage(resource.RUSAGE_SELF)
            limit = int(used.ru_utime + used.ru_stime) + PROCESSOR + 1
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
            outcome, detail = _case(target, root / "case", target.mutated(valid, seed, number))
            os.write(writer, f"{outcome} {' '.join(detail.split())[:2000]}\n".encode("utf-8", "replace"))
        code = 0
    finally:
        os._exit(code)


def _case(target: Target, root: Path, files: dict[str, bytes]) -> tuple[str, str]:
    """Write the files, read them, and say how that ended."""
    shutil.rmtree(root, ignore_errors=True)
    for part in ("data", "cache", "tmp"):
        (root / part).mkdir(parents=True)
    for path, raw in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(raw)
    os.environ["RESOFIRE_CACHE"], os.environ["TMPDIR"] = str(root / "cache"), str(root / "tmp")
    os.environ.pop("RESOFIRE_DATA", None)
    tempfile.tempdir = None
    before = _peak(reset=True)
    outcome, detail = "loaded", ""
    try:
        target.read(root)
    except target.errors as error:
        outcome, detail = "refused", str(error)
        if "\n" in detail or not detail or len(detail) > 1500:
            outcome, detail = "traceback", f"not one sentence: {detail!r}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        ours = [each for each in traceback.extract_tb(error.__traceback__) if "/resofire/" in each.filename]
        last = ours[-1] if ours else place
        where = f"{Path(last.filename).name}:{last.lineno}, {Path(place.filename).name}:{place.lineno}"
        kind = "memory" if isinstance(error, MemoryError) else "traceback"
        return kind, f"{type(error).__name__}: {str(error)[:300]} ({where})"
    grown = _peak() - before
    if outcome in ("loaded", "refused") and grown > MEMORY:
        return "memory", f"{grown >> 20} MB for files of {sum(map(len, files.values())) >> 10} kB: {outcome} {detail}"
    left = _leftovers(target, root, files)
    return ("leftover", left) if left and outcome in ("loaded", "refused") else (outcome, detail)


def _peak(reset: bool = False) -> int:
    """The most memory in use since it was reset, in bytes."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def _leftovers(target: Target, root: Path, files: dict[str, bytes]) -> str:
    """Files that should not be there: temporary ones, and sets that are not complete."""
    paths = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() or path.is_symlink()]
    new = [path for path in paths if path not in files]
    wrong = [
        path for path in new if path.startswith("tmp/") or path.endswith(".part") or "/." in path.replace("/.lock", "")
    ]
    if not target.writes:
        wrong += [path for path in new if path.startswith("data/")]
    for folder in (root / "cache").iterdir():
        complete = folder.name == "downloads" or (folder / "manifest.json").exists()
        if folder.is_dir() and not complete and not any(path.startswith(f"cache/{folder.name}/") for path in files):
            wrong.append(f"cache/{folder.name}/")
    return ", ".join(dict.fromkeys(wrong))
