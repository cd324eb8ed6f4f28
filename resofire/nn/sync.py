"""Statistics synchronised across processes.

Batch norms and the penalty on fire rates need statistics of the whole batch. `synchronise` tells a model that its batch
is divided among a group of processes: statistics are then taken over all of them, in forward and backward, and training
computes what one process would. All processes must take part in every training step, forward and backward. In
evaluation no process waits for another.

Gradients are those of the sum of all processes' losses. DDP averages gradients, so each process scales the loss of its
samples by processes / samples in the global batch; a penalty on the global batch is added unscaled.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .firing import FireRates


class Synchronised(nn.Module):
    """A module whose training statistics are those of the whole batch.

    `group` is the name of the process group, "" for this process alone. A name, unlike the group itself, can be copied,
    pickled and passed to an operator.
    """

    group: str = ""


def synchronise(model: nn.Module, group: Any = None) -> None:
    """Let a model train on a batch that is divided among processes: norms and fire rates are those of the whole batch.

    Args:
        model: The model, the same in every process.
        group: A group of torch.distributed, or None for all processes.
    """
    name = _name("synchronise", group)
    for module in model.modules():
        if isinstance(module, Synchronised):
            module.group = name


def summed(x: Tensor, group: Any = None) -> Tensor:
    """The sum of a tensor over processes; its gradient is summed over them too.

    Args:
        x: The tensor of this process, of the same shape in all.
        group: A group of torch.distributed or its name, or None for all processes.
    """
    return _summed(x, group if isinstance(group, str) else _name("summed", group))


@torch.library.custom_op("resofire::summed", mutates_args=())
def _summed(x: Tensor, group: str) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=_resolve(group))
    return total


@_summed.register_fake
def _(x: Tensor, group: str) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Tensor, str], output: Tensor) -> None:
    ctx.group = inputs[1]


def _pull_back(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return _summed(grad, ctx.group), None


_summed.register_autograd(_pull_back, setup_context=_save)


@torch.library.custom_op("resofire::gathered", mutates_args=())
def gathered(x: Tensor, group: str) -> Tensor:
    """x of all processes of a group, given by its name, [processes, *x.shape] in the order of their ranks."""
    process_group = _resolve(group)
    rows = x.new_zeros((process_group.size(), *x.shape))
    rows[process_group.rank()] = x
    # A sum of one x and zeros is exact, so that all processes get the same bits.
    dist.all_reduce(rows, group=process_group)
    return rows


@gathered.register_fake
def _(x: Tensor, group: str) -> Tensor:
    return x.new_empty((_resolve(group).size(), *x.shape))


def _own_row(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return _summed(grad, ctx.group)[_resolve(ctx.group).rank()], None


gathered.register_autograd(_own_row, setup_context=_save)


def summed_rates(rates: FireRates, group: str) -> dict[str, Tensor]:
    """The fire rates over all processes, like `FireRates.tensors`."""
    if not rates._spikes:
        return {}
    fired = torch.stack(list(rates._spikes.values()))
    seen = fired.new_tensor([rates._counts[name] for name in rates._spikes])
    fired, seen = summed(torch.stack((fired, seen)), group)
    return dict(zip(rates._spikes, (fired / seen.clamp(min=1)).unbind(), strict=True))


def _name(op: str, group: Any) -> str:
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(f"{op}: torch.distributed must be initialised first (torch.distributed.init_process_group)")
    process_group = dist.group.WORLD if group is None else group
    if not isinstance(process_group, dist.ProcessGroup):
        raise ValueError(f"{op}: group must be None or a process group that this process is in, got {group!r}")
    return process_group.group_name


def _resolve(group: str) -> Any:
    # Imported here, as torch can be built without it.
    from torch._C._distributed_c10d import _resolve_process_group

    try:
        return _resolve_process_group(group)  # type: ignore[arg-type] # torch has a name for such strings
    except RuntimeError:
        raise RuntimeError(
            f"the model was synchronised over process group {group!r}, which is not there now: initialise "
            f"torch.distributed and call synchronise again"
        ) from None
