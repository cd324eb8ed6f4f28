"""Configs: frozen settings that build a module, save as JSON and register themselves.

A saved network names the classes of its configs. Built-in ones go by their class name, a user's by `module.QualName`;
`find_kind` looks a name up among the classes that have been imported. Nothing here imports a module by name.
"""

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

_KINDS: dict[str, type["Config"]] = {}
# Keys of field metadata, see `added` and `renamed`.
ADDED, SAVED_AS = "added", "saved_as"


@dataclass(frozen=True)
class Config:
    """Base class of all configs: a frozen dataclass with `build`.

    A subclass registers itself when its module is imported, so that saved networks which name it can be loaded.

    Example:
        >>> @dataclass(frozen=True)
        ... class GatedBlockConfig(Config):
        ...     width: int = 64
        ...     def build(self, features):
        ...         return GatedBlock(features, self.width)
    """

    kind: ClassVar[str]
    """The name under which the class is saved and found."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" not in cls.__dict__:
            own = cls.__module__.partition(".")[0] == "resofire"
            cls.kind = cls.__name__ if own else f"{cls.__module__}.{cls.__qualname__}"
        _KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        cls = type(self)
        annotated = any("ClassVar" not in str(each) for each in inspect.get_annotations(cls).values())
        if annotated and "__dataclass_fields__" not in cls.__dict__:
            raise TypeError(f"{cls.__name__}: a config with fields must be decorated with @dataclass(frozen=True)")

    def build(self, *args: Any) -> nn.Module:
        """Build the module that the settings describe, with freshly initialised weights."""
        raise NotImplementedError(f"{type(self).__name__} does not define build")


def added(default: Any) -> Any:
    """The field of a setting that was added after networks had been saved.

    It is written only where it differs from its default: files stay as they were, and earlier versions read them.
    """
    return dataclasses.field(default=default, metadata={ADDED: True})


def renamed(default: Any, saved_as: str) -> Any:
    """The field of a setting that was called `saved_as` when networks were saved; files keep that name."""
    return dataclasses.field(default=default, metadata={SAVED_AS: saved_as})


def saved_fields(config: Config) -> dict[str, str]:
    """The fields that are written when a config is saved: the name in the file, and the field's own."""
    return {
        field.metadata.get(SAVED_AS, field.name): field.name
        for field in dataclasses.fields(config)
        if not field.metadata.get(ADDED) or getattr(config, field.name) != field.default
    }


def fields_by_saved_name(config: type[Config]) -> dict[str, str]:
    """The fields of a config class: the name in a file, and the field's own."""
    return {field.metadata.get(SAVED_AS, field.name): field.name for field in dataclasses.fields(config)}


class NeuronConfig(Config):
    """A config whose `build(features)` gives a temporal neuron."""

    def build(self, features: int) -> nn.Module:
        raise NotImplementedError(f"{type(self).__name__} does not define build")


class Configurable(nn.Module):
    """A module class with a config of its own, derived from the keywords of its `__init__`.

    Subclasses get the class method `config(**settings)`. The first argument of `__init__` must be the number of
    features; every other one becomes a setting. `class PRF(Neuron, config_class=PRFConfig)` names a written config.
    """

    config_class: ClassVar[type[Config]]

    def __init_subclass__(cls, config_class: type[Config] | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.config_class = config_class or _derive(cls)

    @classmethod
    def config(cls, **settings: Any) -> Any:
        """Settings of this class as a frozen, saveable config; `config().build(features)` makes the module.

        Raises:
            TypeError: A keyword is not one of `__init__`, or one without a default is missing.
        """
        try:
            return cls.config_class(**settings)
        except TypeError:
            known = [field.name for field in dataclasses.fields(cls.config_class)]
            unknown = [name for name in settings if name not in known]
            if not unknown:
                raise
            raise TypeError(
                f"{cls.__name__}.config: there is no setting {unknown[0]!r}; settings are {', '.join(known) or 'none'}"
            ) from None


def _derive(module: type[nn.Module]) -> type[Config]:
    """The config class of a module class, registered under the module class's own name."""
    fields: list[Any] = []
    for parameter in list(inspect.signature(module.__init__).parameters.values())[2:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        default = parameter.default
        annotation = parameter.annotation
        if annotation is parameter.empty or isinstance(annotation, str):
            annotation = Any if default in (parameter.empty, None) else type(default)
        if default is parameter.empty:
            fields.append((parameter.name, annotation))
        else:
            # A factory, because dataclasses refuse unhashable defaults, which a keyword may have.
            hashable = getattr(type(default), "__hash__", None) is not None
            options = {"default": default} if hashable else {"default_factory": lambda value=default: value}
            fields.append((parameter.name, annotation, dataclasses.field(**options)))
    own = module.__module__.partition(".")[0] == "resofire"
    args = inspect.cleandoc(module.__doc__ or "").partition("Args:\n")[2].split("\n\n")[0]
    body = {
        "kind": module.__qualname__ if own else f"{module.__module__}.{module.__qualname__}",
        "module": module,
        "build": _build,
        # With the help of the flags.
        "__doc__": f"The settings of a `{module.__name__}`." + (f"\n\nArgs:\n{args}" if args else ""),
        "__module__": module.__module__,
    }
    config_class = dataclasses.make_dataclass(
        f"{module.__name__}Config", fields, bases=(NeuronConfig,), namespace=body, frozen=True, kw_only=True
    )
    # Where pickle finds it.
    config_class.__qualname__ = f"{module.__qualname__}.config_class"
    return config_class


def _build(self: Any, features: int) -> nn.Module:
    return self.module(features, **settings_of(self))


def settings_of(config: Config) -> dict[str, Any]:
    """The fields of a config by name. (Not `dataclasses.asdict`, which would also take nested configs apart.)"""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def as_config(owner: str, name: str, value: Any) -> Any:
    """A config as it is, a configurable class as its defaults; anything else is refused.

    Args:
        owner: The caller, for error messages.
        name: The setting that holds `value`.
        value: A config, or a class such as `nn.LIF` that stands for its default config.
    """
    if isinstance(value, type) and issubclass(value, Configurable):
        return value.config()
    if not isinstance(value, type) and callable(getattr(value, "build", None)):
        return value
    advice = ""
    if isinstance(value, type) and issubclass(value, Config):
        advice = f"; call it: {value.__name__}()"
    elif isinstance(value, Configurable):
        advice = f"; pass {type(value).__name__}.config(...), of which each layer builds its own"
    elif isinstance(value, nn.Module) or (isinstance(value, type) and issubclass(value, nn.Module)):
        advice = "; write a Config whose build(features) makes this module"
    got = f"the class {value.__name__}" if isinstance(value, type) else f"{value!r:.60}"
    raise ValueError(f"{owner}: {name} must be a config such as PRFConfig() or a Neuron class, got {got}{advice}")


def find_kind(kind: str) -> type[Config] | None:
    """The config class of this name, if its module has been imported."""
    return _KINDS.get(kind)


def neuron_names() -> dict[str, type[NeuronConfig]]:
    """The configs of all neurons that have been imported: built-in ones as "bhrf", others by their `kind`."""
    bases = ("Neuron", "NeuronConfig")
    classes = [each for each in _KINDS.values() if issubclass(each, NeuronConfig) and each.kind not in bases]
    return {each.kind if "." in each.kind else each.kind.removesuffix("Config").lower(): each for each in classes}


def why_not_saveable(config: Any) -> str | None:
    """Why a config could not be loaded again in another process; None if it could."""
    cls = type(config)
    module = getattr(cls, "module", cls) if isinstance(config, NeuronConfig) else cls
    if cls.__module__ == "__main__":
        return f"{module.__name__} is defined in __main__; move it into a module and import it"
    if "<locals>" in cls.__qualname__:
        return f"{module.__name__} is defined inside a function; move it to the top level of its module"
    if find_kind(cls.kind) is not cls:
        return f"another class is registered as {cls.kind}"
    return None
