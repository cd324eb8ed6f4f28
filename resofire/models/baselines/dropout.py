"""Dropout of single values that does not take longer than the layer around it.

torch draws each value of a mask from a Bernoulli distribution of its own, on a CPU 11 ms for 20,962 steps of 121
channels. A quarter of a random 64-bit integer decides as well: 4 ms.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 1 << 16


def dropped(x: Tensor, share: float, training: bool) -> Tensor:
    """Drop a share of the values in training and scale up the others.

    On a CPU the share is rounded to 1/65536; what remains is scaled by the rounded one, so that its mean is exact.
    """
    limit = round(share * LEVELS)
    if not training or x.device.type != "cpu" or torch.compiler.is_compiling() or limit in (0, LEVELS):
        return F.dropout(x, share, training)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * ((draws >= limit - LEVELS // 2).to(x.dtype) * (LEVELS / (LEVELS - limit)))
