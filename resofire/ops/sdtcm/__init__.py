"""A whole SD-TCM block as one operator for the CPU. The equation is in `resofire.nn.sdtcm`, which can also compose it.

Of size [B, T, N] only the input and R (for the slope of the spatial spikes) are saved for the backward pass: spikes are
bits, the norm is part of the neuron's walk, shortcuts and dropout are part of the sums over active inputs. Sequences
are processed in spans that fit the cache, forward and backward.

This file defines the operator for torch (schema, shapes, autograd); `cpu.py` runs it with the kernels of `kernels.py`.
"""

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Never, get_type_hints

import torch
from torch import Tensor

from ..checks import require_choice
from ..equation.operator import registered
from ..neuron_scan import HAVE_NUMBA, chunk_rows, padded
from ..spike_linear.events import words
from ..surrogate import refuse_double_backward, refuse_forward_mode

GRADIENT_DTYPES = ("float32", "bfloat16")


class Block(NamedTuple):
    """One call of the block. The operator's arguments have these names, in this order."""

    u: Tensor  # [B, T, N], or [1, S, N] packed with cu_seqlens
    coefficients: Tensor  # [K, C, N] of K = 1 or 2 temporal neurons, the second reversed
    gamma: Tensor | None  # [N]: of the norm of their current, γ (u - mean) inverse + β; None without a norm
    beta: Tensor | None
    token_weight: Tensor  # [N, K N]
    token_bias: Tensor  # [N]
    channel_weight: Tensor  # [N, N]
    channel_bias: Tensor  # [N]
    token_amplitude: Tensor | None  # []; None is 1
    channel_amplitude: Tensor | None
    mean: Tensor | None  # [N], of the norm
    inverse: Tensor | None  # [N], 1 / √(variance + eps)
    keep: Tensor | None  # [2, B T], uint8: 0 where dropout drops the output of the first or second Linear
    cu_seqlens: Tensor | None
    training: bool  # whether mean and inverse are computed from u, so that gradients flow through them
    keep_scale: float  # factor on the outputs that dropout keeps
    neuron: str  # the key of the temporal neurons' equation, see `ops.equation`
    trained: Sequence[bool]  # which of their coefficients have a gradient
    token_surrogate: str
    token_numbers: Sequence[float]
    threshold: float  # of the spatial neuron
    channel_surrogate: str
    channel_numbers: Sequence[float]
    group: str = ""  # processes that share mean and inverse; "" for none
    gradient_dtype: str = "float32"  # of the products that give the gradients of spikes: one of GRADIENT_DTYPES


class Saved(NamedTuple):
    """Tensors that the forward pass saves for the backward pass."""

    r: Tensor  # [B, T, N]
    token_bits: Tensor  # [B T, K words]
    channel_bits: Tensor  # [B T, words]
    checkpoints: Tensor  # [K, states, rows, padded N]


class Output(NamedTuple):
    """Results of the forward pass."""

    out: Tensor  # U⁺, like u
    rates: Tensor  # [K + 1], float64: fire rates of the temporal neurons and the spatial one
    saved: Saved


class Gradients(NamedTuple):
    """Gradients of the fields of `Block` with these names; zeros for what is None or not trained."""

    u: Tensor
    coefficients: Tensor
    gamma: Tensor
    beta: Tensor
    token_weight: Tensor
    token_bias: Tensor
    channel_weight: Tensor
    channel_bias: Tensor
    token_amplitude: Tensor
    channel_amplitude: Tensor


_KINDS = {Tensor: "Tensor", Tensor | None: "Tensor?", bool: "bool", float: "float", str: "str",
          Sequence[float]: "float[]", Sequence[bool]: "bool[]"}  # fmt: skip
_TENSORS = [name for name, kind in get_type_hints(Block).items() if kind in (Tensor, Tensor | None)]
_OPTIONS = [name for name in Block._fields if name not in _TENSORS]


def _arguments(fields: type[Block] | type[Saved]) -> str:
    """The fields of a structure as arguments of an operator, in torch's schema language."""
    defaults = {name: f'="{value}"' for name, value in fields._field_defaults.items()}
    hints = get_type_hints(fields)
    return ", ".join(f"{_KINDS[kind]} {name}{defaults.get(name, '')}" for name, kind in hints.items())


def _tensors(count: int) -> str:
    return f"({', '.join(['Tensor'] * count)})"


def _host() -> Any:
    return importlib.import_module(f"{__name__}.cpu")


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    out, rates, saved = _host().forward(Block(*arguments))
    return out, rates, *saved


def _backward(grad: Tensor | None, grad_rates: Tensor | None, *arguments: Any) -> tuple[Tensor, ...]:
    saved, block = Saved(*arguments[: len(Saved._fields)]), Block(*arguments[len(Saved._fields) :])
    return tuple(_host().backward(block, saved, grad, grad_rates))


block_op = torch.library.custom_op(
    "resofire::sdtcm", _forward, mutates_args=(),
    schema=f"({_arguments(Block)}) -> {_tensors(2 + len(Saved._fields))}",
)  # fmt: skip
block_backward_op = torch.library.custom_op(
    "resofire::sdtcm_backward", _backward, mutates_args=(),
    schema=f"(Tensor? grad, Tensor? grad_rates, {_arguments(Saved)}, {_arguments(Block)}) -> "
    f"{_tensors(len(Gradients._fields))}",
)  # fmt: skip


def run(block: Block) -> tuple[Tensor, Tensor]:
    """Run a block over whole sequences.

    Gradients flow to the fields that `Gradients` names.

    Args:
        block: The call.

    Returns:
        U⁺, like u, and the fire rates [K + 1] of the temporal neurons and the spatial one, float64.
    """
    refuse_forward_mode("an SD-TCM block", *(getattr(block, name) for name in Gradients._fields))
    out, rates, *_ = block_op(*block)
    return out, rates


@block_op.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    block = Block(*arguments)
    u, (neurons, _, lanes) = block.u, block.coefficients.shape
    states = len(registered(block.neuron)[0].states)
    steps = u.shape[0] * u.shape[1]
    saved = Saved(
        r=torch.empty_like(u, memory_format=torch.contiguous_format),
        token_bits=u.new_empty((steps, neurons * words(lanes)), dtype=torch.int64),
        channel_bits=u.new_empty((steps, words(lanes)), dtype=torch.int64),
        checkpoints=u.new_empty((neurons, states, chunk_rows(u, block.cu_seqlens), padded(lanes))),
    )
    out = torch.empty_like(u, memory_format=torch.contiguous_format)
    return out, u.new_empty(neurons + 1, dtype=torch.float64), *saved


@block_backward_op.register_fake
def _(grad: Tensor | None, grad_rates: Tensor | None, *arguments: Any) -> tuple[Tensor, ...]:
    block = Block(*arguments[len(Saved._fields) :])
    shapes = {"gamma": (block.u.shape[2],), "beta": (block.u.shape[2],), "token_amplitude": (), "channel_amplitude": ()}
    return tuple(
        block.u.new_empty(shapes[name])
        if name in shapes
        else torch.empty_like(getattr(block, name), memory_format=torch.contiguous_format)
        for name in Gradients._fields
    )


def _pack(ctx: Any, block: Block, saved: Saved) -> None:
    """Store a call for its backward pass: tensors where autograd can free them, the rest beside them."""
    ctx.save_for_backward(*saved, *(getattr(block, name) for name in _TENSORS))
    ctx.options = {name: getattr(block, name) for name in _OPTIONS}


def _unpack(ctx: Any) -> tuple[Block, Saved]:
    tensors = iter(ctx.saved_tensors)
    saved = Saved(*(next(tensors) for _ in Saved._fields))
    return Block(**dict(zip(_TENSORS, tensors, strict=True)), **ctx.options), saved


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, *saved = output
    _pack(ctx, Block(*inputs), Saved(*saved))
    ctx.set_materialize_grads(False)


def _pull_back(ctx: Any, grad: Tensor | None, grad_rates: Tensor | None, *_: object) -> tuple[Tensor | None, ...]:
    by_name: dict[str, Tensor] = {}
    if grad is not None or grad_rates is not None:
        block, saved = _unpack(ctx)
        by_name = Gradients(*block_backward_op(grad, grad_rates, *saved, *block))._asdict()
    # torch leaves out trailing arguments that have their default value.
    needed = zip(Block._fields, ctx.needs_input_grad, strict=False)
    return tuple(by_name.get(name) if need else None for name, need in needed)


def _refuse(ctx: Any, *grads: Tensor) -> Never:
    refuse_double_backward("an SD-TCM block")


block_op.register_autograd(_pull_back, setup_context=_save)
block_backward_op.register_autograd(_refuse)


def has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices in hardware (AVX512-BF16 or AMX).

    Without the instruction such a product is emulated, about 50 times slower than float32.
    """
    checks = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return torch.backends.mkldnn.is_available() and any(check is not None and check() for check in checks)


def require_gradient_dtype(op: str, value: str) -> None:
    """Raise ValueError if a type for the gradient products is unknown or this CPU does not have it."""
    require_choice(op, "gradient_dtype", value, GRADIENT_DTYPES)
    if value == "bfloat16" and not has_bfloat16():
        raise ValueError(
            f"{op}: gradient_dtype must be 'float32' on this CPU, which has neither AVX512-BF16 nor AMX, got 'bfloat16'"
        )


def why_not(u: Tensor) -> str | None:
    """Why this operator cannot run on u; None if it can."""
    if not HAVE_NUMBA:
        return "not available: the package numba is not installed"
    if u.device.type != "cpu":
        return f"it runs on the CPU, and u is on {u.device}"
    if u.dtype not in (torch.float32, torch.float64):
        return f"it takes float32 and float64, and u is {str(u.dtype).removeprefix('torch.')}"
    return None
