"""Which backend runs: each operator registers its backends in the order in which "auto" tries them.

A backend is a function that runs a `Call`, and a function that says why it cannot (None: it can). A named backend
runs or raises that reason; "auto" takes the first that can. The choice depends on the call alone, never on timing.
"""

import difflib
import inspect
from collections.abc import Callable
from typing import NamedTuple

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
    run: Callable[[Call], Result]
    why_not: Callable[[Call], str | None]


class _Op(NamedTuple):
    prepare: Callable[..., Call]
    backends: dict[str, Backend]


_OPS: dict[str, _Op] = {}


def register_op(op: str, prepare: Callable[..., Call]) -> None:
    """Makes an operator known. `prepare` turns the arguments of its public function into a checked call."""
    _OPS[op] = _Op(prepare, {})


def register(op: str, name: str, run: Callable[[Call], Result], why_not: Callable[[Call], str | None]) -> None:
    """Adds a backend behind those already registered for this operator."""
    _OPS[op].backends[name] = Backend(name, run, why_not)


def prepare(op: str, *args: object, **kwargs: object) -> Call:
    """The checked call that the public function of this operator would make of its arguments."""
    return _OPS[op].prepare(*args, **kwargs)


def names(op: str) -> list[str]:
    """The backends of an operator, in the order in which "auto" tries them."""
    return list(_OPS[op].backends)


def why_not(op: str, name: str, call: Call) -> str | None:
    """Why this backend cannot run this call, or None if it can."""
    return _OPS[op].backends[name].why_not(call)


def nearest(word: object, valid: list[str]) -> str:
    """The end of an error message: what is valid, and what was probably meant."""
    close = difflib.get_close_matches(str(word), valid, n=1)
    return f"{', '.join(map(repr, valid))}" + (f" (did you mean {close[0]!r}?)" if close else "")


def resolve(op: str, call: Call, backend: str) -> Backend:
    """The backend that runs this call: the named one, or for "auto" the first that can."""
    backends = _OPS[op].backends
    if backend == "auto":
        for candidate in backends.values():
            if candidate.why_not(call) is None:
                return candidate
        raise RuntimeError(f"{op}: no backend can run this call: {_reasons(op, call)}")
    if not isinstance(backend, str) or backend not in backends:
        raise ValueError(f"{op}: backend must be one of {nearest(backend, ['auto', *backends])}, got {backend!r}")
    reason = backends[backend].why_not(call)
    if reason is not None:
        raise RuntimeError(f"{op}: backend {backend!r} cannot run this call: {reason}")
    return backends[backend]


def _reasons(op: str, call: Call) -> str:
    return "; ".join(
        f"{name}: {backend.why_not(call) or 'can, but comes later in the order'}"
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
    lines = [f"{op}: auto takes {taken!r} for current {list(call.current.shape)} {call.current.dtype}"]
    for name, backend in _OPS[op].backends.items():
        reason = backend.why_not(call)
        note = "taken" if name == taken else reason or "can run it, but comes later in the order"
        lines.append(f"  {name}: {note}")
    return "\n".join(lines)
