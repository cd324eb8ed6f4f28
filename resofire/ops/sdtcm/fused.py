"""The host side of the fused block: what runs when, and where it is kept."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ..fused import chunk_rows, padded, simd
from ..fused.kernels import RESETS, backward_kernel, forward_kernel
from ..fused.scan import deal, flat, past_cache, plan_of, widened
from ..fused.threads import share_out
from ..moments.fused import add_affine
from ..spike_linear.events import flat_bits, padded_row, shares, sums_for, tiled, untiled, words
from ..spike_linear.kernels import GROUP, WIDE_GROUP
from ..surrogate import surrogate_from
from .kernels import mix_kernel, unmix_kernel

# Sequences go through the block in spans of about this size, small enough for what is read again to be still near.
SPAN_BYTES = 2 << 20


def _spans(plan: np.ndarray, u: Tensor) -> Iterator[tuple[int, int, int, int]]:
    """Stretches of whole sequences: the first and end sequence, the first and end time step of [B T]."""
    limit = SPAN_BYTES // (u.shape[2] * u.element_size())
    ends = np.cumsum(plan[:, 2])
    first = begin = 0
    while first < len(plan):
        last = max(first + 1, int(np.searchsorted(ends, begin + limit, side="right")))
        yield first, last, begin, int(ends[last - 1])
        first, begin = last, int(ends[last - 1])


class _Neurons:
    """The temporal neurons of a block over its sequences, span by span."""

    def __init__(self, u: Tensor, coefficients: Tensor, norm: list[Tensor], cu_seqlens: Tensor | None) -> None:
        self.u, self.lanes, self.pitch = u, u.shape[2], padded(u.shape[2])
        self.resonant = coefficients.shape[1] == 4
        self.width = simd.BYTES // u.element_size()
        self.plan = plan_of(u, self.resonant, cu_seqlens)[0]
        self.source, self.at = flat(u)
        self.rows = []
        for neuron in coefficients:
            wide = widened(torch.cat((neuron, torch.stack(norm))), self.pitch)
            wide[neuron.shape[0] - 1, self.lanes :] = torch.inf  # lanes that are not there do not fire
            self.rows.append(wide.view(-1).numpy())

    def state(self, rows: int) -> np.ndarray:
        return np.zeros((rows, len(self.plan), self.pitch), self.source.dtype)

    def run(self, first: int, last: int, kernel: Callable[..., None], *rest: object) -> None:
        """Runs a kernel on some sequences."""
        threads = torch.get_num_threads()
        tasks = deal(self.plan[first:last, 2], self.lanes, self.width, threads)

        def walk(share: np.ndarray) -> None:
            kernel(self.plan, share + np.array([first, 0, 0]), self.lanes, self.source, self.at, *rest)

        share_out(walk, tasks, min(threads, len(tasks)))


def _norm_rows(u: Tensor, gamma: Tensor | None, beta: Tensor | None, mean: Tensor | None,
               inverse: Tensor | None) -> list[Tensor]:  # fmt: skip
    """inv, off, γ, β with N(x) = γ (x inv + off) + β; see `fused.kernels`."""
    one, zero = u.new_ones(u.shape[2]), u.new_zeros(u.shape[2])
    if gamma is None or beta is None or mean is None or inverse is None:
        return [one, zero, one, zero]
    return [inverse, -mean * inverse, gamma, beta]


def _factor(amplitude: Tensor | None, scale: float) -> float:
    return scale * (1.0 if amplitude is None else float(amplitude))


def _keep(keep: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    if keep is None:
        none = np.empty(0, np.uint8)
        return none, none
    return keep[0].numpy(), keep[1].numpy()


def forward(
    u: Tensor, coefficients: Tensor, gamma: Tensor | None, beta: Tensor | None, token_weight: Tensor, token_bias: Tensor,
    channel_weight: Tensor, channel_bias: Tensor, token_amplitude: Tensor | None, channel_amplitude: Tensor | None,
    mean: Tensor | None, inverse: Tensor | None, keep: Tensor | None, cu_seqlens: Tensor | None, keep_scale: float,
    reset: str, threshold: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    u = u.contiguous()
    count, lanes, steps = coefficients.shape[0], u.shape[2], u.shape[0] * u.shape[1]
    neurons = _Neurons(u, coefficients, _norm_rows(u, gamma, beta, mean, inverse), cu_seqlens)
    row = words(lanes)
    token_bits = torch.zeros((steps, count * row), dtype=torch.int64)
    channel_bits = torch.zeros((steps, row), dtype=torch.int64)
    r, out = torch.empty_like(u), torch.empty_like(u)
    kept = u.new_zeros((count, coefficients.shape[1] // 2, chunk_rows(u, cu_seqlens), neurons.pitch))
    rates = torch.zeros(count + 1, dtype=torch.float64)
    if not u.numel():
        return out, rates, r, token_bits, channel_bits, kept
    fire = forward_kernel(neurons.width, neurons.resonant, RESETS[reset], True)
    states = [neurons.state(kept.shape[1]) for _ in range(count)]
    token_bytes = token_bits.view(-1).numpy().view(np.uint8)
    threads, (token_keep, channel_keep) = torch.get_num_threads(), _keep(keep)
    mix, rest = mix_kernel(neurons.width), (
        neurons.source, lanes, flat_bits(token_bits), count * row,
        tiled(token_weight, count, _factor(token_amplitude, keep_scale)),
        padded_row(token_bias * keep_scale, u, lanes), token_keep,
        padded_row(torch.full_like(token_bias, threshold), u, lanes, torch.inf), flat_bits(channel_bits),
        channel_bits.view(-1).numpy().view(np.uint8), row,
        tiled(channel_weight, 1, _factor(channel_amplitude, keep_scale)),
        padded_row(channel_bias * keep_scale, u, lanes), channel_keep, r.view(-1).numpy(), out.view(-1).numpy(),
        keep is not None, past_cache(out),
    )  # fmt: skip
    for first, last, begin, end in _spans(neurons.plan, u):
        for k in range(count):
            neurons.run(
                first, last, fire, token_bytes[8 * row * k :], (8 * count * row * u.shape[1], 8 * count * row, 1, 0), False,
                neurons.rows[k], neurons.pitch, states[k].reshape(-1), kept[k].view(-1).numpy(), k == 1,
            )  # fmt: skip
        share_out(lambda span: mix(span[0] + begin, span[1] + begin, *rest), shares(end - begin, threads, GROUP), threads)
    fired = [token_bits[:, k * row : (k + 1) * row] for k in range(count)] + [channel_bits]
    for i, bits in enumerate(fired):
        rates[i] = int(np.bitwise_count(bits.numpy()).sum()) / u.numel()
    return out, rates, r, token_bits, channel_bits, kept


def backward(
    grad: Tensor | None, grad_rates: Tensor | None, r: Tensor, token_bits: Tensor, channel_bits: Tensor,
    checkpoints: Tensor, u: Tensor, coefficients: Tensor, gamma: Tensor | None, beta: Tensor | None,
    token_weight: Tensor, channel_weight: Tensor, token_amplitude: Tensor | None, channel_amplitude: Tensor | None,
    mean: Tensor | None, inverse: Tensor | None, keep: Tensor | None, cu_seqlens: Tensor | None, training: bool,
    keep_scale: float, reset: str, full: bool, token_surrogate: str, token_numbers: list[float], threshold: float,
    channel_surrogate: str, channel_numbers: list[float],
) -> tuple[Tensor, ...]:  # fmt: skip
    u = u.contiguous()
    count, lanes, steps = coefficients.shape[0], u.shape[2], u.shape[0] * u.shape[1]
    norm = _norm_rows(u, gamma, beta, mean, inverse)
    neurons = _Neurons(u, coefficients, norm, cu_seqlens)
    grad = torch.zeros_like(u) if grad is None else grad.contiguous()
    more = np.zeros(count + 1) if grad_rates is None else grad_rates.double().numpy() / max(1, u.numel())
    kind, threads = neurons.source.dtype.type, torch.get_num_threads()

    # The gradient of S', then of R, and in the end of u; and that of the temporal spikes, of one span.
    x = torch.empty_like(u)
    rows = steps and max(end - begin for _, _, begin, end in _spans(neurons.plan, u))
    pull = u.new_empty((rows, count * lanes))
    channel_back = channel_weight * _factor(channel_amplitude, keep_scale)
    token_back = token_weight * _factor(token_amplitude, keep_scale)
    pieces = 4 * threads
    token_sums, channel_sums = (sums_for(u, pieces, bits, lanes) for bits in (token_bits, channel_bits))
    token_room, channel_room = (sums.view(pieces, -1).numpy() for sums in (token_sums, channel_sums))
    token_keep, channel_keep = _keep(keep)
    shape, spatial = surrogate_from(token_surrogate, token_numbers), surrogate_from(channel_surrogate, channel_numbers)
    assert shape.numba is not None
    assert spatial.numba is not None
    unmix = unmix_kernel(neurons.width, spatial.numba)
    walk_back = backward_kernel(
        neurons.width, neurons.resonant, RESETS[reset], full and reset != "none", shape.numba, shape.vector, True
    )
    states = [neurons.state(checkpoints.shape[1]) for _ in range(count)]
    sums = np.zeros((count, 4 if neurons.resonant else 3, len(neurons.plan), neurons.pitch))
    flat_grad, flat_x = grad.view(steps, lanes), x.view(steps, lanes)
    numbers = tuple(map(kind, token_numbers))
    unmix_args = (
        flat_grad.view(-1).numpy(), flat_x.view(-1).numpy(), r.contiguous().view(-1).numpy(), lanes, kind(threshold),
        kind(more[count]), tuple(map(kind, channel_numbers)), flat_bits(token_bits), token_bits.shape[1], token_keep,
    )  # fmt: skip
    for first, last, begin, end in _spans(neurons.plan, u):
        if begin == end:
            continue
        torch.mm(flat_grad[begin:end], channel_back, out=flat_x[begin:end])
        if keep is not None:
            flat_x[begin:end].masked_fill_(keep[1, begin:end, None] == 0, 0.0)
        parts = list(enumerate(shares(end - begin, threads, WIDE_GROUP)))

        def run(part: tuple[int, tuple[int, int]], begin: int = begin) -> None:
            piece, (low, high) = part
            unmix(
                begin + low, begin + high, *unmix_args, token_room[piece], flat_bits(channel_bits),
                channel_bits.shape[1], channel_keep, channel_room[piece], keep is not None,
            )  # fmt: skip

        share_out(run, parts, threads)
        torch.mm(flat_x[begin:end], token_back, out=pull[: end - begin])
        if keep is not None:
            pull[: end - begin].masked_fill_(keep[0, begin:end, None] == 0, 0.0)
        for k in range(count):
            # `pull` holds this span alone, beginning at its first step.
            row = count * lanes
            place = (row * u.shape[1], row, 1, k * lanes - begin * row)
            neurons.run(
                first, last, walk_back, pull.view(-1).numpy(), place, kind(more[k]), flat_x.view(-1).numpy(), neurons.at, False,
                neurons.rows[k], neurons.pitch, checkpoints[k].contiguous().view(-1).numpy(), numbers,
                states[k].reshape(-1), sums[k].reshape(-1), k == 1,
            )  # fmt: skip
    grad_token, grad_token_bias = untiled(token_sums, count, lanes, lanes)
    grad_channel, grad_channel_bias = untiled(channel_sums, 1, lanes, lanes)
    grads = [
        (grad_token * token_weight).sum() * keep_scale, (grad_channel * channel_weight).sum() * keep_scale,
    ]  # fmt: skip
    grad_coefficients, grad_norm = _through_current(torch.from_numpy(sums.sum(2)[..., :lanes]), coefficients, norm)
    if training and gamma is not None and steps:
        _through_statistics(x, u, grad_norm, norm)
    return (
        x, grad_coefficients, grad_norm.to(u.dtype), grad_token * _factor(token_amplitude, keep_scale),
        grad_token_bias * keep_scale, grad_channel * _factor(channel_amplitude, keep_scale),
        grad_channel_bias * keep_scale, *grads,
    )  # fmt: skip


def _through_current(sums: Tensor, coefficients: Tensor, norm: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The gradients of the coefficients and of [γ, β] from the sums of the kernel: see `fused.kernels`, `block`."""
    gamma, beta = (row.double() for row in norm[2:])
    grads = torch.zeros_like(coefficients)
    if coefficients.shape[1] == 4:
        delta = coefficients[:, 2].double()
        by_x, by_one = sums[:, 2], sums[:, 3]
        grads[:, :2] = sums[:, :2]
        grads[:, 2] = gamma * by_x + beta * by_one
        return grads, torch.stack(((delta * by_x).sum(0), (delta * by_one).sum(0)))
    grads[:, 0] = sums[:, 0]
    return grads, torch.stack((sums[:, 2].sum(0), sums[:, 1].sum(0)))


def _through_statistics(x: Tensor, u: Tensor, grad_norm: Tensor, norm: list[Tensor]) -> None:
    """Adds to the gradient of u what mean and variance contribute: -γ inv (∂β + x̂ ∂γ) / steps."""
    steps = u.numel() // u.shape[2]
    inverse, off, gamma, _ = (row.double() for row in norm)
    by_x_hat, by_one = grad_norm
    factor = -gamma * inverse * inverse * by_x_hat / steps
    constant = -gamma * inverse * (by_one + off * by_x_hat) / steps
    add_affine(x, u, constant, factor)
