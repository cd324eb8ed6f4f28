"""The base class of temporal neurons: an equation of one time step, and everything that follows from it.

A neuron holds parameters and says how one step of one channel goes (`states`, `coefficients`, `dynamics`). The base
class runs it over whole, packed, reversed or carried sequences, step by step, and records it. State is passed in and
returned, never kept.
"""

import inspect
import math
from collections import namedtuple
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..ops import ATan, Surrogate, equation
from ..ops.checks import require_choice, require_count, require_real, require_surrogate
from ..ops.registry import names
from .config import Configurable
from .counts import Count, CountError, count_dynamics, count_neuron
from .firing import Firing
from .folded import Array, FoldError, Neurons, to_array
from .folded import equation as fold_equation


class Trace:
    """A recorded sequence: `spikes`, `argument` (what `spike` was called with) and every state, each [B, T, N].

    States are attributes by their names and hold the value after each step, that is after the reset.

    Args:
        spikes: The spikes.
        states: Every state by its name.
        argument: What `spike` was called with.
    """

    def __init__(self, spikes: Tensor, states: Mapping[str, Tensor], argument: Tensor) -> None:
        self.spikes, self.states, self.argument = spikes, dict(states), argument

    def __getattr__(self, name: str) -> Tensor:
        states = self.__dict__.get("states", {})
        if name not in states:
            raise AttributeError(f"a trace has spikes, argument, {', '.join(states)}; there is no {name!r}")
        return states[name]


class _Registered(type):
    """Metaclass that registers the graph of a neuron's equation at the end of `__init__`.

    torch.compile and torch.export use that graph, as they cannot follow the tracing. A plain call traces again when a
    setting changes.
    """

    def __call__(cls, *args: Any, **settings: Any) -> Any:
        neuron = super().__call__(*args, **settings)
        if "features" not in vars(neuron):
            raise TypeError(f"{cls.__name__}: __init__ must call super().__init__(features, surrogate=surrogate)")
        _require_signature(neuron)
        try:
            with torch.no_grad():
                neuron._graph_key = equation.register(neuron._equation(torch.empty(1, 0, neuron.features)))
        except equation.BranchError:
            raise
        except Exception:
            # An error in the equation is raised when it runs; one that cannot be compiled runs as a loop.
            pass
        return neuron

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of `__init__`, which `__call__` would hide from help and editors."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc] # on the class, on purpose
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _require_signature(neuron: Any) -> None:
    """Refuse a `dynamics` that does not take its four arguments, such as one without `self` or `@staticmethod`."""
    try:
        inspect.signature(neuron.dynamics).bind("current", "state", "c", "spike")
    except TypeError:
        owner = type(neuron).__name__
        raise TypeError(
            f"{owner}: dynamics must take (current, state, c, spike), as a @staticmethod or as a method behind self"
        ) from None


class Neuron(Firing, Configurable, metaclass=_Registered):
    """A temporal neuron over `features` channels, defined by the equation of one time step.

    A subclass gives `states`, `coefficients` and `dynamics`; it gets `config`, `forward`, `scan`, `step`,
    `init_state`, `trace`, `explain` and fire-rate reports.

    Args:
        features: Number of channels.
        surrogate: The derivative used for the spike.

    Example:
        >>> class ALIF(nn.Neuron):
        ...     states = ("u", "a")
        ...     def __init__(self, features, *, tau=20.0, tau_adapt=200.0, kappa=1.8, surrogate=ATan()):
        ...         super().__init__(features, surrogate=surrogate)
        ...         self.beta, self.rho, self.kappa = math.exp(-1 / tau), math.exp(-1 / tau_adapt), kappa
        ...     def coefficients(self):
        ...         return {name: torch.tensor(getattr(self, name)) for name in ("beta", "rho", "kappa")}
        ...     @staticmethod
        ...     def dynamics(current, state, c, spike):
        ...         u = c.beta * state.u + current
        ...         s = spike(u - 1 - c.kappa * state.a)
        ...         return s, {"u": u - s.detach(), "a": c.rho * state.a + s}
    """

    states: ClassVar[tuple[str, ...]] = ()
    """The names of the per-channel states, zero at the start. May be a property."""
    _graph_key: str | None = None

    def __init__(self, features: int, *, surrogate: Surrogate = ATan()) -> None:  # noqa: B008 - frozen
        super().__init__()
        owner = type(self).__name__
        require_count(owner, "features", features)
        require_surrogate(owner, surrogate)
        if isinstance(self.states, str) or not all(isinstance(each, str) for each in self.states):
            raise TypeError(f'{owner}: states must be a tuple of names such as ("u", "a"), got {self.states!r}')
        self.features, self.surrogate = features, surrogate

    def coefficients(self) -> dict[str, Tensor]:
        """The coefficients of `dynamics` by name, each [] or [features], differentiable. Called once per sequence."""
        return {}

    def rows(self) -> Tensor:
        """The coefficients in their order as one tensor [C, features]."""
        return torch.stack([value.expand(self.features) for value in self.coefficients().values()])

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        """One step of one channel, in elementwise torch and nothing else.

        It may be a static method, or a method that reads Python settings (never tensors) from `self`.

        Args:
            current: The input of this step.
            state: The states after the last step, as attributes.
            c: The coefficients, as attributes.
            spike: `spike(x)` is 1 where x ≥ 0 and 0 elsewhere, with the surrogate's derivative.

        Returns:
            The spikes, and the next value of every state by name.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define dynamics")

    def forward(self, x: Tensor, *, cu_seqlens: Tensor | None = None, reverse: bool = False) -> Tensor:
        """Spikes of whole sequences from a zero state: [B, T, N] to [B, T, N]; options as in `scan`."""
        return self.scan(x, None, cu_seqlens=cu_seqlens, reverse=reverse)[0]

    def scan(
        self, x: Tensor, state: Any = None, *, cu_seqlens: Tensor | None = None, reverse: bool = False
    ) -> tuple[Tensor, Any]:
        """Run whole sequences from a state.

        Args:
            x: Input current, [B, T, N]; packed sequences are [1, S, N] with `cu_seqlens`.
            state: The state that `scan`, `step` or `init_state` returned, each field [B, N]; None is zero.
            cu_seqlens: Bounds of packed sequences, int32 [B + 1] from 0 to S.
            reverse: Run each sequence from its end; the spikes stay at their places.

        Returns:
            The spikes, shaped like `x`, and the state after the last step.
        """
        spikes, last = equation.scan(self._equation(x), x, state, cu_seqlens, reverse)
        return self._report_spikes(spikes), last

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Advance one time step: [B, N] and a state (None: zero) to the spikes [B, N] and the next state."""
        spikes, last = equation.step(self._equation(x), x, state)
        return self._report_spikes(spikes), last

    def init_state(self, batch: int) -> Any:
        """The zero state of `batch` sequences, each field [B, N]. `scan` and `step` take None for the same."""
        like = next((value for value in (*self.parameters(), *self.buffers()) if value.is_floating_point()), None)
        device = None if like is None else like.device
        dtype = torch.float64 if like is not None and like.dtype == torch.float64 else torch.float32
        return self.state_type(*(torch.zeros(batch, self.features, dtype=dtype, device=device) for _ in self.states))

    def trace(self, x: Tensor) -> Trace:
        """Record whole sequences [B, T, N] without gradient: spikes, every state, the argument of `spike`."""
        spikes, states, argument = equation.record(self._equation(x), x)
        return Trace(spikes, states._asdict(), argument)

    def explain(self, x: Tensor) -> str:
        """Which backend runs this input, and why the others do not."""
        call = self._equation(x)
        reasons = {"scan": equation.why_not_compiled(call, x), "triton": equation.why_not_triton(call, x)}
        chosen = next((name for name, reason in reasons.items() if reason is None), None)
        others = [f"{name}: {reason}" for name, reason in reasons.items() if reason is not None]
        if chosen is None:
            return "\n".join(["loop: runs `dynamics` step by step under autograd (the definition)", *others])
        return "\n".join([f"{chosen}: compiled from `dynamics`", *others, "loop: the definition, slower"])

    @property
    def state_type(self) -> Any:
        """The NamedTuple of the states."""
        return _namedtuple(f"{type(self).__name__}State", tuple(self.states))

    def _equation(self, x: Tensor) -> equation.Dynamics:
        """The equation with the coefficients of this call, in the precision of the state."""
        owner = type(self).__name__
        self._require_channels(x)
        values = self.coefficients()
        if not isinstance(values, Mapping):
            kind = type(values).__name__
            raise TypeError(f"{owner}: coefficients must return a dict of tensors by name, got a {kind}")
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        for name, value in values.items():
            if not isinstance(value, Tensor):
                kind = type(value).__name__
                raise TypeError(f"{owner}: coefficient {name} must be a tensor, got the {kind} {value!r:.40}")
            if value.shape not in ((), (self.features,)):
                form = list(value.shape)
                raise ValueError(f"{owner}: coefficient {name} must have shape [] or [{self.features}], got {form}")
        c = _namedtuple(f"{owner}Coefficients", tuple(values))(*(v.to(x.device, dtype) for v in values.values()))
        return equation.Dynamics(owner, self.dynamics, self.state_type, c, self.surrogate, key=self._graph_key)

    def extra_repr(self) -> str:
        return f"{self.features}, {self.surrogate}"

    def _require_channels(self, x: Tensor) -> None:
        owner = type(self).__name__
        if not isinstance(x, Tensor):
            raise TypeError(f"{owner}: the input must be a tensor, got {type(x).__name__}")
        if x.dim() == 0 or x.shape[-1] != self.features:
            form = list(x.shape)
            raise ValueError(f"{owner}: the input must have {self.features} channels in its last dimension, got {form}")

    def _keep_log(self, name: str, value: Tensor, trained: bool) -> None:
        """Store a positive quantity as the parameter `log_<name>` if trained, otherwise as the buffer `<name>`."""
        if trained:
            self.register_parameter(f"log_{name}", nn.Parameter(value.log()))
        else:
            self.register_buffer(name, value)

    def _value(self, name: str) -> Tensor:
        """The quantity that `_keep_log` stored."""
        log = self._parameters.get(f"log_{name}")
        return in_full(self.get_buffer(name)) if log is None else in_full(log).exp()

    def count(self, name: str, steps: float) -> Count:
        """Count the operations of `steps` time steps by running `dynamics` once.

        Args:
            name: The layer's name in its network.
            steps: Time steps per inference.

        Raises:
            CountError: The neuron has no `dynamics`, or it uses an operation whose cost is not known.
        """
        if type(self).dynamics is Neuron.dynamics:
            kind = type(self).__name__
            raise CountError(f"count_ops: the {kind} at {name} has neither `dynamics` nor its own `count`")
        coefficients = self.coefficients()
        operations = count_dynamics(self.dynamics, self.states, coefficients)
        # Coefficients shared by all channels stay in a register.
        read = sum(each.dim() > 0 for each in coefficients.values())
        return count_neuron(name, self.features, steps, operations, coefficients=read, states=len(self.states))

    @torch.no_grad()
    def fold(self, a: Array, b: Array) -> Neurons:
        """These neurons as arrays and a graph, reading a z + b; see `resofire.nn.folded`.

        Raises:
            FoldError: They have no equation of one step, or one that cannot be compiled or counted.
        """
        if type(self).dynamics is Neuron.dynamics:
            raise FoldError(self, "it has no equation of one time step (`dynamics`)")
        call = self._equation(torch.zeros(1, self.features, dtype=torch.float64))
        try:
            program = equation.program_of(call)
            operations = count_dynamics(self.dynamics, self.states, call.coefficients._fields)
        except equation.Untraceable as error:
            raise FoldError(self, f"`dynamics` cannot be compiled: {error}") from None
        except CountError as error:
            raise FoldError(self, str(error)) from None
        values = tuple(map(to_array, call.coefficients))
        return fold_equation(type(self).__name__, program, values, operations, a=a, b=b)


# NamedTuples of states and coefficients. (torch.compile warns of `lru_cache`.)
_named_types: dict[tuple[str, tuple[str, ...]], Any] = {}


def _namedtuple(name: str, fields: tuple[str, ...]) -> Any:
    type_ = _named_types.get((name, fields))
    if type_ is None:
        type_ = _named_types[name, fields] = namedtuple(name, fields)
    return type_


def zero_state(neuron: Any, batch: int) -> Any:
    """The zero state of a module with `init_state`; None, which means the same, for one without."""
    return neuron.init_state(batch) if hasattr(neuron, "init_state") else None


def autocast_on(x: Tensor) -> bool:
    """Whether autocast is on for the device of x; some devices do not have it."""
    return torch.amp.is_autocast_available(x.device.type) and torch.is_autocast_enabled(x.device.type)


def in_full(value: Tensor) -> Tensor:
    """Convert half precision to float32: bfloat16 would round a decay of 0.9995 to 1."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def require_settings(
    op: str, owner: str, *, threshold: float, reset: str, resets: tuple[str, ...], reset_gradient: str,
    surrogate: Surrogate, backend: str,
) -> None:  # fmt: skip
    """Check the settings that PRF and LIF share."""
    require_real(owner, "threshold", threshold)
    if isinstance(threshold, Tensor):
        raise TypeError(f"{owner}: threshold must be a number, got a tensor; resofire.ops.{op} takes tensors")
    require_choice(owner, "reset", reset, resets)
    require_choice(owner, "reset_gradient", reset_gradient, ("detached", "full"))
    require_choice(owner, "backend", backend, ("auto", *names(op)))
    require_surrogate(owner, surrogate)


def sample(
    owner: str,
    name: str,
    value: float | tuple[float, float],
    features: int,
    *,
    log: bool = False,
    evenly_spaced: bool = False,
) -> Tensor:
    """Initial values [features]: a constant, or sampled from a range (low, high), uniformly or log-uniformly (`log`).

    With `evenly_spaced` they are evenly spaced over the range, in random order. `owner` and `name` are for errors.
    """
    require_range(owner, name, value)
    if not isinstance(value, tuple):
        return torch.full((features,), float(value))
    low, high = value
    if log:
        require_above(owner, name, value, 0)
        low, high = math.log(low), math.log(high)
    if evenly_spaced:
        values = low + (high - low) * (torch.randperm(features) + 0.5) / features
    else:
        values = torch.empty(features).uniform_(low, high)
    return values.exp() if log else values


def require_range(owner: str, name: str, value: float | tuple[float, float]) -> None:
    """Require a number or a pair (low, high). A list is refused: it might mean two ends or two channels."""
    ends = value if isinstance(value, tuple) else (value, value)
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in ends)
    if len(ends) != 2 or not numbers or ends[0] > ends[1]:
        raise ValueError(f"{owner}: {name} must be a number or a pair (low, high) with low ≤ high, got {value!r}")


def require_above(owner: str, name: str, value: float | tuple[float, float], least: float) -> None:
    """Require a number, or a pair's lower end, above `least`: for quantities kept as logarithms."""
    require_range(owner, name, value)
    if not (value[0] if isinstance(value, tuple) else value) > least:
        raise ValueError(f"{owner}: {name} must be above {least:g}, got {value!r}")


def show_range(values: Tensor) -> str:
    """The range of some values for `repr`: one number if they are all equal."""
    if values.is_meta:
        return "?"
    low, high = (f"{float(x):.3g}" for x in torch.aminmax(values.detach()))
    return low if low == high else f"{low}…{high}"
