"""A neuron's equation as a loop over time under autograd: whole, packed, reversed or carried sequences.

Shapes: current [B, T, N], or packed [1, S, N] with `cu_seqlens` [B + 1]; states [B, N]; coefficients [] or [N].
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..checks import require_bounds, require_current, sequence_count, stacked_state, state_dtype
from ..surrogate import Surrogate, spike


class Dynamics(NamedTuple):
    """One neuron's equation and what it needs.

    Attributes:
        owner: The name that errors carry, such as "ALIF".
        function: `dynamics(current, state, c, spike) -> (spikes, {name: next state})`, elementwise torch.
        state_type: The NamedTuple of the states.
        coefficients: The object `c`: a NamedTuple of tensors, each [] or [N].
        surrogate: The derivative of `spike`.
        key: The key under which its graph is registered, for torch.compile, which cannot follow the tracing.
    """

    owner: str
    function: Callable[..., Any]
    state_type: Any
    coefficients: Any
    surrogate: Surrogate
    key: str | None = None

    def rows(self, lanes: int) -> Tensor:
        """The coefficients as one tensor [K, lanes] for at least one coefficient."""
        return torch.stack([value.expand(lanes) for value in self.coefficients])


def step(dynamics: Dynamics, current: Tensor, state: Any) -> tuple[Tensor, Any]:
    """Advance one time step: current [B, N] and state (None: zero) to spikes [B, N] and the next state."""
    require_current(f"{dynamics.owner}.step", current, "B, N")
    states = _initial(dynamics, "step", current, state, current.shape[0])
    spikes, last, _ = _advance(dynamics, current.to(state_dtype(current)), states)
    return spikes.to(current.dtype), last


def scan(
    dynamics: Dynamics, current: Tensor, state: Any, cu_seqlens: Tensor | None = None, reverse: bool = False
) -> tuple[Tensor, Any]:
    """Run whole sequences from a state (None: zero): spikes like `current`, and the state after the last step."""
    require_current(dynamics.owner, current, "B, T, N")
    batch = sequence_count(dynamics.owner, current, cu_seqlens)
    states = _initial(dynamics, "scan", current, state, batch)
    padded, layout = _unpack(dynamics.owner, current.to(state_dtype(current)), cu_seqlens, reverse)
    spikes = []
    for t, now in enumerate(padded.unbind(1)):
        fired, following, _ = _advance(dynamics, now, states)
        spikes.append(fired)
        if layout is None:
            states = following
        else:
            # A sequence that has ended keeps its last state.
            live = layout.live[:, t, None]
            pairs = zip(following, states, strict=True)
            states = dynamics.state_type(*(torch.where(live, new, old) for new, old in pairs))
    out = torch.stack(spikes, 1) if spikes else padded
    if layout is not None:
        out = out.flatten(0, 1)[layout.positions][None]
    elif reverse:
        out = out.flip(1)
    return out.to(current.dtype), states


@torch.no_grad()
def record(dynamics: Dynamics, current: Tensor) -> tuple[Tensor, Any, Tensor]:
    """Spikes, every state after each step, and the argument of `spike`, each [B, T, N], from a zero state."""
    require_current(f"{dynamics.owner}.trace", current, "B, T, N")
    states = _initial(dynamics, "trace", current, None, current.shape[0])
    rows = []
    for now in current.to(state_dtype(current)).unbind(1):
        fired, states, argument = _advance(dynamics, now, states)
        rows.append((fired, *states, argument))
    if not rows:
        rows = [(current[:, 0:0],) * (2 + len(states))]
        spikes, *recorded, arguments = rows[0]
    else:
        spikes, *recorded, arguments = (torch.stack(column, 1) for column in zip(*rows, strict=True))
    return spikes, dynamics.state_type(*recorded), arguments


class _Layout(NamedTuple):
    """Where packed sequences lie in a padded batch [B, T]."""

    live: Tensor  # [B, T]: before the end of the sequence
    positions: Tensor  # [S]: the place of each packed step in the flattened [B, T]


def _unpack(owner: str, current: Tensor, cu_seqlens: Tensor | None, reverse: bool) -> tuple[Tensor, _Layout | None]:
    """The sequences side by side, each in the order in which it is run."""
    if cu_seqlens is None:
        return (current.flip(1) if reverse else current), None
    bounds = cu_seqlens.tolist()
    require_bounds(owner, bounds, current.shape[1])
    starts = torch.tensor(bounds[:-1], device=current.device)[:, None]
    lengths = cu_seqlens.to(current.device).long().diff()[:, None]
    longest = int(lengths.max()) if len(bounds) > 1 else 0
    t = torch.arange(longest, device=current.device)[None]
    live = t < lengths
    offset = lengths - 1 - t if reverse else t
    rows = (starts + offset.clamp(min=0)).clamp(max=max(0, current.shape[1] - 1))
    padded = current[0][rows] if current.shape[1] else current.new_zeros(len(bounds) - 1, 0, current.shape[2])
    places = torch.arange(live.numel(), device=current.device).view(live.shape)
    positions = torch.empty(current.shape[1], dtype=torch.long, device=current.device)
    positions[rows[live]] = places[live]
    return padded, _Layout(live, positions)


def _initial(dynamics: Dynamics, op: str, current: Tensor, state: Any, batch: int) -> Any:
    names = dynamics.state_type._fields
    if not names:
        return dynamics.state_type()
    stacked = stacked_state(f"{dynamics.owner}.{op}", state, names, (batch, current.shape[-1]), current)
    return dynamics.state_type(*stacked.unbind(0))


def _advance(dynamics: Dynamics, current: Tensor, states: Any) -> tuple[Tensor, Any, Tensor]:
    """One step: spikes, next states, and what `spike` was called with."""
    arguments: list[Tensor] = []

    def fire(x: Tensor) -> Tensor:
        arguments.append(x)
        return spike(x, dynamics.surrogate)

    result = dynamics.function(current, states, dynamics.coefficients, fire)
    names = dynamics.state_type._fields
    if not arguments:
        raise ValueError(f"{dynamics.owner}: dynamics must call spike, which gives spikes their gradient, got no call")
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)):
        got = type(result).__name__
        raise TypeError(f"{dynamics.owner}: dynamics must return (spikes, {{state: value}}), got {got}")
    spikes, following = result
    if set(following) != set(names):
        raise ValueError(
            f"{dynamics.owner}: dynamics must return the states {', '.join(names) or '(none)'}, "
            f"got {', '.join(map(str, following)) or 'none'}"
        )
    for name, value in (("spikes", spikes), *following.items()):
        if not isinstance(value, Tensor) or value.shape != current.shape:
            form = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"{dynamics.owner}: dynamics must return {name} of shape {list(current.shape)}, got {form}"
            )
        if value.dtype != current.dtype:
            raise TypeError(
                f"{dynamics.owner}: dynamics must return {name} in {current.dtype} as it came, got {value.dtype}"
            )
    return spikes, dynamics.state_type(*(following[name] for name in names)), arguments[0]
