"""Operation counts of one inference: operations by kind and bytes moved. Modules count themselves with these.

Operations, all in the network's own number type:

    mac          a product added to a sum, in a matrix product on real values
    ac           a weight added to a sum because its input spiked: no product
    multiply, add, compare    elementwise
    nonlinear    one value of exp, sigmoid, GELU, a quotient or a root

Bytes are those of one sequence, step by step, without a cache: every part reads each weight it uses, its state and its
input once, and writes its state and its output once. A number is 4 bytes, a spike 1 bit. Constants shared by a whole
layer (a threshold) stay in a register.

A neuron has `count(name, steps) -> Count`, one with feedback also `count_feedback(name, steps, active) -> Count`, a
block `count(name, steps, rates, *, fold_norm) -> list[Count]`, a network `count(steps, rates, *, fold_norm) ->
list[Count]`. `resofire.measure.count_ops` is the entry point.
"""

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

NUMBER, SPIKE = 4, 0.125  # bytes
OPERATIONS = ("mac", "ac", "multiply", "add", "compare", "nonlinear")
BYTES = ("weights_read", "state_read", "state_written", "activations_read", "activations_written")
# In the order of the data flow; those after the head occur in peers only.
COMPONENTS = (
    "encoder", "norm", "temporal neuron", "token linear", "residual", "spatial neuron", "channel linear", "pool",
    "head", "state space", "feedthrough", "attention", "softmax", "gate",
)  # fmt: skip
# Not part of a block. "No MAC" is a statement about blocks.
OUTSIDE = ("encoder", "pool", "head")


class CountError(ValueError):
    """A module whose operations are not known, or rates that do not fit it."""


@dataclass(frozen=True, kw_only=True)
class Count:
    """One part of a network: its operations and bytes each time it runs, and how many `times` that is per inference."""

    layer: str
    component: str
    times: float
    mac: float = 0
    ac: float = 0
    multiply: float = 0
    add: float = 0
    compare: float = 0
    nonlinear: float = 0
    weights_read: float = 0
    state_read: float = 0
    state_written: float = 0
    activations_read: float = 0
    activations_written: float = 0

    def __post_init__(self) -> None:
        if self.component not in COMPONENTS:
            raise ValueError(f"Count: component must be one of {', '.join(COMPONENTS)}, got {self.component!r}")
        for name in ("times", *OPERATIONS, *BYTES):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value < float("inf"):
                raise ValueError(f"Count: {name} must be a number of at least 0, got {value!r}")

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as plain values for JSON."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


@dataclass(frozen=True)
class Counts:
    """All parts of a network, for inferences of `steps` time steps."""

    name: str
    steps: float
    parts: tuple[Count, ...]

    def __post_init__(self) -> None:
        require_positive("Counts", "steps", self.steps)

    def __iter__(self) -> Iterator[Count]:
        return iter(self.parts)

    def only(self, *components: str) -> "Counts":
        """Return the parts of these components."""
        return Counts(self.name, self.steps, tuple(part for part in self if part.component in components))

    @property
    def blocks(self) -> "Counts":
        """Everything but encoder, pool and head."""
        return self.only(*(each for each in COMPONENTS if each not in OUTSIDE))

    def per_inference(self, kind: str) -> float:
        """Return the operations, or bytes, of one kind in one inference."""
        return sum(getattr(part, kind) * part.times for part in self.parts)

    def per_step(self, kind: str) -> float:
        """Return `per_inference` divided by the time steps."""
        return self.per_inference(kind) / self.steps

    def components(self) -> list[str]:
        """Return the components that occur, in the order of COMPONENTS."""
        present = {part.component for part in self}
        return [each for each in COMPONENTS if each in present]

    @property
    def no_nonlinear(self) -> bool:
        """Whether no block evaluates a nonlinear function. (A spike is a comparison.)"""
        return self.blocks.per_inference("nonlinear") == 0

    @property
    def no_mac(self) -> bool:
        """Whether no block multiplies a matrix by real values."""
        return self.blocks.per_inference("mac") == 0

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON: per layer each time it runs, totals per time step."""
        return {
            "unit": "operations and bytes each time a layer runs, float32, spikes 1 bit",
            "layers": [part.as_dict() for part in self],
            "per_step": {kind: _plain(self.per_step(kind)) for kind in (*OPERATIONS, *BYTES)},
        }


def joined(name: str, steps: float, *pieces: Iterable[Count]) -> Counts:
    """Join the parts of several pieces into one network.

    Raises:
        CountError: Something in them is no Count, as a user's own `count` may return.
    """
    parts = tuple(part for piece in pieces for part in piece)
    for part in parts:
        if not isinstance(part, Count):
            raise CountError(f"count_ops: `count` of every module must return Counts, got a {type(part).__name__}")
    return Counts(name, steps, parts)


def count_neuron(
    name: str, features: int, steps: float, operations: Mapping[str, float], *, coefficients: int, states: int
) -> Count:
    """Count a temporal neuron of `features` channels.

    Args:
        name: The layer's name.
        features: Channels.
        steps: Time steps per inference.
        operations: Per channel and time step, by the names of `Count`.
        coefficients: Numbers per channel that are read at each step.
        states: States per channel, read and written at each step.
    """
    return Count(
        layer=name, component="temporal neuron", times=steps, weights_read=NUMBER * coefficients * features,
        state_read=NUMBER * states * features, state_written=NUMBER * states * features,
        activations_read=NUMBER * features, activations_written=SPIKE * features,
        **{kind: number * features for kind, number in operations.items()},
    )  # fmt: skip


def count_temporal(neuron: Any, name: str, steps: float, active: float) -> list[Count]:
    """Count a temporal neuron of any kind that fires `active` spikes per step, and its feedback if it has one.

    Raises:
        CountError: It has no `count`.
    """
    parts = [require_counting(neuron, name).count(name, steps)]
    if hasattr(neuron, "count_feedback"):
        parts.append(neuron.count_feedback(name, steps, active))
    return parts


def count_synapses(linear: Any, name: str, component: str, active: float, times: float) -> Count:
    """Count a Linear on spikes, `active` of them per step on average: each adds its weights to sums that start at the
    bias."""
    outputs = linear.out_features
    return Count(
        layer=name, component=component, times=times, ac=active * outputs,
        weights_read=NUMBER * (active + (linear.bias is not None)) * outputs,
        activations_read=SPIKE * linear.in_features, activations_written=NUMBER * outputs,
    )  # fmt: skip


def count_dense(linear: Any, name: str, component: str, times: float) -> Count:
    """Count a Linear on real values, or an embedding, which moves bytes and computes nothing."""
    inputs, outputs = getattr(linear, "in_features", None), linear.weight.shape[1]
    if inputs is None:
        return Count(layer=name, component=component, times=times, weights_read=NUMBER * outputs,
                     activations_read=NUMBER, activations_written=NUMBER * outputs)  # fmt: skip
    outputs = linear.out_features
    return Count(
        layer=name, component=component, times=times, mac=inputs * outputs,
        weights_read=NUMBER * (inputs + (linear.bias is not None)) * outputs, activations_read=NUMBER * inputs,
        activations_written=NUMBER * outputs,
    )  # fmt: skip


def count_norm(name: str, features: int, times: float) -> Count:
    """Count a norm with running statistics: one factor and one shift per channel."""
    return Count(
        layer=name, component="norm", times=times, multiply=features, add=features, weights_read=NUMBER * 2 * features,
        activations_read=NUMBER * features, activations_written=NUMBER * features,
    )  # fmt: skip


def count_residual(name: str, features: int, times: float) -> Count:
    """Count a shortcut: one addition per channel."""
    return Count(layer=name, component="residual", times=times, add=features,
                 activations_read=NUMBER * 2 * features, activations_written=NUMBER * features)  # fmt: skip


def count_pool(pool: str, features: int, steps: float, vectors: int, active: float | None = None) -> list[Count]:
    """Count a pool over time: a running sum for "mean", one that decays for "leaky", nothing otherwise.

    Args:
        pool: "mean", "leaky", "last" or "none".
        features: Channels.
        steps: Time steps per inference.
        vectors: Pooled vectors per inference.
        active: Spikes per step where the features are spikes: then the sum is a counter that only spikes add to.
    """
    if pool not in ("mean", "leaky"):
        return []
    # A sum that decays is read and written whole, whichever channels fire.
    leaky = pool == "leaky"
    moved = features if active is None or leaky else active
    every = Count(
        layer="pool.sum", component="pool", times=steps, add=features if active is None else 0, ac=active or 0,
        multiply=features if leaky else 0,
        state_read=NUMBER * moved, state_written=NUMBER * moved,
        activations_read=(NUMBER if active is None else SPIKE) * features,
    )  # fmt: skip
    last = Count(layer="pool.mean", component="pool", times=vectors, multiply=features, state_read=NUMBER * features,
                 activations_written=NUMBER * features)  # fmt: skip
    return [every, last]


def rate_of(rates: Mapping[str, float], name: str) -> float:
    """Return the fire rate of a layer.

    Raises:
        CountError: The layer has no rate, or it is not from 0 to 1.
    """
    if name not in rates:
        raise CountError(f"count_ops: rates must have one for {name!r}, got those of {', '.join(rates) or 'no layer'}")
    require_rate("count_ops", f"rates[{name!r}]", rates[name])
    return rates[name]


def require_counting(module: Any, name: str) -> Any:
    """Return a module that counts itself.

    Raises:
        CountError: It has no `count`.
    """
    if not callable(getattr(module, "count", None)):
        where = f" at {name}" if name else ""
        raise CountError(f"count_ops: the {type(module).__name__}{where} has no `count`, so its operations are unknown")
    return module


# What `count_dynamics` makes of PyTorch's elementary operations.
FREE = {
    "abs", "alias", "bitwise_and", "bitwise_not", "bitwise_or", "clone", "detach", "expand", "full_like",
    "lift_fresh", "logical_and", "logical_not", "logical_or", "neg", "ones_like", "squeeze", "unsqueeze", "view",
    "where", "zeros_like", "_to_copy",
}  # fmt: skip
ADDITIONS = {"add", "sub", "rsub"}
COMPARISONS = {"eq", "ne", "ge", "gt", "le", "lt", "maximum", "minimum", "clamp_min", "clamp_max", "relu", "sign"}
NONLINEAR = {
    "div", "reciprocal", "exp", "exp2", "expm1", "log", "log1p", "log2", "sqrt", "rsqrt", "sin", "cos", "tan", "atan",
    "sinh", "cosh", "tanh", "sigmoid", "erf", "softplus", "gelu", "silu", "elu",
}  # fmt: skip
LARGEST_POWER = 16


def count_dynamics(
    dynamics: Callable[..., Any], states: Sequence[str], coefficients: Iterable[str]
) -> dict[str, float]:
    """Count the operations of one time step of one channel by running `dynamics` once.

    A spike is one comparison, which includes the last subtraction of its argument (u - V is compared with 0 as u is
    with V). Selecting by a spike, whether by `where` or by a product, detaching and a change of sign cost nothing.
    Operations on coefficients alone are counted too; move them to `coefficients`, which runs once per call.

    Args:
        dynamics: `dynamics(current, state, c, spike)`, see `resofire.nn.Neuron`.
        states: Names of the states.
        coefficients: Names of the coefficients.

    Returns:
        multiply, add, compare and nonlinear per channel and time step.

    Raises:
        CountError: An operation whose cost is not known, by name.
    """
    names = tuple(states)
    state = namedtuple("State", names)(*(torch.ones(1) for _ in names))
    constants = SimpleNamespace(**{name: torch.ones(1) for name in coefficients})
    with torch.no_grad(), _Counter() as counter:
        _, after = dynamics(torch.ones(1), state, constants, counter.spike)
        counter.used(*(after.values() if isinstance(after, Mapping) else after))
    return counter.counted


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counted: dict[str, float] = dict.fromkeys(("multiply", "add", "compare", "nonlinear"), 0)
        # By identity. The tensors are kept, so that no other gets the same.
        self._alive: list[Tensor] = []
        self._differences: set[int] = set()
        self._absorbed: set[int] = set()
        self._bits: set[int] = set()

    def spike(self, x: Tensor) -> Tensor:
        self.counted["compare"] += 1
        if id(x) in self._differences:
            self.counted["add"] -= 1
            self._differences.discard(id(x))
            self._absorbed.add(id(x))
        fired = torch.ones(1)
        self._keep(fired, self._bits)
        return fired

    def used(self, *values: Any) -> None:
        """A difference that is needed for more than a spike has to be computed after all."""
        for value in values:
            self._differences.discard(id(value))
            if id(value) in self._absorbed:
                self._absorbed.discard(id(value))
                self.counted["add"] += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        name = name if name.startswith("_") else name.rstrip("_")
        tensors = [each for each in args if isinstance(each, Tensor)]
        if not tensors:
            return out  # A constant.
        self.used(*tensors)
        bits = [id(each) in self._bits for each in tensors]
        if name in FREE or (name in COMPARISONS and all(bits)):
            # What is made of spikes alone is a spike, or its complement.
            self._keep(out, self._bits if all(bits) else None)
        elif name in ADDITIONS:
            complement = name == "rsub" and all(bits) and args[1] == 1
            self.counted["add"] += not complement
            self.counted["multiply"] += kwargs.get("alpha", 1) not in (1, -1)
            self._keep(out, self._bits if complement else self._differences)
        elif name == "mul":
            self.counted["multiply"] += not any(bits)
            self._keep(out, self._bits if all(bits) and len(bits) > 1 else None)
        elif name == "pow" and isinstance(args[1], int | float) and args[1] in range(1, LARGEST_POWER + 1):
            # By repeated squaring.
            power = int(args[1])
            self.counted["multiply"] += power.bit_length() - 1 + power.bit_count() - 1
        elif name in ("addcmul", "lerp"):
            self.counted["multiply"] += 1
            self.counted["add"] += 1 if name == "addcmul" else 2
        elif name == "clamp":
            self.counted["compare"] += sum(bound is not None for bound in (*args[1:], *kwargs.values()))
        elif name in COMPARISONS:
            self.counted["compare"] += 1
            self._keep(out, self._bits if out.dtype == torch.bool else None)
        elif name in NONLINEAR or name == "pow":
            self.counted["nonlinear"] += 1
        else:
            raise CountError(f"count_dynamics: the cost of {name!r} is not known; give the neuron a `count` of its own")
        return out

    def _keep(self, tensor: Tensor, kind: set[int] | None) -> None:
        self._alive.append(tensor)
        if kind is not None:
            kind.add(id(tensor))


def require_positive(owner: str, name: str, value: float) -> None:
    if not is_number(value) or not 0 < value < float("inf"):
        raise ValueError(f"{owner}: {name} must be a positive number, got {value!r}")


def require_rate(owner: str, name: str, value: float) -> None:
    if not is_number(value) or not 0 <= value <= 1:
        raise CountError(f"{owner}: {name} must be a rate from 0 to 1, got {value!r}")


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    """Convert a Fraction, which keeps counts exact, to a number for JSON."""
    return value if isinstance(value, str | int | float) else float(value)
