"""How the benchmarks measure and report: medians of rounds in which all contenders take turns, so that drift hits all
alike; figures beside their goals."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median_high
from typing import Any

import torch


def medians(contenders: dict[str, Callable[[], object]], rounds: int = 5, warm: bool = True) -> dict[str, float]:
    """Seconds per call of each, the median over `rounds` rounds. `warm` runs each once beforehand."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    if warm:
        for run in contenders.values():
            run()
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: median_high(seconds) for name, seconds in times.items()}


# 256 MB: far more than any cache holds, so that a copy shows what the memory can do.
COPIED = 1 << 26


def copier() -> Callable[[], object]:
    """Copies COPIED float32, which moves 8 bytes for each."""
    source, target = torch.zeros(COPIED), torch.ones(COPIED)
    return lambda: target.copy_(source)


def in_fresh_process(code: str, **environment: str) -> str:
    """The last line that a piece of Python prints when it has a process to itself."""
    # The child imports this repository, wherever it is started.
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"benchmark process failed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip().splitlines()[-1]


class Table:
    """Figures with their goals: printed as they come, kept for the JSON."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, name: str, value: float, unit: str, *, least: float | None = None, most: float | None = None,
            note: str = "") -> None:  # fmt: skip
        goal = f"≥ {least:g}" if least is not None else f"≤ {most:g}" if most is not None else ""
        missed = (least is not None and value < least) or (most is not None and value > most)
        self.rows.append(
            {
                "name": name,
                "value": value,
                "unit": unit,
                "goal": goal,
                "met": not missed if goal else None,
                "note": note,
            }
        )
        tail = f"  goal {goal}{' MISSED' if missed else ''}" if goal else ""
        print(f"{name:<58} {value:>10.4g} {unit:<6}{tail}{'  ' + note if note else ''}", flush=True)
