"""The event-driven product: the torch operators, and the host code that calls the kernels of `kernels.py`."""

import math
from typing import Any, Never

import numpy as np
import torch
from torch import Tensor

from ..neuron_scan import HAVE_NUMBA, TILE_BYTES
from ..neuron_scan.threads import share_out
from ..surrogate import refuse_double_backward, refuse_forward_mode
from .call import LinearCall

# Slightly below the fraction of active inputs at which adding rows takes as long as the dense product; measured in
# docs/experiments/spike-linear.md.
BREAK_EVEN = 0.45
# With fewer time steps or columns, the dense product is faster than counting the events.
FEWEST_STEPS, FEWEST_COLUMNS = 512, 32
WORD = 64
# Upper bound on the memory of all partial sums of a weight gradient.
ROOM_BYTES = 32 << 20


def words(lanes: int) -> int:
    """The number of 64-bit words per row of bits: whole tiles, which must not reach into the next row."""
    return 2 * -(-lanes // (2 * WORD))


def shares(steps: int, threads: int, unit: int, most: int | None = None) -> list[tuple[int, int]]:
    """Split the time steps into a few spans per thread, of multiples of `unit` steps; at most `most` spans."""
    pieces = max(1, min(4 * threads if most is None else most, steps // (4 * unit)))
    size = max(1, -(-steps // (pieces * unit)) * unit)
    return [(first, min(first + size, steps)) for first in range(0, steps, size)]


def tiled(weight: Tensor, directions: int, factor: float | Tensor) -> np.ndarray:
    """Copy factor * weights [out, directions * in] to a flat [tiles, directions * rows, TILE], zero-padded."""
    out, inputs = weight.shape[0], weight.shape[1] // directions
    width = TILE_BYTES // weight.element_size()
    tiles, rows = -(-out // width), WORD * words(inputs)
    table = weight.new_zeros((tiles, directions, rows, width))
    by_input = (weight.detach() * factor).t().reshape(directions, inputs, out)
    for tile in range(tiles):
        columns = by_input[..., tile * width : (tile + 1) * width]
        table[tile, :, :inputs, : columns.shape[-1]] = columns
    return table.view(-1).numpy()


def untiled(sums: Tensor, directions: int, inputs: int, out: int) -> tuple[Tensor, Tensor]:
    """The gradients of weight and bias from the sums [shares, tiles, directions * rows + 1, TILE] of a kernel."""
    total = sums.sum(0)
    by_input = total.permute(1, 0, 2).reshape(total.shape[1], -1)[:, :out]
    grad = by_input[:-1].view(directions, -1, out)[:, :inputs].reshape(directions * inputs, out).t().contiguous()
    return grad, by_input[-1].clone()


def most_rooms(threads: int, rows: int, columns: int, itemsize: int) -> int:
    """The number of partial sums of a weight gradient: a few per thread if they are small, at least one each."""
    return max(threads, min(4 * threads, ROOM_BYTES // max(1, rows * columns * itemsize)))


def sums_for(like: Tensor, pieces: int, bits: Tensor, out: int) -> Tensor:
    """Allocate the partial sums of a weight gradient: zeros [pieces, tiles, rows + 1, TILE]."""
    width = TILE_BYTES // like.element_size()
    return like.new_zeros((pieces, -(-out // width), WORD * bits.shape[-1] + 1, width))


def padded_row(row: Tensor | None, like: Tensor, columns: int, rest: float = 0.0) -> np.ndarray:
    """Pad a row [columns] to whole tiles with `rest`; None is a row of zeros."""
    width = TILE_BYTES // like.element_size()
    wide = like.new_full((-(-columns // width) * width,), rest)
    wide[:columns] = 0.0 if row is None else row.detach()
    return wide.numpy()


def flat_bits(bits: Tensor) -> np.ndarray:
    return bits.view(-1).numpy().view(np.uint64)


@torch.library.custom_op("resofire::pack_spikes", mutates_args=())
def pack_spikes(spikes: Tensor) -> tuple[Tensor, Tensor]:
    """Pack spikes [..., in] to bits [M, words] and return their amplitude too; see `LinearCall.packed`."""
    from ..neuron_scan import simd
    from .kernels import first_kernel, pack_kernel

    lanes = spikes.shape[-1]
    steps = math.prod(spikes.shape[:-1])
    bits = torch.empty((steps, words(lanes)), dtype=torch.int64, device=spikes.device)
    if not spikes.numel():
        return bits.zero_(), spikes.new_zeros(())
    flat, packed = spikes.contiguous().view(-1).numpy(), flat_bits(bits)
    amplitude = first_kernel()(flat)
    kernel, is_train = pack_kernel(simd.BYTES // spikes.element_size()), []

    def run(span: tuple[int, int]) -> None:
        is_train.append(kernel(*span, flat, lanes, amplitude, packed, bits.shape[1]))

    threads = torch.get_num_threads()
    share_out(run, shares(steps, threads, 64), threads)
    return bits, spikes.new_tensor(amplitude if all(is_train) else np.nan)


@pack_spikes.register_fake
def _(spikes: Tensor) -> tuple[Tensor, Tensor]:
    steps = math.prod(spikes.shape[:-1])
    return spikes.new_empty((steps, words(spikes.shape[-1])), dtype=torch.int64), spikes.new_empty(())


@torch.library.custom_op("resofire::count_bits", mutates_args=())
def count_bits(bits: Tensor) -> Tensor:
    """The number of set bits, an int64 []."""
    return torch.tensor(int(np.bitwise_count(flat_bits(bits.contiguous())).sum()), device=bits.device)


@count_bits.register_fake
def _(bits: Tensor) -> Tensor:
    return bits.new_empty((), dtype=torch.int64)


def _require_layout(leading: tuple[int, ...], bits: Tensor, weight: Tensor, columns: int, dtype: torch.dtype) -> None:
    """Check the shapes that kernels rely on: an exported graph calls the operator without the public function."""
    if weight.dim() != 2 or columns != weight.shape[0] or weight.dtype != dtype:
        got = f"{weight.dtype} {list(weight.shape)}"
        raise ValueError(f"spike_linear: weight must be {dtype} [{columns}, in], got {got}")
    rows = (math.prod(leading), words(weight.shape[1]))
    if bits.shape != rows or bits.dtype != torch.int64:
        raise ValueError(f"spike_linear: bits must be int64 {list(rows)}, got {bits.dtype} {list(bits.shape)}")


@torch.library.custom_op("resofire::spike_linear", mutates_args=())
def event_linear(spikes: Tensor, bits: Tensor, amplitude: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """spikes Wᵀ + b from the bits and amplitude of the spikes, whose own numbers are not read."""
    from ..neuron_scan import simd
    from ..neuron_scan.cpu import past_cache
    from .kernels import GROUP, linear_kernel

    factor = float(amplitude)
    if factor != factor:
        raise ValueError("spike_linear: spikes must all be 0 or one amplitude for backend 'events', got other values")
    _require_layout(spikes.shape[:-1], bits, weight, weight.shape[0] if bias is None else bias.shape[0], spikes.dtype)
    steps, columns = bits.shape[0], weight.shape[0]
    out = spikes.new_empty((*spikes.shape[:-1], columns))
    kernel = linear_kernel(simd.BYTES // spikes.element_size())
    threads = torch.get_num_threads()
    rest = (
        flat_bits(bits), bits.shape[1], tiled(weight, 1, factor), padded_row(bias, weight, columns),
        out.view(-1).numpy(), columns, past_cache(out),
    )  # fmt: skip
    if out.numel():
        share_out(lambda span: kernel(*span, *rest), shares(steps, threads, GROUP), threads)
    return out


@event_linear.register_fake
def _(spikes: Tensor, bits: Tensor, amplitude: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return spikes.new_empty((*spikes.shape[:-1], weight.shape[0]))


@torch.library.custom_op("resofire::spike_linear_backward", mutates_args=())
def event_linear_backward(grad: Tensor, bits: Tensor, amplitude: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of weight and bias."""
    from ..neuron_scan import simd
    from .kernels import WIDE_GROUP, weight_kernel

    _require_layout(grad.shape[:-1], bits, weight, grad.shape[-1], grad.dtype)
    columns, inputs = weight.shape
    flat, threads = grad.contiguous().view(-1).numpy(), torch.get_num_threads()
    most = most_rooms(threads, inputs, columns, grad.element_size())
    spans = shares(bits.shape[0], threads, WIDE_GROUP, most)
    sums = sums_for(grad, len(spans), bits, columns)
    rooms, kernel = sums.flatten(1).numpy(), weight_kernel(simd.BYTES // grad.element_size())
    packed, row = flat_bits(bits), bits.shape[1]

    def run(piece: int) -> None:
        kernel(*spans[piece], packed, row, flat, columns, rooms[piece])

    share_out(run, range(len(spans)), threads)
    grad_weight, grad_bias = untiled(sums, 1, inputs, columns)
    return grad_weight.mul_(amplitude), grad_bias


@event_linear_backward.register_fake
def _(grad: Tensor, bits: Tensor, amplitude: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(weight, memory_format=torch.contiguous_format), weight.new_empty(weight.shape[:1])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, bits, amplitude, weight, bias = inputs
    ctx.save_for_backward(bits, amplitude, weight)
    ctx.biased = bias is not None


def _pull_back(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    bits, amplitude, weight = ctx.saved_tensors
    grad_weight = grad_bias = None
    if ctx.needs_input_grad[3] or ctx.needs_input_grad[4]:
        grad_weight, grad_bias = event_linear_backward(grad, bits, amplitude, weight)
    grad_spikes = grad @ weight if ctx.needs_input_grad[0] else None
    return grad_spikes, None, None, grad_weight, grad_bias if ctx.biased else None


def _refuse(ctx: Any, *grads: Tensor) -> Never:
    refuse_double_backward("spike_linear")


event_linear.register_autograd(_pull_back, setup_context=_save)
event_linear_backward.register_autograd(_refuse)


def run(call: LinearCall) -> Tensor:
    refuse_forward_mode("spike_linear", call.spikes, call.weight, call.bias)
    return event_linear(call.spikes, *call.packed(), call.weight, call.bias)


def why_not(call: LinearCall) -> str | None:
    if not HAVE_NUMBA:
        return "not available: the package numba is not installed"
    if call.spikes.device.type != "cpu":
        return f"it runs on the CPU, and spikes is on {call.spikes.device}"
    if call.spikes.dtype not in (torch.float32, torch.float64):
        return f"it takes float32 and float64, and spikes is {str(call.spikes.dtype).removeprefix('torch.')}"
    if not torch.compiler.is_compiling() and bool(call.packed()[1].isnan()):
        return "spikes holds other values than 0 and one amplitude"
    return None


def why_slow(call: LinearCall) -> str | None:
    """Why "auto" should take the dense product; None if events are faster."""
    if torch.compiler.is_compiling():
        return "how many inputs are active is not known while torch compiles"
    steps, columns = math.prod(call.spikes.shape[:-1]), call.weight.shape[0]
    if steps < FEWEST_STEPS or columns < FEWEST_COLUMNS:
        return f"the dense product is faster below {FEWEST_STEPS} time steps or {FEWEST_COLUMNS} columns"
    if why_not(call) is None and call.density() > BREAK_EVEN:
        active, limit = 100 * call.density(), 100 * BREAK_EVEN
        return f"{active:.0f} % of the inputs are active, and above {limit:.0f} % dense is faster"
    return None
