"""From a graph to a kernel: the source of its Numba functions, and their compilation.

A kernel walks tasks, chunks and tiles as those of `neuron_scan.kernels` do; only what a tile does at each step differs,
and that is written out, one line per node. The forward pass keeps the states of every CHUNK-th step; the backward pass
runs each chunk once more, notes the states before each step and the slopes of its spikes, and walks it back.

The source is made from a graph in memory and never read from a file. Compiled code is kept on disk by Numba, keyed by
that source.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numba import njit
from numba.extending import register_jitable

from .. import surrogate as surrogates
from ..neuron_scan import CHUNK, kernels, simd
from . import vectors
from .adjoint import Adjoint
from .graph import Node, Program, ordered
from .kernel_cache import keep_on_disk

FILE = "<resofire equation {}>"
FUNCTIONS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "v.neg({})", "exp": "v.exp({})",
    "log": "v.log({})", "sqrt": "v.sqrt({})", "sin": "v.sin({})", "cos": "v.cos({})", "tanh": "v.tanh({})",
    "sigmoid": "1.0 / (1.0 + v.exp(v.neg({})))", "abs": "v.absolute({})", "minimum": "v.minimum({}, {})",
    "maximum": "v.maximum({}, {})", "clamp_min": "v.maximum({}, {})", "clamp_max": "v.minimum({}, {})",
    "where": "v.where({}, {}, {})", "spike": "v.ge({}, 0.0)", "detach": "{}", "gt": "v.gt({}, {})",
    "ge": "v.ge({}, {})", "lt": "v.lt({}, {})", "le": "v.le({}, {})", "eq": "v.eq({}, {})", "ne": "v.ne({}, {})",
    "and": "v.where({}, {}, 0.0)", "or": "v.where({}, 1.0, {})", "not": "v.where({}, 0.0, 1.0)",
}  # fmt: skip
NAMES = {
    name: getattr(module, name)
    for module, names in (
        (simd, ("load", "store", "prefetch", "zeros_like", "add_wide")),
        (kernels, ("_gather", "_scatter", "_place", "_put")),
    )
    for name in names
}


def statements(outputs: Iterable[Node], inputs: Mapping[str, str]) -> tuple[list[str], dict[int, str]]:
    """One line per node of a graph, and the name of each node's value.

    Args:
        outputs: The nodes to compute.
        inputs: The variable or expression of every input.
    """
    lines, names = [], {}
    for node in ordered(outputs):
        if node.op == "input":
            assert isinstance(node.value, str)
            names[node.index] = inputs[node.value]
        elif node.op == "constant":
            # A vector, for operations between constants that could not be folded need one.
            names[node.index] = f"v.spread(x, {_literal(node.value)})"
        else:
            arguments = [names[argument.index] for argument in node.args]
            if node.op == "pow":
                text = f"v.power({arguments[0]}, {_literal(node.value)})"
            else:
                text = FUNCTIONS[node.op].format(*arguments)
            name = f"n{node.index}"
            lines.append(f"{name} = {text}")
            names[node.index] = name
    return lines, names


def _literal(value: object) -> str:
    assert isinstance(value, float)
    return repr(value) if np.isfinite(value) else f"np.float64('{value}')"


def forward_source(program: Program) -> str:
    """The source of the forward kernel; see `cpu.forward`, which calls it."""
    states, count = range(len(program.states)), max(1, len(program.states))
    inputs = _inputs(program)
    lines, names = statements([program.spikes, *program.following.values()], inputs)
    following = [names[program.following[name].index] for name in program.states]
    return _joined(
        "def forward(plan, tasks, lanes, current, current_at, spikes, spikes_at, past_cache, coefs, pitch, state, "
        "kept, reverse):",
        f"    span, kept_span = plan.shape[0] * pitch, kept.size // {count}",
        "    whole = current_at[2] == 1 and spikes_at[2] == 1",
        "    source, target = np.empty(CHUNK * WIDTH, current.dtype), np.empty(CHUNK * WIDTH, spikes.dtype)",
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
        "                into = to + first * to_row + lane * spikes_at[2]",
        "                some = min(WIDTH, lanes - lane)",
        "                direct = whole and some == WIDTH",
        "                c, c_at, c_row, s, s_at, s_row = current, from_, row, spikes, into, to_row",
        "                if not direct:",
        "                    _gather(current, from_, row, current_at[2], steps, some, WIDTH, source)",
        "                    c, c_at, c_row, s, s_at, s_row = source, 0, WIDTH, target, 0, WIDTH",
        *_loads(program, " " * 16),
        *(f"                s{k} = load(state, {k} * span + here)" for k in states),
        *(f"                store(kept, {k} * kept_span + kept_at, s{k})" for k in states),
        "                for _ in range(steps):",
        "                    x = load(c, c_at)",
        "                    prefetch(c, c_at + CHUNK * c_row)",
        *(f"                    {line}" for line in lines),
        f"                    _put(s, s_at, {names[program.spikes.index]}, past_cache and direct)",
        *_assign(" " * 20, [f"s{k}" for k in states], following),
        "                    c_at += c_row",
        "                    s_at += s_row",
        *(f"                store(state, {k} * span + here, s{k})" for k in states),
        "                if not direct:",
        "                    _scatter(target, steps, some, WIDTH, spikes, into, to_row, spikes_at[2])",
    )


def backward_source(program: Program, adjoint: Adjoint, vector: bool) -> str:
    """The source of the backward kernel; see `cpu.backward`. `vector` says whether the slope takes whole vectors."""
    states, slopes = range(len(program.states)), range(len(program.arguments))
    notes = len(states) + len(slopes)
    again, names = statements([*program.arguments, *program.following.values()], _inputs(program))
    following = [names[program.following[name].index] for name in program.states]
    arguments = [names[node.index] for node in program.arguments]
    back, results = statements(adjoint.nodes(), _inputs(program))
    trained = [name for name in program.coefficients if adjoint.coefficients[name] is not None]
    sums = {name: program.coefficients.index(name) for name in trained}

    def result(node: Node | None) -> str:
        return "zeros_like(x)" if node is None else results[node.index]

    def noted(k: int, name: str) -> str:
        text = f"slope({name}, *numbers)" if vector else name
        return f"                    store(notes, note + {len(states) + k} * WIDTH, {text})"

    return _joined(
        "def backward(plan, tasks, lanes, current, current_at, grads, grads_at, grad_current, out_at, past_cache, "
        "coefs, pitch, kept, numbers, grad_state, sums, reverse):",
        f"    span, kept_span = plan.shape[0] * pitch, kept.size // {max(1, len(states))}",
        "    whole = current_at[2] == 1 and grads_at[2] == 1 and out_at[2] == 1",
        "    size = CHUNK * WIDTH",
        "    source, pull = np.empty(size, current.dtype), np.empty(size, current.dtype)",
        "    target = np.empty(size, current.dtype)",
        f"    notes = np.empty({notes} * size + WIDTH, current.dtype)",
        "    base = -(notes.ctypes.data // current.itemsize) % WIDTH",
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
        "                c, c_at, c_row, g, g_at, g_row = current, c_first, row, grads, g_first, from_row",
        "                o, o_at, o_row = grad_current, o_first, to_row",
        "                if not direct:",
        "                    _gather(current, c_first, row, current_at[2], steps, some, WIDTH, source)",
        "                    _gather(grads, g_first, from_row, grads_at[2], steps, some, WIDTH, pull)",
        "                    c, c_at, c_row, g, g_at, g_row = source, 0, WIDTH, pull, 0, WIDTH",
        "                    o, o_at, o_row = target, 0, WIDTH",
        *_loads(program, " " * 16),
        *(f"                s{k} = load(kept, {k} * kept_span + kept_at)" for k in states),
        "                note = base",
        "                for _ in range(steps):",
        "                    x = load(c, c_at)",
        "                    prefetch(c, c_at - CHUNK * c_row)",
        *(f"                    store(notes, note + {k} * WIDTH, s{k})" for k in states),
        *(f"                    {line}" for line in again),
        *(noted(k, name) for k, name in enumerate(arguments)),
        *_assign(" " * 20, [f"s{k}" for k in states], following),
        "                    c_at += c_row",
        f"                    note += {notes} * WIDTH",
        *(
            ()
            if vector
            else (
                "                for t in range(steps):",
                f"                    first_slope = base + (t * {notes} + {len(states)}) * WIDTH",
                f"                    for k in range(first_slope, first_slope + {len(slopes)} * WIDTH):",
                "                        notes[k] = slope(notes[k], *numbers)",
            )
        ),
        *(f"                g{k} = load(grad_state, {k} * span + here)" for k in states),
        "                x = load(c, c_at - c_row)",
        *(f"                sum_{k} = zeros_like(x)" for k in sums.values()),
        "                g_at += (steps - 1) * g_row",
        "                o_at += (steps - 1) * o_row",
        "                for _ in range(steps):",
        "                    c_at -= c_row",
        f"                    note -= {notes} * WIDTH",
        "                    x = load(c, c_at)",
        "                    gs = load(g, g_at)",
        "                    prefetch(g, g_at - CHUNK * g_row)",
        *(f"                    s{k} = load(notes, note + {k} * WIDTH)" for k in states),
        *(f"                    d{k} = load(notes, note + {len(states) + k} * WIDTH)" for k in slopes),
        *(f"                    {line}" for line in back),
        f"                    _put(o, o_at, {result(adjoint.current)}, past_cache and direct)",
        *(f"                    sum_{k} = sum_{k} + {result(adjoint.coefficients[name])}" for name, k in sums.items()),
        *_assign(" " * 20, [f"g{k}" for k in states], [result(adjoint.states[name]) for name in program.states]),
        "                    g_at -= g_row",
        "                    o_at -= o_row",
        *(f"                store(grad_state, {k} * span + here, g{k})" for k in states),
        *(f"                add_wide(sums, {k} * span + here, sum_{k})" for k in sums.values()),
        "                if not direct:",
        "                    _scatter(target, steps, some, WIDTH, grad_current, o_first, to_row, out_at[2])",
    )


def _inputs(program: Program) -> dict[str, str]:
    """The variable of every input."""
    return {
        "current": "x",
        "grad.spikes": "gs",
        **{f"state.{name}": f"s{k}" for k, name in enumerate(program.states)},
        **{f"grad.{name}": f"g{k}" for k, name in enumerate(program.states)},
        **{f"c.{name}": f"c{k}" for k, name in enumerate(program.coefficients)},
        **{f"slope.{k}": f"d{k}" for k in range(len(program.arguments))},
    }


def _loads(program: Program, indent: str) -> list[str]:
    return [f"{indent}c{k} = load(coefs, {k} * pitch + lane)" for k in range(len(program.coefficients))]


def _assign(indent: str, targets: list[str], values: list[str]) -> list[str]:
    """All at once, as a next state may be the last value of another one."""
    return [f"{indent}{', '.join(targets)} = {', '.join(values)}"] if targets else []


def _joined(*lines: str) -> str:
    return "\n".join(lines) + "\n"


@functools.cache
def compiled(source: str, width: int, slope: Callable[..., float] | None = None) -> Callable[..., Any]:
    """Compile a kernel.

    Args:
        source: From `forward_source` or `backward_source`.
        width: Lanes in a vector.
        slope: The surrogate's derivative, for a backward kernel.
    """
    slope = getattr(slope, "py_func", slope)
    # What a user's slope calls or looks up may change without a trace that a cache would notice.
    keep = slope is None or slope.__module__ == surrogates.__name__
    mark = kernels.fingerprint(vectors, *([] if slope is None else [slope]))
    stamp = hashlib.sha256(f"{source}{width}{mark}".encode()).hexdigest()[:24]
    space: dict[str, Any] = {"__name__": __name__, "np": np, "v": vectors, "CHUNK": CHUNK, "WIDTH": width, **NAMES}
    if slope is not None:
        space["slope"] = register_jitable(slope)
    exec(compile(source, FILE.format(stamp), "exec"), space)
    function = space["forward" if slope is None else "backward"]
    kernel: Any = njit(nogil=True, error_model="numpy", fastmath={"contract"})(function)
    if keep:
        keep_on_disk(kernel)
    return kernel
