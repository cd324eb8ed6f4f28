"""resofire measure: fire rates, operations and energy of a trained network, compared with other architectures."""

import json
import sys
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from ..atomic import write_atomic
from .parsing import Count, Folder, Model, Switch
from .runs import open_run, open_samples, open_task, output_name
from .usage import UsageError, as_usage_errors, require_one_of, require_positive, require_writable, writing

PAPER = "paper"
FOR_PAPER = ("model", "costs", "state_size", "out", "json")


@dataclass(frozen=True)
class Measure:
    """Count operations and estimate energy, also of other architectures."""

    model: Model
    """A shipped network, a run folder, or paper for the paper's own tables."""
    against: tuple[str, ...] = ("s4", "transformer")
    """Architectures of the same width and depth: s4, s4d, binary-s4d, gsu, transformer."""
    state_size: int = 64
    """State size H of the state space models."""
    costs: str = "float32"
    """Energy per operation; see resofire.measure.COSTS."""
    fold_norm: Switch = False
    """Count norms as folded into the neighbouring layers, as on a device."""
    split: str = "test"
    """Split on which fire rates are measured. Without the data set, the sample sequences of the network are used."""
    batches: Count = None
    """Batches of this split to use. Default: all."""
    out: Folder = None
    """Folder for measure.json and the figure. Default: the run folder; measure-NAME for a shipped network."""
    data_dir: Folder = None
    """Folder with the files of the data set; see resofire data --help."""
    json: Switch = False
    """Print JSON; files are then written only with --out."""

    def run(self) -> int:
        from .. import measure
        from ..paper import published

        require_positive("measure: --batches", self.batches)
        require_positive("measure: --state-size", self.state_size)
        require_one_of("measure: --costs", self.costs, measure.COSTS)
        if self.model == PAPER:
            return self._paper()
        for name in self.against:
            require_one_of("measure: --against", name, measure.PEERS)
        folder, config, model = open_run("measure", self.model)
        task, split, name = self._data(folder)
        out = self._out(folder)
        with as_usage_errors(ValueError):
            result = measure.measure(
                model, islice(split.batches(config.batch), self.batches), against=self.against,
                state_size=self.state_size, costs=self.costs, fold_norm=self.fold_norm,
            )  # fmt: skip
        convention = published.as_published(result, self.state_size)
        result = {"model": self.model, "task": task.name, "split": name, **result, "published": convention}
        text = f"{self.model}: {task.name}\n{measure.report(result)}"
        if convention is not None:
            text += f"\n\n{published.report_convention(convention)}"
        print(json.dumps(result, indent=2) if self.json else text)
        if out is not None:
            self._write(result, out)
        return 0

    def _data(self, folder: Path) -> tuple[Any, Any, str]:
        """The data set, the split to measure on and its name; the network's samples where it cannot be opened."""
        try:
            task = open_task(folder, self.data_dir)
        except UsageError as error:
            samples = None if self.data_dir else open_samples(folder)
            if samples is None:
                raise
            count = len(samples["train"])
            print(f"resofire: measured on the {count} sample sequences of {self.model}: {error}", file=sys.stderr)
            return samples, samples["train"], "samples"
        require_one_of("measure: --split", self.split, task.splits)
        return task, task[self.split], self.split

    def _paper(self) -> int:
        from ..paper import published

        for field in fields(self):
            if field.name not in FOR_PAPER and getattr(self, field.name) != field.default:
                flag = field.name.replace("_", "-")
                raise UsageError(f"measure: paper takes --costs, --state-size, --out and --json only, got --{flag}")
        if self.out is not None:
            require_writable("measure: --out", self.out / "measure.json")
        with as_usage_errors(ValueError):
            tasks = published.compare_published(self.state_size, self.costs)
        print(json.dumps(tasks, indent=2) if self.json else published.report_published(tasks))
        if self.out is not None:
            with writing("measure: --out", self.out):
                write_atomic(self.out / "measure.json", (json.dumps(tasks, indent=2) + "\n").encode())
            if not self.json:
                print(f"\nresults in {self.out / 'measure.json'}")
        return 0

    def _out(self, folder: Path) -> Path | None:
        out = self.out
        if out is None and not self.json:
            out = output_name(folder, "measure") or folder
        if out is not None:
            require_writable("measure: --out", out / "measure.json")
        return out

    def _write(self, result: dict[str, Any], out: Path) -> None:
        from ..plot import save
        from ..plot.measure import draw

        with writing("measure: --out", out):
            write_atomic(out / "measure.json", (json.dumps(result, indent=2) + "\n").encode())
            save(draw(result), out / "measure")
        if not self.json:
            print(f"\nresults in {out / 'measure.json'}, drawn in {out / 'measure.png'}")
