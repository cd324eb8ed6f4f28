"""A layer with feedback, current_t = x_t + W s_{t-1}, as operators of torch: schema, shapes, autograd, host code.

Shapes: current [B, T, N], or packed [1, S, N] with `cu_seqlens`; weight W [N, N]; `first` [B, N], added to the current
of each sequence's first step (the feedback of a carried state).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Never

import numpy as np
import torch
from torch import Tensor

from ..neuron_scan import chunk_rows, padded, require_like, sequences_of
from ..surrogate import refuse_double_backward, refuse_forward_mode
from .operator import program_for


class Layer(NamedTuple):
    """One call. The operators' arguments have these names, in this order."""

    current: Tensor
    weight: Tensor
    coefficients: Tensor  # [K, N]
    state: Tensor  # [S, B, N], without the spikes
    first: Tensor
    cu_seqlens: Tensor | None
    key: str
    surrogate: str
    numbers: Sequence[float]
    reverse: bool
    trained: Sequence[bool]


class Gradients(NamedTuple):
    """Gradients of the fields of `Layer` with these names."""

    current: Tensor
    weight: Tensor
    coefficients: Tensor
    state: Tensor
    first: Tensor


_TENSORS = (*Gradients._fields, "cu_seqlens")
_OPTIONS = [name for name in Layer._fields if name not in _TENSORS]


def _require_layout(layer: Layer) -> Any:
    program, owner = program_for(layer.key, layer.current, layer.coefficients, layer.cu_seqlens)
    lanes, dtype = layer.current.shape[2], layer.current.dtype
    sequences = sequences_of(layer.current, layer.cu_seqlens)
    require_like(owner, "weight", layer.weight, (lanes, lanes), dtype)
    require_like(owner, "state", layer.state, (len(program.states), sequences, lanes), dtype)
    require_like(owner, "first", layer.first, (sequences, lanes), dtype)
    return program, owner


class _Memory:
    """The tensors of a call as the kernels take them: whole rows of `pitch` lanes."""

    def __init__(self, layer: Layer, owner: str) -> None:
        from ..neuron_scan.cpu import deal, plan_of, widened

        current, lanes = layer.current.detach(), layer.current.shape[2]
        self.pitch, self.lanes = padded(lanes), lanes
        self.plan = plan_of(owner, current, layer.cu_seqlens)[0]
        # A sequence is not divided: its lanes depend on each other.
        self.shares = deal(self.plan[:, 2], lanes, self.pitch, torch.get_num_threads())
        self.current = self.rows(current)
        self.first, self.coefficients = widened(layer.first, self.pitch), widened(layer.coefficients, self.pitch)
        self.table = widened(layer.weight.T, self.pitch)
        self.strides = (current.shape[1] * self.pitch, self.pitch, 1, 0)

    def rows(self, tensor: Tensor) -> Tensor:
        """[B, T, N] as a contiguous [B, T, pitch]."""
        from ..neuron_scan.cpu import widened

        return tensor.contiguous() if self.lanes == self.pitch else widened(tensor, self.pitch)

    def ends(self, reverse: bool, last: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Batch index, time and sequence of the first or last step of every sequence that has one."""
        some = np.flatnonzero(self.plan[:, 2])
        offset = self.plan[some, 2] - 1 if reverse != last else 0
        batch, time = self.plan[some, 0], self.plan[some, 1] + offset
        return torch.from_numpy(batch), torch.from_numpy(time), torch.from_numpy(some)


def _flat(tensor: Tensor) -> np.ndarray:
    return tensor.detach().reshape(-1).numpy()


@torch.library.custom_op("resofire::recurrent", mutates_args=())
def forward(
    current: Tensor, weight: Tensor, coefficients: Tensor, state: Tensor, first: Tensor, cu_seqlens: Tensor | None,
    key: str, surrogate: str, numbers: Sequence[float], reverse: bool, trained: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from ..neuron_scan.cpu import run, widened
    from .cpu import recurrent_forward_kernel

    layer = Layer(
        current, weight, coefficients, state, first, cu_seqlens, key, surrogate, numbers, reverse, trained
    )  # fmt: skip
    program, owner = _require_layout(layer)
    memory = _Memory(layer, owner)
    spikes, running = torch.empty_like(memory.current), widened(state, memory.pitch)
    checkpoints = state.new_zeros((state.shape[0], chunk_rows(current, cu_seqlens), memory.pitch))
    if current.numel():
        run(
            recurrent_forward_kernel(program, current.element_size()), memory.plan, memory.shares,
            memory.lanes, _flat(memory.current), _flat(memory.first), _flat(spikes), memory.strides,
            _flat(memory.coefficients), memory.pitch, _flat(memory.table), _flat(running), _flat(checkpoints), reverse,
        )  # fmt: skip
    return spikes[..., : memory.lanes].contiguous(), running[..., : memory.lanes].clone(), checkpoints


@forward.register_fake
def _(
    current: Tensor, weight: Tensor, coefficients: Tensor, state: Tensor, first: Tensor, cu_seqlens: Tensor | None,
    *rest: object,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    checkpoints = state.new_empty((state.shape[0], chunk_rows(current, cu_seqlens), padded(current.shape[2])))
    return torch.empty_like(current, memory_format=torch.contiguous_format), torch.empty_like(state), checkpoints


@torch.library.custom_op("resofire::recurrent_backward", mutates_args=())
def backward(
    grad_spikes: Tensor | None, grad_state: Tensor | None, spikes: Tensor, checkpoints: Tensor, current: Tensor,
    weight: Tensor, coefficients: Tensor, state: Tensor, first: Tensor, cu_seqlens: Tensor | None, key: str,
    surrogate: str, numbers: Sequence[float], reverse: bool, trained: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    from ..neuron_scan.cpu import flat, number_type, widened, with_whole_rows
    from ..neuron_scan.threads import share_out
    from .cpu import recurrent_backward_kernel

    layer = Layer(
        current, weight, coefficients, state, first, cu_seqlens, key, surrogate, numbers, reverse, trained
    )  # fmt: skip
    program, owner = _require_layout(layer)
    shape, dtype = tuple(current.shape), current.dtype
    memory = _Memory(layer, owner)
    lanes, pitch = memory.lanes, memory.pitch
    rows = chunk_rows(current, cu_seqlens)
    require_like(owner, "checkpoints", checkpoints, (state.shape[0], rows, pitch), dtype)
    require_like(owner, "spikes", spikes, shape, dtype)
    require_like(owner, "grad_spikes", grad_spikes, shape, dtype)
    require_like(owner, "grad_state", grad_state, tuple(state.shape), dtype)
    grad_current = torch.zeros_like(memory.current) if lanes != pitch else torch.empty_like(memory.current)
    running = widened(torch.zeros_like(state) if grad_state is None else grad_state, pitch)
    sums = np.zeros((max(1, len(trained)), len(memory.plan), pitch))
    tables = current.new_zeros((len(memory.shares), lanes, pitch))
    if current.numel():
        pull = current.new_zeros(1).expand(shape) if grad_spikes is None else grad_spikes
        pull = with_whole_rows(pull) if lanes == pitch else memory.rows(pull)
        source, place = flat(pull if pull.stride(2) == 1 else pull.contiguous())
        form = (surrogate, list(numbers))
        kernel = recurrent_backward_kernel(program, current.element_size(), form, trained)
        rest = (
            lanes, _flat(memory.current), _flat(memory.first), _flat(memory.rows(spikes)), memory.strides, source,
            place, _flat(grad_current), _flat(memory.coefficients), pitch, _flat(memory.table),
            _flat(widened(weight, pitch)), _flat(checkpoints), tuple(map(number_type(dtype), numbers)), _flat(running),
            sums.reshape(-1),
        )  # fmt: skip
        work = [(tasks, _flat(table)) for tasks, table in zip(memory.shares, tables, strict=True)]
        share_out(
            lambda share: kernel(memory.plan, share[0], *rest, share[1], reverse), work,
            min(torch.get_num_threads(), len(work)),
        )  # fmt: skip
    grad_first = torch.zeros_like(first)
    if current.numel():
        batch, time, some = memory.ends(reverse, last=False)
        grad_first[some] = grad_current[batch, time][:, :lanes]
    total = torch.from_numpy(np.ascontiguousarray(sums.sum(1)[: len(trained), :lanes])).to(dtype)
    grad_weight = tables.double().sum(0).T[:lanes].to(dtype).contiguous()
    return Gradients(
        current=grad_current[..., :lanes].contiguous(),
        weight=grad_weight,
        coefficients=total,
        state=running[..., :lanes].clone(),
        first=grad_first,
    )


@backward.register_fake
def _(
    grad_spikes: Tensor | None, grad_state: Tensor | None, spikes: Tensor, checkpoints: Tensor, current: Tensor,
    weight: Tensor, coefficients: Tensor, state: Tensor, first: Tensor, *rest: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    like = (current, weight, coefficients, state, first)
    a, b, c, d, e = (torch.empty_like(each, memory_format=torch.contiguous_format) for each in like)
    return a, b, c, d, e


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    layer, (spikes, _, checkpoints) = Layer(*inputs), output
    ctx.save_for_backward(spikes, checkpoints, *(getattr(layer, name) for name in _TENSORS))
    ctx.options = [getattr(layer, name) for name in _OPTIONS]
    ctx.set_materialize_grads(False)


def _pull_back(ctx: Any, grad_spikes: Tensor | None, grad_state: Tensor | None, _: object) -> tuple[Any, ...]:
    by_name: dict[str, Tensor] = {}
    if grad_spikes is not None or grad_state is not None:
        by_name = Gradients(*backward(grad_spikes, grad_state, *ctx.saved_tensors, *ctx.options))._asdict()
    return tuple(by_name.get(name) for name in Layer._fields)


def _refuse(ctx: Any, *grads: Tensor) -> Never:
    refuse_double_backward("a recurrent layer")


forward.register_autograd(_pull_back, setup_context=_save)
backward.register_autograd(_refuse)


def run(layer: Layer) -> tuple[Tensor, Tensor]:
    """Spikes, and the final state [S, B, N] of the neuron inside."""
    refuse_forward_mode("a recurrent layer", layer.current, layer.weight, layer.coefficients, layer.state, layer.first)
    spikes, last, _ = forward(*layer)
    return spikes, last
