"""The MLP on the last inputs against torch's convolutions, and what torch asks of an operator."""

import pytest
import torch
from looped import loop_over

from resofire.ops.neuron_scan import CHUNK
from resofire.ops.window_mlp import _window_mlp, by_convolution, window_mlp

LENGTHS = (1, 63, 0, 500, CHUNK, 14)


def make(hidden, taps, dtype=torch.float64):
    shapes = ((hidden, taps), (hidden,), (hidden,), (1,))
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@loop_over("size", [(8, 15, 37), (3, 1, 5), (5, 40, 32)])
def test_it_is_two_convolutions(size, dtype):
    hidden, taps, lanes = size
    weights, x = make(hidden, taps), torch.randn(1, sum(LENGTHS), lanes).double()
    expected = torch.cat([by_convolution(piece, *weights) for piece in x.split(LENGTHS, 1) if piece.shape[1]], 1)
    bounds = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    y = window_mlp(x.to(dtype), *(each.to(dtype) for each in weights), cu_seqlens=bounds)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    scale = expected.abs().max()
    torch.testing.assert_close(y.double() / scale, expected / scale, rtol=0, atol=tolerance)
    # A batch of sequences of one length, time not in the middle.
    batch = torch.randn(2, lanes, 70).double().transpose(1, 2)
    torch.testing.assert_close(window_mlp(batch, *weights), by_convolution(batch, *weights))


def test_opcheck():
    bounds = torch.tensor([0, 4, 4, 20], dtype=torch.int32)
    torch.library.opcheck(_window_mlp, (torch.randn(1, 20, 3), *make(2, 5, torch.float32), bounds))


def test_wrong_shapes_are_named_before_memory_is_touched():
    window, window_bias, read, read_bias = make(2, 5)
    with pytest.raises(ValueError, match=r"window_mlp: read must be torch.float64 \[2\], got torch.float64 \[1\]"):
        window_mlp(torch.randn(1, 9, 3).double(), window, window_bias, read[:1], read_bias)
