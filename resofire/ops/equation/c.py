"""One step of a neuron as C99, in float: the same graph that is compiled for training."""

from .graph import Node, Program, ordered

_FUNCTIONS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "-{}", "exp": "expf({})",
    "log": "logf({})", "sqrt": "sqrtf({})", "sin": "sinf({})", "cos": "cosf({})", "tanh": "tanhf({})",
    "sigmoid": "1.0f / (1.0f + expf(-{}))", "abs": "fabsf({})", "minimum": "fminf({}, {})",
    "maximum": "fmaxf({}, {})", "clamp_min": "fmaxf({}, {})", "clamp_max": "fminf({}, {})", "where": "{} ? {} : {}",
    "spike": "{} >= 0.0f ? 1.0f : 0.0f", "detach": "{}", "gt": "{} > {}", "ge": "{} >= {}", "lt": "{} < {}",
    "le": "{} <= {}", "eq": "{} == {}", "ne": "{} != {}", "and": "{} && {}", "or": "{} || {}", "not": "!{}",
}  # fmt: skip


def step_source(program: Program, name: str) -> str:
    """A C function that advances one channel by one step.

    Args:
        program: From `trace`.
        name: The name of the function.

    Returns:
        `static int NAME(float current, float *state, const float *c)`: state has one number per state and c one per
        coefficient, in the order of `program`; returns whether the neuron fires.
    """
    inputs = {"current": "current"}
    inputs |= {f"state.{each}": f"state[{k}]" for k, each in enumerate(program.states)}
    inputs |= {f"c.{each}": f"c[{k}]" for k, each in enumerate(program.coefficients)}
    following = [program.following[each] for each in program.states]
    lines, names = [], {}
    for node in ordered([program.spikes, *following]):
        if node.op == "input":
            names[node.index] = inputs[str(node.value)]
        elif node.op == "constant":
            names[node.index] = _literal(node)
        else:
            arguments = [names[argument.index] for argument in node.args]
            text = f"powf({arguments[0]}, {_literal(node)})" if node.op == "pow" else _FUNCTIONS[node.op].format(
                *arguments
            )  # fmt: skip
            names[node.index] = f"n{node.index}"
            lines.append(f"    const {'int' if node.is_mask else 'float'} n{node.index} = {text};")
    # Kept apart first: a next state may be the last value of another one.
    lines += [f"    const float next{k} = {names[node.index]};" for k, node in enumerate(following)]
    lines += [f"    state[{k}] = next{k};" for k in range(len(following))]
    body = "\n".join(lines)
    used = "" if following else "    (void)state;\n"
    used += "" if program.coefficients else "    (void)c;\n"
    fired = names[program.spikes.index]
    head = f"static int {name}(float current, float *state, const float *c)"
    return f"{head}\n{{\n{used}{body}\n    return {fired} != 0.0f;\n}}\n"


def _literal(node: Node) -> str:
    value = node.value
    assert isinstance(value, float)
    if value != value or value in (float("inf"), float("-inf")):
        return "NAN" if value != value else f"{'-' if value < 0 else ''}INFINITY"
    text = repr(value)
    text = text if "." in text or "e" in text else f"{text}.0"
    return f"({text}f)" if value < 0 else f"{text}f"
