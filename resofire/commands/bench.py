"""resofire bench."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ..atomic import write_atomic
from ..clone import NotACloneError, benchmark
from .parsing import File, Switch
from .usage import UsageError, require_one_of, require_writable, writing

BENCHMARKS = ("neurons", "networks", "baselines", "peers", "events", "stream")
FIGURES = ("peers", "events")


@dataclass(frozen=True)
class Bench:
    """Time the library against its peers, as ratios; needs a clone."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[NAME]")] = "neurons"
    """One of neurons, networks, baselines, peers, events, stream."""
    json: File = None
    """Also write the results to this file."""
    figure: File = None
    """Also draw them (peers and events only): FIGURE.png, FIGURE.svg and FIGURE.md with the table."""
    quick: Switch = False
    """A short run with fewer sizes and repeats."""

    def run(self) -> int:
        require_one_of("bench: name", self.name, BENCHMARKS)
        if self.figure is not None and self.name not in FIGURES:
            raise UsageError(f"bench: --figure is for {' and '.join(FIGURES)}, got {self.name}")
        for flag, file in (("bench: --json", self.json), ("bench: --figure", self.figure)):
            if file is not None:
                require_writable(flag, file)
        from ..ops import retain_buffers

        retain_buffers()
        try:
            module = benchmark(self.name)
        except NotACloneError as error:
            raise UsageError(f"bench: {error}") from None
        result = module.run(quick=self.quick)
        if self.json is not None:
            with writing("bench: --json", self.json):
                write_atomic(self.json, (json.dumps(result, indent=2) + "\n").encode())
            print(f"results in {self.json}")
        if self.figure is not None:
            from ..plot import save

            figures = benchmark("figures")
            with writing("bench: --figure", self.figure):
                save(figures.DRAW[self.name](result), self.figure)
                text = figures.page(self.name, result, f"{self.figure.name}.png")
                write_atomic(Path(f"{self.figure}.md"), text.encode())
            print(f"drawn in {self.figure}.png")
        return 0
