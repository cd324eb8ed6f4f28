"""The command line. Success exits 0, a failed verification 1, a wrong word or value 2, with one sentence."""

import contextlib
import dataclasses
import difflib
import importlib
import io
import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

BENCHMARKS = ("neurons", "networks")


class Mistake(Exception):
    """Something the user can put right. Its text is the sentence that is shown."""


@dataclass(frozen=True)
class Doctor:
    """Tell versions, cores, which backends can run here and why others cannot."""

    json: bool = False
    """Print it as JSON."""

    def run(self) -> int:
        from . import doctor

        found = doctor.examine()
        print(json.dumps(found, indent=2) if self.json else doctor.report(found))
        return 0 if found["works"] else 1


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
                f"bench: name must be one of {', '.join(BENCHMARKS)}, got {self.name!r}{_hint(self.name, BENCHMARKS)}"
            )
        if self.json is not None:
            _require_writable("bench: --json", self.json)
        from .ops import retain_buffers

        retain_buffers()
        result = importlib.import_module(f"resofire.benchmarks.{self.name}").run(quick=self.quick)
        if self.json is not None:
            self.json.write_text(json.dumps(result, indent=2) + "\n")
            print(f"figures in {self.json}")
        return 0


ACTIONS = ("list", "prepare", "show")


@dataclass(frozen=True)
class Data:
    """Show the data sets, prepare one for training, or look at one."""

    action: tyro.conf.Positional[str]
    """What to do: list, prepare or show."""
    name: tyro.conf.Positional[str | None] = None
    """Which data set; see resofire data list."""
    data_dir: Path | None = None
    """Where its files are, or its sub-folder named after the set. Otherwise RESOFIRE_DATA, or a download."""
    png: Path | None = None
    """Also draw some samples into this file (show)."""
    json: bool = False
    """Print it as JSON."""

    def run(self) -> int:
        from . import data

        if self.action not in ACTIONS:
            raise Mistake(
                f"data: action must be one of {', '.join(ACTIONS)}, got {self.action!r}{_hint(self.action, ACTIONS)}"
            )
        if self.action == "list":
            known = {name: data.about(name) for name in data.NAMES}
            print(json.dumps(known, indent=2) if self.json else "\n".join(f"{k:<16}{v}" for k, v in known.items()))
            return 0
        if self.name is None:
            raise Mistake(f"data: {self.action} needs the name of a data set, one of {', '.join(data.NAMES)}")
        if self.png is not None:
            _require_writable("data: --png", self.png)
        try:
            task = data.load(self.name, self.data_dir)
        except data.DataError as error:
            raise Mistake(str(error)) from None
        from .data import show

        if self.json:
            print(json.dumps(show.facts(task), indent=2))
        else:
            print(show.report(task, 3 if self.action == "show" else 0))
        if self.png is not None:
            show.picture(task).save(self.png, "PNG")
            print(f"samples in {self.png}")
        return 0


def _require_writable(flag: str, file: Path) -> None:
    """Makes the folder of a result, before anything is worked out for it."""
    if file.is_dir():
        raise Mistake(f"{flag} must name a file, got the folder {file}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mistake(f"{flag} {file} cannot be written: {error.strerror}") from None
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise Mistake(f"{flag} {file} cannot be written: permission denied")


COMMANDS = {"doctor": Doctor, "bench": Bench, "data": Data}
Command = (
    Annotated[Doctor, tyro.conf.subcommand("doctor", prefix_name=False)]
    | Annotated[Bench, tyro.conf.subcommand("bench", prefix_name=False)]
    | Annotated[Data, tyro.conf.subcommand("data", prefix_name=False)]
)


def _hint(word: str, valid: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(valid), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _check_words(arguments: list[str]) -> None:
    """A wrong command or flag in one sentence, where tyro would draw a box."""
    if not arguments:
        raise Mistake(f"command must be one of {', '.join(COMMANDS)}; see resofire --help")
    if arguments[0] in ("-h", "--help"):
        return
    word, *rest = arguments
    if word not in COMMANDS:
        raise Mistake(f"command must be one of {', '.join(COMMANDS)}, got {word!r}{_hint(word, COMMANDS)}")
    flags = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(COMMANDS[word])} | {"--help"}
    flags |= {f"--no-{flag[2:]}" for flag in flags}
    for argument in rest:
        flag = argument.split("=", 1)[0].replace("_", "-")
        if flag.startswith("--") and flag not in flags:
            raise Mistake(f"{word}: there is no flag {flag}{_hint(flag, flags)}; see resofire {word} --help")


def _parse(arguments: list[str]) -> Doctor | Bench | Data:
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                Command, prog="resofire", description="Long-sequence spiking neural networks.", args=arguments
            )
    except SystemExit as end:
        if not end.code:
            raise
        # tyro draws a box, in colour or in plain letters: a title, then the sentence.
        plain = re.sub(r"\x1b\[[0-9;]*m", "", complaint.getvalue())
        said = [line.strip(" │|╭╮╰╯─-+") for line in plain.splitlines()]
        _, sentence, *_ = [*filter(None, said), "", "the arguments are wrong"]
        raise Mistake(f"{sentence.rstrip('.')}; see resofire --help") from None


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        _check_words(arguments)
        return _parse(arguments).run()
    except Mistake as mistake:
        print(f"resofire: {mistake}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
