"""resofire bench."""

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from .usage import UsageError, hint, require_writable

BENCHMARKS = ("neurons", "networks", "peers", "events", "stream")
DRAWN = {"peers": "Beside the peers", "events": "Does the time follow the operations?"}


@dataclass(frozen=True)
class Bench:
    """Time the library against its peers and the memory limit: ratios in one run."""

    name: tyro.conf.Positional[str] = "neurons"
    """Which benchmark: neurons, networks, peers, events or stream."""
    json: Path | None = None
    """Also write the figures to this file."""
    figure: Path | None = None
    """Also draw them: FIGURE.png, FIGURE.svg, and a page FIGURE.md with the table; for peers and events."""
    quick: bool = False
    """A short run: fewer sizes and repeats."""

    def run(self) -> int:
        if self.name not in BENCHMARKS:
            raise UsageError(
                f"bench: name must be one of {', '.join(BENCHMARKS)}, got {self.name!r}{hint(self.name, BENCHMARKS)}"
            )
        if self.json is not None:
            require_writable("bench: --json", self.json)
        if self.figure is not None:
            if self.name not in DRAWN:
                raise UsageError(f"bench: --figure is for {' and '.join(DRAWN)}, got {self.name}")
            require_writable("bench: --figure", self.figure)
        from ..atomic import write_atomic
        from ..ops import retain_buffers

        retain_buffers()
        benchmark = importlib.import_module(f"resofire.benchmarks.{self.name}")
        result = benchmark.run(quick=self.quick)
        if self.json is not None:
            write_atomic(self.json, (json.dumps(result, indent=2) + "\n").encode())
            print(f"figures in {self.json}")
        if self.figure is not None:
            from ..plot import bench, save

            save(getattr(bench, f"draw_{self.name}")(result), self.figure)
            write_atomic(Path(f"{self.figure}.md"), page(self.name, result, f"{self.figure.name}.png").encode())
            print(f"drawn in {self.figure}.png")
        return 0


def page(name: str, result: dict[str, Any], picture: str) -> str:
    """A benchmark's result in Markdown: its picture, its answer in words if it has one, its table."""
    benchmark, title = importlib.import_module(f"resofire.benchmarks.{name}"), DRAWN[name]
    parts = [f"# {title}", f"Made by `{result['command']}`.", f"![{title}]({picture})"]
    if hasattr(benchmark, "answer"):
        parts.append(benchmark.answer(result))
    return "\n\n".join([*parts, benchmark.table(result)]) + "\n"
