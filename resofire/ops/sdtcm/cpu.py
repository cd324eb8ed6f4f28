"""Host code of the fused block: memory layout, and the order in which the kernels run."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ..equation.cpu import backward_kernel, forward_kernel
from ..equation.graph import Program, with_norm
from ..equation.operator import registered
from ..moments.cpu import add_affine
from ..neuron_scan import chunk_rows, padded, simd
from ..neuron_scan.cpu import deal, flat, past_cache, plan_of, widened
from ..neuron_scan.threads import share_out
from ..spike_linear.events import flat_bits, most_rooms, padded_row, shares, sums_for, tiled, untiled, words
from ..spike_linear.kernels import GROUP, WIDE_GROUP
from ..surrogate import surrogate_from
from . import Block, Gradients, Output, Saved
from .kernels import mix_kernel, unmix_kernel

# Sequences go through the block in spans of about this size, which stay in the cache between its stages.
SPAN_BYTES = 8 << 20


class _GradientProduct:
    """grad @ weight: the gradient of a Linear's spikes, in float32 or rounded to bfloat16 (operands and result).

    A float64 block stays in float64: it is the reference of the tests."""

    def __init__(self, weight: Tensor, rows: int, dtype: str) -> None:
        self.weight, self.rounded = weight, dtype == "bfloat16" and weight.dtype == torch.float32
        if self.rounded:
            self.weight = weight.bfloat16()
            self.grad, self.product = (self.weight.new_empty((rows, columns)) for columns in weight.shape)

    def __call__(self, grad: Tensor, out: Tensor) -> None:
        if not self.rounded:
            torch.mm(grad, self.weight, out=out)
            return
        rows = len(grad)
        torch.mm(self.grad[:rows].copy_(grad), self.weight, out=self.product[:rows])
        out.copy_(self.product[:rows])


class _Walk:
    """Runs the temporal neurons of a block over its sequences, span by span."""

    def __init__(self, block: Block) -> None:
        self.u, self.lanes, self.pitch = block.u, block.u.shape[2], padded(block.u.shape[2])
        self.width = simd.BYTES // block.u.element_size()
        self.threads = torch.get_num_threads()
        self.program, owner = _program(block)
        self.plan = plan_of(owner, block.u, block.cu_seqlens)[0]
        self.source, self.at = flat(block.u)
        self.norm = _norm_rows(block)
        self.rows = [
            widened(torch.cat((neuron, self.norm)), self.pitch).view(-1).numpy() for neuron in block.coefficients
        ]
        shape = (len(self.rows), len(self.program.states), len(self.plan), self.pitch)
        self.state = np.zeros(shape, self.source.dtype)  # in the backward pass, its gradient

    def spans(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield spans of whole sequences as (first sequence, end sequence, first step, end step), steps of [B T]."""
        limit = SPAN_BYTES // (self.lanes * self.source.itemsize)
        ends = np.cumsum(self.plan[:, 2])
        first = begin = 0
        while first < len(self.plan):
            last = max(first + 1, int(np.searchsorted(ends, begin + limit, side="right")))
            if ends[last - 1] > begin:
                yield first, last, begin, int(ends[last - 1])
            first, begin = last, int(ends[last - 1])

    def run(self, sequences: tuple[int, int], kernel: Callable[..., None], *rest: object) -> None:
        """Run a kernel on the sequences first to last."""
        first, last = sequences
        tasks = deal(self.plan[first:last, 2], self.lanes, self.width, self.threads)

        def walk(share: np.ndarray) -> None:
            kernel(self.plan, share + np.array([first, 0, 0]), self.lanes, self.source, self.at, *rest)

        share_out(walk, tasks, min(self.threads, len(tasks)))


# Programs with a norm of their current, by the keys of those without.
_with_norm: dict[str, Program] = {}


def _program(block: Block) -> tuple[Program, str]:
    """The program of the temporal neurons, with the norm of their current if there is one, and their name."""
    program, owner = registered(block.neuron)
    if block.gamma is None:
        return program, owner
    if block.neuron not in _with_norm:
        _with_norm[block.neuron] = with_norm(program)
    return _with_norm[block.neuron], owner


def _norm_rows(block: Block) -> Tensor:
    """The coefficients of `with_norm`, [4, N]; [0, N] without a norm."""
    if block.gamma is None or block.beta is None or block.mean is None or block.inverse is None:
        return block.u.new_empty((0, block.u.shape[2]))
    return torch.stack((block.inverse, -block.mean * block.inverse, block.gamma, block.beta))


def _factors(block: Block) -> list[float]:
    """The factors on the two weights: amplitude times the scale of dropout."""
    amplitudes = (block.token_amplitude, block.channel_amplitude)
    return [block.keep_scale * (1.0 if amplitude is None else float(amplitude)) for amplitude in amplitudes]


def _keep_rows(block: Block) -> list[np.ndarray]:
    return [np.empty(0, np.uint8)] * 2 if block.keep is None else [row.numpy() for row in block.keep]


def _drop(rows: Tensor, keep: np.ndarray) -> None:
    """Zero the rows that dropout drops; `masked_fill_` takes ten times as long."""
    rows.index_fill_(0, torch.from_numpy(np.flatnonzero(keep == 0)), 0.0)


def _require_layout(block: Block, **saved: tuple[Tensor, tuple[int, ...], torch.dtype]) -> None:
    """Check the shapes that kernels rely on: an exported graph calls the operator without the public function."""
    u, (count, rows, lanes) = block.u, block.coefficients.shape
    if u.dim() != 3 or (block.cu_seqlens is not None and u.shape[0] != 1):
        raise ValueError(f"sdtcm: u must be [B, T, N], or [1, S, N] when packed, got {list(u.shape)}")
    expected = len(registered(block.neuron)[0].coefficients)
    if count not in (1, 2) or rows != expected or len(block.trained) != expected:
        raise ValueError(
            f"sdtcm: coefficients must be [1 or 2, {expected}, N], each trained or not, got "
            f"{list(block.coefficients.shape)} and {len(block.trained)}"
        )
    shapes = {
        "coefficients": (count, rows, u.shape[2]), "gamma": (lanes,), "beta": (lanes,), "mean": (lanes,),
        "inverse": (lanes,), "token_weight": (lanes, count * lanes), "token_bias": (lanes,),
        "channel_weight": (lanes, lanes), "channel_bias": (lanes,), "token_amplitude": (), "channel_amplitude": (),
    }  # fmt: skip
    layouts = {name: (getattr(block, name), shape, u.dtype) for name, shape in shapes.items()}
    layouts["keep"] = (block.keep, (2, u.shape[0] * u.shape[1]), torch.uint8)
    for name, (value, shape, dtype) in (layouts | saved).items():
        if value is not None and (value.shape != shape or value.dtype != dtype):
            raise ValueError(f"sdtcm: {name} must be {dtype} {list(shape)}, got {value.dtype} {list(value.shape)}")


def forward(block: Block) -> Output:
    _require_layout(block)
    block = block._replace(u=block.u.contiguous())
    u, count, lanes = block.u, block.coefficients.shape[0], block.u.shape[2]
    walk, row, steps = _Walk(block), words(lanes), u.shape[0] * u.shape[1]
    token_bits, channel_bits = (u.new_zeros((steps, n * row), dtype=torch.int64) for n in (count, 1))
    r, out = torch.empty_like(u), torch.empty_like(u)
    checkpoints = u.new_zeros((*walk.state.shape[:2], chunk_rows(u, block.cu_seqlens), walk.pitch))
    fire, mix = forward_kernel(walk.program, u.element_size(), block=True), mix_kernel(walk.width)
    token_factor, channel_factor = _factors(block)
    token_keep, channel_keep = _keep_rows(block)
    threshold = padded_row(torch.full_like(block.token_bias, block.threshold), u, lanes, torch.inf)
    rest = (
        walk.source, lanes, flat_bits(token_bits), count * row, tiled(block.token_weight, count, token_factor),
        padded_row(block.token_bias * block.keep_scale, u, lanes), token_keep, threshold, flat_bits(channel_bits),
        channel_bits.view(-1).numpy().view(np.uint8), row, tiled(block.channel_weight, 1, channel_factor),
        padded_row(block.channel_bias * block.keep_scale, u, lanes), channel_keep, r.view(-1).numpy(),
        out.view(-1).numpy(), block.keep is not None, past_cache(r), past_cache(out),
    )  # fmt: skip
    bits, pitch = token_bits.view(-1).numpy().view(np.uint8), 8 * count * row
    for first, last, begin, end in walk.spans():
        for k in range(count):
            walk.run(
                (first, last), fire, bits, (pitch * u.shape[1], pitch, 1, 8 * row * k), False, walk.rows[k], walk.pitch,
                walk.state[k].reshape(-1), checkpoints[k].view(-1).numpy(), k == 1,
            )  # fmt: skip
        stretches = [(begin + low, begin + high) for low, high in shares(end - begin, walk.threads, GROUP)]
        share_out(lambda stretch: mix(*stretch, *rest), stretches, walk.threads)
    fired = (*token_bits.view(steps, count, row).unbind(1), channel_bits)
    rates = [int(np.bitwise_count(each.numpy().view(np.uint64)).sum()) / max(1, u.numel()) for each in fired]
    saved = Saved(r, token_bits, channel_bits, checkpoints)
    return Output(out, u.new_tensor(rates, dtype=torch.float64), saved)


def backward(block: Block, saved: Saved, grad: Tensor | None, grad_rates: Tensor | None) -> Gradients:
    block = block._replace(u=block.u.contiguous())
    u, count, lanes = block.u, block.coefficients.shape[0], block.u.shape[2]
    steps, row, rows = u.shape[0] * u.shape[1], words(lanes), chunk_rows(u, block.cu_seqlens)
    states = len(registered(block.neuron)[0].states)
    pull = torch.zeros_like(u) if grad is None else grad.contiguous()
    _require_layout(
        block, grad=(pull, tuple(u.shape), u.dtype), r=(saved.r, tuple(u.shape), u.dtype),
        token_bits=(saved.token_bits, (steps, count * row), torch.int64),
        channel_bits=(saved.channel_bits, (steps, row), torch.int64),
        checkpoints=(saved.checkpoints, (count, states, rows, padded(lanes)), u.dtype),
    )  # fmt: skip
    walk, pull = _Walk(block), pull.view(steps, lanes)
    channel_surrogate = surrogate_from(block.channel_surrogate, list(block.channel_numbers))
    assert channel_surrogate.numba is not None
    unmix = unmix_kernel(walk.width, channel_surrogate.numba, channel_surrogate.vector)
    # Mean and inverse get their gradients from those of γ and β.
    trained = [*block.trained, *((False, False, True, True) if len(walk.norm) else ())]
    go_back = backward_kernel(
        walk.program, u.element_size(), (block.token_surrogate, list(block.token_numbers)), trained, block=True
    )

    token_factor, channel_factor = _factors(block)
    token_keep, channel_keep = _keep_rows(block)
    # x is first the gradient of S', then of R, finally of u; `grad_spikes` is that of the temporal spikes of one span.
    x = u.new_empty((steps, lanes))
    longest = max((end - begin for *_, begin, end in walk.spans()), default=0)
    grad_spikes = u.new_empty((longest, count * lanes))
    through_token = _GradientProduct(block.token_weight * token_factor, longest, block.gradient_dtype)
    through_channel = _GradientProduct(block.channel_weight * channel_factor, longest, block.gradient_dtype)
    number = walk.source.dtype.type
    # The gradient that each spike gets through the fire rates.
    rate_grads = u.new_zeros(count + 1) if grad_rates is None else grad_rates / max(1, u.numel())
    token_numbers, channel_numbers = (tuple(map(number, n)) for n in (block.token_numbers, block.channel_numbers))
    most = most_rooms(walk.threads, count * lanes, lanes, u.element_size())
    stretches = {
        begin: [(begin + low, begin + high) for low, high in shares(end - begin, walk.threads, WIDE_GROUP, most)]
        for *_, begin, end in walk.spans()
    }
    pieces = max(map(len, stretches.values()), default=1)
    token_sums, channel_sums = (sums_for(u, pieces, bits, lanes) for bits in (saved.token_bits, saved.channel_bits))
    token_room, channel_room = (sums.view(pieces, -1).numpy() for sums in (token_sums, channel_sums))
    sums = np.zeros((count, len(trained), *walk.state.shape[2:]))
    arrays = (
        pull.view(-1).numpy(), x.view(-1).numpy(), saved.r.view(-1).numpy(), lanes, number(block.threshold),
        number(rate_grads[-1]), channel_numbers, flat_bits(saved.token_bits), saved.token_bits.shape[1], token_keep,
        flat_bits(saved.channel_bits), saved.channel_bits.shape[1], channel_keep, block.keep is not None,
    )  # fmt: skip

    def unmix_stretch(stretch: tuple[int, tuple[int, int]]) -> None:
        room, (first_step, end_step) = stretch
        unmix(first_step, end_step, *arrays, token_room[room], channel_room[room])

    for first, last, begin, end in walk.spans():
        through_channel(pull[begin:end], x[begin:end])
        _drop(x[begin:end], channel_keep[begin:end])
        share_out(unmix_stretch, list(enumerate(stretches[begin])), walk.threads)
        span_grad = grad_spikes[: end - begin]
        through_token(x[begin:end], span_grad)
        _drop(span_grad, token_keep[begin:end])
        pitch = count * lanes
        for k in range(count):
            # `grad_spikes` begins with this span's first step.
            place = (pitch * u.shape[1], pitch, 1, k * lanes - pitch * begin)
            walk.run(
                (first, last), go_back, grad_spikes.view(-1).numpy(), place, number(rate_grads[k]), x.view(-1).numpy(),
                walk.at, False, walk.rows[k], walk.pitch, saved.checkpoints[k].reshape(-1).numpy(), token_numbers,
                walk.state[k].reshape(-1), sums[k].reshape(-1), k == 1,
            )  # fmt: skip

    grad_token, grad_token_bias = untiled(token_sums, count, lanes, lanes)
    grad_channel, grad_channel_bias = untiled(channel_sums, 1, lanes, lanes)
    by_neuron = torch.from_numpy(sums.sum(2)[..., :lanes])
    grad_gamma, grad_beta = by_neuron[:, -2:].sum(0) if len(walk.norm) else by_neuron.new_zeros((2, lanes))
    if block.training and block.gamma is not None and (steps or block.group):
        _through_statistics(x, u, grad_gamma, grad_beta, walk.norm, block.group)
    return Gradients(
        u=x.view(u.shape),
        coefficients=by_neuron[:, : len(block.trained)].to(u.dtype, copy=True).contiguous(),
        gamma=grad_gamma.to(u.dtype, copy=True),
        beta=grad_beta.to(u.dtype, copy=True),
        token_weight=grad_token * token_factor,
        token_bias=grad_token_bias * block.keep_scale,
        channel_weight=grad_channel * channel_factor,
        channel_bias=grad_channel_bias * block.keep_scale,
        token_amplitude=(grad_token * block.token_weight).sum() * block.keep_scale,
        channel_amplitude=(grad_channel * block.channel_weight).sum() * block.keep_scale,
    )


def _through_statistics(x: Tensor, u: Tensor, grad_gamma: Tensor, grad_beta: Tensor, norm: Tensor, group: str) -> None:
    """Add the contribution of mean and variance to the gradient x of u: -γ inv (∂β + x̂ ∂γ) / steps.

    If processes share the statistics, ∂γ, ∂β and steps are summed over all of them."""
    inverse, off, gamma, _ = norm.double()
    steps = torch.full_like(gamma, x.shape[0])
    if group:
        grad_gamma, grad_beta, steps = _over_processes(torch.stack((grad_gamma, grad_beta, steps)), group)
    if x.shape[0] == 0:
        return
    scale = -gamma * inverse / steps
    add_affine(x, u, scale * (grad_beta + off * grad_gamma), scale * inverse * grad_gamma)


def _over_processes(sums: Tensor, group: str) -> Tensor:
    """Sum over all processes of a group, in place."""
    # Imported here, because torch can be built without it.
    from torch._C._distributed_c10d import _resolve_process_group

    process_group = _resolve_process_group(group)  # type: ignore[arg-type] # torch has a type for such strings
    torch.distributed.all_reduce(sums, group=process_group)
    return sums
