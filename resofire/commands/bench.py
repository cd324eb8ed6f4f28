"""resofire bench."""

import importlib
import json
from dataclasses import dataclass
from pathlib import Path

import tyro

from .mistake import Mistake, hint, require_writable

BENCHMARKS = ("neurons", "networks")


@dataclass(frozen=True)
class Bench:
    """Time the library against its peers and the memory limit: ratios in one run."""

    name: tyro.conf.Positional[str] = "neurons"
    """Which benchmark: neurons or networks."""
    json: Path | None = None
    """Also write the figures to this file."""
    quick: bool = False
    """A short run: fewer sizes and repeats."""

    def run(self) -> int:
        if self.name not in BENCHMARKS:
            raise Mistake(
                f"bench: name must be one of {', '.join(BENCHMARKS)}, got {self.name!r}{hint(self.name, BENCHMARKS)}"
            )
        if self.json is not None:
            require_writable("bench: --json", self.json)
        from ..ops import retain_buffers

        retain_buffers()
        result = importlib.import_module(f"resofire.benchmarks.{self.name}").run(quick=self.quick)
        if self.json is not None:
            self.json.write_text(json.dumps(result, indent=2) + "\n")
            print(f"figures in {self.json}")
        return 0
