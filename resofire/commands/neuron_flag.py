"""Flags that choose the class of a neuron by its name, such as --model.neuron bhrf, before tyro reads the others."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import tyro

from .usage import UsageError, hint


def choose_neurons(config: Any, arguments: Sequence[str]) -> tuple[Any, list[str]]:
    """Set the neurons of a RunConfig that flags choose; all other flags then change the fields of the chosen ones.

    If the config already has a neuron of that class, its settings are kept. A neuron inside another one is chosen
    likewise: --model.neuron recurrent --model.neuron.neuron alif.

    Returns:
        The config, not yet checked as a whole, and the arguments that are left.
    """
    rest = list(arguments)
    at = 0
    while at < len(rest):
        flag, equals, name = rest[at].partition("=")
        path = flag.removeprefix("--").replace("-", "_").split(".")
        present = _neuron_at(config, path) if flag.startswith("--") else None
        if present is None:
            at += 1
            continue
        if not equals:
            if at + 1 == len(rest) or rest[at + 1].startswith("--"):
                raise UsageError(f"train: {flag} needs a value")
            name = rest[at + 1]
        chosen = _class_of(flag, name)
        if chosen is not type(present):
            config = _with(config, path, _defaults(chosen))
        del rest[at : at + (1 if equals else 2)]
        # The new neuron may contain one that an earlier flag chooses.
        at = 0
    return config, rest


def _neuron_at(config: Any, path: list[str]) -> Any:
    """The config of a neuron in the field that a path leads to; None if there is none."""
    from ..nn import NeuronConfig

    for name in path:
        config = getattr(config, name, None) if dataclasses.is_dataclass(config) else None
    return config if isinstance(config, NeuronConfig) else None


def _class_of(flag: str, name: str) -> Any:
    from ..nn.config import neuron_names

    names = neuron_names()
    if name not in names:
        valid = ", ".join(sorted(each for each in names if "." not in each))
        own = "or module.Class of an imported module"
        raise UsageError(f"train: {flag} must be one of {valid} {own}, got {name!r}{hint(name, names)}")
    return names[name]


def _defaults(config_class: Any) -> Any:
    """A config with its defaults; tyro asks for a setting that has none."""
    required = [
        field.name
        for field in dataclasses.fields(config_class)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    return config_class(**dict.fromkeys(required, tyro.MISSING))


def _with(config: Any, path: list[str], value: Any) -> Any:
    """A frozen config with one field replaced. It is not checked, as other flags may have to change first."""
    first, *rest = path
    changed = copy.copy(config)
    object.__setattr__(changed, first, _with(getattr(config, first), rest, value) if rest else value)
    return changed
