"""One step of a neuron as C99, in float or double: the same graph that is compiled for training."""

from collections.abc import Mapping

import numpy as np

from .graph import Node, Program, ordered

# @ is the suffix of numbers and functions: f for float, nothing for double.
_FUNCTIONS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "-{}", "exp": "exp@({})",
    "log": "log@({})", "sqrt": "sqrt@({})", "sin": "sin@({})", "cos": "cos@({})", "tanh": "tanh@({})",
    "sigmoid": "1.0@ / (1.0@ + exp@(-{}))", "abs": "fabs@({})", "minimum": "fmin@({}, {})",
    "maximum": "fmax@({}, {})", "clamp_min": "fmax@({}, {})", "clamp_max": "fmin@({}, {})", "where": "{} ? {} : {}",
    "spike": "{} >= 0.0@ ? 1.0@ : 0.0@", "detach": "{}", "gt": "{} > {}", "ge": "{} >= {}", "lt": "{} < {}",
    "le": "{} <= {}", "eq": "{} == {}", "ne": "{} != {}", "and": "{} && {}", "or": "{} || {}", "not": "!{}",
}  # fmt: skip


def step_source(program: Program, name: str, shared: Mapping[str, float] | None = None, real: str = "float") -> str:
    """A C function that advances one channel by one step.

    Args:
        program: From `trace`.
        name: The name of the function.
        shared: Coefficients that are the same for all channels, written as numbers.
        real: float or double.

    Returns:
        `static int NAME(float current, float *state, const float *c)`, which returns whether the neuron fires. `state`
        has one number per state, in the order of `program`, and is left out without states; `c` has one per coefficient
        that is not shared, likewise. The functions it calls are those of <math.h>.
    """
    shared, suffix = shared or {}, "f" if real == "float" else ""
    channel = [each for each in program.coefficients if each not in shared]
    inputs = {"current": "current"}
    inputs |= {f"state.{each}": f"state[{k}]" for k, each in enumerate(program.states)}
    inputs |= {f"c.{each}": f"c[{k}]" for k, each in enumerate(channel)}
    inputs |= {f"c.{each}": literal(value, real) for each, value in shared.items()}
    following = [program.following[each] for each in program.states]
    lines, names = [], {}
    for node in ordered([program.spikes, *following]):
        if node.op == "input":
            names[node.index] = inputs[str(node.value)]
        elif node.op == "constant":
            names[node.index] = literal(_number(node), real)
        else:
            arguments = [names[argument.index] for argument in node.args]
            if node.op == "pow":
                text = f"pow@({arguments[0]}, {literal(_number(node), real)})"
            else:
                text = _FUNCTIONS[node.op].format(*arguments)
            names[node.index] = f"n{node.index}"
            kind = "int" if node.is_mask else real
            lines.append(f"    const {kind} n{node.index} = {text.replace('@', suffix)};")
    # Kept apart first: a next state may be the last value of another one.
    lines += [f"    const {real} next{k} = {names[node.index]};" for k, node in enumerate(following)]
    lines += [f"    state[{k}] = next{k};" for k in range(len(following))]
    parameters = [f"{real} current"]
    unused = [] if _reads(program, "current") else ["current"]
    if following:
        parameters.append(f"{real} *state")
    if channel:
        parameters.append(f"const {real} *c")
        unused += [] if any(_reads(program, f"c.{each}") for each in channel) else ["c"]
    body = "\n".join([*(f"    (void){each};" for each in unused), *lines])
    fired = names[program.spikes.index]
    head = f"static int {name}({', '.join(parameters)})"
    return f"{head}\n{{\n{body}\n    return {fired} != 0.0{suffix};\n}}\n"


def uses_functions(program: Program) -> bool:
    """Whether the step calls something of <math.h>."""
    nodes = ordered([program.spikes, *program.following.values()])
    return any(node.op == "pow" or "@(" in _FUNCTIONS.get(node.op, "") for node in nodes)


def literal(value: float, real: str = "float") -> str:
    """A number as C reads it, with as many digits as tell it apart; negative ones in brackets."""
    number = np.float32(value) if real == "float" else np.float64(value)
    if not np.isfinite(number):
        return "NAN" if np.isnan(number) else f"{'-' if number < 0 else ''}INFINITY"
    text = str(number)
    text += "" if "." in text or "e" in text else ".0"
    text += "f" if real == "float" else ""
    return f"({text})" if text.startswith("-") else text


def _reads(program: Program, name: str) -> bool:
    nodes = ordered([program.spikes, *program.following.values()])
    return any(node.op == "input" and node.value == name for node in nodes)


def _number(node: Node) -> float:
    assert isinstance(node.value, float)
    return node.value
