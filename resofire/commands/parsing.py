"""Flags into a command's dataclass, by tyro. What tyro rejects becomes one sentence; its help stays as it is."""

import dataclasses
import difflib
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import tyro
from tyro import _errors as events
from tyro.constructors import UnsupportedTypeAnnotationError

from .usage import UsageError

Kind = TypeVar("Kind")


def _shown_as(metavar: str) -> Any:
    """A flag's value in the help, without the note that the default is None."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


# Types of the flags that several commands have.
Model = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
File = Annotated[Path | None, _shown_as("FILE")]
Folder = Annotated[Path | None, _shown_as("FOLDER")]
Readout = Annotated[str | None, _shown_as("POOL")]
Count = Annotated[int | None, _shown_as("INT")]
Switch = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]

NOUNS = {int: "an integer", float: "a number", type(None): "None"}
FOOTER = "Every command accepts --import MODULE (repeatable) to import your own classes first."


def parse(kind: type[Kind], arguments: Sequence[str], program: str, default: Kind | None = None) -> Kind:
    """Parse the flags of one command; raises UsageError.

    Args:
        kind: The command's dataclass.
        arguments: What follows the program.
        program: The words before the flags, such as "resofire train digits".
        default: An instance whose fields are the defaults, nested configs included.
    """

    command = program.split()[1]

    def refuse(event: events.ParseErrorEvent) -> None:
        sentence = _sentence(event, kind if default is None else default, arguments)
        # A config names itself in its own message.
        own = isinstance(event, events.InstantiationFailure) and event.argument is None
        if sentence is not None:
            raise UsageError(f"{'' if own else f'{command}: '}{sentence}; see {program} --help")

    # The type of a nested config is chosen in code; flags change its fields.
    own = tyro.conf.FlagCreatePairsOff if default is None else tyro.conf.AvoidSubcommands
    options: dict[str, Any] = {} if default is None else {"default": default}
    description = f"{kind.__doc__}\n\n{FOOTER}"
    try:
        with events.on_parse_error(refuse):
            return tyro.cli(
                kind, prog=program, args=arguments, description=description,
                config=(tyro.conf.HelptextFromCommentsOff, own), **options,
            )  # fmt: skip
    except ValueError as error:
        # The outermost config checks itself outside of tyro's own handling.
        raise UsageError(f"{error}; see {program} --help") from None
    except UnsupportedTypeAnnotationError as error:
        raise UsageError(f"{program}: a setting has a type that cannot be a flag: {error}") from None


def flag_names(arguments: Sequence[str]) -> list[str]:
    """The flags among the arguments, without values and with dashes: --data-dir."""
    return [argument.split("=", 1)[0].replace("_", "-") for argument in arguments if argument.startswith("--")]


def _sentence(event: events.ParseErrorEvent, command: Any, arguments: Sequence[str]) -> str | None:
    """Describe a parse error in one sentence; None for unknown kinds of events, which tyro prints itself."""
    if isinstance(event, events.UnrecognizedArgs):
        return _unknown(event.tokens, command)
    if isinstance(event, events.MissingArgs):
        if event.unrecognized_tokens:
            return _unknown(event.unrecognized_tokens, command)
        return _missing_argument(event.missing_arguments[0].arg)
    if isinstance(event, events.InvalidChoice):
        return f"{event.argument.display_name()} must be one of {', '.join(event.choices)}, got {event.value!r}"
    if isinstance(event, events.BadValue) and event.offending_value is None:
        if event.argument.is_positional():
            return _missing_argument(event.argument)
        return f"{event.argument.display_name()} needs a value"
    if isinstance(event, events.InstantiationFailure):
        if event.argument is None:
            return event.message
        name = event.argument.display_name()
        return f"{name} must be {_noun(event.argument)}, got {_value(name, arguments)!r}"
    return None


def _unknown(tokens: Sequence[str], command: Any) -> str:
    flags = flag_names(tokens)
    if flags:
        # Without the dashes, in which all flags agree.
        close = difflib.get_close_matches(flags[0].lstrip("-"), [each.lstrip("-") for each in _flags(command)], n=1)
        return f"there is no flag {flags[0]}" + (f" (did you mean '--{close[0]}'?)" if close else "")
    return f"unexpected argument {tokens[0]!r}"


def _missing_argument(argument: Any) -> str:
    """The message about a missing argument, with the first sentence of its help."""
    name = argument.field.extern_name.upper() if argument.is_positional() else argument.display_name()
    text = argument.field.helptext
    sentence = " ".join((text() if callable(text) else text or "").split()).split(". ")[0].rstrip(".")
    # Only an article loses its capital: names such as NIR stay.
    return f"{name} is missing: {f'a{sentence[1:]}' if sentence.startswith('A ') else sentence}"


def _noun(argument: Any) -> str:
    """The expected kind of value, in words for plain numbers and as tyro's metavar for the rest."""
    kind = argument.field.type_stripped
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if all(each in NOUNS for each in kinds):
        return " or ".join(NOUNS[each] for each in sorted(kinds, key=lambda each: each is not type(None)))
    return str(argument.lowered.metavar)


def _value(name: str, arguments: Sequence[str]) -> str:
    """The values that follow a flag, the last time it occurs."""
    values: list[str] = []
    names = name.split("/")
    reading = False
    for argument in arguments:
        flag, equals, rest = argument.partition("=")
        if argument.startswith("--"):
            reading = flag.replace("_", "-") in names
            if reading:
                values = [rest] if equals else []
        elif reading:
            values.append(argument)
    return " ".join(values)


def _flags(command: Any, prefix: str = "") -> set[str]:
    """The flags of a dataclass, or of an instance with its nested configs: --model.neuron.tau."""
    names = {"--help", "--import"}
    for field in dataclasses.fields(command):
        name, value = f"{prefix}{field.name.replace('_', '-')}", getattr(command, field.name, None)
        if isinstance(value, dict):
            names |= {f"--{name}.{key.replace('_', '-')}" for key in value}
        elif dataclasses.is_dataclass(value):
            names |= _flags(value, "" if field.name == "config" else f"{name}.")
        else:
            names |= {f"--{name}", f"--{prefix}no-{field.name.replace('_', '-')}"}
    return names
