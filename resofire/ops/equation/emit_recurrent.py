"""Kernels of a layer with feedback, current_t = x_t + W s_{t-1}, made from the equation of its neuron.

Feedback mixes the lanes, so that a sequence walks step by step through all of them: states lie in memory instead of
registers. Forward, the rows of Wᵀ of the neurons that fired in the last step are added to the current, and nothing else
of W is read. The backward pass runs each chunk once more, as in `emit`, and walks it back: Wᵀ ∂current_{t+1} is a part
of the gradient of s_t, and ∂current_t is added to the rows of ∂Wᵀ of the neurons that had fired.
"""

from collections.abc import Sequence

from .adjoint import Adjoint
from .graph import Program
from .lower import lowered
from .source import chunk_backward, inputs_of, joined, loads, statements

# The sum of the rows of `table` of the neurons that fired, one after another.
_FEED = (
    "for k in range(fired):",
    "    x = x + load(table, active[k] * pitch + lane)",
)


def forward_source(program: Program) -> str:
    """The source of the forward kernel; see `recurrent.forward`."""
    states, count = range(len(program.states)), max(1, len(program.states))
    outputs = lowered([program.spikes, *(program.following[name] for name in program.states)])
    lines = statements(outputs, inputs_of(program))
    spikes, *following = (lines.names[node.index] for node in outputs)
    return joined(
        "def forward(plan, tasks, lanes, current, first_current, spikes, at_strides, coefs, pitch, table, state, kept, "
        "reverse):",
        f"    span, kept_span = plan.shape[0] * pitch, kept.size // {count}",
        "    active = np.empty(pitch, np.int64)",
        "    zero = zeros_like(load(current, 0))",
        "    for i in range(tasks.shape[0]):",
        "        sequence = tasks[i, 0]",
        "        here = sequence * pitch",
        "        at, row = _place(plan, sequence, at_strides, reverse)",
        "        fired = 0",
        "        for t in range(plan[sequence, 2]):",
        "            if t % CHUNK == 0:",
        "                keep = (plan[sequence, 3] + t // CHUNK) * pitch",
        "                for lane in range(0, pitch, WIDTH):",
        *(
            f"                    store(kept, {k} * kept_span + keep + lane, load(state, {k} * span + here + lane))"
            for k in states
        ),
        "                    pass",
        "            for lane in range(0, pitch, WIDTH):",
        "                x = load(current, at + lane)",
        "                prefetch(current, at + 8 * row + lane)",
        "                if t == 0:",
        "                    x = x + load(first_current, here + lane)",
        *(f"                {line}" for line in _FEED),
        *loads(program, " " * 16),
        *(f"                {line}" for line in lines.once),
        *(f"                s{k} = load(state, {k} * span + here + lane)" for k in states),
        *(f"                {line}" for line in lines.each_step),
        f"                store(spikes, at + lane, {spikes})",
        *(
            f"                store(state, {k} * span + here + lane, {value})"
            for k, value in zip(states, following, strict=True)
        ),
        "            fired = _list_active(spikes, at, lanes, WIDTH, pitch, active)",
        "            at += row",
    )


def backward_source(program: Program, adjoint: Adjoint, trained: Sequence[str], vector: bool) -> str:
    """The source of the backward kernel; see `recurrent.backward`."""
    states = range(len(program.states))
    chunk = chunk_backward(program, adjoint, trained, note_current=True)
    size = len(chunk.place)
    return joined(
        "def backward(plan, tasks, lanes, current, first_current, spikes, at_strides, grads, grads_at, grad_current, "
        "coefs, pitch, table, weight, kept, numbers, grad_state, sums, grad_table, reverse):",
        f"    span, kept_span = plan.shape[0] * pitch, kept.size // {max(1, len(states))}",
        "    active = np.empty(pitch, np.int64)",
        f"    notes = np.empty(({size} * CHUNK + {max(1, len(states))} + 2) * pitch + WIDTH, current.dtype)",
        "    base = -(notes.ctypes.data // current.itemsize) % WIDTH",
        # After the notes: the state of the forward steps, the gradient of the next step's current, and of this one's.
        f"    now = base + {size} * CHUNK * pitch",
        f"    later = now + {max(1, len(states))} * pitch",
        "    zero = zeros_like(load(current, 0))",
        "    for i in range(tasks.shape[0]):",
        "        sequence = tasks[i, 0]",
        "        here = sequence * pitch",
        "        at, row = _place(plan, sequence, at_strides, reverse)",
        "        from_, from_row = _place(plan, sequence, grads_at, reverse)",
        "        for lane in range(0, pitch, WIDTH):",
        "            store(notes, later + lane, zero)",
        "        for chunk in range(-(-plan[sequence, 2] // CHUNK) - 1, -1, -1):",
        "            first = chunk * CHUNK",
        "            steps = min(CHUNK, plan[sequence, 2] - first)",
        "            keep = (plan[sequence, 3] + chunk) * pitch",
        "            for lane in range(0, pitch, WIDTH):",
        *(
            f"                store(notes, now + {k} * pitch + lane, load(kept, {k} * kept_span + keep + lane))"
            for k in states
        ),
        "                pass",
        "            for t in range(first, first + steps):",
        "                fired = 0",
        "                if t > 0:",
        "                    fired = _list_active(spikes, at + (t - 1) * row, lanes, WIDTH, pitch, active)",
        "                for lane in range(0, pitch, WIDTH):",
        f"                    note = base + ((t - first) * pitch + lane) * {size}",
        "                    x = load(current, at + t * row + lane)",
        "                    if t == 0:",
        "                        x = x + load(first_current, here + lane)",
        *(f"                    {line}" for line in _FEED),
        *loads(program, " " * 20),
        *(f"                    {line}" for line in chunk.recomputed.once),
        *(f"                    s{k} = load(notes, now + {k} * pitch + lane)" for k in states),
        *(f"                    {line}" for line in chunk.recomputed.each_step),
        *(f"                    {line}" for line in chunk.noting(vector)),
        *(
            f"                    store(notes, now + {k} * pitch + lane, {value})"
            for k, value in zip(states, chunk.following, strict=True)
        ),
        *(() if vector else chunk.slopes_one_by_one(" " * 12, "steps * pitch // WIDTH")),
        "            for t in range(first + steps - 1, first - 1, -1):",
        "                for lane in range(0, pitch, WIDTH):",
        f"                    note = base + ((t - first) * pitch + lane) * {size}",
        "                    gs = load(grads, from_ + t * from_row + lane)",
        # Four sums, as one alone would wait for itself.
        "                    p0, p1, p2, p3 = zero, zero, zero, zero",
        "                    for k in range(0, lanes - 3, 4):",
        *(
            f"                        p{j} = p{j} + load(weight, (k + {j}) * pitch + lane) * notes[later + k + {j}]"
            for j in range(4)
        ),
        "                    for k in range(lanes - lanes % 4, lanes):",
        "                        p0 = p0 + load(weight, k * pitch + lane) * notes[later + k]",
        "                    gs = gs + ((p0 + p1) + (p2 + p3))",
        *loads(program, " " * 20),
        *(f"                    {line}" for line in chunk.reverse.once),
        *(f"                    {name} = load(notes, note + {k} * WIDTH)" for name, k in chunk.place.items()),
        *(f"                    g{k} = load(grad_state, {k} * span + here + lane)" for k in states),
        *(f"                    {line}" for line in chunk.reverse.each_step),
        f"                    store(grad_current, at + t * row + lane, {chunk.grad_current})",
        *(
            f"                    store(grad_state, {k} * span + here + lane, {value})"
            for k, value in zip(states, chunk.grad_states, strict=True)
        ),
        *(
            f"                    add_wide(sums, {k} * span + here + lane, {value})"
            for k, value in chunk.totals().items()
        ),
        "                for lane in range(0, pitch, WIDTH):",
        "                    store(notes, later + lane, load(grad_current, at + t * row + lane))",
        "                if t > 0:",
        "                    fired = _list_active(spikes, at + (t - 1) * row, lanes, WIDTH, pitch, active)",
        "                    for k in range(fired):",
        "                        for lane in range(0, pitch, WIDTH):",
        "                            to = active[k] * pitch + lane",
        "                            store(grad_table, to, load(grad_table, to) + load(notes, later + lane))",
    )
