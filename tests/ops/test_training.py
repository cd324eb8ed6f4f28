"""A small network trained with the loop and with the parallel forms stays together as closely as float32 allows."""

import pytest
import torch
from torch import nn

from resofire.nn import LIF


def train(backend: str, dtype: torch.dtype, nudge: int = 0, steps: int = 200) -> tuple[torch.Tensor, list[float]]:
    """200 steps on a task of four frequencies in noise. `nudge` seeds a start where each weight is off by one ulp."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(1, 16), LIF(16, tau=4.0, backend=backend), nn.Linear(16, 4)).to(dtype)
    if nudge:
        generator = torch.Generator().manual_seed(nudge)
        with torch.no_grad():
            for p in model.parameters():
                sign = torch.randn(p.shape, generator=generator).sign()
                p.copy_(torch.nextafter(p, sign.to(dtype) * torch.inf))
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    generator = torch.Generator().manual_seed(2)
    time, losses = torch.arange(24.0), []
    for _ in range(steps):
        label = torch.randint(4, (16,), generator=generator)
        x = torch.sin((label[:, None] + 1) * time / 6) + 0.3 * torch.randn(16, 24, generator=generator)
        loss = nn.functional.cross_entropy(model(x[..., None].to(dtype)).mean(1), label)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return torch.cat([p.detach().flatten() for p in model.parameters()]), losses


@pytest.mark.parametrize("backend", ["scan", "fft"])
def test_float64_training_is_the_same(backend):
    expected, losses = train("reference", torch.float64)
    got, other = train(backend, torch.float64)
    assert losses[-1] < 0.9 * losses[0]
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(torch.tensor(other), torch.tensor(losses), rtol=1e-9, atol=1e-9)


def test_float32_training_is_no_further_apart_than_one_ulp_at_the_start():
    expected, _ = train("reference", torch.float32)
    natural = max((train("reference", torch.float32, nudge)[0] - expected).norm() for nudge in (1, 2, 3))
    for backend in ("scan", "fft"):
        apart = (train(backend, torch.float32)[0] - expected).norm()
        assert apart <= natural, f"{backend}: {apart:.1e} apart, one ulp at the start makes {natural:.1e}"
