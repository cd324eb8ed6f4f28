"""A block of your own: spiking recurrence with feedback weights, in place of SD-TCM.

    resofire train examples.own_block:recurrent --out runs/recurrent
    resofire evaluate runs/recurrent --import examples.own_block

A block is a module with `forward(u, *, cu_seqlens=None)` on the stream [B, T, D]. This one also has `init_state` and
`step`, so networks of it can be run step by step. It has no `fold` and no `count`: export and measure refuse it with a
sentence.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from resofire import nn
from resofire.models import ClassifierConfig
from resofire.train import RunConfig


class RecurrentBlock(torch.nn.Module):
    """U⁺ = U + W S with s_t = LIF(norm(u_t) + F s_{t-1})."""

    def __init__(self, features: int, tau: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm(features)
        self.neuron = nn.LIF(features, tau=tau)
        self.feedback = torch.nn.Linear(features, features, bias=False)
        torch.nn.init.orthogonal_(self.feedback.weight, gain=0.5)
        self.out = nn.SpikeLinear(features, features)

    def forward(self, u: Tensor, *, cu_seqlens: Tensor | None = None) -> Tensor:
        x = self.norm(u)
        if cu_seqlens is None:
            return u + self.out(self._run(x))
        pieces = [self._run(x[:, start:end]) for start, end in pairwise(cu_seqlens.tolist())]
        return u + self.out(torch.cat(pieces, 1))

    def init_state(self, batch: int) -> tuple[Any, Tensor]:
        state = self.neuron.init_state(batch)
        return state, torch.zeros_like(state.u)

    def step(self, u: Tensor, state: tuple[Any, Tensor]) -> tuple[Tensor, tuple[Any, Tensor]]:
        spikes, following = self.neuron.step(self.norm(u) + self.feedback(state[1]), state[0])
        return u + self.out(spikes), (following, spikes)

    def _run(self, x: Tensor) -> Tensor:
        """The feedback ties each step to the last one, so this is a loop over time."""
        state, spikes = self.init_state(x.shape[0])
        rows = []
        for now in x.unbind(1):
            spikes, state = self.neuron.step(now + self.feedback(spikes), state)
            rows.append(spikes)
        return torch.stack(rows, 1) if rows else x


@dataclass(frozen=True)
class RecurrentBlockConfig(nn.Config):
    """The settings of a `RecurrentBlock`."""

    tau: float = 10.0
    """Time constant of the LIF."""

    def build(self, features: int) -> RecurrentBlock:
        return RecurrentBlock(features, self.tau)


def recurrent() -> RunConfig:
    """Two recurrent blocks on the embedded digits."""
    model = ClassifierConfig(inputs=1, classes=10, features=32, depth=2, block=RecurrentBlockConfig())
    return RunConfig(name="recurrent", task="digits", model=model, batch=32, epochs=3, weight_decay=0.01)
