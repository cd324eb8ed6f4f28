"""Attacks on running commands: kills, signals, full disks, and command lines that make no sense."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}

import torch

from resofire import cli

from . import formats
from .forked import Place, fault
from .report import SCENARIOS, Budget, Report, Scenario

TRAIN = Path(__file__).parents[1] / "train"
TINY = ["--model.features", "8", "--model.depth", "1", "--batch", "50", "--checkpoint-minutes", "0"]
TRAINING = ["train", "digits", "--steps", "8", "--validate-every", "4", *TINY, "--out", "run"]
RUN = "../../shared"
# Each writes what it is named after, and reads what the shared folder holds.
COMMANDS = {
    "train": TRAINING,
    "fit": ["fit", "../../own.csv", "--minutes", "0.005", "--out", "fitted"],
    "evaluate": ["evaluate", RUN],
    "measure": ["measure", RUN, "--out", "measured", "--batches", "1"],
    "nir": ["export", RUN, "--to", "nir", "--out", "run.nir", "--samples", "2"],
    "onnx": ["export", RUN, "--to", "onnx", "--out", "run.onnx", "--samples", "2"],
    "c": ["export", RUN, "--to", "c", "--out", "run-c", "--samples", "2"],
    "safetensors": ["export", RUN, "--to", "safetensors", "--out", "run.safetensors", "--samples", "2"],
    "stream": ["stream", RUN, "../../numbers.txt", "--json"],
    "show": ["data", "show", "digits", "--png", "digits.png"],
    "prepare": ["data", "prepare", "smnist", "--data-dir", "../../data"],
}
EXPORTS = ("nir", "onnx", "c", "safetensors")


@contextlib.contextmanager
def warm() -> Iterator[Path]:
    """A folder with a finished run, numbers and a small data set. What commands import and compile is loaded."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        root, before = Path(folder), Path.cwd()
        for name, raw in formats.digits().items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(raw)
        rows = [f"{'ab'[n % 2]},{n % 2}.5,{n},1,2,3" for n in range(40)]
        (root / "own.csv").write_text("\n".join(("label,u,v,w,x,y", *rows, "")))
        (root / "numbers.txt").write_text("0.5 0.25\n0.125\n" * 20)
        os.environ["RESOFIRE_CACHE"] = str(root / "cache")
        work = Place(root / "warm").work
        os.chdir(work)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
                for words in ([*TRAINING[:-1], str(root / "shared")], *list(COMMANDS.values())[1:]):
                    code = cli.main(words)
                    if code:
                        raise RuntimeError(f"{words} ended with {code}: {err.getvalue()}")
        finally:
            os.chdir(before)
        yield root


def scenario(name: str, share: float = 1.0) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function of (root, random, place, number, report) as a scenario; it runs one case."""

    def register(case: Callable[..., None]) -> Callable[..., None]:
        def run(seed: int, budget: Budget, report: Report) -> None:
            with warm() as root:
                for number in budget.numbers():
                    place = Place(root / "case")
                    case(root, Random(f"{seed}/{name}/{number}"), place, number, report)
                    place.clear()

        SCENARIOS.append(Scenario(f"processes/{name}", run, share))
        return case

    return register


def judged(report: Report, name: str, number: int, wrong: tuple[str, str] | None, words: list[str], good: str) -> bool:
    """Count a case; returns whether it ended well."""
    if wrong is None:
        report.add(name, good)
    else:
        report.fail(name, number, wrong[0], f"{' '.join(words)[:300]!a}: {wrong[1]}")
    return wrong is None


@scenario("signals", 2.0)
def signals(root: Path, random: Random, place: Place, number: int, report: Report) -> None:
    """SIGINT or SIGTERM at a random moment: a sentence, no traceback, nothing half written."""
    name = random.choice(list(COMMANDS))
    words, send = COMMANDS[name], random.choice((signal.SIGINT, signal.SIGTERM))
    ended = place.run(words, send=send, after=random.choice((0.05, 0.5, 2.0)) * random.random())
    wrong = fault(ended, place)
    if wrong is None and name == "train" and (place.work / "run" / "run.json").exists() and ended.code:
        again = place.run(["train", "--resume", "run"])
        wrong = fault(again, place) or (None if again.code == 0 else ("traceback", f"no resume: {again.err[-300:]}"))
    judged(report, "processes/signals", number, wrong, words, "stopped" if ended.sent else "finished")


def content(target: Path) -> dict[str, bytes]:
    """The bytes of an export, which may be a folder, by the name of the file."""
    files = target.iterdir() if target.is_dir() else [target]
    return {file.name: file.read_bytes() for file in files}


@scenario("kill-export", 2.0)
def kill_export(root: Path, random: Random, place: Place, number: int, report: Report) -> None:
    """SIGKILL: the target is missing or whole, and the next export gives the same bytes."""
    words = COMMANDS[random.choice(EXPORTS)]
    target = place.work / words[words.index("--out") + 1]
    whole = content(root / "warm" / "work" / target.name)
    ended = place.run(words, send=signal.SIGKILL, after=random.choice((0.3, 1.5)) * random.random())
    wrong = None
    if target.exists() and content(target) != whole:
        wrong = ("bytes", "the killed export left another file")
    elif ended.sent:
        # Nobody can clean up behind a kill; the next export must not stumble over what it left.
        left = [*place.tmp.iterdir(), *place.work.glob(".*.part")]
        again = place.run(words)
        for path in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        wrong = fault(again, place)
        if wrong is None and content(target) != whole:
            wrong = ("bytes", "the export after a kill wrote another file")
    else:
        wrong = fault(ended, place)
    judged(report, "processes/kill-export", number, wrong, words, "killed" if ended.sent else "finished")


@scenario("kill-prepare", 2.0)
def kill_prepare(root: Path, random: Random, place: Place, number: int, report: Report) -> None:
    """SIGKILL: the next preparation gives the same files, and leaves nothing of the first."""
    words = COMMANDS["prepare"]
    whole = {path.name: path.read_bytes() for path in (root / "cache").glob("*mnist-*/*")}
    ended = place.run(words, send=signal.SIGKILL, after=0.4 * random.random())
    again = place.run(words)
    wrong = fault(again, place)
    if wrong is None and {path.name: path.read_bytes() for path in place.cache.glob("*mnist-*/*")} != whole:
        wrong = ("bytes", "the preparation after a kill wrote other files")
    judged(report, "processes/kill-prepare", number, wrong, words, "killed" if ended.sent else "finished")


def kill_train(seed: int, budget: Budget, report: Report) -> None:
    """SIGKILL at random moments and resume, again and again: the bytes of a run that nobody killed."""
    sys.path.insert(0, str(TRAIN))
    import kinds
    import sigkill

    torch.set_num_threads(1)
    name, alone = "processes/kill-train", [kind for kind in kinds.KINDS if kind not in kinds.DEVICES]
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        root = Path(folder)
        wholes: dict[str, tuple[tuple[object, ...], float]] = {}
        for number in budget.numbers():
            random = Random(f"{seed}/{name}/{number}")
            kind = alone[number % len(alone)]
            if kind not in wholes:
                with contextlib.redirect_stderr(io.StringIO()):
                    sigkill.continued(kind, root / kind / "warm")
                begun = time.monotonic()
                if sigkill.wait(kind, sigkill.start(kind, root / kind / "whole"), 600) != 0:
                    raise RuntimeError((root / kind / "whole.txt").read_text())
                wholes[kind] = sigkill.content(root / kind / "whole"), time.monotonic() - begun
            whole, duration = wholes[kind]
            run = root / kind / f"run-{number}"
            kills, status = 0, None
            while status is None:
                # After six kills it may finish.
                child = sigkill.start(kind, run)
                status = sigkill.wait(kind, child, duration * random.random() if kills < 6 else 600)
                if status is None:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    kills += 1
                    if (run / "result.json").exists():
                        status = 0
                    elif kills > 6:
                        break
            text = run.with_suffix(".txt").read_text()[-300:]
            for _ in range(max(0, kills - 1)):
                report.add(name, "killed")
            if status is None:
                report.fail(name, number, "hang", f"{kind}: {text}")
            elif status != 0:
                report.fail(name, number, "traceback" if status > 0 else "crash", f"{kind}: {text}")
            elif sigkill.content(run) != whole:
                report.fail(name, number, "bytes", f"{kind}, killed {kills} times")
            else:
                report.add(name, "killed" if kills else "finished")


SCENARIOS.append(Scenario("processes/kill-train", kill_train, 4.0))


@scenario("full-disk")
def full_disk(root: Path, random: Random, place: Place, number: int, report: Report) -> None:
    """A file system of a few kilobytes: a sentence, and no half-written file."""
    name = random.choice(list(COMMANDS))
    kilobytes = random.choice((4, 8, 16, 32, 64, 128, 256))
    target = place.cache if name == "prepare" else place.work
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(target)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        report.add("processes/full-disk", "skipped (needs root and mount)")
        return
    try:
        ended = place.run(COMMANDS[name])
        wrong = fault(ended, place)
        hidden = [path.name for path in target.glob(".*") if path.name != ".lock"]
        if wrong is None and (hidden or any(path.is_dir() and name != "train" for path in target.glob("*-*.part"))):
            wrong = ("leftover", ", ".join(hidden))
        written = COMMANDS[name][-1] if name == "show" else None
        if wrong is None and ended.code and written and (target / written).exists():
            wrong = ("leftover", written)
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)
    judged(report, "processes/full-disk", number, wrong, COMMANDS[name], f"exit code {ended.code}")


NUMBERS = ("0", "-1", "1e3", "1.5", "nan", "inf", "-inf", "1000000000", "9" * 30, "9" * 5000, "0x10", "1_0", "٣", "½")
WORDS = (
    "", " ", "-", "--", "-x", "--=", "=", "none", "None", "True", "ü", "\U0001f9df", "\udcff", "a\nb", "\x1b[31m", "[]",
    "{}", "x" * 300, "x" * 5000, "%s", "'", "digits", "all", "list",
)  # fmt: skip
PATHS = (
    ".", "..", "/", "/dev/null", "/dev/full", "/proc/self/mem", "missing/folder/file", "~nobody/x", "folder", "file",
    "loop", "pipe", "x" * 300, f"{'y/' * 300}z", "file/below", "\udcff.bin",
)  # fmt: skip
LINES = [
    *COMMANDS.values(),
    ["train", "--resume", "run"],
    ["train", "digits", "--steps", "2", *TINY, "--out", "new", "--model.neuron.tau", "2.0", "--ema", "0.9"],
    ["train", "digits-small", "--steps", "1", "--out", "new", "--seed", "1", "--select", "test", "--devices", "1"],
    ["evaluate", "digits", "--json", "--fixed-point", "--count", "3"],
    ["measure", "digits", "--against", "s4", "--state-size", "64", "--costs", "float32", "--batches", "1", "--json"],
    ["measure", "paper", "--json"],
    ["export", "digits", "--to", "c", "--weight-bits", "8", "--state-bits", "16", "--samples", "2", "--longest", "16"],
    ["stream", "digits", "../../numbers.txt", "--chunk", "4", "--json"],
    ["stream", "digits", "-"],
    ["data", "list", "--json"],
    ["data", "prepare", "digits"],
    ["data", "show", "digits", "--json"],
    ["bench", "neurons", "--quick", "--json", "out.json"],
    ["paper", "list"],
    ["paper", "dynamics", "--out", "pages", "--runs", "trainings", "--budget", "0.01"],
    ["doctor"],
    ["--version"],
    ["--help"],
]  # fmt: skip


def mutated(random: Random) -> list[str]:
    """A valid command line with one to three changes."""
    words = list(random.choice(LINES))
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(words)) if words else 0
        match random.randrange(8):
            case 0:
                del words[at : at + 1]
            case 1:
                words[at : at + 1] = [random.choice(NUMBERS)]
            case 2:
                words[at : at + 1] = [random.choice(WORDS)]
            case 3:
                words[at : at + 1] = [random.choice(PATHS)]
            case 4:
                words.insert(at, random.choice(WORDS + PATHS))
            case 5:
                words[at:at] = words[at : at + 2]
            case 6 if words:
                place = random.randrange(len(words[at]) + 1)
                words[at] = words[at][:place] + random.choice("-=. é0") + words[at][place + random.randrange(2) :]
            case _ if words:
                other = random.choice(random.choice(LINES))
                words[at] = other if random.random() < 0.5 else f"{words[at]}={other}"
    return words


@scenario("command-lines", 3.0)
def command_lines(root: Path, random: Random, place: Place, number: int, report: Report) -> None:
    """Whatever the words are: a result, or one sentence."""
    words = mutated(random)
    (place.work / "folder").mkdir()
    (place.work / "file").write_text("0.5")
    (place.work / "loop").symlink_to("loop")
    os.mkfifo(place.work / "pipe")
    closed, encoding = random.random() < 0.2, random.choice(("utf-8", "utf-8", "ascii"))
    # A valid line may take long: then it is stopped.
    ended = place.run(words, send=signal.SIGINT, after=15.0, closed=closed, encoding=encoding)
    wrong = fault(ended, place)
    if wrong is None and not Path("/dev/null").is_char_device():
        raise RuntimeError(f"{words} replaced /dev/null")
    judged(report, "processes/command-lines", number, wrong, words, f"exit code {ended.code}")
