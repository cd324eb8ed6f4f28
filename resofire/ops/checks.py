"""Argument checks. An error is one sentence that names the argument and its value, raised before any computation."""

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Real

import torch
from torch import Tensor

from .registry import Call, nearest
from .surrogate import Surrogate

_HALF = (torch.float16, torch.bfloat16)
_DTYPES = (torch.float32, torch.float64, *_HALF)
_finite = ContextVar("resofire_check_finite", default=False)


@contextmanager
def check_finite() -> Iterator[None]:
    """Context manager in which every operator checks its inputs for NaN and infinity.

    Costs one pass over each input. Does nothing while torch compiles.

    Raises:
        ValueError: From an operator called inside, naming the argument and the first index that is not finite.

    Example:
        >>> with check_finite():
        ...     spikes, state = lif(current, 0.9)
    """
    token = _finite.set(True)
    try:
        yield
    finally:
        _finite.reset(token)


def checks_finite() -> bool:
    """Whether inputs must be checked: inside `check_finite()`, and not while torch compiles."""
    return not torch.compiler.is_compiling() and _finite.get()


def state_dtype(current: Tensor) -> torch.dtype:
    """The type of the potentials: float64 for a float64 current, else float32."""
    return torch.float64 if current.dtype == torch.float64 else torch.float32


def require_floating(op: str, name: str, value: Tensor, form: str = "") -> None:
    """Raise TypeError unless `value` is a dense floating-point tensor; `form` adds a shape to the message."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{op}: {name} must be a tensor{form}, got {type(value).__name__}")
    if value.dtype not in _DTYPES:
        raise TypeError(f"{op}: {name} must be float32, float64, float16 or bfloat16, got {_name(value.dtype)}")
    if value.layout != torch.strided:
        raise TypeError(f"{op}: {name} must be a dense tensor, got layout {value.layout}")


def require_current(op: str, current: Tensor, dims: str) -> None:
    require_floating(op, "current", current, f" [{dims}]")
    if current.dim() != len(dims.split(",")):
        raise ValueError(f"{op}: current must have shape [{dims}], got {list(current.shape)}")
    require_finite(op, "current", current)


def require_finite(op: str, name: str, value: Tensor) -> None:
    """Raise ValueError on NaN or infinity, inside `check_finite()` only."""
    if checks_finite() and not bool(torch.isfinite(value).all()):
        bad = (~torch.isfinite(value)).nonzero()[0].tolist()
        raise ValueError(f"{op}: {name} is {value[tuple(bad)].item()} at {bad}; check_finite() is on")


def per_channel(op: str, name: str, value: float | Tensor, current: Tensor) -> Tensor:
    """Expand a number, a [] or an [N] tensor to a tensor [N] of the state's type."""
    n, dtype = current.shape[-1], state_dtype(current)
    if isinstance(value, Tensor):
        if value.dtype != dtype and value.dtype not in _HALF:
            raise TypeError(
                f"{op}: {name} must be {_name(dtype)} to go with a current of {_name(current.dtype)}, "
                f"got {_name(value.dtype)}"
            )
        if value.device != current.device:
            raise ValueError(f"{op}: {name} must be on {current.device} like current, got {value.device}")
        if value.dim() > 1 or (value.dim() == 1 and value.shape[0] != n):
            raise ValueError(f"{op}: {name} must have shape [] or [{n}], got {list(value.shape)}")
        require_finite(op, name, value)
        return value.to(dtype).expand(n)
    require_real(op, name, value)
    return torch.full((n,), float(value), dtype=dtype, device=current.device)


def require_choice(op: str, name: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise ValueError(f"{op}: {name} must be one of {nearest(value, list(valid))}, got {value!r}")


def require_count(op: str, name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{op}: {name} must be a positive integer, got {value!r}")


def require_surrogate(op: str, surrogate: Surrogate) -> None:
    if not isinstance(surrogate, Surrogate):
        raise TypeError(f"{op}: surrogate must be a Surrogate such as ATan(), got {surrogate!r}")
    _ = surrogate.numbers  # raises if a field is not a number


def stacked_state(op: str, state: tuple[Tensor, ...] | None, names: tuple[str, ...], shape: tuple[int, int],
                  current: Tensor) -> Tensor:  # fmt: skip
    """Check a state and stack it to one tensor [len(names), B, N]; zeros for None."""
    dtype = state_dtype(current)
    if state is None:
        return torch.zeros((len(names), *shape), dtype=dtype, device=current.device)
    if not isinstance(state, tuple) or len(state) != len(names) or not all(isinstance(x, Tensor) for x in state):
        got = f"{len(state)} values" if isinstance(state, tuple) and len(state) != len(names) else type(state).__name__
        raise TypeError(f"{op}: state must be a tuple of tensors ({', '.join(names)}), got {got}")
    for name, value in zip(names, state, strict=True):
        if value.shape != shape:
            raise ValueError(f"{op}: state.{name} must have shape {list(shape)}, got {list(value.shape)}")
        if value.dtype != dtype:
            raise TypeError(f"{op}: state.{name} must be {_name(dtype)}, got {_name(value.dtype)}")
        if value.device != current.device:
            raise ValueError(f"{op}: state.{name} must be on {current.device} like current, got {value.device}")
        require_finite(op, f"state.{name}", value)
    return torch.stack(state)


def sequence_count(op: str, current: Tensor, cu_seqlens: Tensor | None) -> int:
    """The number of sequences. Checks type and shape of cu_seqlens; `require_bounds` checks its values."""
    if cu_seqlens is None:
        return current.shape[0]
    if not isinstance(cu_seqlens, Tensor) or cu_seqlens.dtype != torch.int32 or cu_seqlens.dim() != 1:
        got = (
            f"{_name(cu_seqlens.dtype)} {list(cu_seqlens.shape)}"
            if isinstance(cu_seqlens, Tensor)
            else type(cu_seqlens).__name__
        )
        raise TypeError(f"{op}: cu_seqlens must be an int32 tensor of one dimension, got {got}")
    if cu_seqlens.shape[0] < 1:
        raise ValueError(f"{op}: cu_seqlens must hold at least one boundary, got an empty tensor")
    if current.shape[0] != 1:
        raise ValueError(f"{op}: current must be packed as [1, S, N] when cu_seqlens is given, got "
                         f"{list(current.shape)}")  # fmt: skip
    return cu_seqlens.shape[0] - 1


def require_bounds(op: str, bounds: list[int], total: int) -> None:
    """Raise ValueError unless the values of cu_seqlens run from 0 to S and never decrease."""
    if bounds[0] != 0 or bounds[-1] != total:
        raise ValueError(f"{op}: cu_seqlens must run from 0 to {total}, got {bounds[0]} to {bounds[-1]}")
    for i, (start, end) in enumerate(itertools.pairwise(bounds)):
        if end < start:
            raise ValueError(f"{op}: cu_seqlens must not fall, got {start} then {end} at position {i}")


def neuron_call(
    op: str,
    current: Tensor,
    coefficients: dict[str, float | Tensor],
    state: tuple[Tensor, ...] | None,
    state_names: tuple[str, ...],
    *,
    resets: tuple[str, ...],
    reset: str,
    reset_gradient: str,
    surrogate: Surrogate,
    cu_seqlens: Tensor | None,
    reverse: bool,
) -> Call:
    """Check the arguments that all neurons share and normalise them to a `Call`."""
    require_current(op, current, "B, T, N")
    require_choice(op, "reset", reset, resets)
    require_choice(op, "reset_gradient", reset_gradient, ("detached", "full"))
    require_surrogate(op, surrogate)
    if not isinstance(reverse, bool):
        raise TypeError(f"{op}: reverse must be True or False, got {reverse!r}")
    count = sequence_count(op, current, cu_seqlens)
    rows = torch.stack([per_channel(op, name, value, current) for name, value in coefficients.items()])
    stacked = stacked_state(op, state, state_names, (count, current.shape[2]), current)
    return Call(
        current=current,
        coefficients=rows,
        state=stacked,
        carried=state is not None,
        reset=reset,
        full=reset_gradient == "full",
        surrogate=surrogate,
        cu_seqlens=cu_seqlens,
        reverse=reverse,
        trained=tuple(isinstance(value, Tensor) and value.requires_grad for value in coefficients.values()),
    )


def require_real(op: str, name: str, value: float | Tensor) -> None:
    """Raise unless `value` is a real number or a floating-point tensor; finite inside `check_finite()`."""
    if isinstance(value, Tensor):
        if not value.is_floating_point():
            raise TypeError(f"{op}: {name} must be a number or a floating-point tensor, got {_name(value.dtype)}")
        require_finite(op, name, value)
    elif isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{op}: {name} must be a number or a tensor, got {value!r}")
    elif checks_finite() and not math.isfinite(value):
        raise ValueError(f"{op}: {name} is {value}; check_finite() is on")


def require_positive(op: str, name: str, value: float | Tensor) -> None:
    """Raise ValueError unless all values are positive. Skipped on a GPU: reading them back would stall its stream."""
    if isinstance(value, Tensor):
        if value.device.type != "cpu" or torch.compiler.is_compiling():
            return
        bad = value.detach()[value.detach() <= 0]
        if bad.numel():
            raise ValueError(f"{op}: {name} must be positive, got {bad.flatten()[0].item()}")
    elif not value > 0:
        raise ValueError(f"{op}: {name} must be positive, got {value}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
