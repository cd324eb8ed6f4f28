"""resofire paper (alias: reproduce)."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ..clone import NotACloneError
from .output import print_table
from .parsing import Folder
from .usage import UsageError, require_one_of, writing


@dataclass(frozen=True)
class Paper:
    """Reproduce the tables and figures of the paper: list, NAME or all."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """A page, list, or all; all skips pages whose data is missing and says why."""
    budget: float = 10.0
    """Minutes per page; trainings are shortened to fit, including those of decay that two other pages need."""
    out: Path = Path("docs/paper")
    """Folder for NAME.json, its figure and its page."""
    runs: Path = Path("runs/reproduce")
    """Folder for the trainings, which are resumed from there."""
    data_dir: Folder = None
    """Folder with the files of the data sets; see resofire data --help."""

    def run(self) -> int:
        from .. import data, paper, train

        if self.name == "list":
            print_table([(name, paper.title(name)) for name in paper.NAMES])
            return 0
        require_one_of("paper: name", self.name, ("list", "all", *paper.NAMES))
        left_out = False
        for name in paper.NAMES if self.name == "all" else (self.name,):
            try:
                with writing("paper: --out", self.out):
                    page = paper.reproduce(name, self.out, self.budget, self.data_dir, self.runs)
                print(page)
            except train.Stopped as stopped:
                print(f"resofire: {stopped}", file=sys.stderr)
                return stopped.code
            except (data.DataError, train.RunError, NotACloneError, ValueError) as error:
                if self.name != "all":
                    raise UsageError(str(error)) from None
                print(f"resofire: {name} is left out: {error}", file=sys.stderr)
                left_out = True
        return 1 if left_out else 0
