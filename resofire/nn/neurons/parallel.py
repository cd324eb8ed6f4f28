"""Parallel spiking neurons: no reset, the potential is a trained linear map of the inputs over time.

W. Fang, Z. Yu, Z. Zhou, D. Chen, Y. Chen, Z. Ma, T. Masquelier, Y. Tian: "Parallel Spiking Neurons with High Efficiency
and Ability to Learn Long-term Dependencies", NeurIPS 2023, arXiv 2304.12760.
"""

import itertools
import math
from typing import Any, Never

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...ops import ATan, Surrogate
from ...ops.checks import require_bounds, require_count, require_current, sequence_count, stacked_state, state_dtype
from ...ops.surrogate import spike
from ..counts import NUMBER, SPIKE, Count
from ..neuron import Neuron, Trace, in_full


class PSN(Neuron):
    """Parallel spiking neuron: every potential sees every input of a sequence of fixed length T, also later ones.

        h = W c,   s = [h ≥ B]          W [T, T] and B [T] trained, shared by all channels

    It is no recurrence, so it has no state: sequences cannot be stepped, split or streamed, and all of them, packed
    ones too, must have T steps. W. Fang et al. 2023, arXiv 2304.12760. W trains as a weight, with weight decay.

    Args:
        features: Number of channels.
        steps: Length T of every sequence.
        threshold: Initial B.
        surrogate: The derivative used for the spike.
    """

    def __init__(
        self,
        features: int,
        *,
        steps: int,
        threshold: float = 1.0,
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(features, surrogate=surrogate)
        require_count("PSN", "steps", steps)
        self.steps = steps
        self.weight = nn.Parameter(torch.empty(steps, steps))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        self.threshold = nn.Parameter(torch.full((steps,), float(threshold)))

    def scan(
        self, x: Tensor, state: Any = None, *, cu_seqlens: Tensor | None = None, reverse: bool = False
    ) -> tuple[Tensor, Any]:
        """Run whole sequences of `steps` steps, [B, T, N] or packed; options as in `Neuron.scan`, but no state.

        Raises:
            ValueError: A sequence has another length, or a state is given.
        """
        if state:
            raise ValueError(f"PSN: state must be None, as sequences cannot be split, got {type(state).__name__}")
        above = self._above(x, cu_seqlens, reverse)
        return self._report_spikes(spike(above, self.surrogate).to(x.dtype)), self.state_type()

    def step(self, x: Tensor, state: Any = None) -> Never:
        """Refuse: every potential depends on the whole sequence.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("PSN.step: a PSN sees whole sequences and cannot be streamed; SlidingPSN can")

    def init_state(self, batch: int) -> Never:
        """Refuse, as `step` does.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("PSN.init_state: a PSN sees whole sequences and cannot be streamed; SlidingPSN can")

    @torch.no_grad()
    def trace(self, x: Tensor) -> Trace:
        """Record spikes and the argument of `spike`; there are no states."""
        above = self._above(x, None, False)
        return Trace(spike(above, self.surrogate), {}, above)

    def explain(self, x: Tensor) -> str:
        return "matmul: one product with W over all time steps"

    def _above(self, x: Tensor, cu_seqlens: Tensor | None, reverse: bool) -> Tensor:
        """The potential above the threshold, shaped like `x`."""
        self._require_channels(x)
        require_current("PSN", x, "B, T, N")
        batch = sequence_count("PSN", x, cu_seqlens)
        lengths = {x.shape[1]}
        if cu_seqlens is not None:
            bounds = cu_seqlens.tolist()
            require_bounds("PSN", bounds, x.shape[1])
            lengths = {end - start for start, end in itertools.pairwise(bounds)}
        for length in sorted(lengths - {self.steps}):
            raise ValueError(f"PSN: every sequence must have steps={self.steps} steps, got one of {length}")
        dtype = state_dtype(x)
        inputs = x.reshape(batch, self.steps, self.features).to(dtype)
        inputs = inputs.flip(1) if reverse else inputs
        above = torch.matmul(self.weight.to(dtype), inputs) - self.threshold.to(dtype)[:, None]
        return (above.flip(1) if reverse else above).view(x.shape)

    def count(self, name: str, steps: float) -> Count:
        """Count the matrix product: T multiply-accumulates for each channel and time step, and all inputs read."""
        features, window = self.features, self.steps
        return Count(
            layer=name, component="temporal neuron", times=steps, mac=window * features, compare=features,
            weights_read=NUMBER * (window + 1), state_read=NUMBER * window * features,
            state_written=NUMBER * features, activations_read=NUMBER * features, activations_written=SPIKE * features,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"{self.features}, steps={self.steps}, {self.surrogate}"


class SlidingPSN(Neuron):
    """Sliding parallel spiking neuron: the potential is a trained filter of the last k inputs.

        h_t = Σ_{i<k} w_i c_{t-i},   s_t = [h_t ≥ B]          w [k] and B [] trained, shared by all channels

    `scan` is a convolution over time. The states x1, x2, … are the last k - 1 inputs, so that it can be stepped, split
    and streamed like any other neuron. W. Fang et al. 2023, arXiv 2304.12760; the original initial weights are 1, 1/2,
    1/4, …

    Args:
        features: Number of channels.
        order: Length k of the filter.
        threshold: Initial B.
        surrogate: The derivative used for the spike.
    """

    def __init__(
        self,
        features: int,
        *,
        order: int = 32,
        threshold: float = 1.0,
        surrogate: Surrogate = ATan(),  # noqa: B008 - frozen
    ) -> None:
        require_count("SlidingPSN", "order", order)
        self.order = order
        super().__init__(features, surrogate=surrogate)
        self.weight = nn.Parameter(0.5 ** torch.arange(order, dtype=torch.float32))
        self.threshold = nn.Parameter(torch.tensor(float(threshold)))

    @property
    def states(self) -> tuple[str, ...]:  # type: ignore[override]
        """x1, the input of the last step, to x{k-1}, the oldest."""
        return tuple(f"x{i}" for i in range(1, self.order))

    def coefficients(self) -> dict[str, Tensor]:
        """The weights w0, w1, … and the threshold, each []."""
        weights = {f"w{i}": value for i, value in enumerate(in_full(self.weight).unbind())}
        return {**weights, "threshold": in_full(self.threshold)}

    def dynamics(self, current: Any, state: Any, c: Any, spike: Any) -> tuple[Any, dict[str, Any]]:
        window = (current, *(getattr(state, name) for name in self.states))
        h = c.w0 * current
        for i, value in enumerate(window[1:], 1):
            h = h + getattr(c, f"w{i}") * value
        return spike(h - c.threshold), dict(zip(self.states, window, strict=False))

    def scan(
        self, x: Tensor, state: Any = None, *, cu_seqlens: Tensor | None = None, reverse: bool = False
    ) -> tuple[Tensor, Any]:
        self._require_channels(x)
        require_current("SlidingPSN", x, "B, T, N")
        batch = sequence_count("SlidingPSN", x, cu_seqlens)
        shape = (batch, self.features)
        # [B, k - 1, N], oldest first.
        past = stacked_state("SlidingPSN.scan", state, self.states, shape, x).transpose(0, 1).flip(1)
        inputs = x.to(state_dtype(x))
        if cu_seqlens is None:
            above, past = self._filtered(inputs, past, reverse)
        else:
            bounds = cu_seqlens.tolist()
            require_bounds("SlidingPSN", bounds, x.shape[1])
            parts = [
                self._filtered(inputs[:, start:end], past[i : i + 1], reverse)
                for i, (start, end) in enumerate(itertools.pairwise(bounds))
            ]
            above = torch.cat([inputs[:, :0], *(part[0] for part in parts)], 1)
            past = torch.cat([past[:0], *(part[1] for part in parts)])
        spikes = spike(above, self.surrogate).to(x.dtype)
        return self._report_spikes(spikes), self.state_type(*past.flip(1).unbind(1))

    def explain(self, x: Tensor) -> str:
        return "convolution: one filter over time"

    def _filtered(self, x: Tensor, past: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
        """The potential above the threshold [B, T, N] after some inputs [B, k - 1, N], and the inputs after it."""
        if x.shape[1] == 0:
            return x, past
        window = torch.cat((past, x.flip(1) if reverse else x), 1)
        rows = window.transpose(1, 2).reshape(-1, 1, window.shape[1])
        h = F.conv1d(rows, self.weight.to(x.dtype).flip(0).view(1, 1, -1))
        above = h.view(x.shape[0], x.shape[2], x.shape[1]).transpose(1, 2) - self.threshold.to(x.dtype)
        return (above.flip(1) if reverse else above), window[:, window.shape[1] - self.order + 1 :]

    def extra_repr(self) -> str:
        return f"{self.features}, order={self.order}, {self.surrogate}"
