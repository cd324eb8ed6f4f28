"""What the tests of the neurons share: ready-made calls, and the comparison that DESIGN's agreement asks for."""

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from resofire.ops import ATan, LIFState, PRFState, lif, prf, prf_coefficients
from resofire.ops.lif import reference as lif_reference
from resofire.ops.prf import reference as prf_reference
from resofire.ops.registry import names

BACKENDS = [(op, backend) for op in ("prf", "lif") for backend in names(op)]
IDS = [f"{op}-{backend}" for op, backend in BACKENDS]

OPTIONS: dict[str, list[dict[str, str]]] = {
    "prf": [{"reset": "none"}, {"reset": "soft"}, {"reset": "soft", "reset_gradient": "full"}],
    "lif": [
        {"reset": "none"},
        {"reset": "soft"},
        {"reset": "soft", "reset_gradient": "full"},
        {"reset": "hard"},
        {"reset": "hard", "reset_gradient": "full"},
    ],
}


def can(backend: str, options: dict[str, Any]) -> bool:
    """Whether a backend is meant to run with these options; that the FFT refuses the others has a test of its own."""
    return backend != "fft" or (options.get("reset") != "hard" and "reset_gradient" not in options)


def cases(sizes: list[Any], dtypes: list[torch.dtype], *, every_reset: bool = True) -> list[Any]:
    """(op, backend, options, size, dtype) of all calls that can be compared with the float64 reference.

    The float64 reference itself is left out, and long sequences in Triton's interpreter. Its larger runs are deep, so
    are lengths 784 and, except for the first reset, 1, and every reset but the detached soft one unless `every_reset`.
    """
    params = []
    for (op, backend), size, dtype in itertools.product(BACKENDS, sizes, dtypes):
        if (backend, dtype) == ("reference", torch.float64) or (backend == "triton" and size[0] * size[1] > 130):
            continue
        for options in OPTIONS[op]:
            if not can(backend, options):
                continue
            small = size in ((1, 1, 1), (2, 63, 5))
            interpreted = backend == "triton" and not small and (size != sizes[-1] or dtype != dtypes[0])
            long = size == (1, 784, 33) or (size == (1, 1, 1) and options != OPTIONS[op][0])
            deep = interpreted or long or (not every_reset and options != {"reset": "soft"})
            name = "-".join(
                [op, backend, *options.values(), "x".join(map(str, size)), str(dtype).removeprefix("torch.")]
            )
            marks = [pytest.mark.deep] if deep else []
            params.append(pytest.param(op, backend, options, size, dtype, id=name, marks=marks))
    return params


@dataclass
class Inputs:
    """The tensors of one call, all leaves, so that each gets a gradient."""

    op: str
    current: Tensor
    coefficients: dict[str, Tensor]
    state: tuple[Tensor, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def to(self, dtype: torch.dtype) -> "Inputs":
        def leaf(x: Tensor) -> Tensor:
            # Strides are part of the case: `detach` keeps them where `clone` might not.
            return x.detach().to(dtype).requires_grad_()

        coefficients = {name: leaf(x) for name, x in self.coefficients.items()}
        return Inputs(self.op, leaf(self.current), coefficients, tuple(map(leaf, self.state)), self.kwargs)

    def run(self, backend: str, **more: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        function, state = (prf, PRFState) if self.op == "prf" else (lif, LIFState)
        kwargs = {"state": state(*self.state), **self.kwargs, **more}
        return function(self.current, backend=backend, **self.coefficients, **kwargs)

    def leaves(self) -> dict[str, Tensor]:
        states = {f"state.{i}": x for i, x in enumerate(self.state)}
        return {"current": self.current, **self.coefficients, **states}


def make(
    op: str, batch: int, length: int, lanes: int, kind: str = "random", sequences: int | None = None, **kwargs: Any
) -> Inputs:
    """A call in float64 whose neurons fire now and then. Values are such that float32 holds them exactly."""
    shape = (batch, length, lanes)
    current = {
        "random": lambda: 2 * torch.randn(shape),
        "threshold": lambda: torch.ones(shape),
        "huge": lambda: 1e6 * torch.randn(shape),
        "tiny": lambda: 1e-30 * torch.randn(shape),
        "zero": lambda: torch.zeros(shape),
    }[kind]()
    count = sequences or batch
    states = tuple(torch.randn(count, lanes) for _ in range(2 if op == "prf" else 1))
    threshold = torch.linspace(0.7, 1.2, lanes) if kind == "random" else torch.ones(lanes)
    if op == "prf":
        delta, theta, tau = 0.1 + 0.6 * torch.rand(lanes), 6 * torch.rand(lanes), 1 + 9 * torch.rand(lanes)
        phi_re, phi_im = prf_coefficients(delta, theta, tau)
        coefficients = {"phi_re": phi_re, "phi_im": phi_im, "delta": delta, "threshold": threshold}
    else:
        coefficients = {"beta": torch.linspace(0.3, 0.95, lanes), "threshold": threshold}
    if kind != "random":
        states = tuple(torch.zeros_like(x) for x in states)
    return Inputs(op, current, coefficients, states, kwargs).to(torch.float64)


def peaks(inputs: Inputs) -> Tensor:
    """The potential before each threshold comparison, [B, T, N], by the reference."""
    assert not inputs.kwargs.get("reverse")
    assert inputs.kwargs.get("cu_seqlens") is None
    reset = inputs.kwargs.get("reset", "none")
    rows = torch.stack(list(inputs.coefficients.values())).detach()
    module: Any = prf_reference if inputs.op == "prf" else lif_reference
    state, c, above = module.State(*(x.detach() for x in inputs.state)), module.Coefficients(*rows), []

    def spike(x: Tensor) -> Tensor:
        above.append(x)
        return (x >= 0).to(x.dtype)

    for t in range(inputs.current.shape[1]):
        _, after = module.dynamics(inputs.current.detach()[:, t], state, c, spike, reset=reset, full=False)
        state = module.State(**after)
    return torch.stack(above, 1) + c.threshold


def contributions(inputs: Inputs, grad: Tensor) -> dict[str, Tensor]:
    """Σ |contribution| of every step and sequence to each coefficient's gradient, [N]: what rounding is relative to."""
    batch, length, lanes = inputs.current.shape
    reset, full = inputs.kwargs.get("reset", "none"), inputs.kwargs.get("reset_gradient") == "full"
    rows = torch.stack(list(inputs.coefficients.values())).detach()
    spread = rows[:, None, None].expand(-1, batch, length, lanes).clone().requires_grad_()
    state, spikes = [x.detach() for x in inputs.state], []
    module: Any = prf_reference if inputs.op == "prf" else lif_reference
    for t in range(length):
        s, *state = module.step(inputs.current.detach()[:, t], spread[:, :, t], *state, reset, full, ATan())
        spikes.append(s)
    ((torch.stack(spikes, 1) * grad).sum() + sum(x.sum() for x in state)).backward()
    assert spread.grad is not None
    return dict(zip(inputs.coefficients, spread.grad.abs().sum((1, 2)), strict=True))


def comparable(inputs: Inputs, zone: Tensor) -> Tensor:
    """Where spikes must be equal, [B, T, N]: outside the tie zone; with a reset, in a lane up to its first tie."""
    tie = (peaks(inputs) - inputs.coefficients["threshold"].detach()).abs() < zone
    if inputs.kwargs.get("reset", "none") != "none":
        tie = tie.cummax(1).values
    return ~tie


def tie_zone(inputs: Inputs) -> Tensor:
    """DESIGN's zone for float32, [B, 1, N]."""
    threshold = inputs.coefficients["threshold"].detach()
    return 1e-5 * (threshold + peaks(inputs).abs().amax(1, keepdim=True))


def conditioned(inputs: Inputs) -> Tensor:
    """Lanes whose ATan slopes float32 can hold to 1e-4 at all, [B, 1, N].

    A slope is known no better than its u. Its relative change per change of u is at most π, and 2 / |u - V| far from
    the threshold; where max|u| is 10⁶, a u that happens to be near zero is lost in rounding, by any algorithm.
    """
    u = peaks(inputs)
    rounding = 2e-7 * (inputs.coefficients["threshold"].detach() + u.abs().amax(1, keepdim=True))
    change = (2 / (u - inputs.coefficients["threshold"].detach()).abs()).clamp(max=torch.pi)
    return (change * rounding < 5e-5).all(1, keepdim=True)


def assert_agrees(backend: str, inputs: Inputs, dtype: torch.dtype, least: float = 0.5) -> None:
    """Holds a backend to the float64 reference: spikes, final state and every gradient, as DESIGN says.

    Lanes with a tie take no part in the gradients, where they may rightly differ, nor do ill-conditioned ones; `least`
    is the share of lanes that must be left, so that the test cannot become empty.
    """
    wide, narrow = inputs.to(torch.float64), inputs.to(dtype)
    exact = dtype == torch.float64
    zone = torch.full_like(wide.current[:, :1], 1e-12) if exact else tie_zone(wide)
    equal = comparable(wide, zone)
    lane = equal.all(1, keepdim=True)
    if not exact:
        lane = lane & conditioned(wide)
    assert lane.double().mean() >= least

    grad = torch.randn_like(wide.current) * lane
    results = {}
    for name, call, run_by in (("expected", wide, "reference"), ("got", narrow, backend)):
        spikes, state = call.run(run_by)
        weight = lane[:, 0].to(call.current.dtype)
        loss = (spikes * grad.to(spikes.dtype)).sum() + sum((x * weight).sum() for x in state)
        loss.backward()
        results[name] = spikes, state
    (expected, expected_state), (spikes, state) = results["expected"], results["got"]

    assert spikes.dtype == dtype
    assert spikes.shape == narrow.current.shape
    assert torch.equal(spikes.double()[equal], expected[equal])
    size = wide.coefficients["threshold"].detach() + peaks(wide).abs().amax(1)
    for ours, theirs in zip(state, expected_state, strict=True):
        error = ((ours.double() - theirs).abs() / size)[lane[:, 0]]
        assert (error <= (1e-12 if exact else 1e-5)).all(), f"state is off by {error.max():.1e}"

    tolerance = 1e-9 if exact else 1e-4
    scale = contributions(wide, grad)
    for name, leaf in narrow.leaves().items():
        theirs = wide.leaves()[name].grad
        assert leaf.grad is not None, name
        assert theirs is not None, name
        bound = scale[name] if name in scale else theirs.abs().amax(1 if theirs.dim() == 3 else 0, keepdim=True)
        error = (leaf.grad.double() - theirs).abs()
        assert (error <= tolerance * bound + 1e-30).all(), f"{name}: off by {(error / bound).max():.1e} relative"
