"""resofire report: a run, or several side by side, as one HTML file."""

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..atomic import write_atomic
from .output import LiveLine
from .parsing import Count, File, Folder
from .runs import find_run, output_name
from .train import all_recipes, parse_train
from .usage import UsageError, as_usage_errors, require_positive, require_writable, writing

Runs = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="")]
Numbers = Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT...", help_behavior_hint="")]
PAGE = "report.html"


@dataclass(frozen=True)
class Report:
    """Write an HTML report about a run, or a comparison of several runs."""

    runs: Runs = ()
    """Run folders or shipped networks. One gives a page about it, several a comparison."""
    out: File = None
    """File to write. Default: RUN/report.html, report-NAME.html for a shipped network, comparison.html for several."""
    samples: Numbers = ()
    """Indices of the sequences whose spikes are drawn. Default: some correct ones and the most confident mistake."""
    count: Count = None
    """Number of test sequences to evaluate. Default: all, up to 8 million time steps."""
    data_dir: Folder = None
    """Folder with the files of the data set; see resofire data --help."""

    def run(self) -> int:
        if not self.runs:
            raise UsageError("report: RUN is missing: a run folder or a shipped network; see resofire report --help")
        require_positive("report: --count", self.count)
        folders = [find_run(name) for name in self.runs]
        if len(folders) > 1 and (self.samples or self.count is not None):
            flag = "--samples" if self.samples else "--count"
            raise UsageError(f"report: {flag} is for one run, got {len(folders)}")
        out = self._out(folders[0])
        require_writable("report: --out", out)
        from .. import report, train

        with as_usage_errors(train.RunError, ValueError):
            data = self._compare(folders) if len(folders) > 1 else self._one(folders[0])
        with writing("report: --out", out):
            write_atomic(out, report.page(data).encode())
        print(out)
        return 0

    def _one(self, folder: Path) -> Any:
        from .. import report

        line = LiveLine(seconds=(0.1, 10.0))

        def progress(text: str) -> None:
            if line.due():
                line.show(f"report: {text}")

        try:
            return report.run_data(folder, request(folder, self.data_dir, self.count, self.samples, progress))
        finally:
            line.close()

    def _compare(self, folders: list[Path]) -> Any:
        from .. import report

        return report.comparison_data(folders, data_dir=self.data_dir)

    def _out(self, folder: Path) -> Path:
        if self.out is not None:
            return self.out
        if len(self.runs) > 1:
            return Path("comparison.html")
        name = output_name(folder, "report")
        return folder / PAGE if name is None else Path(f"{name}.html")


def request(
    folder: Path, data_dir: Path | None = None, count: int | None = None, samples: tuple[int, ...] = (),
    progress: Any = lambda line: None,
) -> Any:  # fmt: skip
    """The inputs of a report besides the run folder: the paper's fire rates and the command that reproduces the run."""
    from .. import report, train

    with as_usage_errors(train.RunError):
        record = train.read(folder)
    return report.Request(
        data_dir=data_dir, count=count, samples=samples or None, paper=_paper(record["config"].get("task")),
        command=command_of(folder, record), progress=progress,
    )  # fmt: skip


def _paper(task: str | None) -> dict[str, Any] | None:
    from ..paper.published import TASKS

    for each in TASKS:
        if each.name.lower() == task:
            return {"name": each.name, **{kind: [float(rate) for rate in getattr(each, kind)]
                                          for kind in ("temporal", "spatial")}}  # fmt: skip
    return None


def command_of(folder: Path, record: dict[str, Any]) -> str:
    """The command for a run: its recipe and the flags that differ from it, or Python with the recorded config.

    The flags are parsed before they are shown: what they give is the config of the run, or they are not shown.
    """
    from ..train import RunConfig

    config = RunConfig.from_json(record["config"])
    own = record.get("own") or {}
    recipes = all_recipes(config.name)
    if config.name in recipes and not own and "path" not in (record.get("source") or {}):
        words = [config.name, *_flags(recipes[config.name](), config)]
        try:
            if parse_train(words).config == config:
                return f"resofire train {shlex.join(words)}"
        except (UsageError, SystemExit, ValueError, TypeError):
            pass
    run, extra = str(folder), "".join(f", {part}=..." for part in own)
    code = (
        f"from resofire import train; train.train(train.RunConfig.from_json(train.read({run!r})['config']), "
        f"train.load_task({run!r}), {f'{run}-again'!r}{extra})"
    )
    return f"python -c {shlex.quote(code)}"


def _flags(base: Any, target: Any, prefix: str = "--") -> list[str]:
    """The flags that turn one config into another."""
    words: list[str] = []
    for field in dataclasses.fields(target):
        before, after = getattr(base, field.name), getattr(target, field.name)
        name = f"{prefix}{field.name.replace('_', '-')}"
        if before == after:
            continue
        if dataclasses.is_dataclass(after) and type(after) is type(before):
            words += _flags(before, after, f"{name}.")
        elif isinstance(after, dict):
            for key, value in after.items():
                if before.get(key) != value:
                    words += [f"{name}.{key.replace('_', '-')}", *_words(value)]
        elif isinstance(after, bool):
            words.append(name if after else f"{prefix}no-{field.name.replace('_', '-')}")
        else:
            words += [name, *_words(after)]
    return words


def _words(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, tuple) else [str(value)]
