"""From a graph to a kernel: the source of its Numba functions, and their compilation.

A kernel walks tasks, chunks and tiles as those of `neuron_scan.kernels` do; only what a tile does at each step differs,
and that is written out, one line per node. The forward pass keeps the states of every CHUNK-th step; the backward pass
runs each chunk once more, notes the states before each step and the slopes of its spikes, and walks it back.

The source is made from a graph in memory and never read from a file. Compiled code is kept on disk by Numba, keyed by
that source.
"""

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit
from numba.extending import register_jitable

from .. import surrogate as surrogates
from ..neuron_scan import CHUNK, kernels, simd
from . import vectors
from .adjoint import Adjoint
from .graph import Program
from .kernel_cache import keep_on_disk
from .lower import lowered
from .source import assigned, chunk_backward, inputs_of, joined, loads, statements

VECTORS = {
    simd.BYTES: {"load": simd.load, "prefetch": simd.prefetch},
    simd.FEW_BYTES: {"load": simd.load_few, "prefetch": simd.prefetch_few},
}
FILE = "<resofire equation {}>"
NAMES = {
    name: getattr(module, name)
    for module, names in (
        (simd, ("store", "store_mask", "pointer", "zeros_like", "add_wide")),
        (kernels, ("_gather", "_scatter", "_clear_bits", "_list_active", "_place", "_put")),
    )
    for name in names
}


def forward_source(program: Program, block: bool = False) -> str:
    """The source of the forward kernel; see `cpu.forward`, which calls it.

    Args:
        program: What it computes.
        block: Whether it is part of an SD-TCM block, where spikes are bits.
    """
    states, count = range(len(program.states)), max(1, len(program.states))
    outputs = lowered([program.spikes, *(program.following[name] for name in program.states)])
    lines = statements(outputs, inputs_of(program))
    spikes, *following = (lines.names[node.index] for node in outputs)
    return joined(
        "def forward(plan, tasks, lanes, current, current_at, spikes, spikes_at, past_cache, coefs, pitch, state, "
        "kept, reverse):",
        f"    span, kept_span = plan.shape[0] * pitch, kept.size // {count}",
        f"    whole = current_at[2] == 1 and {'True' if block else 'spikes_at[2] == 1'}",
        "    source, target = np.empty(CHUNK * WIDTH, current.dtype), np.empty(CHUNK * WIDTH, spikes.dtype)",
        "    zero = zeros_like(load(source, 0))",
        "    for i in range(tasks.shape[0]):",
        "        sequence = tasks[i, 0]",
        "        at, row = _place(plan, sequence, current_at, reverse)",
        "        to, to_row = _place(plan, sequence, spikes_at, reverse)",
        "        for chunk in range(-(-plan[sequence, 2] // CHUNK)):",
        "            first = chunk * CHUNK",
        "            steps = min(CHUNK, plan[sequence, 2] - first)",
        "            keep = (plan[sequence, 3] + chunk) * pitch",
        "            for lane in range(tasks[i, 1], tasks[i, 2], WIDTH):",
        "                here, kept_at = sequence * pitch + lane, keep + lane",
        "                from_ = at + first * row + lane * current_at[2]",
        f"                into = to + first * to_row + {'lane // 8' if block else 'lane * spikes_at[2]'}",
        "                some = min(WIDTH, lanes - lane)",
        "                direct = whole and some == WIDTH",
        "                c, c_at, c_row = pointer(current), from_, row",
        "                s, s_at, s_row = pointer(spikes), into, to_row",
        "                if not direct:",
        "                    _gather(current, from_, row, current_at[2], steps, some, WIDTH, source)",
        "                    c, c_at, c_row = pointer(source), 0, WIDTH",
        *(() if block else ("                    s, s_at, s_row = pointer(target), 0, WIDTH",)),
        *loads(program, " " * 16),
        *(f"                {line}" for line in lines.once),
        *(f"                s{k} = load(state, {k} * span + here)" for k in states),
        *(f"                store(kept, {k} * kept_span + kept_at, s{k})" for k in states),
        "                for _ in range(steps):",
        "                    x = load(c, c_at)",
        "                    prefetch(c, c_at + CHUNK * c_row)",
        *(f"                    {line}" for line in lines.each_step),
        f"                    {_written(spikes, block)}",
        *assigned(" " * 20, [f"s{k}" for k in states], following),
        "                    c_at += c_row",
        "                    s_at += s_row",
        *(f"                store(state, {k} * span + here, s{k})" for k in states),
        "                if not direct:",
        "                    "
        + (
            "_clear_bits(spikes, into, to_row, steps, some, WIDTH)"
            if block
            else "_scatter(target, steps, some, WIDTH, spikes, into, to_row, spikes_at[2])"
        ),
    )


def _written(spikes: str, block: bool) -> str:
    return f"store_mask(s, s_at, {spikes}, 1.0)" if block else f"_put(s, s_at, {spikes}, past_cache and direct)"


def backward_source(
    program: Program, adjoint: Adjoint, trained: Sequence[str], vector: bool, block: bool = False
) -> str:
    """The source of the backward kernel; see `cpu.backward`.

    Args:
        program: What the forward kernel computes.
        adjoint: Its gradients.
        trained: The coefficients whose gradients are needed.
        vector: Whether the slope takes whole vectors.
        block: Whether it is part of an SD-TCM block: `more` is added to the gradient of every spike, and the gradient
            of the current is added to what its place holds.
    """
    states = range(len(program.states))
    chunk = chunk_backward(program, adjoint, trained)
    size = len(chunk.place)
    return joined(
        "def backward(plan, tasks, lanes, current, current_at, grads, grads_at, more, grad_current, out_at, "
        "past_cache, coefs, pitch, kept, numbers, grad_state, sums, reverse):",
        f"    span, kept_span = plan.shape[0] * pitch, kept.size // {max(1, len(states))}",
        "    whole = current_at[2] == 1 and grads_at[2] == 1 and out_at[2] == 1",
        "    size = CHUNK * WIDTH",
        "    source, pull = np.empty(size, current.dtype), np.empty(size, current.dtype)",
        "    target = np.empty(size, current.dtype)",
        f"    notes = np.empty({size} * size + WIDTH, current.dtype)",
        "    base = -(notes.ctypes.data // current.itemsize) % WIDTH",
        "    zero = zeros_like(load(source, 0))",
        "    for i in range(tasks.shape[0]):",
        "        sequence = tasks[i, 0]",
        "        at, row = _place(plan, sequence, current_at, reverse)",
        "        from_, from_row = _place(plan, sequence, grads_at, reverse)",
        "        to, to_row = _place(plan, sequence, out_at, reverse)",
        "        for chunk in range(-(-plan[sequence, 2] // CHUNK) - 1, -1, -1):",
        "            first = chunk * CHUNK",
        "            steps = min(CHUNK, plan[sequence, 2] - first)",
        "            keep = (plan[sequence, 3] + chunk) * pitch",
        "            for lane in range(tasks[i, 1], tasks[i, 2], WIDTH):",
        "                here, kept_at = sequence * pitch + lane, keep + lane",
        "                c_first = at + first * row + lane * current_at[2]",
        "                g_first = from_ + first * from_row + lane * grads_at[2]",
        "                o_first = to + first * to_row + lane * out_at[2]",
        "                some = min(WIDTH, lanes - lane)",
        "                direct = whole and some == WIDTH",
        "                c, c_at, c_row = pointer(current), c_first, row",
        "                g, g_at, g_row = pointer(grads), g_first, from_row",
        "                o, o_at, o_row = pointer(grad_current), o_first, to_row",
        "                if not direct:",
        "                    _gather(current, c_first, row, current_at[2], steps, some, WIDTH, source)",
        "                    _gather(grads, g_first, from_row, grads_at[2], steps, some, WIDTH, pull)",
        "                    c, c_at, c_row = pointer(source), 0, WIDTH",
        "                    g, g_at, g_row = pointer(pull), 0, WIDTH",
        "                    o, o_at, o_row = pointer(target), 0, WIDTH",
        *(
            ("                    _gather(grad_current, o_first, to_row, out_at[2], steps, some, WIDTH, target)",)
            if block
            else ()
        ),
        *loads(program, " " * 16),
        *(f"                {line}" for line in chunk.recomputed.once),
        *(f"                s{k} = load(kept, {k} * kept_span + kept_at)" for k in states),
        "                note = base",
        "                for _ in range(steps):",
        "                    x = load(c, c_at)",
        "                    prefetch(c, c_at - CHUNK * c_row)",
        *(f"                    {line}" for line in chunk.recomputed.each_step),
        *(f"                    {line}" for line in chunk.noting(vector)),
        *assigned(" " * 20, [f"s{k}" for k in states], chunk.following),
        "                    c_at += c_row",
        f"                    note += {size} * WIDTH",
        *(() if vector else chunk.slopes_one_by_one(" " * 16, "steps")),
        *(f"                {line}" for line in chunk.reverse.once),
        *(f"                g{k} = load(grad_state, {k} * span + here)" for k in states),
        "                x = load(c, c_at - c_row)",
        *(f"                sum_{k} = zero" for k in chunk.summed),
        "                g_at += (steps - 1) * g_row",
        "                o_at += (steps - 1) * o_row",
        "                for _ in range(steps):",
        "                    c_at -= c_row",
        f"                    note -= {size} * WIDTH",
        "                    x = load(c, c_at)",
        f"                    gs = load(g, g_at){' + more' if block else ''}",
        "                    prefetch(g, g_at - CHUNK * g_row)",
        *(f"                    {name} = load(notes, note + {k} * WIDTH)" for name, k in chunk.place.items()),
        *(f"                    {line}" for line in chunk.reverse.each_step),
        "                    "
        + (
            f"store(o, o_at, load(o, o_at) + {chunk.grad_current})"
            if block
            else f"_put(o, o_at, {chunk.grad_current}, past_cache and direct)"
        ),
        *(f"                    sum_{k} = sum_{k} {sign} {value}" for k, sign, value in chunk.sums),
        *assigned(" " * 20, [f"g{k}" for k in states], chunk.grad_states),
        "                    g_at -= g_row",
        "                    o_at -= o_row",
        *(f"                store(grad_state, {k} * span + here, g{k})" for k in states),
        *(f"                add_wide(sums, {k} * span + here, sum_{k})" for k in chunk.summed),
        "                if not direct:",
        "                    _scatter(target, steps, some, WIDTH, grad_current, o_first, to_row, out_at[2])",
    )


@functools.cache
def compiled(
    source: str, itemsize: int, size: int = simd.BYTES, slope: Callable[..., float] | None = None
) -> Callable[..., Any]:
    """Compile a kernel.

    Args:
        source: From `forward_source` or `backward_source`.
        itemsize: Bytes of a number.
        size: Bytes of a vector.
        slope: The surrogate's derivative, for a backward kernel.
    """
    slope = getattr(slope, "py_func", slope)
    # What a user's slope calls or looks up may change without a trace that a cache would notice.
    keep = slope is None or slope.__module__ == surrogates.__name__
    mark = kernels.fingerprint(vectors, *([] if slope is None else [slope]))
    stamp = hashlib.sha256(f"{source}{itemsize}{size}{mark}".encode()).hexdigest()[:24]
    space: dict[str, Any] = {"__name__": __name__, "np": np, "v": vectors, "CHUNK": CHUNK, **NAMES, **VECTORS[size]}
    space["WIDTH"] = size // itemsize
    if slope is not None:
        space["slope"] = register_jitable(slope)
    exec(compile(source, FILE.format(stamp), "exec"), space)
    function = space["forward" if slope is None else "backward"]
    kernel: Any = njit(nogil=True, error_model="numpy", fastmath={"contract"})(function)
    if keep:
        keep_on_disk(kernel)
    return kernel
