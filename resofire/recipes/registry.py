"""The registry of recipes; your own package registers its recipes with the same decorator."""

from collections.abc import Callable
from typing import Any, TypeVar

from ..train import RunConfig

Recipe = TypeVar("Recipe", bound=Callable[..., RunConfig])
RECIPES: dict[str, Callable[..., RunConfig]] = {}


def recipe(function: Recipe) -> Recipe:
    """Register a function that returns the whole config of a run, as a decorator.

    Its name with dashes for underscores is the recipe's name: `resofire train my-recipe`.

    Raises:
        ValueError: Another function is registered under this name.

    Example:
        >>> @recipe
        ... def digits_long() -> RunConfig:
        ...     return replace(digits(), name="digits-long", epochs=600)
    """
    name = function.__name__.replace("_", "-")
    # A module that is reloaded registers its functions once more.
    if name in RECIPES and _origin(RECIPES[name]) != _origin(function):
        raise ValueError(f"recipe: {name!r} is already registered by {_origin(RECIPES[name])}")
    RECIPES[name] = function
    return function


def _origin(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"
