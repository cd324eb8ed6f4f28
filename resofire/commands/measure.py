"""resofire measure: fire rates, operations and energy of a trained network, and of its peers."""

import json
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

import tyro

from .runs import open_run, open_task
from .usage import UsageError, require_writable

PAPER = "paper"
# What the paper's tables have of their own.
NOT_FOR_PAPER = ("against", "fold_norm", "split", "batches", "data_dir")


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
    """Where measure.json and the figure go; otherwise the run's folder, or measure-NAME if it came with the package.
    Of paper: measure.json only, and nothing otherwise."""
    data_dir: Path | None = None
    """Where the data set's files are; see resofire data."""
    json: bool = False
    """Print it as JSON; nothing is written unless --out is given."""

    def run(self) -> int:
        from .. import measure

        if self.model == PAPER:
            return self._paper()
        if self.batches is not None and self.batches < 1:
            raise UsageError(f"measure: --batches must be a positive integer, got {self.batches}")
        folder, config, model = open_run("measure", self.model)
        task = open_task(config, self.data_dir)
        if self.split not in task.splits:
            raise UsageError(f"measure: --split must be one of {', '.join(task.splits)}, got {self.split!r}")
        out = self._out(folder)
        try:
            found = measure.measure(
                model, islice(task[self.split].batches(config.batch), self.batches), against=self.against,
                state_size=self.state_size, costs=self.costs, fold_norm=self.fold_norm,
            )  # fmt: skip
        except ValueError as error:
            raise UsageError(str(error)) from None
        found = {"model": self.model, "task": task.name, "split": self.split, **found}
        print(json.dumps(found, indent=2) if self.json else f"{self.model}: {task.name}\n{measure.report(found)}")
        if out is not None:
            self._write(found, out)
        return 0

    def _paper(self) -> int:
        from ..atomic import write_atomic
        from ..paper import published

        for field in fields(self):
            if field.name in NOT_FOR_PAPER and getattr(self, field.name) != field.default:
                flag = field.name.replace("_", "-")
                raise UsageError(f"measure: paper takes --costs, --state-size, --out and --json only, got --{flag}")
        if self.out is not None:
            require_writable("measure: --out", self.out / "measure.json")
        try:
            tasks = published.compare_published(self.state_size, self.costs)
        except ValueError as error:
            raise UsageError(f"measure: {str(error).removeprefix('compare_published: ')}") from None
        print(json.dumps(tasks, indent=2) if self.json else published.report_published(tasks))
        if self.out is not None:
            write_atomic(self.out / "measure.json", (json.dumps(tasks, indent=2) + "\n").encode())
            if not self.json:
                print(f"\nfigures in {self.out / 'measure.json'}")
        return 0

    def _out(self, folder: Path) -> Path | None:
        from ..models.storage import SHIPPED

        out = self.out
        if out is None and not self.json:
            shipped = folder.resolve().is_relative_to(SHIPPED.resolve())
            out = Path(f"measure-{folder.resolve().name}") if shipped else folder
        if out is not None:
            require_writable("measure: --out", out / "measure.json")
        return out

    def _write(self, found: dict[str, Any], out: Path) -> None:
        from ..atomic import write_atomic
        from ..plot import save
        from ..plot.measure import draw

        write_atomic(out / "measure.json", (json.dumps(found, indent=2) + "\n").encode())
        save(draw(found), out / "measure")
        if not self.json:
            print(f"\nfigures in {out / 'measure.json'}, drawn in {out / 'measure.png'}")
