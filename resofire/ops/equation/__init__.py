"""Any neuron from the equation of one time step: `dynamics(current, state, c, spike) -> (spikes, next state)`.

loop        runs the equation step by step under autograd: the definition that everything else is tested against
trace       calls it once with symbols: its expression graph (`graph`)
adjoint     differentiates the graph
emit, cpu   compile both to a fused scan, by Numba; `operator` makes operators of torch of it
triton, gpu the same for GPUs, by Triton
interpret   runs a graph without compiling it, for tests
c           writes one step as C
"""

from typing import Any

import torch
from torch import Tensor

from ..checks import require_current, sequence_count, stacked_state, state_dtype
from ..neuron_scan import HAVE_NUMBA, HAVE_TRITON, TRITON_SURROGATES
from ..surrogate import Surrogate
from . import loop, operator
from .graph import Program
from .loop import Dynamics, record, step
from .trace import Untraceable, trace

# Programs that have been traced, by what they depend on, and how many are kept.
TRACED = 1000
_traced: dict[Any, Program] = {}
# Types whose repr tells different values apart.
SETTINGS = bool | int | float | str | None | Surrogate

__all__ = ["Dynamics", "Untraceable", "program_of", "record", "scan", "step", "why_not_compiled", "why_not_triton"]


def program_of(dynamics: Dynamics) -> Program:
    """The graph of a neuron's equation.

    Raises:
        Untraceable: It uses an operation that cannot be compiled.
        BranchError: It branches on a value.
    """
    names = (tuple(dynamics.state_type._fields), tuple(dynamics.coefficients._fields))
    mark = _mark(dynamics.function)
    if mark is None:
        return trace(dynamics.function, *names, dynamics.owner)
    place = (mark, *names)
    if place not in _traced:
        if len(_traced) >= TRACED:
            _traced.clear()
        _traced[place] = trace(dynamics.function, *names, dynamics.owner)
    return _traced[place]


def _mark(function: Any) -> Any:
    """What the graph of some dynamics depends on: the function and the settings of its neuron; None if unknown."""
    owner, plain = getattr(function, "__self__", None), getattr(function, "__func__", function)
    if getattr(plain, "__closure__", None):
        return None
    settings = {} if owner is None else {name: value for name, value in vars(owner).items() if name[0] != "_"}
    if not all(isinstance(value, SETTINGS) for value in settings.values()):
        return None
    return plain, repr(settings)


def why_not_compiled(dynamics: Dynamics, current: Tensor) -> str | None:
    """Why Numba does not run a call; None if it does."""
    if not HAVE_NUMBA:
        return "not available: the package numba is not installed"
    if current.device.type != "cpu":
        return f"it runs on the CPU, and current is on {current.device}"
    if dynamics.surrogate.numba is None:
        return f"surrogate {type(dynamics.surrogate).__name__} has no `numba` form"
    return _why_not_traced(dynamics)


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
    batch, lanes = sequence_count(owner, current, cu_seqlens), current.shape[-1]
    dtype = state_dtype(current)
    initial = current.new_zeros((0, batch, lanes), dtype=dtype)
    if names:
        initial = stacked_state(f"{owner}.scan", state, names, (batch, lanes), current)
    rows = [value.expand(lanes) for value in dynamics.coefficients]
    coefficients = torch.stack(rows) if rows else current.new_zeros((0, lanes), dtype=dtype)
    spikes, last = operator.run(
        key, current.to(dtype), coefficients, initial, cu_seqlens, dynamics.surrogate, reverse,
        [value.requires_grad for value in dynamics.coefficients],
    )  # fmt: skip
    return spikes.to(current.dtype), dynamics.state_type(*last.unbind(0))


def _compiled_key(dynamics: Dynamics, current: Tensor) -> str | None:
    """The key of the compiled program; None if the call must run as a loop."""
    on_cpu = HAVE_NUMBA and current.device.type == "cpu" and dynamics.surrogate.numba is not None
    on_gpu = HAVE_TRITON and current.device.type == "cuda" and _has_triton_form(dynamics.surrogate)
    if not on_cpu and not on_gpu:
        return None
    try:
        return operator.register(program_of(dynamics), dynamics.owner)
    except Untraceable:
        return None
