"""A small MLP on the last inputs of every channel, the same for all: the surrogate dynamic network of SpikingSSM.

    y_t = w₂ · relu(W₁ [x_{t-K+1}, …, x_t] + b₁) + b₂        0 before the first step; W₁ [hidden, K]

Without a gradient, which a surrogate dynamic network does not need. `by_convolution` is the definition; the kernel runs
packed sequences without padding and keeps the hidden units in registers.
"""

import importlib
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import sequence_count
from ..neuron_scan import HAVE_NUMBA, require_like

OWNER = "window_mlp"


def why_not_compiled(x: Tensor) -> str | None:
    """Why the kernel cannot run on x; None if it can."""
    if not HAVE_NUMBA:
        return "not available: the package numba is not installed"
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return f"it runs on the CPU in float32 or float64, and x is {x.dtype} on {x.device}"
    return None


def by_convolution(x: Tensor, window: Tensor, window_bias: Tensor, read: Tensor, read_bias: Tensor) -> Tensor:
    """y [B, T, N] of x [B, T, N], with W₁ [hidden, K], b₁ [hidden], w₂ [hidden] and b₂ [1]; differentiable."""
    image = F.pad(x, (0, 0, window.shape[1] - 1, 0))[:, None]
    hidden = F.relu(F.conv2d(image, window[:, None, :, None], window_bias))
    return F.conv2d(hidden, read[None, :, None, None], read_bias)[:, 0]


@torch.no_grad()
def window_mlp(
    x: Tensor, window: Tensor, window_bias: Tensor, read: Tensor, read_bias: Tensor, *,
    cu_seqlens: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Compute y without a gradient, for x [B, T, N] or packed [1, S, N]; weights as in `by_convolution`."""
    sequence_count(OWNER, x, cu_seqlens)
    return _window_mlp(x, window, window_bias, read, read_bias, cu_seqlens)


def _host() -> Any:
    # Numba takes a while to import.
    return importlib.import_module(f"{__name__}.cpu")


@torch.library.custom_op("resofire::window_mlp", mutates_args=())
def _window_mlp(
    x: Tensor, window: Tensor, window_bias: Tensor, read: Tensor, read_bias: Tensor, cu_seqlens: Tensor | None
) -> Tensor:
    if x.dim() != 3 or window.dim() != 2 or window.shape[1] < 1:
        raise ValueError(f"{OWNER}: x must be [B, T, N] and window [hidden, K], got {x.shape} and {window.shape}")
    hidden = window.shape[0]
    rows = (("window", window, tuple(window.shape)), ("window_bias", window_bias, (hidden,)))
    for name, value, shape in (*rows, ("read", read, (hidden,)), ("read_bias", read_bias, (1,))):
        require_like(OWNER, name, value, shape, x.dtype)
    return _host().forward(x, (window, window_bias, read, read_bias), cu_seqlens)


@_window_mlp.register_fake
def _(
    x: Tensor, window: Tensor, window_bias: Tensor, read: Tensor, read_bias: Tensor, cu_seqlens: Tensor | None
) -> Tensor:
    return torch.empty_like(x)
