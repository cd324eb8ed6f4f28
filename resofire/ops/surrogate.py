"""Surrogate derivatives. A spike is a step function, whose true derivative is useless for training.

A surrogate is a frozen dataclass. Its fields are numbers; `derivative` is the definition, in torch; `numba` and
`triton` are the same function of one element, for the fused backends. To write your own:

    @dataclass(frozen=True)
    class Lorentz(Surrogate):
        width: float = 1.0

        def derivative(self, x):
            return 1 / (1 + (x / self.width) ** 2)

        @staticmethod
        def numba(x, width):                # optional: without it the `scan` backend is not available
            y = x / width
            return like(x, 1) / (like(x, 1) + y * y)

If the `numba` form uses nothing but + - * / and `like`, set `vector: ClassVar[bool] = True`: it then runs on whole
vectors, which is faster. Operators receive a surrogate as its `name`, a string unique to its class, and its numbers.
`x` is always the potential above the threshold, u - V.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Never

import torch
from torch import Tensor
from torch.autograd import forward_ad

_BY_NAME: dict[str, type["Surrogate"]] = {}


@dataclass(frozen=True)
class Surrogate:
    """Base class of surrogate derivatives: subclass it as a frozen dataclass whose fields are all numbers.

    Attributes:
        name: Unique name of the class, set when the class is defined.
        numba: Optional form for the `scan` backend, `numba(x, *numbers)` of one element.
        vector: Whether `numba` also works on whole vectors: it uses nothing but + - * / and `like`.
        triton: Optional form for the `triton` backend, a `triton.jit` function `(x, *numbers)`.

    Example:
        >>> @dataclass(frozen=True)
        ... class Lorentz(Surrogate):
        ...     width: float = 1.0
        ...
        ...     def derivative(self, x):
        ...         return 1 / (1 + (x / self.width) ** 2)
        >>> spikes, state = lif(current, 0.9, surrogate=Lorentz(0.5))
    """

    name: ClassVar[str]
    numba: ClassVar[Callable[..., float] | None] = None
    vector: ClassVar[bool] = False
    triton: ClassVar[Any] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "derivative" in cls.__dict__:
            # A new derivative: the compiled forms of the parent class do not match it.
            cls.numba, cls.vector, cls.triton = (
                cls.__dict__.get(form, missing)
                for form, missing in (("numba", None), ("vector", False), ("triton", None))
            )
        # Built-in surrogates use their class name. User classes may reuse any name, so theirs is made unique.
        name = cls.__name__ if cls.__module__ == __name__ else f"{cls.__module__}.{cls.__qualname__}"
        count = sum(other == name or other.startswith(f"{name}#") for other in _BY_NAME)
        cls.name = f"{name}#{count + 1}" if count else name
        _BY_NAME[cls.name] = cls

    def derivative(self, x: Tensor) -> Tensor:
        """Evaluate the surrogate at x = u - V, elementwise.

        Args:
            x: Potential above the threshold, any shape.

        Returns:
            The derivative of the spike, like `x`.

        Raises:
            NotImplementedError: If the subclass does not define it.
        """
        raise NotImplementedError(f"surrogate {type(self).__name__} does not define derivative(x)")

    @property
    def numbers(self) -> list[float]:
        """The fields as floats, in order of definition.

        Raises:
            TypeError: If a field is not a number.
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, Real):
                raise TypeError(f"{type(self).__name__}: {name} must be a number, got {value!r}")
        return [float(value) for value in values.values()]


def surrogate_from(name: str, numbers: list[float]) -> Surrogate:
    """Rebuild a surrogate from its name and numbers, the form in which operators receive it."""
    return _BY_NAME[name](*numbers)


def like(x: float, value: float) -> float:
    """`value` in the type of `x`. In compiled code a bare 1.0 is a float64 and promotes the whole formula."""
    return value


def _positive(surrogate: Surrogate, field: str) -> None:
    value = getattr(surrogate, field)
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{type(surrogate).__name__}: {field} must be a positive number, got {value!r}")


@dataclass(frozen=True)
class ATan(Surrogate):
    """Arctangent surrogate (α/2) / (1 + (πα x / 2)²): the paper's choice, with α = 2.

    Args:
        alpha: Sharpness α; the peak is α/2.

    Raises:
        ValueError: If alpha is not a positive number.
    """

    vector: ClassVar[bool] = True
    alpha: float = 2.0

    def __post_init__(self) -> None:
        _positive(self, "alpha")

    def derivative(self, x: Tensor) -> Tensor:
        return (self.alpha / 2) / (1 + (math.pi / 2 * self.alpha * x) ** 2)

    @staticmethod
    def numba(x: float, alpha: float) -> float:
        y = like(x, math.pi / 2) * alpha * x
        return like(x, 0.5) * alpha / (like(x, 1.0) + y * y)


@dataclass(frozen=True)
class Triangle(Surrogate):
    """Triangle surrogate max(0, 1 - |x| / width) / width, of area one.

    Args:
        width: Distance from the threshold at which the derivative becomes 0.

    Raises:
        ValueError: If width is not a positive number.
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "width")

    def derivative(self, x: Tensor) -> Tensor:
        return torch.clamp(1 - x.abs() / self.width, min=0) / self.width

    @staticmethod
    def numba(x: float, width: float) -> float:
        return max(like(x, 1.0) - abs(x) / width, like(x, 0.0)) / width


@dataclass(frozen=True)
class Sigmoid(Surrogate):
    """Sigmoid surrogate α σ(αx) (1 - σ(αx)), the derivative of a logistic function.

    Args:
        alpha: Sharpness α; the peak is α/4.

    Raises:
        ValueError: If alpha is not a positive number.
    """

    alpha: float = 4.0

    def __post_init__(self) -> None:
        _positive(self, "alpha")

    def derivative(self, x: Tensor) -> Tensor:
        e = torch.exp(-(self.alpha * x).abs())
        return self.alpha * e / (1 + e) ** 2

    @staticmethod
    def numba(x: float, alpha: float) -> float:
        e = math.exp(-abs(alpha * x))
        one_plus = like(x, 1.0) + e
        return alpha * e / (one_plus * one_plus)


@dataclass(frozen=True)
class Rectangle(Surrogate):
    """Rectangle surrogate: 1 / width where |x| < width / 2, else 0.

    Args:
        width: Width of the window around the threshold.

    Raises:
        ValueError: If width is not a positive number.
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "width")

    def derivative(self, x: Tensor) -> Tensor:
        return (x.abs() < self.width / 2).to(x.dtype) / self.width

    @staticmethod
    def numba(x: float, width: float) -> float:
        inside = abs(x) < like(x, 0.5) * width
        return like(x, 1.0) / width if inside else like(x, 0.0)


DOUBLE_BACKWARD = (
    "a second derivative (double backward) of {op} does not exist: the surrogate stands in for the spike's first "
    "derivative only; call backward without create_graph"
)


def refuse_double_backward(op: str) -> Never:
    """Raise RuntimeError: `op` has no second derivative."""
    raise RuntimeError(DOUBLE_BACKWARD.format(op=op))


def refuse_forward_mode(op: str, *tensors: Tensor | None) -> None:
    """Raise RuntimeError if a tensor carries a forward-mode tangent, which a custom operator would silently drop."""
    if torch.compiler.is_compiling():
        return
    if any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise RuntimeError(
            f"forward-mode differentiation (torch.func.jvp) of {op} is not supported; use reverse mode "
            f"(backward, torch.func.vjp)"
        )


class _Slope(torch.autograd.Function):
    """grad * σ'(x), as a separate function so that differentiating it again raises our error."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, x: Tensor, surrogate: Surrogate) -> Tensor:
        return grad * surrogate.derivative(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Never:
        refuse_double_backward("a spike")


class _Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, fired: Tensor, surrogate: Surrogate) -> Tensor:
        ctx.save_for_backward(x)
        ctx.surrogate = surrogate
        return fired.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return _Slope.apply(grads[0], x, ctx.surrogate), None, None


def spike(x: Tensor, surrogate: Surrogate, fired: Tensor | None = None) -> Tensor:
    """1 where x ≥ 0 (a tie fires), else 0, with the surrogate's gradient.

    If `fired` is passed, it decides which elements fire and x only carries the gradient.
    """
    return _Spike.apply(x, x >= 0 if fired is None else fired, surrogate)
