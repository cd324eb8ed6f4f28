"""The diagonal state space of S4D, on which four of the baselines are built.

    h_t = Ā h_{t-1} + x_t        Ā = e^{ΔA}        n = states / 2 complex numbers per channel
    y_t = 2 Re Σ C B̄ h_t + D x_t        B̄ = (Ā - 1) / A        (zero-order hold, B = 1)

A. Gu, A. Gupta, K. Goel, C. Ré, "On the Parameterization and Initialization of Diagonal State Space Models", NeurIPS
2022. A = -e^a + iω, Δ = e^δ and C are trained; B = 1, since C absorbs it. The initial A is

    legs    the eigenvalues of the normal part of the HiPPO-LegS matrix, S4D-LegS
    lin     -1/2 + iπn, S4D-Lin

S4 itself adds a matrix of rank one to this diagonal, which needs a kernel and a recurrence of its own; S4D-LegS stands
in for S4-LegS here.

Bidirectional: a second C reads the states of the reversed sequence, one step ahead, so that no step counts twice.

On a CPU the recurrence runs as a fused scan, `resofire.ops.state_space`. Elsewhere, and without Numba, it is a
convolution with the real kernel K_k = 2 Re Σ C B̄ Ā^k. Ā^k for all k would be [T, D, n]: instead, with k = a i + j, the
kernel is a product of two tables of about √T rows, [T/a, 2n] by [2n, a] for each channel.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from ...nn.counts import NUMBER, Count
from ...nn.neuron import sample
from ...ops.checks import require_choice, require_count, state_dtype
from ...ops.convolution import convolve
from ...ops.state_space import state_space, why_not_scan
from .padded import in_groups

INITS = ("legs", "lin")


class StateSpace(nn.Module):
    """A diagonal state space of every channel of [B, T, D]; the equation is at the top of this file.

    Args:
        features: Channels D.
        states: Real numbers in the state of a channel, N; even.
        init: Initial A, "legs" or "lin".
        delta: Initial Δ, sampled log-uniformly from (low, high).
        bidirectional: Also read the reversed sequence.
    """

    neuron_parameters = ("log_delta", "log_decay", "frequency")

    def __init__(
        self,
        features: int,
        *,
        states: int = 64,
        init: str = "legs",
        delta: tuple[float, float] = (1e-3, 1e-1),
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        require_count("StateSpace", "features", features)
        require_count("StateSpace", "states", states)
        if states % 2:
            raise ValueError(f"StateSpace: states must be even, half as many are complex, got {states}")
        require_choice("StateSpace", "init", init, INITS)
        self.features, self.pairs, self.directions = features, states // 2, 1 + bidirectional
        omega = legs_frequencies(states) if init == "legs" else math.pi * torch.arange(self.pairs)
        self.log_delta = nn.Parameter(sample("StateSpace", "delta", delta, features, log=True))
        self.log_decay = nn.Parameter(torch.full((features, self.pairs), math.log(0.5)))
        self.frequency = nn.Parameter(omega.float().repeat(features, 1))
        # Real and imaginary part of C.
        self.read = nn.Parameter(torch.randn(2, self.directions, features, self.pairs) / math.sqrt(2))
        self.through = nn.Parameter(torch.randn(features))

    def forward(self, x: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        """y for whole sequences [B, T, D], or packed [1, S, D] with `cu_seqlens`."""
        if x.shape[1] == 0:
            return x
        return self.scanned(x, cu_seqlens) if why_not_scan(x) is None else self.convolved(x, cu_seqlens)

    def scanned(self, x: Tensor, cu_seqlens: Tensor | None) -> Tensor:
        """y as a recurrence."""
        decay, weights = (each.to(state_dtype(x)) for each in self.coefficients())
        ahead = weights[:, 1] if self.directions == 2 else None
        through = self.through.to(state_dtype(x))
        return state_space(x, decay, weights[:, 0], through, ahead=ahead, cu_seqlens=cu_seqlens)[0]

    def coefficients(self) -> tuple[Tensor, Tensor]:
        """Ā [2, n, D] and 2 C B̄ [2, directions, n, D] as real and imaginary parts, in float64.

        A slow decay is close to 1, where float32 would lose digits of A before the recurrence begins.
        """
        delta = self.log_delta.double().exp()[:, None]
        damping, frequency = self.log_decay.double().exp(), self.frequency.double()
        size, angle = torch.exp(-delta * damping), delta * frequency
        re, im = size * torch.cos(angle), size * torch.sin(angle)
        # B̄ = (Ā - 1) conj(A) / |A|², conj(A) = -damping - i frequency
        norm = damping.square() + frequency.square()
        b_re, b_im = (frequency * im - damping * (re - 1)) / norm, -(damping * im + frequency * (re - 1)) / norm
        c_re, c_im = 2 * self.read.double()
        weights = torch.stack((c_re * b_re - c_im * b_im, c_re * b_im + c_im * b_re))
        return torch.stack((re, im)).transpose(-1, -2), weights.transpose(-1, -2)

    def convolved(self, x: Tensor, cu_seqlens: Tensor | None) -> Tensor:
        """y as a convolution."""
        longest = x.shape[1] if cu_seqlens is None else int(cu_seqlens.diff().max())
        kernels = self.kernels(longest)

        def mixed(group: Tensor) -> Tensor:
            # Time last: the transforms are faster by more than what the copies cost.
            rows = group.transpose(1, 2).contiguous()
            return convolve(rows, *(kernel[:, : group.shape[1]] for kernel in kernels), dim=2).transpose(1, 2)

        return in_groups(mixed, x, cu_seqlens) + self.through * x

    def kernels(self, length: int) -> Tensor:
        """K of each direction, [directions, D, T]."""
        delta = self.log_delta.exp()[:, None]
        poles = torch.complex(-self.log_decay.exp(), self.frequency)
        weight = torch.complex(*self.read) * (torch.exp(delta * poles) - 1) / poles
        fine = math.isqrt(length - 1) + 1
        rows = -(-length // fine)
        # The angle of Ā, in float64: at a late step it is thousands of turns.
        angle, decay = self.frequency.double() * delta.double(), -self.log_decay.exp() * delta
        right = _powers(decay, angle, torch.arange(fine, device=decay.device))
        coarse = _powers(decay, angle, fine * torch.arange(rows, device=decay.device))
        left = weight[..., None, :] * torch.complex(*coarse)
        # Re(l r) = Re l Re r - Im l Im r
        tables = torch.cat((left.real, -left.imag), -1), torch.cat(right, -1).transpose(-1, -2)
        return 2 * torch.matmul(*tables).flatten(-2)[..., :length]

    def count(self, name: str, steps: float) -> list[Count]:
        """Count the recurrence as it runs step by step.

        Each complex state: 2 MACs for the real part, which start at x, a product and a MAC for the imaginary one, and
        2 MACs to read it. D x: a MAC for each channel.
        """
        states = self.directions * self.features * self.pairs
        width = NUMBER * self.features
        return [
            Count(layer=f"{name}.state_space", component="state space", times=steps, mac=5 * states, multiply=states,
                  weights_read=NUMBER * 4 * states, state_read=NUMBER * 2 * states, state_written=NUMBER * 2 * states,
                  activations_read=width, activations_written=width),
            Count(layer=f"{name}.feedthrough", component="feedthrough", times=steps, mac=self.features,
                  weights_read=width, activations_read=width),
        ]  # fmt: skip

    def extra_repr(self) -> str:
        return f"{self.features}, states={2 * self.pairs}, bidirectional={self.directions == 2}"


def _powers(decay: Tensor, angle: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
    """Ā^k = e^{k (decay + i angle)} for some k as real and imaginary part, each [D, K, n]."""
    size = torch.exp(decay[:, None] * steps[:, None])
    turned = torch.remainder(angle[:, None] * steps[:, None], 2 * math.pi).to(decay.dtype)
    return size * torch.cos(turned), size * torch.sin(turned)


def legs_frequencies(states: int) -> Tensor:
    """The positive imaginary parts of the eigenvalues of the normal part of HiPPO-LegS, [states / 2], float64.

    HiPPO-LegS plus P Pᵀ, P_n = √(n + 1/2), is -1/2 plus a skew-symmetric matrix S, S_nk = -√(n + 1/2) √(k + 1/2) for
    n > k.
    """
    root = np.sqrt(np.arange(states) + 0.5)
    skew = np.triu(np.outer(root, root), 1)
    # i S is Hermitian, its eigenvalues are real and come in pairs ±ω.
    values = np.linalg.eigvalsh(1j * (skew - skew.T))
    return torch.from_numpy(np.sort(values[values > 0]))
