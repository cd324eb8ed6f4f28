"""The command line. Success exits 0, a failed verification 1, a wrong word or value 2, with one sentence."""

import contextlib
import dataclasses
import io
import itertools
import os
import re
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import tyro

from .commands import COMMANDS, Command, Train, UsageError, hint


def _check_words(arguments: list[str]) -> None:
    """A wrong command or flag in one sentence, where tyro would draw a box."""
    if not arguments:
        raise UsageError(f"command must be one of {', '.join(COMMANDS)}; see resofire --help")
    if arguments[0] in ("-h", "--help"):
        return
    word, *rest = arguments
    if word not in COMMANDS:
        raise UsageError(f"command must be one of {', '.join(COMMANDS)}, got {word!r}{hint(word, COMMANDS)}")
    if word != "train":
        _check_flags(word, rest, _flags(COMMANDS[word]))


def _check_flags(word: str, arguments: list[str], flags: set[str], program: str | None = None) -> None:
    for flag in map(_name, arguments):
        if flag.startswith("--") and flag not in flags:
            see = program or f"resofire {word}"
            raise UsageError(f"{word}: there is no flag {flag}{hint(flag, flags)}; see {see} --help")


def _name(argument: str) -> str:
    """A flag without its value."""
    return argument.split("=", 1)[0].replace("_", "-")


def _flags(command: Any, prefix: str = "") -> set[str]:
    """The flags of a dataclass, or of an instance with all that it holds: --model.neuron.tau."""
    found = {"--help"}
    for field in dataclasses.fields(command):
        name, value = f"{prefix}{field.name.replace('_', '-')}", getattr(command, field.name, None)
        if isinstance(value, dict):
            found |= {f"--{name}.{key.replace('_', '-')}" for key in value}
            continue
        found |= {f"--{name}", f"--{prefix}no-{field.name.replace('_', '-')}"}
        if dataclasses.is_dataclass(value):
            found |= _flags(value, "" if field.name == "config" else f"{name}.")
    return found


def _parse(arguments: list[str]) -> Any:
    if arguments[0] == "train":
        return _parse_train(arguments[1:])
    return _told(Command, arguments, "resofire", description="Long-sequence spiking neural networks.")


def _parse_train(arguments: list[str]) -> Train:
    """A recipe gives all defaults, so it must be known before any flag."""
    from . import paper  # noqa: F401 - registers the recipes of the ablations
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
        got = f", got {recipe!r}{hint(recipe, RECIPES)}" if recipe else ""
        first = " the first word," if recipe.startswith("-") else ""
        raise UsageError(f"train: recipe must be{first} one of {', '.join(RECIPES)}{got}")
    default = Train(RECIPES[recipe]())
    _check_flags("train", flags, _flags(default), f"resofire train {recipe}")
    told = _told(Train, flags, f"resofire train {recipe}", default=default)
    if told.config.steps is not None and "--epochs" in map(_name, flags):
        raise UsageError(f"train: --epochs has no effect beside {told.config.steps} steps; add --steps None")
    return told


def _parse_resume(arguments: list[str]) -> Train:
    allowed = ("--resume", "--data-dir", "--devices")
    for flag in map(_name, arguments):
        if flag.startswith("--") and flag not in (*allowed, "--help"):
            raise UsageError(
                f"train: --resume takes the run's own settings: {flag} cannot be given with it{hint(flag, allowed)}"
            )
    try:
        return _told(Train, arguments, "resofire train", default=Train())
    except UsageError as mistake:
        if "Unrecognized" not in str(mistake):
            raise
        raise UsageError("train: --resume takes the run's own settings: no recipe can be given with it") from None


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
        raise UsageError(f"{_sentence(complaint.getvalue())}; see {program} --help") from None
    except ValueError as error:
        raise UsageError(str(error)) from None


def _sentence(complaint: str) -> str:
    """What tyro says in a box, in colour or in plain letters: a title, the sentence over some lines, a rule, advice."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", complaint)
    said = [re.sub(r"^[-+─]+$", "", line.strip(" │|╭╮╰╯")) for line in plain.splitlines()[1:]]
    after_title = itertools.dropwhile(lambda line: not line, said)
    sentence, whole = " ".join(itertools.takewhile(bool, after_title)).rstrip("."), " ".join(said)
    if found := re.match(r"Error parsing (--\S+): ", sentence):
        kind = "an integer" if " int()" in whole else "a number" if " to float" in whole else None
        value = re.search(r"(?:int\(\) with base 10|to float): ('.*?')", whole)
        if kind and value:
            return f"{found[1]} must be {'None or ' if '{None}' in sentence else ''}{kind}, got {value[1]}"
    if found := re.match(r"Missing value for argument '(--\S+)'", sentence):
        return f"{found[1]} needs a value"
    if found := re.match(r"Missing from resofire (\S+): \S+ (.*?)\.? \(required\)", sentence):
        return f"{found[1]}: a word is missing: {found[2][0].lower()}{found[2][1:]}"
    # A config says itself what is wrong with it.
    return re.sub(r"^Error parsing [a-z][\w.]*: ", "", sentence) or "the arguments are wrong"


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Inside it, SIGTERM unwinds as Ctrl-C does, so that what is half written is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        _check_words(arguments)
        with _terminable():
            return _parse(arguments).run()
    except UsageError as mistake:
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
