"""resofire paper (alias: reproduce)."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from .usage import UsageError, hint


@dataclass(frozen=True)
class Paper:
    """Do a table or figure of the paper again: resofire reproduce list | NAME | all."""

    name: tyro.conf.Positional[str]
    """Which one, all of them (one that cannot be done is left out, and why is said), or list."""
    budget: float = 10.0
    """Minutes that one of them may take; trainings are cut to fit. loss-landscape and kernel-gradient also need decay
    at the same budget, and train it if it is not there."""
    out: Path = Path("docs/paper")
    """Where NAME.json, its figure and its page go."""
    runs: Path = Path("runs/reproduce")
    """Where trainings are kept, to go on with them."""
    data_dir: Path | None = None
    """Where the data sets' files are; see resofire data."""

    def run(self) -> int:
        from .. import data, paper, train

        if self.name == "list":
            width = max(map(len, paper.NAMES)) + 2
            print("\n".join(f"{name:<{width}}{paper.title(name)}" for name in paper.NAMES))
            return 0
        if self.name not in (*paper.NAMES, "all"):
            known = ("list", "all", *paper.NAMES)
            raise UsageError(
                f"reproduce: name must be one of {', '.join(known)}, got {self.name!r}{hint(self.name, known)}"
            )
        left_out = 0
        for name in paper.NAMES if self.name == "all" else (self.name,):
            try:
                print(paper.reproduce(name, self.out, self.budget, self.data_dir, self.runs))
            except train.Stopped as stopped:
                print(f"resofire: {stopped}", file=sys.stderr)
                return stopped.code
            except (data.DataError, train.RunError, ValueError) as error:
                if self.name != "all":
                    raise UsageError(str(error)) from None
                print(f"resofire: {name} is left out: {error}", file=sys.stderr)
                left_out = 1
            except OSError as error:
                raise UsageError(
                    f"reproduce: {error.filename or self.out} cannot be written: {error.strerror}"
                ) from None
        return left_out
