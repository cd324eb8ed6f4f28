"""Compiled equations on the GPU: the source of Triton kernels, written from a graph, and their compilation.

A program runs one sequence and one block of lanes, a thread per lane, with all states in registers, as those of
`neuron_scan.triton` do, whose helpers place it. The backward pass runs chunk by chunk from the last; it walks each
group of steps again from the chunk's checkpoint and keeps their states in registers. Products are never fused with
sums, so that both passes and the loop round alike and a recomputed step gives the same spike.

The source is made from a graph in memory and never read from a file.
"""

import functools
import hashlib
import linecache
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..neuron_scan import triton as scan
from .adjoint import Adjoint, adjoint
from .graph import Node, Program, ordered

FILE = "<resofire triton equation {}>"
DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}
# Steps that are read at once: the larger the graph, the fewer, as they are written out.
AHEAD = ((16, 8), (48, 4))
FUNCTIONS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "_divide({}, {})", "neg": "-{}", "exp": "tl.exp({})",
    "log": "tl.log({})", "sqrt": "tl.sqrt({})", "sin": "tl.sin({})", "cos": "tl.cos({})", "tanh": "_tanh({})",
    "sigmoid": "_divide(one, one + tl.exp(-{}))", "abs": "tl.abs({})", "minimum": "_minimum({}, {})",
    "maximum": "-_minimum(-{}, -{})", "clamp_min": "-_minimum(-{}, -{})", "clamp_max": "_minimum({}, {})",
    "where": "tl.where({}, {}, {})", "spike": "tl.where({} >= zero, one, zero)", "detach": "{}", "gt": "{} > {}",
    "ge": "{} >= {}", "lt": "{} < {}", "le": "{} <= {}", "eq": "{} == {}", "ne": "{} != {}", "and": "{} & {}",
    "or": "{} | {}", "not": "~{}",
}  # fmt: skip


@triton.jit
def _tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    y = scan._divide(1.0 - e, 1.0 + e)
    return tl.where(x < 0.0, -y, y)


@triton.jit
def _minimum(x, y):
    """The smaller one; NaN if one is NaN."""
    return tl.where((x < y) | (x != x), x, y)


@triton.jit
def _power(x, exponent: tl.constexpr, ODD: tl.constexpr, WHOLE: tl.constexpr):
    """x to a constant power; of a negative x only for integers."""
    y = tl.exp(tl.log(tl.abs(x)) * exponent)
    if WHOLE:
        if ODD:
            y = tl.where(x < 0.0, -y, y)
    else:
        y = tl.where(x < 0.0, float("nan"), y)
    return y


class Kernels(NamedTuple):
    """The two kernels of a program."""

    forward: Any
    backward: Any


# What the sources refer to.
_NAMES = {
    "tl": tl, "triton": triton, "_divide": scan._divide, "_tanh": _tanh, "_minimum": _minimum, "_power": _power,
    "_read": scan._read, "_program": scan._program, "_at": scan._at, "_CHUNK": scan._CHUNK,
}  # fmt: skip
_SIZES = "cu_seqlens, length, lanes, sequences, rows, pitch"


@functools.cache
def _compiled(source: str) -> Kernels:
    """The kernels of a source; Triton compiles them when they are first launched."""
    file = FILE.format(hashlib.sha256(source.encode()).hexdigest()[:24])
    # Triton reads the source of a function where `inspect` finds it.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {"__name__": __name__, **_NAMES}
    exec(compile(source, file, "exec"), space)
    for name in ("step", "step_back"):
        space[name] = triton.jit(space[name])
    options = {"do_not_specialize": ["length", "lanes", "sequences", "rows", "pitch"]}
    return Kernels(*(triton.jit(**options)(space[name]) for name in ("forward_kernel", "backward_kernel")))


def kernels(program: Program) -> Kernels:
    """The kernels of a program, see `gpu`, which launches them."""
    return _compiled(source(program))


def source(program: Program) -> str:
    """The source of one step, its adjoint and both kernels."""
    back = adjoint(program)
    return "\n\n".join(
        [_step(program), _step_back(program, back), _forward_kernel(program), _backward_kernel(program, back)]
    )


def _lines(nodes: Iterable[Node], names: dict[int, str], inputs: Mapping[str, str]) -> list[str]:
    """One line per node that has no name yet; `names` gets theirs."""
    lines = []
    for node in ordered(nodes):
        if node.index in names:
            continue
        if node.op == "input":
            names[node.index] = inputs[str(node.value)]
            continue
        arguments = [names[argument.index] for argument in node.args]
        match node.op, node.value:
            case "constant", float(value):
                # In the precision of the state; a number alone would have that of float32.
                text = f'zero + float("{value!r}")'
            case "pow", float(value):
                text = f"_power({arguments[0]}, {value!r}, {value % 2 == 1}, {value.is_integer()})"
            case _:
                text = FUNCTIONS[node.op].format(*arguments)
        names[node.index] = f"n{node.index}"
        lines.append(f"    n{node.index} = {text}")
    return lines


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


def _each(count: int, form: str) -> list[str]:
    return [form.format(k=k) for k in range(count)]


def _call(*parts: Iterable[str]) -> str:
    return ", ".join(each for part in parts for each in part)


def _step(program: Program) -> str:
    """One step: the spikes, then every next state."""
    states, names = _each(len(program.states), "s{k}"), {}
    outputs = [program.spikes, *(program.following[name] for name in program.states)]
    lines = _lines(outputs, names, _inputs(program))
    # + zero: an output that is a number or a coefficient has the shape of the others.
    results = [f"{names[node.index]} + zero" for node in outputs]
    head = f"def step({_call(['x'], states, _each(len(program.coefficients), 'c{k}'))}):"
    start = ["    zero = tl.zeros_like(x)", "    one = zero + 1.0"]
    return "\n".join([head, *start, *lines, f"    return ({', '.join(results)},)"]) + "\n"


def _step_back(program: Program, back: Adjoint) -> str:
    """The adjoint of a step: the gradients of current, states and the coefficients that have one."""
    count, names, inputs = len(program.states), {}, _inputs(program)
    lines = _lines(program.arguments, names, inputs)
    for k, argument in enumerate(program.arguments):
        lines.append(f"    d{k} = SLOPE({names[argument.index]}, *NUMBERS).to(x.dtype)")
    outputs = [back.current, *(back.states[name] for name in program.states)]
    outputs += [back.coefficients[name] for name in _trained(program, back)]
    lines += _lines([node for node in outputs if node is not None], names, inputs)
    results = ["zero" if node is None else f"{names[node.index]} + zero" for node in outputs]
    parameters = _call(
        ["x"], _each(count, "s{k}"), ["gs"], _each(count, "g{k}"), _each(len(program.coefficients), "c{k}"),
        ["SLOPE: tl.constexpr", "NUMBERS"],
    )  # fmt: skip
    start = ["    zero = tl.zeros_like(x)", "    one = zero + 1.0"]
    return "\n".join([f"def step_back({parameters}):", *start, *lines, f"    return ({', '.join(results)},)"]) + "\n"


def _trained(program: Program, back: Adjoint) -> list[str]:
    return [name for name in program.coefficients if back.coefficients[name] is not None]


def _ahead(program: Program) -> int:
    size = len(ordered([program.spikes, *program.following.values()]))
    return next((steps for most, steps in AHEAD if size <= most), 2)


def _start(program: Program, gradient: bool) -> list[str]:
    """Code that finds the program's place and loads coefficients and states, or the gradients of states."""
    what = "g" if gradient else "s"
    return [
        "    index, lane, place, first, end = _program(cu_seqlens, length, sequences, False, BLOCK)",
        "    mask = lane < lanes",
        *_each(
            len(program.coefficients),
            "    c{k} = tl.load(coefficients + {k} * lanes + lane, mask=mask, other=0.0)",
        ),
        *_each(
            len(program.states),
            f"    {what}{{k}} = tl.load(begin + ({{k}} * sequences + index) * lanes + lane, mask=mask, other=0.0)",
        ),
    ]


def _final(program: Program, what: str) -> list[str]:
    return _each(
        len(program.states),
        f"    tl.store(final + ({{k}} * sequences + index) * lanes + lane, {what}{{k}}, mask=mask)",
    )


def _forward_kernel(program: Program) -> str:
    states = len(program.states)
    arguments = _call(["currents[k]"], _each(states, "s{k}"), _each(len(program.coefficients), "c{k}"))
    return "\n".join(
        [
            "def forward_kernel(current, current_at, spikes, spikes_at, coefficients, begin, final, checkpoints,",
            f"                   {_SIZES}, DTYPE: tl.constexpr, REVERSE: tl.constexpr,",
            "                   BLOCK: tl.constexpr):",
            *_start(program, gradient=False),
            "    for chunk in range(first, end):",
            *_each(
                states,
                "        tl.store(checkpoints + ({k} * rows + place[3] + chunk) * pitch + lane, s{k}, mask=mask)",
            ),
            "        x, x_step = _at(current, current_at, place, chunk, lane, REVERSE)",
            "        y, y_step = _at(spikes, spikes_at, place, chunk, lane, REVERSE)",
            "        steps = tl.minimum(place[2] - chunk * _CHUNK, _CHUNK)",
            f"        for t in range(0, steps, {_ahead(program)}):",
            f"            currents = _read(x, x_step, t, steps, mask, DTYPE, {_ahead(program)})",
            f"            for k in tl.static_range({_ahead(program)}):",
            f"                after = step({arguments})",
            "                within = t + k < steps",
            "                tl.store(y + (t + k) * y_step, after[0].to(spikes.dtype.element_ty), mask=mask & within)",
            *(f"                s{k} = tl.where(within, after[{k + 1}], s{k})" for k in range(states)),
            *_final(program, "s"),
        ]
    )


def _backward_kernel(program: Program, back: Adjoint) -> str:
    states, steps = len(program.states), _ahead(program)
    coefficients, trained = _each(len(program.coefficients), "c{k}"), _trained(program, back)
    again = _call(["now"], _each(states, "s{k}"), coefficients)
    once = _call(["currents[k]"], _each(states, "s{k}"), coefficients)
    pull = _call(
        ["currents[k]"], _each(states, "kept{k}[k]"), ["pulls[k]"], _each(states, "g{k}"), coefficients,
        ["SLOPE", "NUMBERS"],
    )  # fmt: skip
    sums = [(j, program.coefficients.index(name)) for j, name in enumerate(trained)]
    return "\n".join(
        [
            "def backward_kernel(current, current_at, grads, grads_at, out, out_at, coefficients, checkpoints, begin,",
            f"                    final, sums, {_SIZES}, SLOPE: tl.constexpr, NUMBERS,",
            "                    DTYPE: tl.constexpr, REVERSE: tl.constexpr, BLOCK: tl.constexpr):",
            *_start(program, gradient=True),
            *(f"    total{j} = tl.zeros([BLOCK], tl.float64)" for j, _ in sums),
            "    for behind in range(first, end):",
            "        chunk = first + end - 1 - behind",
            *_each(
                states,
                "        b{k} = tl.load(checkpoints + ({k} * rows + place[3] + chunk) * pitch + lane, mask=mask,\n"
                "                       other=0.0)",
            ),
            "        x, x_step = _at(current, current_at, place, chunk, lane, REVERSE)",
            "        g, g_step = _at(grads, grads_at, place, chunk, lane, REVERSE)",
            "        y, y_step = _at(out, out_at, place, chunk, lane, REVERSE)",
            "        steps = tl.minimum(place[2] - chunk * _CHUNK, _CHUNK)",
            f"        groups = tl.cdiv(steps, {steps})",
            *(f"        part{j} = tl.zeros([BLOCK], DTYPE)" for j, _ in sums),
            "        for group in range(groups):",
            f"            start = (groups - 1 - group) * {steps}",
            *_each(states, "            s{k} = b{k}"),
            "            for t in range(0, start):",
            "                now = tl.load(x + t * x_step, mask=mask, other=0.0).to(DTYPE)",
            f"                before = step({again})",
            *(f"                s{k} = before[{k + 1}]" for k in range(states)),
            f"            currents = _read(x, x_step, start, steps, mask, DTYPE, {steps})",
            f"            pulls = _read(g, g_step, start, steps, mask, DTYPE, {steps})",
            *_each(states, "            kept{k} = ()"),
            f"            for k in tl.static_range({steps}):",
            *_each(states, "                kept{k} += (s{k},)"),
            f"                after = step({once})",
            *(f"                s{k} = after[{k + 1}]" for k in range(states)),
            f"            for k in tl.static_range({steps} - 1, -1, -1):",
            f"                pulled = step_back({pull})",
            "                within = start + k < steps",
            "                result = pulled[0].to(out.dtype.element_ty)",
            "                tl.store(y + (start + k) * y_step, result, mask=mask & within)",
            *(f"                g{k} = tl.where(within, pulled[{k + 1}], g{k})" for k in range(states)),
            *(f"                part{j} += tl.where(within, pulled[{states + 1 + j}], 0.0)" for j, _ in sums),
            *(f"        total{j} += part{j}" for j, _ in sums),
            *_final(program, "g"),
            *(f"    tl.store(sums + ({i} * sequences + index) * lanes + lane, total{j}, mask=mask)" for j, i in sums),
        ]
    )
