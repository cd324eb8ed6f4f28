"""The paper's theorems and its resonance, checked as numbers, in their corrected form where the paper slips."""

import math

import pytest
import torch

from resofire.ops import PRFState, lif, prf, prf_coefficients


def adaptive_lif(current: torch.Tensor, beta: float, rho: float) -> torch.Tensor:
    """A LIF without reset whose threshold 1 + β a_t rises with each spike, a_{t+1} = ρ a_t + s_t."""
    u = a = torch.zeros_like(current[:, 0])
    spikes = []
    for c in current.unbind(1):
        u = beta * u + c
        s = (u >= 1 + beta * a).to(u.dtype)
        a = rho * a + s
        spikes.append(s)
    return torch.stack(spikes, 1)


@pytest.mark.parametrize("beta", [0.3, 0.75, 0.95])
def test_theorem_1_a_soft_reset_is_an_adaptive_threshold(beta):
    """The paper sets ρ = 1; it is ρ = β that makes the two equal, and ρ = 1 does not."""
    current = torch.randn(4, 500, 8, dtype=torch.float64) + 0.3
    spikes, _ = lif(current, beta)
    assert 0.05 < spikes.mean() < 0.95
    assert torch.equal(adaptive_lif(current, beta, rho=beta), spikes)
    assert not torch.equal(adaptive_lif(current, beta, rho=1.0), spikes)


def test_theorem_2_a_prf_without_resonance_is_a_lif_without_reset():
    """With Δ = 1, θ = 0: exact for β = e^{-1/τ}. The paper's β = 1 - 1/τ is its first-order form, off by 1 / (2τ²)."""
    current = torch.randn(4, 300, 8, dtype=torch.float64)
    for tau in (1.5, 8.0, 40.0):
        phi_re, phi_im = prf_coefficients(1.0, 0.0, torch.tensor(tau, dtype=torch.float64))
        spikes, state = prf(current, phi_re, phi_im, 1.0)
        expected, expected_state = lif(current, math.exp(-1 / tau), reset="none")
        assert torch.equal(spikes, expected)
        torch.testing.assert_close(state.u, expected_state.u)
        assert torch.equal(state.r, torch.zeros_like(state.r))
        assert abs(math.exp(-1 / tau) - (1 - 1 / tau)) <= 1 / (2 * tau**2)


def test_theorem_3_the_limit_of_the_variance():
    """E|ũ|² → Δ²σ² / (1 - |A|²) ≈ τΔσ²/2 for the complex potential. The paper says so of the real part, whose variance
    is Δ²σ²/2 · (1/(1 - |A|²) + Re 1/(1 - A²)): about half of it for fast oscillation."""
    tau, sigma, lanes, length = 2.0, 1.5, 4000, 3000
    for delta, theta in ((0.05, 20.0), (0.1, 3.0), (0.02, 0.0)):
        phi = prf_coefficients(delta, theta, torch.tensor(tau, dtype=torch.float64))
        _, state = prf(sigma * torch.randn(1, length, lanes, dtype=torch.float64), *phi, delta)
        a = complex(*phi)
        whole = delta**2 * sigma**2 / (1 - abs(a) ** 2)
        real = delta**2 * sigma**2 / 2 * (1 / (1 - abs(a) ** 2) + (1 / (1 - a * a)).real)
        # The sampling error of a variance is √(2/n); five of them are allowed.
        slack = 5 * math.sqrt(2 / lanes)
        assert abs((state.u**2 + state.r**2).mean().item() / whole - 1) < slack
        assert abs((state.u**2).mean().item() / real - 1) < slack
        assert abs(whole / (tau * delta * sigma**2 / 2) - 1) < 1.1 * delta / tau
        if theta * tau > 30:
            assert abs(real / whole - 0.5) < 0.02


def response(omega: torch.Tensor, delta: float, theta: float, tau: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Steady amplitude of the complex potential under e^{iωt}, and of its real part under cos ωt. A lane per ω."""
    phi = prf_coefficients(delta, theta, torch.tensor(tau, dtype=torch.float64))
    length = int(40 * tau / delta)
    time = delta * torch.arange(length, dtype=torch.float64)[:, None]
    potentials = []
    for wave in (torch.cos, torch.sin):
        _, state = prf(wave(omega * time)[None], *phi, delta, backend="scan")
        potentials.append(torch.complex(state.u, state.r)[0])
    complex_input = potentials[0] + 1j * potentials[1]
    # A real cosine drives the potential at ω and -ω; two quadratures of the real part give its amplitude.
    real_part = torch.complex(potentials[0].real, potentials[1].real)
    return complex_input.abs(), real_part.abs()


@pytest.mark.parametrize(("theta", "tau"), [(5.0, 4.0), (2.0, 10.0)])
def test_resonance_peaks_at_theta(theta, tau):
    """|H(ω)| peaks at ω = θ with height τ as Δ → 0; in discrete time with height Δ / (1 - e^{-Δ/τ}). That is the
    complex potential; the real part, which fires, answers a real input with about τ/2."""
    delta = 0.01
    omega = torch.linspace(0.5 * theta, 1.5 * theta, 401, dtype=torch.float64)
    whole, real = response(omega, delta, theta, tau)
    height = delta / (1 - math.exp(-delta / tau))
    assert abs(omega[whole.argmax()].item() - theta) < 1.5 * (omega[1] - omega[0]).item()
    assert abs(whole.max().item() / height - 1) < 1e-3
    assert abs(height / tau - 1) < delta / tau
    closed = delta / (1 - torch.exp(torch.complex(torch.full_like(omega, -delta / tau), delta * (theta - omega)))).abs()
    torch.testing.assert_close(whole, closed, rtol=1e-6, atol=1e-6)
    assert abs(real.max().item() / (tau / 2) - 1) < 0.05
    assert abs(omega[real.argmax()].item() / theta - 1) < 0.02


def test_the_matrix_form_of_the_equation():
    """dr/dt = θu + γr, as in the paper's matrix; its next line, dr/dt = γu + θr, is a slip. Shown by a fine step."""
    theta, tau, delta = 3.0, 2.0, 1e-4
    phi_re, phi_im = prf_coefficients(delta, theta, torch.tensor(tau, dtype=torch.float64))
    u, r = torch.tensor([[0.8]], dtype=torch.float64), torch.tensor([[-0.5]], dtype=torch.float64)
    _, after = prf(torch.zeros(1, 1, 1, dtype=torch.float64), phi_re, phi_im, delta, state=PRFState(u, r))
    slope_u, slope_r = ((after.u - u) / delta).item(), ((after.r - r) / delta).item()
    gamma = -1 / tau
    assert abs(slope_u - (gamma * 0.8 - theta * -0.5)) < 1e-3
    assert abs(slope_r - (theta * 0.8 + gamma * -0.5)) < 1e-3
    assert abs(slope_r - (gamma * 0.8 + theta * -0.5)) > 1


@pytest.mark.parametrize("op", ["prf", "lif"])
def test_the_decoupled_reset_is_the_sequential_one_over_a_long_time(op):
    """Spike for spike over T = 32,768 in float64: the paper's parallel form, the fused walk and the plain loop."""
    current = torch.randn(1, 32_768, 4, dtype=torch.float64) + 0.4
    if op == "lif":
        runs = [lif(current, 0.95, backend=b) for b in ("reference", "fft", "scan")]
    else:
        phi = prf_coefficients(0.3, 1.0, torch.tensor(20.0, dtype=torch.float64))
        runs = [prf(3 * current, *phi, 0.3, reset="soft", backend=b) for b in ("reference", "fft", "scan")]
    (expected, state), *others = runs
    assert 0.05 < expected.mean() < 0.95
    for spikes, last in others:
        assert torch.equal(spikes, expected)
        for ours, theirs in zip(last, state, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
