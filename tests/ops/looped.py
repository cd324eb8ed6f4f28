"""Many cases in one test: `loop_over` is `pytest.mark.parametrize` without a test per value."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch


def loop_over(name: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test once per value of argument `name`, each from the same seed, and report all failures together."""
    values = list(values)
    assert values, f"no value for {name}: such a test cannot fail"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def loop(**arguments: Any) -> None:
            failures: list[BaseException] = []
            for value in values:
                torch.manual_seed(0)
                try:
                    test(**arguments, **{name: value})
                except (Exception, BaseExceptionGroup, pytest.fail.Exception) as error:
                    error.add_note(f"{name} = {value!r}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(values)} values of {name} failed", failures)

        signature = inspect.signature(test)
        parameters = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        loop.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return loop

    return decorate
