"""Any neuron from the equation of one time step: `dynamics(current, state, c, spike) -> (spikes, next state)`.

loop        runs the equation step by step under autograd: the definition that everything else is tested against
trace       calls it once with symbols: its expression graph (`graph`)
adjoint     differentiates the graph
lower       rewrites it for speed
emit, cpu   compile both to a fused scan, by Numba; `operator` makes operators of torch of it
triton, gpu the same for GPUs, by Triton
interpret   runs a graph without compiling it, for tests
c           writes one step as C
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import require_bounds, require_current, sequence_count, stacked_state, state_dtype
from ..neuron_scan import HAVE_TRITON, TRITON_SURROGATES, why_not_numba
from ..registry import Call, Result
from ..surrogate import Surrogate
from . import loop, operator, recurrent
from .graph import Program
from .loop import Dynamics, record, step
from .trace import BranchError, Untraceable, trace

# Traced programs by `_cache_key` and names, and the most that are kept.
TRACED = 1000
_traced: dict[Any, Program] = {}
# Types whose repr is different for different values.
SETTINGS = bool | int | float | str | None | Surrogate

__all__ = [
    "BranchError",
    "Dynamics",
    "Untraceable",
    "block_key",
    "builtin",
    "program_of",
    "record",
    "recurrent_scan",
    "register",
    "scan",
    "step",
    "why_not_compiled",
    "why_not_in_block",
    "why_not_triton",
]


def program_of(dynamics: Dynamics) -> Program:
    """The graph of a neuron's equation.

    Raises:
        Untraceable: It uses an operation that cannot be compiled.
        BranchError: It branches on a value.
    """
    if dynamics.key is not None and torch.compiler.is_compiling():
        return operator.registered(dynamics.key)[0]
    names = (tuple(dynamics.state_type._fields), tuple(dynamics.coefficients._fields))
    key = _cache_key(dynamics.function)
    if key is None:
        return trace(dynamics.function, *names, dynamics.owner)
    key = (key, *names)
    if key not in _traced:
        if len(_traced) >= TRACED:
            _traced.clear()
        _traced[key] = trace(dynamics.function, *names, dynamics.owner)
    return _traced[key]


def register(dynamics: Dynamics) -> str:
    """Keep the graph of a neuron's equation for the operators of this process; returns its key.

    Raises:
        Untraceable, BranchError: As `program_of`.
    """
    return operator.register(program_of(dynamics), dynamics.owner)


def _cache_key(function: Any) -> Any:
    """All that the graph of some dynamics depends on, the function and its neuron's settings; None if unknown."""
    owner, plain = getattr(function, "__self__", None), getattr(function, "__func__", function)
    if getattr(plain, "__closure__", None):
        return None
    settings = {} if owner is None else {name: value for name, value in vars(owner).items() if name[0] != "_"}
    if not all(isinstance(value, SETTINGS) for value in settings.values()):
        return None
    return plain, repr(settings)


def why_not_compiled(dynamics: Dynamics, current: Tensor) -> str | None:
    """Why Numba does not run a call; None if it does."""
    reason = why_not_numba(current, dynamics.surrogate)
    return reason if reason is not None else _why_not_traced(dynamics)


def why_not_triton(dynamics: Dynamics, current: Tensor) -> str | None:
    """Why Triton does not run a call; None if it does."""
    if not HAVE_TRITON:
        return "not available: the package triton is not installed"
    if not _has_triton_form(dynamics.surrogate):
        return f"surrogate {type(dynamics.surrogate).__name__} has no `triton` form"
    if current.device.type != "cuda":
        return f"it runs on a GPU, and current is on {current.device}"
    return _why_not_traced(dynamics)


def _has_triton_form(surrogate: Surrogate) -> bool:
    return surrogate.triton is not None or surrogate.name in TRITON_SURROGATES


def _why_not_traced(dynamics: Dynamics) -> str | None:
    try:
        program_of(dynamics)
    except Untraceable as error:
        return f"`dynamics` cannot be compiled: {error}"
    return None


def scan(
    dynamics: Dynamics, current: Tensor, state: Any, cu_seqlens: Tensor | None = None, reverse: bool = False
) -> tuple[Tensor, Any]:
    """Run whole sequences from a state (None: zero), compiled where possible and otherwise as a loop.

    Returns:
        Spikes like `current`, and the state after the last step.
    """
    key = _compiled_key(dynamics, current)
    if key is None:
        return loop.scan(dynamics, current, state, cu_seqlens, reverse)
    owner, names = dynamics.owner, dynamics.state_type._fields
    require_current(owner, current, "B, T, N")
    batch, lanes = _sequence_count(owner, current, cu_seqlens), current.shape[-1]
    dtype = state_dtype(current)
    initial = current.new_zeros((0, batch, lanes), dtype=dtype)
    if names:
        initial = stacked_state(f"{owner}.scan", state, names, (batch, lanes), current)
    empty = current.new_zeros((0, lanes), dtype=dtype)
    coefficients = dynamics.rows(lanes) if dynamics.coefficients else empty
    spikes, last = operator.run(
        key, current.to(dtype), coefficients=coefficients, state=initial, cu_seqlens=cu_seqlens,
        surrogate=dynamics.surrogate, reverse=reverse,
        trained=[value.requires_grad for value in dynamics.coefficients],
    )  # fmt: skip
    return spikes.to(current.dtype), dynamics.state_type(*last.unbind(0))


def _sequence_count(owner: str, current: Tensor, cu_seqlens: Tensor | None) -> int:
    """The number of sequences. Neurons of one equation share an operator, so bounds are checked here, by their name."""
    count = sequence_count(owner, current, cu_seqlens)
    if cu_seqlens is not None and cu_seqlens.device.type == "cpu" and not torch.compiler.is_compiling():
        require_bounds(owner, cu_seqlens.tolist(), current.shape[1])
    return count


def _compiled_key(dynamics: Dynamics, current: Tensor) -> str | None:
    """The key of the compiled program; None if the call must run as a loop."""
    on_gpu = HAVE_TRITON and current.device.type == "cuda" and _has_triton_form(dynamics.surrogate)
    if not on_gpu and why_not_numba(current, dynamics.surrogate) is not None:
        return None
    try:
        return register(dynamics)
    except Untraceable:
        return None


def recurrent_scan(
    dynamics: Dynamics, weight: Tensor, current: Tensor, state: Any, cu_seqlens: Tensor | None, reverse: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run a layer with feedback, current_t = x_t + W s_{t-1}, compiled; see `why_not_in_block` for what can be.

    Args:
        dynamics: The equation of the neuron inside.
        weight: W [N, N].
        current: x [B, T, N], or packed [1, S, N].
        state: The states of the neuron inside and then the spikes of the last step, each [B, N]; None is zero.
        cu_seqlens: Bounds of packed sequences.
        reverse: Run each sequence from its end.

    Returns:
        Spikes like `current`, and the states in the form of `state`.
    """
    owner, names = dynamics.owner, dynamics.state_type._fields
    require_current(owner, current, "B, T, N")
    batch, lanes = _sequence_count(owner, current, cu_seqlens), current.shape[-1]
    x = current.to(state_dtype(current))
    stacked = stacked_state(f"{owner}.scan", state, (*names, "spikes"), (batch, lanes), current)
    weight = weight.to(x.dtype)
    first = torch.zeros_like(stacked[-1]) if state is None else F.linear(stacked[-1], weight)
    spikes, last = recurrent.run(
        recurrent.Layer(
            current=x, weight=weight, coefficients=dynamics.rows(lanes), state=stacked[:-1], first=first,
            cu_seqlens=cu_seqlens, key=block_key(dynamics, current), surrogate=dynamics.surrogate.name,
            numbers=dynamics.surrogate.numbers, reverse=reverse,
            trained=[value.requires_grad for value in dynamics.coefficients],
        )
    )  # fmt: skip
    last_spikes = _last_steps(spikes, stacked[-1], cu_seqlens, reverse)
    return spikes.to(current.dtype), (*last.unbind(0), last_spikes)


def _last_steps(spikes: Tensor, before: Tensor, cu_seqlens: Tensor | None, reverse: bool) -> Tensor:
    """The spikes of each sequence's last step [B, N]; `before` where it has none."""
    if spikes.shape[1] == 0:
        return before
    if cu_seqlens is None:
        return spikes[:, 0 if reverse else -1]
    starts, ends = cu_seqlens[:-1].long(), cu_seqlens[1:].long()
    places = starts if reverse else ends - 1
    rows = spikes[0][places.clamp(0, spikes.shape[1] - 1)]
    return torch.where((ends > starts)[:, None], rows, before)


def builtin(
    op: str, definition: Any, resets: tuple[str, ...]
) -> tuple[Callable[[Call], Result], Callable[[Call], Any]]:
    """The backend `scan` of an operator with resets, compiled from its equation.

    All forms are traced at once, so that a graph which torch has exported finds them in any process.

    Args:
        op: The operator's name.
        definition: A module with `dynamics`, `State` and `Coefficients`.
        resets: The kinds of reset.

    Returns:
        Its `run` and `why_not`; see `ops.registry`.
    """
    keys = {}
    for reset, full in itertools.product(resets, (False, True)):
        function = functools.partial(definition.dynamics, reset=reset, full=full)
        program = trace(function, definition.State._fields, definition.Coefficients._fields, op)
        keys[reset, full] = operator.register(program, op)

    def run(call: Call) -> Result:
        current = call.current.to(call.state.dtype)
        spikes, state = operator.run(
            keys[call.reset, call.full], current, coefficients=call.coefficients, state=call.state,
            cu_seqlens=call.cu_seqlens, surrogate=call.surrogate, reverse=call.reverse, trained=call.trained,
        )  # fmt: skip
        return Result(spikes.to(call.current.dtype), state)

    return run, lambda call: why_not_numba(call.current, call.surrogate)


def block_key(dynamics: Dynamics, u: Tensor) -> str:
    """The key of a program for `ops.sdtcm`; see `why_not_in_block`."""
    key = _compiled_key(dynamics, u)
    assert key is not None
    return key


def why_not_in_block(dynamics: Dynamics, u: Tensor) -> str | None:
    """Why a neuron cannot be part of a fused layer, an SD-TCM block or one with feedback; None if it can."""
    reason = why_not_compiled(dynamics, u)
    if reason is None and not dynamics.coefficients:
        return "its temporal neuron has no coefficients"
    if reason is None and program_of(dynamics).spikes.op != "spike":
        return "what `dynamics` returns as spikes is not what `spike` returned"
    return reason
