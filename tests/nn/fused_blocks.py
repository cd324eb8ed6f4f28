"""A fused block and its twin composed of parts, and how they are compared."""

import copy
import itertools
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from resofire.nn import SDTCM, LIFConfig, PRFConfig, fire_rates
from resofire.ops import Surrogate
from resofire.ops.surrogate import like

QUICK = PRFConfig(delta=(0.1, 0.5), threshold=0.5)
SOFT = replace(QUICK, reset="soft")
LEAKY = LIFConfig(tau=(2.0, 8.0), threshold=0.5)
CU = torch.tensor([0, 7, 7, 8, 40, 41, 41, 90], dtype=torch.int32)


@dataclass(frozen=True)
class Lorentz(Surrogate):
    """A user's own, with a form for Numba."""

    width: float = 1.0

    def derivative(self, x):
        return 1 / (1 + (x / self.width) ** 2)

    @staticmethod
    def numba(x, width):
        y = x / width
        return like(x, 1) / (like(x, 1) + y * y)


@dataclass(frozen=True)
class Plain(Surrogate):
    """A user's own, in torch only."""

    def derivative(self, x):
        return torch.exp(-x.abs())


def twins(features: int, dtype: torch.dtype, neuron: Any = QUICK, parts: str = "reference", **settings: Any) -> tuple:
    """A fused block in which nothing is at its tidy initial value, and the same composed of parts.

    `parts` is the backend of the composed block's neuron."""
    made = SDTCM(features, neuron=neuron, backend="fused", **settings).double()
    with torch.no_grad():
        for name, value in (*made.named_parameters(), *made.named_buffers()):
            if name.endswith("log_amplitude"):
                value.fill_(0.4 if "channel" in name else -0.3)
            if name.startswith("norm.") and value.is_floating_point():
                value.uniform_(0.5, 1.5)
        if made.norm is not None:
            made.norm.weight[::3] *= -1
    twin = SDTCM(features, neuron=replace(neuron, backend=parts), backend="reference", **settings)
    # In float64 at first, so that both begin with the same numbers in any type.
    twin.double().load_state_dict(made.float().double().state_dict())
    return made.to(dtype), twin


def run(made: SDTCM, u: torch.Tensor, grad: torch.Tensor, cu_seqlens: torch.Tensor | None, penalty: float) -> dict:
    """What a block gives and sends back; with a penalty on its fire rates if that is not 0."""
    u = u.detach().clone().requires_grad_()
    torch.manual_seed(5)  # dropout
    with fire_rates(made, gradient=penalty > 0) as watched:
        out = made(u, cu_seqlens=cu_seqlens)
    loss = (out * grad).sum()
    if penalty:
        loss = loss + penalty * sum((rate - 0.1) ** 2 for rate in watched.tensors().values())
    loss.backward()
    return {
        "output": out.detach(), "gradient of u": u.grad,
        **{f"gradient of {name}": value.grad for name, value in made.named_parameters()},
        **{name: value for name, value in made.named_buffers() if "running" in name}, "rates": watched.as_dict(),
    }  # fmt: skip


def assert_same(got: dict, expected: dict, dtype: torch.dtype, nought: tuple[str, ...] = ()) -> None:
    """Each to 1e-9 or 1e-4 of its largest magnitude. `nought` are gradients that are 0 but for rounding."""
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        if name == "rates":
            assert got[name] == pytest.approx(value, rel=1e-12)
            continue
        assert got[name] is not None, name
        assert got[name].shape == value.shape, name
        size, error = value.abs().max(), (got[name].double() - value).abs().max()
        if name in nought:
            # What it is made of is the sum of the output's gradients, each of about 1.
            assert max(size, error) <= tolerance, f"{name} should be 0, got {got[name].abs().max():.1e}"
            continue
        assert size > 1e-9, f"{name} is 0: nothing is tested"
        assert error <= tolerance * size, f"{name}: off by {error / size:.1e} relative"


def has_tie(twin: SDTCM, u: torch.Tensor, cu_seqlens: torch.Tensor | None) -> bool:
    """Whether any potential lies so near its threshold that float32 may rightly decide otherwise: DESIGN's tie zone."""
    probe, seen = copy.deepcopy(twin), []
    with torch.no_grad():
        current = copy.deepcopy(twin)._before(u)
        bounds = [0, u.shape[1]] if cu_seqlens is None else cu_seqlens.tolist()
        for neuron, back in ((probe.token_neuron, False), (probe.token_neuron_reverse, True)):
            pieces = [current[:, a:b] for a, b in itertools.pairwise(bounds) if a < b and neuron is not None]
            arguments = [neuron.trace(piece.flip(1) if back else piece).argument for piece in pieces]
            seen += [(argument + neuron.threshold, neuron.threshold) for argument in arguments]
        threshold = probe.channel_neuron.threshold
        probe.channel_neuron.register_forward_pre_hook(lambda _, given: seen.append((given[0], threshold)))
        torch.manual_seed(5)
        probe(u, cu_seqlens=cu_seqlens)
    return any(bool(((x - v).abs() < 1e-5 * (abs(v) + x.abs().amax(1, keepdim=True))).any()) for x, v in seen)


def compare(
    features: int, dtype: torch.dtype, *, shape: tuple[int, int] = (3, 33), cu_seqlens: torch.Tensor | None = None,
    training: bool = True, penalty: float = 0.0, parts: str = "reference", neuron: Any = QUICK,
    nought: tuple[str, ...] = (), **settings: Any,
) -> dict:  # fmt: skip
    """Holds the fused block, in some type, to the composed one in float64."""
    torch.manual_seed(0)
    made, twin = twins(features, dtype, neuron, parts, **settings)
    made.train(training), twin.train(training)
    generator = torch.Generator().manual_seed(3)
    u, grad = (scale * torch.randn(*shape, features, generator=generator) for scale in (2, 1))
    while dtype != torch.float64 and has_tie(twin, u.double(), cu_seqlens):
        u = 2 * torch.randn(u.shape, generator=generator)
    expected = run(twin, u.double(), grad.double(), cu_seqlens, penalty)
    got = run(made, u.to(dtype), grad.to(dtype), cu_seqlens, penalty)
    assert all(0.02 < rate < 0.98 for rate in expected["rates"].values()), expected["rates"]
    assert_same(got, expected, dtype, nought)
    return got


# In training a batch norm takes the bias in front of it away, unless dropout gives it to some time steps only.
