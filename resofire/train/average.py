"""A running average of the weights: often better than the last ones, and free at inference."""

import copy

import torch
from torch import Tensor

from ..models.network import Network


class Average:
    """Follows a network. The decay grows from 0.1, so that the first weights are soon forgotten."""

    def __init__(self, model: Network, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def follow(self, model: Network, step: int) -> None:
        """After step `step` (the first is 1)."""
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        mine, theirs = self.model.state_dict(), model.state_dict()
        floating = [name for name, value in mine.items() if value.is_floating_point()]
        kept: list[Tensor] = [mine[name] for name in floating]
        torch._foreach_lerp_(kept, [theirs[name] for name in floating], share)
        for name in mine.keys() - set(floating):
            mine[name].copy_(theirs[name])
