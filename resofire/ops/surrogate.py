"""The derivative that stands in for a spike's: a spike is a step, and its true derivative is no use to training.

A surrogate is a frozen dataclass. Its fields are its numbers, `derivative` is the definition, in torch; `numba` and
`triton` are the same function of one element, for the fused backends. To write your own:

    @dataclass(frozen=True)
    class Lorentz(Surrogate):
        width: float = 1.0

        def derivative(self, x):
            return 1 / (1 + (x / self.width) ** 2)

        @staticmethod
        def numba(x, width):                # optional: without it the `scan` backend says that it is missing
            y = x / width
            return like(x, 1) / (like(x, 1) + y * y)

If the `numba` form uses nothing but + - * / and `like`, say `vector: ClassVar[bool] = True`: it then runs on whole
vectors, which is faster. Inside an operator a surrogate travels as its `name`, given to its class when that is defined,
and its numbers. `x` is always the potential above the threshold, u - V.
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
    """Base of all surrogates: subclass it as a frozen dataclass whose fields are all numbers."""

    name: ClassVar[str]
    numba: ClassVar[Callable[..., float] | None] = None
    vector: ClassVar[bool] = False
    triton: ClassVar[Any] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "derivative" in cls.__dict__:
            # Another derivative: the forms of the class it was derived from no longer go with it.
            cls.numba, cls.vector, cls.triton = (
                cls.__dict__.get(form, missing)
                for form, missing in (("numba", None), ("vector", False), ("triton", None))
            )
        # Ours go by their class name. A user's may bear any name, also one of ours, also the same one again.
        name = cls.__name__ if cls.__module__ == __name__ else f"{cls.__module__}.{cls.__qualname__}"
        count = sum(other == name or other.startswith(f"{name}#") for other in _BY_NAME)
        cls.name = f"{name}#{count + 1}" if count else name
        _BY_NAME[cls.name] = cls

    def derivative(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"surrogate {type(self).__name__} does not define derivative(x)")

    @property
    def numbers(self) -> list[float]:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, Real):
                raise TypeError(f"{type(self).__name__}: {name} must be a number, got {value!r}")
        return [float(value) for value in values.values()]


def surrogate_from(name: str, numbers: list[float]) -> Surrogate:
    """The surrogate that an operator was handed as a name and its numbers."""
    return _BY_NAME[name](*numbers)


def like(x: float, value: float) -> float:
    """`value` in the type of `x`. In compiled code a bare 1.0 is a float64 and drags the whole formula up with it."""
    return value


def _positive(surrogate: Surrogate, field: str) -> None:
    value = getattr(surrogate, field)
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{type(surrogate).__name__}: {field} must be a positive number, got {value!r}")


@dataclass(frozen=True)
class ATan(Surrogate):
    """(α/2) / (1 + (πα x / 2)²): the paper's choice, with α = 2."""

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
    """max(0, 1 - |x| / width) / width: a hat of area one."""

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
    """α σ(αx) (1 - σ(αx)): the slope of a logistic curve."""

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
    """1 / width where |x| < width / 2, else 0."""

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
    raise RuntimeError(DOUBLE_BACKWARD.format(op=op))


def refuse_forward_mode(op: str, *tensors: Tensor | None) -> None:
    """Raise if a tensor carries a forward-mode tangent: a custom operator would drop it, and the derivative with it."""
    if torch.compiler.is_compiling():
        return
    if any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise RuntimeError(
            f"forward-mode differentiation (torch.func.jvp) of {op} is not supported; use reverse mode "
            f"(backward, torch.func.vjp)"
        )


class _Slope(torch.autograd.Function):
    """grad * σ'(x), as a function of its own so that differentiating it again is refused in our words."""

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

    `fired` gives the decision where it has been taken elsewhere; then x only carries the gradient.
    """
    return _Spike.apply(x, x >= 0 if fired is None else fired, surrogate)
