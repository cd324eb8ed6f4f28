"""resofire measure: fire rates, operations and energy of a trained network, and of its peers."""

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import tyro

from .mistake import Mistake, require_writable
from .runs import open_run, open_task

PAPER = "paper"


@dataclass(frozen=True)
class Measure:
    """Count what a trained network does and what it costs, beside its peers; measure paper: the paper's own tables."""

    model: tyro.conf.Positional[str]
    """A run folder, the name of a network that comes with the package, or paper."""
    against: tuple[str, ...] = ("s4", "transformer")
    """Peers of the same widths and depth: s4, s4d, binary-s4d, gsu, transformer."""
    state_size: int = 64
    """Their H."""
    costs: str = "float32"
    """A table of costs, see resofire.measure.COSTS."""
    fold_norm: bool = False
    """Count the norms as part of their neighbours, as on a device."""
    split: str = "test"
    """Where the fire rates are taken from."""
    batches: int | None = None
    """How many batches of it; otherwise all."""
    out: Path | None = None
    """Where measure.json and the figure go; otherwise the run's folder, or measure-NAME if it came with the package."""
    data_dir: Path | None = None
    """Where the data set's files are; see resofire data."""
    json: bool = False
    """Print it as JSON; nothing is written unless --out is given."""

    def run(self) -> int:
        from .. import measure

        if self.model == PAPER:
            tasks = measure.compare_published()
            print(json.dumps(tasks, indent=2) if self.json else measure.report_published(tasks))
            return 0
        if self.batches is not None and self.batches < 1:
            raise Mistake(f"measure: --batches must be a positive whole number, got {self.batches}")
        folder, config, model = open_run("measure", self.model)
        task = open_task(config, self.data_dir)
        if self.split not in task.splits:
            raise Mistake(f"measure: --split must be one of {', '.join(task.splits)}, got {self.split!r}")
        out = self._out(folder)
        try:
            found = measure.measure(
                model, islice(task[self.split].batches(config.batch), self.batches), against=self.against,
                state_size=self.state_size, costs=self.costs, fold_norm=self.fold_norm,
            )  # fmt: skip
        except ValueError as error:
            raise Mistake(str(error)) from None
        found = {"model": self.model, "task": task.name, "split": self.split, **found}
        print(json.dumps(found, indent=2) if self.json else f"{self.model}: {task.name}\n{measure.report(found)}")
        if out is not None:
            self._write(found, out)
        return 0

    def _out(self, folder: Path) -> Path | None:
        from ..models.storage import SHIPPED

        out = self.out
        if out is None and not self.json:
            out = Path(f"measure-{self.model}") if folder.is_relative_to(SHIPPED) else folder
        if out is not None:
            require_writable("measure: --out", out / "measure.json")
        return out

    def _write(self, found: dict[str, Any], out: Path) -> None:
        from ..models.storage import replace
        from ..plot import save
        from ..plot.measure import draw

        replace(out / "measure.json", (json.dumps(found, indent=2) + "\n").encode())
        save(draw(found), out / "measure")
        if not self.json:
            print(f"\nfigures in {out / 'measure.json'}, drawn in {out / 'measure.png'}")
