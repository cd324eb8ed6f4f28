"""The command line. Success exits 0, a failed verification 1, a wrong word or value 2, with one sentence."""

import contextlib
import dataclasses
import difflib
import importlib
import io
import itertools
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

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
    """Where to draw some samples; show draws them into NAME.png if not told, but with --json."""
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
        png = self.png
        if png is None and self.action == "show" and not self.json:
            png = Path(f"{self.name}.png")
        if png is not None:
            _require_writable("data: --png", png)
        try:
            task = data.load(self.name, self.data_dir)
        except data.DataError as error:
            raise Mistake(str(error)) from None
        from .data import show

        if self.json:
            print(json.dumps(show.facts(task), indent=2))
        else:
            print(show.report(task, 3 if self.action == "show" else 0))
        if png is not None:
            show.picture(task).save(png, "PNG")
            if not self.json:
                print(f"samples drawn in {png}")
        return 0


@dataclass(frozen=True)
class Train:
    """Train a network by a recipe, or go on with a run: resofire train RECIPE [flags], resofire train --resume RUN."""

    # A RunConfig; its type is not named here because that would import torch for every command.
    config: Annotated[Any, tyro.conf.arg(name="")] = None
    out: Path | None = None
    """The folder of the run; otherwise a new one under runs/."""
    resume: Path | None = None
    """Go on with the run in this folder; its config counts, other flags about it are refused."""
    data_dir: Path | None = None
    """Where the data set's files are; see resofire data."""
    devices: int | None = None
    """Processes on this machine (CPU) or GPUs; 1 if not given."""

    def run(self) -> int:
        from . import train

        described = None if self.resume is None else _of_run(self.resume)
        config = self.config if described is None else train.RunConfig.from_json(described["config"])
        assert config is not None
        if self.devices is not None and self.devices < 1:
            raise Mistake(f"train: --devices must be a positive whole number, got {self.devices}")
        task = _task(config, self.data_dir)
        try:
            if self.resume is not None:
                folder, result = train.resume(self.resume, task, devices=self.devices)
            else:
                out = self.out or _new_folder(Path("runs") / config.name)
                folder, result = train.train(config, task, out, devices=self.devices or 1)
        except train.Stopped as stopped:
            print(f"resofire: {stopped}", file=sys.stderr)
            return stopped.code
        except train.RunError as error:
            raise Mistake(str(error)) from None
        if result is not None:
            print(train.report(folder, result))
            print(f"to measure it again: resofire evaluate {folder}")
        return 0


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained network again, on its own data set, and compare with what its run recorded."""

    model: tyro.conf.Positional[str]
    """A run folder, or the name of a network that comes with the package."""
    data_dir: Path | None = None
    """Where the data set's files are; see resofire data."""
    json: bool = False
    """Print it as JSON."""

    def run(self) -> int:
        from . import models, train

        try:
            folder = models.find(self.model)
            config = train.RunConfig.from_json(_of_run(folder)["config"])
            if not (folder / models.storage.WEIGHTS).exists():
                raise Mistake(
                    f"evaluate: {self.model} has no network yet; go on with: resofire train --resume {self.model}"
                )
            model = models.load(folder)
        except models.StorageError as error:
            raise Mistake(str(error)) from None
        if model.config != config.model:
            print(f"resofire: {self.model} holds another network than the run trained", file=sys.stderr)
            return 1
        found = train.weigh(model, _task(config, self.data_dir), config.batch)
        recorded = train.recorded(folder)
        same = recorded is None or recorded["correct"] == found["correct"]
        if self.json:
            print(json.dumps({**found, "same as recorded": recorded and same}, indent=2))
        else:
            print(train.report(Path(self.model), found))
            if recorded is not None:
                print("the same as the run recorded" if same else f"not as recorded: {recorded['correct']}")
        return 0 if same else 1


def _task(config: Any, data_dir: Path | None) -> Any:
    """The data set of a run."""
    from . import data

    try:
        return data.load(config.task, data_dir, **config.task_settings)
    except (data.DataError, ValueError, TypeError) as error:
        raise Mistake(str(error)) from None


def _of_run(folder: Path) -> dict[str, Any]:
    from . import train

    try:
        return train.read(folder)
    except train.RunError as error:
        raise Mistake(str(error)) from None


def _new_folder(first: Path) -> Path:
    """A folder that is not there yet: runs/name, runs/name-2, …"""
    folder, number = first, 1
    while folder.exists():
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    return folder


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


COMMANDS = {"train": Train, "evaluate": Evaluate, "data": Data, "bench": Bench, "doctor": Doctor}
# Train is here for the help; its flags depend on the recipe, see _parse_train.
Command = (
    Annotated[Train, tyro.conf.subcommand("train", prefix_name=False)]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate", prefix_name=False)]
    | Annotated[Data, tyro.conf.subcommand("data", prefix_name=False)]
    | Annotated[Bench, tyro.conf.subcommand("bench", prefix_name=False)]
    | Annotated[Doctor, tyro.conf.subcommand("doctor", prefix_name=False)]
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
    if word != "train":
        _check_flags(word, rest, _flags(COMMANDS[word]))


def _check_flags(word: str, arguments: list[str], flags: set[str], program: str | None = None) -> None:
    for flag in map(_name, arguments):
        if flag.startswith("--") and flag not in flags:
            see = program or f"resofire {word}"
            raise Mistake(f"{word}: there is no flag {flag}{_hint(flag, flags)}; see {see} --help")


def _name(argument: str) -> str:
    """A flag without its value."""
    return argument.split("=", 1)[0].replace("_", "-")


def _flags(command: Any, prefix: str = "") -> set[str]:
    """The flags of a dataclass, or of an instance with all that it holds: --model.neuron.tau."""
    found = {"--help"}
    for field in dataclasses.fields(command):
        name, value = f"{prefix}{field.name.replace('_', '-')}", getattr(command, field.name, None)
        found |= {f"--{name}", f"--{prefix}no-{field.name.replace('_', '-')}"}
        if dataclasses.is_dataclass(value):
            found |= _flags(value, "" if field.name == "config" else f"{name}.")
    return found


def _parse(arguments: list[str]) -> Train | Evaluate | Bench | Data | Doctor:
    if arguments[0] == "train":
        return _parse_train(arguments[1:])
    return _told(Command, arguments, "resofire", description="Long-sequence spiking neural networks.")


def _parse_train(arguments: list[str]) -> Train:
    """A recipe gives all defaults, so it must be known before any flag."""
    from .recipes import RECIPES

    recipe, *flags = arguments or [""]
    if recipe in ("-h", "--help"):
        names = textwrap.fill(
            ", ".join(RECIPES), 80, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
        print(f"{Train.__doc__}\n\nrecipes:\n{names}\n\nflags: resofire train RECIPE --help")
        raise SystemExit(0)
    if any(_name(flag) == "--resume" for flag in arguments):
        return _parse_resume(arguments)
    if recipe not in RECIPES:
        got = f", got {recipe!r}{_hint(recipe, RECIPES)}" if recipe else ""
        first = " the first word," if recipe.startswith("-") else ""
        raise Mistake(f"train: recipe must be{first} one of {', '.join(RECIPES)}{got}")
    default = Train(RECIPES[recipe]())
    _check_flags("train", flags, _flags(default), f"resofire train {recipe}")
    return _told(Train, flags, f"resofire train {recipe}", default=default)


def _parse_resume(arguments: list[str]) -> Train:
    allowed = ("--resume", "--data-dir", "--devices")
    for flag in map(_name, arguments):
        if flag.startswith("--") and flag not in (*allowed, "--help"):
            raise Mistake(
                f"train: --resume takes the run's own settings: {flag} cannot be given with it{_hint(flag, allowed)}"
            )
    try:
        return _told(Train, arguments, "resofire train", default=Train())
    except Mistake as mistake:
        if "Unrecognized" not in str(mistake):
            raise
        raise Mistake("train: --resume takes the run's own settings: no recipe can be given with it") from None


def _told(kind: Any, arguments: list[str], program: str, **more: Any) -> Any:
    """What tyro makes of the arguments, or one sentence."""
    complaint = io.StringIO()
    settings = (tyro.conf.AvoidSubcommands,) if "default" in more else ()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind, prog=program, args=arguments, config=(*settings, tyro.conf.HelptextFromCommentsOff), **more
            )
    except SystemExit as end:
        if not end.code:
            raise
        raise Mistake(f"{_sentence(complaint.getvalue())}; see {program} --help") from None
    except ValueError as error:
        raise Mistake(str(error)) from None


def _sentence(complaint: str) -> str:
    """What tyro says in a box, in colour or in plain letters: a title, the sentence over some lines, a rule, advice."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", complaint)
    said = [re.sub(r"^[-+─]+$", "", line.strip(" │|╭╮╰╯")) for line in plain.splitlines()[1:]]
    after_title = itertools.dropwhile(lambda line: not line, said)
    sentence, whole = " ".join(itertools.takewhile(bool, after_title)).rstrip("."), " ".join(said)
    if found := re.match(r"Error parsing (--\S+): ", sentence):
        kind = "a whole number" if " int()" in whole else "a number" if " to float" in whole else None
        value = re.search(r"(?:int\(\) with base 10|to float): ('.*?')", whole)
        if kind and value:
            return f"{found[1]} must be {'None or ' if '{None}' in sentence else ''}{kind}, got {value[1]}"
    if found := re.match(r"Missing value for argument '(--\S+)'", sentence):
        return f"{found[1]} needs a value"
    if found := re.match(r"Missing from resofire (\S+): \S+ (.*?)\.? \(required\)", sentence):
        return f"{found[1]}: a word is missing: {found[2][0].lower()}{found[2][1:]}"
    # A config says itself what is wrong with it.
    return re.sub(r"^Error parsing [a-z][\w.]*: ", "", sentence) or "the arguments are wrong"


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        _check_words(arguments)
        return _parse(arguments).run()
    except Mistake as mistake:
        print(f"resofire: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("resofire: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read the output, e.g. head, has enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
