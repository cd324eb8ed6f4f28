"""Which backend runs: each operator registers its backends in the order in which "auto" tries them.

A backend is a function that runs a checked call, a function that says why it cannot (None: it can), and perhaps one
that says why it should not, as another is faster. A named backend runs or raises why it cannot; "auto" takes the first
that can and should. The choice depends on the call alone, never on timing.
"""

import difflib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor

from .surrogate import Surrogate


class Call(NamedTuple):
    """A checked call of a neuron. What the public functions accept in many forms arrives here in one.

    B is the number of sequences: current's first dimension, or len(cu_seqlens) - 1 when packed.
    """

    current: Tensor  # [B, T, N], or [1, S, N] when packed
    coefficients: Tensor  # [C, N]: rows as the operator's docstring names them, the threshold last
    state: Tensor  # [C', B, N]: what the operator carries from step to step, after the reset
    carried: bool  # whether the caller handed a state in; if not, it is all zeros
    reset: str
    full: bool  # whether the spike inside the reset carries a gradient
    surrogate: Surrogate
    cu_seqlens: Tensor | None
    reverse: bool


class Result(NamedTuple):
    spikes: Tensor  # like current
    state: Tensor  # [C', B, N]


class Backend(NamedTuple):
    name: str
    run: Callable[[Any], Any]
    why_not: Callable[[Any], str | None]
    why_slow: Callable[[Any], str | None]

    def reason(self, call: Any) -> str | None:
        """Why "auto" does not take it. (Whether it would be slow is asked first: that can be cheaper to tell.)"""
        return self.why_slow(call) or self.why_not(call)


class _Op(NamedTuple):
    prepare: Callable[..., Any]
    describe: Callable[[Any], str]
    backends: dict[str, Backend]


_OPS: dict[str, _Op] = {}
_WATCHED: list[set[tuple[str, str]]] = []


def _current(call: Call) -> str:
    return f"current {list(call.current.shape)} {call.current.dtype}"


def register_op(op: str, prepare: Callable[..., Any], describe: Callable[[Any], str] = _current) -> None:
    """Makes an operator known. `prepare` turns the arguments of its public function into a checked call, `describe`
    names what the choice depends on."""
    _OPS[op] = _Op(prepare, describe, {})


def register(
    op: str,
    name: str,
    run: Callable[[Any], Any],
    why_not: Callable[[Any], str | None],
    why_slow: Callable[[Any], str | None] = lambda call: None,
) -> None:
    """Adds a backend behind those already registered for this operator."""
    _OPS[op].backends[name] = Backend(name, run, why_not, why_slow)


def prepare(op: str, *args: object, **kwargs: object) -> Any:
    """The checked call that the public function of this operator would make of its arguments."""
    return _OPS[op].prepare(*args, **kwargs)


def names(op: str) -> list[str]:
    """The backends of an operator, in the order in which "auto" tries them."""
    return list(_OPS[op].backends)


def why_not(op: str, name: str, call: Any) -> str | None:
    """Why this backend cannot run this call, or None if it can."""
    return _OPS[op].backends[name].why_not(call)


def nearest(word: object, valid: list[str]) -> str:
    """The end of an error message: what is valid, and what was probably meant."""
    close = difflib.get_close_matches(str(word), valid, n=1)
    return f"{', '.join(map(repr, valid))}" + (f" (did you mean {close[0]!r}?)" if close else "")


@contextmanager
def watching() -> Iterator[set[tuple[str, str]]]:
    """Within, notes which backend each operator takes, as (operator, backend)."""
    taken: set[tuple[str, str]] = set()
    _WATCHED.append(taken)
    try:
        yield taken
    finally:
        _WATCHED.pop()


def resolve(op: str, call: Any, backend: str) -> Backend:
    """The backend that runs this call: the named one, or for "auto" the first that can."""
    found = _resolved(op, call, backend)
    for taken in _WATCHED:
        taken.add((op, found.name))
    return found


def _resolved(op: str, call: Any, backend: str) -> Backend:
    backends = _OPS[op].backends
    if backend == "auto":
        for candidate in backends.values():
            if candidate.reason(call) is None:
                return candidate
        raise RuntimeError(f"{op}: no backend can run this call: {_reasons(op, call)}")
    if not isinstance(backend, str) or backend not in backends:
        raise ValueError(f"{op}: backend must be one of {nearest(backend, ['auto', *backends])}, got {backend!r}")
    reason = backends[backend].why_not(call)
    if reason is not None:
        raise RuntimeError(f"{op}: backend {backend!r} cannot run this call: {reason}")
    return backends[backend]


def _reasons(op: str, call: Any) -> str:
    return "; ".join(
        f"{name}: {backend.reason(call) or 'can, but comes later in the order'}"
        for name, backend in _OPS[op].backends.items()
    )


def explain(op: str, *args: object, **kwargs: object) -> str:
    """Which backend "auto" would take for this call of `op`, and why not the others. Nothing is run."""
    if not isinstance(op, str) or op not in _OPS:
        raise ValueError(f"explain: op must be one of {nearest(op, list(_OPS))}, got {op!r}")
    asked = kwargs.pop("backend", "auto")
    try:
        inspect.signature(_OPS[op].prepare).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"explain: the arguments must be those of {op}: {error}") from None
    call = prepare(op, *args, **kwargs)
    if asked != "auto":
        resolve(op, call, asked)  # type: ignore[arg-type]
    taken = resolve(op, call, "auto").name
    lines = [f"{op}: auto takes {taken!r} for {_OPS[op].describe(call)}"]
    for name, backend in _OPS[op].backends.items():
        reason = backend.reason(call)
        note = "taken" if name == taken else reason or "can run it, but comes later in the order"
        lines.append(f"  {name}: {note}")
    return "\n".join(lines)
