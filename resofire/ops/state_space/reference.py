"""The state space step by step: the definition that the kernels are tested against."""

from itertools import pairwise

import torch
from torch import Tensor


def state_space(
    x: Tensor,
    decay: Tensor,
    weight: Tensor,
    through: Tensor,
    *,
    ahead: Tensor | None = None,
    state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the equation of `resofire.ops.state_space` as a loop over time under autograd; arguments as there."""
    if cu_seqlens is not None:
        pieces = []
        for i, (start, end) in enumerate(pairwise(cu_seqlens.tolist())):
            own = None if state is None else state[:, :, i : i + 1]
            pieces.append(state_space(x[:, start:end], decay, weight, through, ahead=ahead, state=own))
        return torch.cat([y for y, _ in pieces], 1), torch.cat([last for _, last in pieces], 2)
    steps = list(x.unbind(1))
    # [B, N, P]: a sum over the last dimension reads the states.
    rows = [torch.complex(*each).transpose(0, 1) for each in (decay, weight)]
    zero = torch.complex(*decay.new_zeros((2, x.shape[0], x.shape[2], decay.shape[1])))
    h = zero if state is None else torch.complex(*state).permute(1, 2, 0)
    outputs = []
    for now in steps:
        h = rows[0] * h + now[..., None]
        outputs.append((rows[1] * h).sum(-1).real + through * now)
    last = torch.stack((h.real, h.imag)).permute(0, 3, 1, 2)
    if ahead is not None:
        back, h = torch.complex(*ahead).transpose(0, 1), zero
        for t in range(len(steps) - 1, -1, -1):
            outputs[t] = outputs[t] + (back * h).sum(-1).real
            h = rows[0] * h + steps[t][..., None]
    return (torch.stack(outputs, 1) if outputs else x), last
