"""Backend choice. Each operator registers its backends in the order in which "auto" tries them.

A backend has three functions: `run` runs a checked call, `why_not` returns why it cannot (None: it can), and optionally
`why_slow` returns why another backend is faster. A backend chosen by name runs or raises RuntimeError with the reason;
"auto" takes the first without a reason against it. The choice depends on the call alone, never on timing.
"""

import difflib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor

from .surrogate import Surrogate


class Call(NamedTuple):
    """A checked call of a neuron, with all arguments normalised.

    B is the number of sequences: the first dimension of current, or len(cu_seqlens) - 1 when packed.
    """

    current: Tensor  # [B, T, N], or [1, S, N] when packed
    coefficients: Tensor  # [C, N]: rows in the order of the operator's arguments, the threshold last
    state: Tensor  # [C', B, N]: the state variables after the reset
    carried: bool  # whether the caller passed a state; if not, it is all zeros
    reset: str
    full: bool  # whether the spike inside the reset carries a gradient
    surrogate: Surrogate
    cu_seqlens: Tensor | None
    reverse: bool
    trained: tuple[bool, ...]  # which coefficients have a gradient


class Result(NamedTuple):
    """Output of a neuron's backend."""

    spikes: Tensor  # like current
    state: Tensor  # [C', B, N]


class Backend(NamedTuple):
    """One implementation of an operator; see the top of this file."""

    name: str
    run: Callable[[Any], Any]
    why_not: Callable[[Any], str | None]
    why_slow: Callable[[Any], str | None]

    def reason(self, call: Any) -> str | None:
        """Why "auto" does not take it; None if it may. `why_slow` comes first: it can be cheaper to evaluate."""
        return self.why_slow(call) or self.why_not(call)


class _Op(NamedTuple):
    prepare: Callable[..., Any]
    describe: Callable[[Any], str]
    backends: dict[str, Backend]


_OPS: dict[str, _Op] = {}
_WATCHERS: list[set[tuple[str, str]]] = []


def _current(call: Call) -> str:
    return f"current {list(call.current.shape)} {call.current.dtype}"


def register_op(op: str, prepare: Callable[..., Any], describe: Callable[[Any], str] = _current) -> None:
    """Register an operator.

    Args:
        op: Its name.
        prepare: Turns the arguments of the public function into a checked call.
        describe: Names the part of a call that the choice depends on, for `explain`.
    """
    _OPS[op] = _Op(prepare, describe, {})


def register(
    op: str,
    name: str,
    run: Callable[[Any], Any],
    why_not: Callable[[Any], str | None],
    why_slow: Callable[[Any], str | None] = lambda call: None,
) -> None:
    """Append a backend to those of an operator; "auto" tries it after the earlier ones."""
    _OPS[op].backends[name] = Backend(name, run, why_not, why_slow)


def prepare(op: str, *args: object, **kwargs: object) -> Any:
    """Check the arguments of an operator's public function and return the call that its backends would get."""
    return _OPS[op].prepare(*args, **kwargs)


def names(op: str) -> list[str]:
    """The backends of an operator, in the order in which "auto" tries them."""
    return list(_OPS[op].backends)


def why_not(op: str, name: str, call: Any) -> str | None:
    """Why this backend cannot run this call, or None if it can."""
    return _OPS[op].backends[name].why_not(call)


def nearest(word: object, valid: list[str]) -> str:
    """The valid words for an error message, with a suggestion if one is close to `word`."""
    close = difflib.get_close_matches(str(word), valid, n=1)
    return f"{', '.join(map(repr, valid))}" + (f" (did you mean {close[0]!r}?)" if close else "")


@contextmanager
def watching() -> Iterator[set[tuple[str, str]]]:
    """Context manager that records which backend each operator runs, as a set of (operator, backend)."""
    choices: set[tuple[str, str]] = set()
    _WATCHERS.append(choices)
    try:
        yield choices
    finally:
        _WATCHERS.pop()


def resolve(op: str, call: Any, backend: str) -> Backend:
    """Choose the backend for a call: the named one, or for "auto" the first without a reason against it.

    Raises:
        ValueError: If no backend has this name.
        RuntimeError: If the named backend, or for "auto" every backend, cannot run the call.
    """
    choice = _resolved(op, call, backend)
    for choices in _WATCHERS:
        choices.add((op, choice.name))
    return choice


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
    """Explain which backend "auto" chooses for a call, and why not the others. Runs nothing.

    Args:
        op: The operator: "prf", "lif" or "spike_linear".
        *args: Positional arguments of the call.
        **kwargs: Keyword arguments of the call; with a `backend`, also check that this backend can run it.

    Returns:
        One line with the choice and one line per backend with the reason.

    Raises:
        ValueError: If the operator, the backend or an argument is invalid.
        TypeError: If the arguments do not fit the operator's signature or have a wrong type.
        RuntimeError: If the named backend cannot run the call.

    Example:
        >>> print(explain("lif", torch.zeros(2, 5, 3), 0.5, reset="hard"))
        lif: auto takes 'scan' for current [2, 5, 3] torch.float32
          scan: taken
          triton: it runs on a GPU (or, with TRITON_INTERPRET=1, slowly anywhere), and current is on cpu
          fft: reset='hard' multiplies the potential, which does not move into the threshold
          reference: can run it, but comes later in the order
    """
    if not isinstance(op, str) or op not in _OPS:
        raise ValueError(f"explain: op must be one of {nearest(op, list(_OPS))}, got {op!r}")
    backend_name = kwargs.pop("backend", "auto")
    try:
        inspect.signature(_OPS[op].prepare).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"explain: the arguments must be those of {op}: {error}") from None
    call = prepare(op, *args, **kwargs)
    if backend_name != "auto":
        resolve(op, call, backend_name)  # type: ignore[arg-type]
    choice = resolve(op, call, "auto").name
    lines = [f"{op}: auto takes {choice!r} for {_OPS[op].describe(call)}"]
    for name, backend in _OPS[op].backends.items():
        reason = backend.reason(call)
        note = "taken" if name == choice else reason or "can run it, but comes later in the order"
        lines.append(f"  {name}: {note}")
    return "\n".join(lines)
