"""Kill trainings at random moments, resume them, and compare every byte with a run that nobody killed.

    python sigkill.py KIND KILLS [SEED]

Training runs in a forked child, so that a kill does not cost an import of torch; a run of two processes is a program
of its own, of which one process or both are killed.
"""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}

import torch
from kinds import DEVICES, config, task

from resofire.train import checkpoints, resume, train

STEPS = 40


def continued(kind: str, folder: Path) -> None:
    """Begin the run of a folder, or resume it."""
    if (folder / "run.json").exists():
        resume(folder, task(kind))
    else:
        train(replace(config(kind), steps=STEPS), task(kind), folder, devices=DEVICES.get(kind, 1))


def start(kind: str, folder: Path) -> int:
    """Start a process that continues a run; its output goes to a file beside the folder."""
    output = folder.with_suffix(".txt")
    if kind in DEVICES:
        with output.open("ab") as stream:
            program = [sys.executable, __file__, "continue", kind, str(folder)]
            return subprocess.Popen(program, stdout=stream, stderr=stream, start_new_session=True).pid
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        continued(kind, folder)
        status = 0
    finally:
        os._exit(status)


def kill(kind: str, pid: int, draw: random.Random) -> None:
    """SIGKILL for the process; of two, for the first, the second, or both at once."""
    victims = [pid]
    if kind in DEVICES:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        helpers = [int(word) for word in (children.read_text() if children.exists() else "").split()]
        victims = draw.choice([[pid], helpers or [pid], [pid, *helpers]])
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def wait(kind: str, pid: int, seconds: float) -> int | None:
    """The exit status of a process, or None if it still runs after some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return None


def content(folder: Path) -> tuple:
    """Everything of a finished run but times: the network, the last checkpoint, the curves, the counts."""
    state = checkpoints.newest(folder).state
    tensors = []
    for part in ("model", "average"):
        tensors += [value.numpy().tobytes() for value in (state[part] or {}).values()]
    for moments in state["optimiser"]["state"].values():
        tensors += [value.numpy().tobytes() for value in moments.values()]
    with (folder / "metrics.csv").open(newline="") as stream:
        rows = [row[:-1] for row in csv.reader(stream)]
    result = json.loads((folder / "result.json").read_text())
    kept = (result["correct"], result["best"], result["fire_rates"])
    return (folder / "model.safetensors").read_bytes(), tensors, rows, kept, state["step"], state["best"]


def kill_and_resume(kind: str, kills: int, folder: Path, seed: int = 0) -> int:
    """Kill runs of a kind at random moments and resume them until they finish.

    Args:
        kind: One of `kinds.KINDS`.
        kills: How many times to kill.
        folder: Where the runs go.
        seed: Decides the moments.

    Returns:
        How many finished runs were compared.

    Raises:
        AssertionError: A killed run ended in other bytes, or could not be resumed.
    """
    draw, folder = random.Random(seed), folder.resolve()
    if kind not in DEVICES:
        # Imports and compiles everything once; the children inherit it.
        continued(kind, folder / "warm")
    begun = time.monotonic()
    assert wait(kind, start(kind, folder / "whole"), 600) == 0, (folder / "whole.txt").read_text()
    duration = time.monotonic() - begun
    whole, done, number = content(folder / "whole"), 0, 0
    while done < kills:
        run, number = folder / f"run-{number}", number + 1
        while True:
            pid = start(kind, run)
            moment = draw.uniform(0.0, duration) if done < kills else 600
            status = wait(kind, pid, moment)
            if status is None:
                kill(kind, pid, draw)
                done += 1
                assert wait(kind, pid, 60) is not None, "a process outlived its peer"
                if (run / "result.json").exists():
                    # Killed between its last write and its exit.
                    break
            else:
                assert status == 0, (folder / f"{run.name}.txt").read_text()
                break
        assert content(run) == whole, f"{run} ended in other bytes"
        steps = [each["step"] for each in json.loads((run / "run.json").read_text()).get("resumed", ())]
        print(
            f"{kind}: {done} of {kills} kills, {number} runs finished with equal bytes; resumed at {steps}", flush=True
        )
    return number


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "continue":
        continued(sys.argv[2], Path(sys.argv[3]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            place = sys.argv[3] if len(sys.argv) > 3 else "0"
            kill_and_resume(sys.argv[1], int(sys.argv[2]), Path(scratch), int(place))
