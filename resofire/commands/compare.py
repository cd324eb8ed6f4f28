"""resofire compare: networks under the same budget, in one table."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from .imports import call
from .parsing import Count, Folder, Switch
from .runs import load_task
from .usage import UsageError, require_minutes, require_one_of, require_positive, require_writable, writing

Minutes = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")]


@dataclass(frozen=True)
class Compare:
    """Train networks of one size with one budget; print a table."""

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """A recipe; all networks use its data and training settings."""
    networks: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="NETWORK")]
    """Names (list prints them), or package.module:function that returns the config of a network, block or neuron."""
    minutes: Minutes = None
    """Budget of each run; turned into a number of steps once. Default: 5, unless another budget is given."""
    epochs: Count = None
    """Budget of each run in epochs."""
    steps: Count = None
    """Budget of each run in steps."""
    parameters: Count = None
    """Parameters of each network; widths are chosen to match. Default: those of the recipe's network."""
    seeds: int = 1
    """Runs per network, with different seeds."""
    out: Folder = None
    """Folder of the comparison; the same command resumes it. Default: runs/compare-TASK-BUDGET."""
    html: Switch = False
    """Also write compare.html."""
    data_dir: Folder = None
    """Folder with the files of the data set; see resofire data --help."""

    def run(self) -> int:
        from .. import compare, train
        from ..recipes import RECIPES
        from .output import print_table

        if self.networks == ("list",):
            print_table([(name, each.title) for name, each in compare.NETWORKS.items()])
            return 0
        require_one_of("compare: TASK", self.task, RECIPES)
        for name in ("epochs", "steps", "parameters", "seeds"):
            require_positive(f"compare: --{name}", getattr(self, name))
        if self.html:
            # Without the extra it is refused before hours of training.
            from .. import report  # noqa: F401
        budget = self._budget()
        out = self.out or Path("runs") / f"compare-{self.task}-{str(budget).replace(' ', '-')}"
        require_writable("compare: --out", out / "compare.json")
        recipe = RECIPES[self.task]()
        try:
            comparison = compare.Comparison(
                recipe=recipe, contenders={name: self._contender(name) for name in self.networks}, budget=budget,
                parameters=self.parameters, seeds=self.seeds, folder=out,
            )  # fmt: skip
            task = load_task(recipe, self.data_dir)
            with writing("compare: --out", out):
                result = compare.run(comparison, task, lambda table: compare.write(table, out))
        except train.Stopped as stopped:
            print(f"resofire: {stopped}", file=sys.stderr)
            return stopped.code
        except (train.RunError, ValueError) as error:
            raise UsageError(str(error)) from None
        print(compare.markdown(result))
        print(
            f"in {out / 'compare.md'}; the runs are in {out}{'' if self.html else '; --html writes a page about them'}"
        )
        if self.html:
            self._page(comparison, out / "compare.html")
        return 0

    def _budget(self) -> Any:
        from .. import compare

        budget = {name: value for name in ("minutes", "epochs", "steps") if (value := getattr(self, name)) is not None}
        if len(budget) > 1:
            raise UsageError(f"compare: give one of --minutes, --epochs and --steps, got {' and '.join(budget)}")
        require_minutes("compare: --minutes", self.minutes)
        return compare.Budget(**(budget or {"minutes": 5.0}))

    def _contender(self, name: str) -> Any:
        from .. import compare

        if ":" in name:
            return compare.own(name, call(name, "compare:"))
        require_one_of("compare: NETWORK", name, [*compare.NETWORKS, "package.module:function"])
        return compare.NETWORKS[name]

    def _page(self, comparison: Any, file: Path) -> None:
        """The page of `resofire.report` about all runs."""
        from .. import report
        from ..atomic import write_atomic

        every = {
            f"{name}, seed {seed}" if self.seeds > 1 else name: comparison.run_folder(name, seed)
            for name in comparison.contenders
            for seed in range(self.seeds)
        }
        # A comparison continued on another machine has figures of runs whose folders are not here.
        runs = {name: folder for name, folder in every.items() if folder.is_dir()}
        if not runs:
            raise UsageError(f"compare: --html needs the folders of the runs, got none in {comparison.folder}")
        data = report.comparison_data(
            list(runs.values()), title=f"{self.task}: equal budget", names=list(runs), data_dir=self.data_dir
        )
        with writing("compare: --html", file):
            write_atomic(file, report.page(data).encode())
        absent = len(every) - len(runs)
        words = f", without {absent} run{'s' if absent > 1 else ''} of another machine" if absent else ""
        print(f"page in {file}{words}")
