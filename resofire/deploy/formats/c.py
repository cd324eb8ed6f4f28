"""Networks as one C99 header in fixed point, compiled and compared with the simulation.

    text = header(quantized, "network")
    verify(text, quantized, samples, "network")

The header needs only <stdint.h> and memset: no heap, no floating point. `verify` compiles it with the system's compiler
together with a small program that feeds samples and writes every spike, the scores and the last states.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...nn.folded import Array, Folded
from ..compare import Comparison, compare
from ..quantize import quantize
from ..quantized import Quantized
from ..simulate import Simulation
from .c_text import Text
from .format import VerificationError

FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2")
COMPILERS = ("cc", "gcc", "clang")
# The least share of samples on which fixed point must agree with float.
LEAST_AGREEMENT = 0.8
KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"
)

# Names without an underscore: none is one of the header's, whatever those begin with.
MAIN = """/* Reads sequences from standard input: the number of steps in 4 bytes, lowest first, then the steps.
   Writes the spikes of each step, one byte a neuron, to standard output, scores and last states to standard error. */
#include <stdint.h>
#include <stdio.h>

static unsigned char fired[{neurons}];
#define {upper}_SPIKE(layer, neuron) (fired[neuron] = 1)
#include "network.h"

static int number(uint32_t *value, int bytes)
{{
    *value = 0;
    for (int i = 0; i < bytes; i++) {{
        const int byte = getchar();
        if (byte == EOF)
            return 0;
        *value |= (uint32_t)byte << (8 * i);
    }}
    return 1;
}}

static void put(int64_t value)
{{
    for (int i = 0; i < 8; i++)
        fputc((int)((uint64_t)value >> (8 * i) & 255), stderr);
}}

static void report(const {name}_state *state)
{{
    int64_t scores[{upper}_CLASSES];

    {name}_scores(state, scores);
    for (int k = 0; k < {upper}_CLASSES; k++)
        put(scores[k]);
}}

int main(void)
{{
    static {name}_state state;
    uint32_t steps;

    while (number(&steps, 4)) {{
        {name}_reset(&state);
        for (uint32_t t = 0; t < steps; t++) {{
            {type} x[{upper}_INPUTS];
            for (int i = 0; i < {upper}_INPUTS; i++) {{
                uint32_t value;
                if (!number(&value, sizeof x[0]))
                    return 1;
                x[i] = ({type})value;
            }}
            memset(fired, 0, sizeof fired);
            if ({name}_step(&state, {argument}) != 0)
                return 2;
            fwrite(fired, 1, sizeof fired, stdout);
            if ({each})
                report(&state);
        }}
        if (!{each})
            report(&state);
{states}    }}
    return 0;
}}
"""


class CompilerError(RuntimeError):
    """There is no C compiler, it refuses the file, or the program fails."""


@dataclass(frozen=True)
class Verification:
    """What was compared between the compiled header and the simulation, and how much of it differs."""

    compiler: str
    sequences: int
    steps: int
    spikes: int
    spikes_different: int
    scores: int
    largest_deviation: int
    """The largest between scores."""
    states: int
    states_different: int
    different: tuple[int, ...]
    """The sequences in which a spike, a score or a state differs."""

    @property
    def equal(self) -> bool:
        """Whether every bit is the same."""
        return not self.different


@dataclass(frozen=True)
class FixedPoint:
    """A fixed-point network to export, and how it compares with the float network."""

    quantized: Quantized
    name: str
    comparison: Comparison


def prepare(
    folded: Folded, samples: list[Array], name: str, *, scales: list[Array] | None = None, **options: Any
) -> FixedPoint:
    """Round a network to fixed point and compare it with the float network on the samples.

    Args:
        folded: The network.
        samples: Sequences to compare on.
        name: The name of the file; names in the header begin with it, as far as C allows.
        scales: Sequences to calibrate scales on; otherwise the samples.
        options: Those of `quantize`.

    Raises:
        VerificationError: Fixed point and float agree on too few samples.
    """
    quantized = quantize(folded, samples if scales is None else scales, **options)
    (comparison,) = compare(folded, quantized, samples, np.zeros(len(samples), np.int64))
    if comparison.agreement < LEAST_AGREEMENT:
        raise VerificationError(
            f"in fixed point agrees with float on {100 * comparison.agreement:.1f} % of the samples, less than "
            f"{100 * LEAST_AGREEMENT:.0f} %; calibrate on more or longer sequences, or use more bits"
        )
    identifier = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not identifier[:1].isalpha() or identifier in KEYWORDS.split():
        identifier = f"network_{identifier}"
    return FixedPoint(quantized, identifier[:63], comparison)


def report(network: FixedPoint, text: str, samples: list[Array]) -> dict[str, Any]:
    """Verify a header and report what was compared, see `Format.verify`.

    Raises:
        VerificationError: A bit differs.
        CompilerError: It could not be compiled or run.
    """
    result = verify(text, network.quantized, samples, network.name)
    if not result.equal:
        raise VerificationError(
            f"compiled by {result.compiler} disagrees with the fixed-point simulation in {len(result.different)} of "
            f"{result.sequences} sequences: {result.spikes_different} of {result.spikes} spikes and "
            f"{result.states_different} of {result.states} states differ, scores by up to {result.largest_deviation}"
        )
    return {
        "compared": f"bits of spikes, scores and states of {result.sequences} sequences ({result.steps} steps) with "
        f"the fixed-point simulation, compiled by {result.compiler}",
        "sequences": result.sequences,
        "steps": result.steps,
        "dtype": "fixed point",
        "largest_deviation": float(result.largest_deviation),
        "spikes_compared": result.spikes,
        "spikes_different": result.spikes_different,
        "scores_compared": result.scores,
        "states_compared": result.states,
        "states_different": result.states_different,
        "agreement": network.comparison.agreement,
        "spikes_apart": list(network.comparison.divergence),
    }


def header(quantized: Quantized, name: str = "resofire") -> str:
    """The text of the header.

    Args:
        quantized: The network.
        name: What every name in it begins with: name_state, name_reset, name_step, name_scores, name_best.

    Raises:
        TypeError: `quantized` is not a fixed-point network.
        ValueError: The name is not a C identifier, or the network is bidirectional.
    """
    if not isinstance(quantized, Quantized):
        raise TypeError(f"c: quantized must be a Quantized (see quantize), got {type(quantized).__name__}")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", name) or name in KEYWORDS.split():
        raise ValueError(f"c: name must be a C identifier that begins with a letter, got {name!r}")
    if not quantized.causal:
        raise ValueError("the network is bidirectional: it needs whole sequences and cannot be run step by step")
    return Text(quantized, name).whole()


def verify(
    text: str,
    quantized: Quantized,
    samples: Sequence[Array],
    name: str = "resofire",
    *,
    compiler: str | None = None,
    flags: Sequence[str] = FLAGS,
) -> Verification:
    """Compile a header and compare every spike, score and last state with the simulation.

    Args:
        text: The header.
        quantized: The network it was made from.
        samples: Sequences to run.
        name: What names in the header begin with.
        compiler: A program; by default the first of cc, gcc and clang that exists.
        flags: For the compiler.

    Raises:
        CompilerError: There is no compiler, it refuses the header, or the program fails.
    """
    candidates = COMPILERS if compiler is None else (compiler,)
    program = next(filter(None, map(shutil.which, candidates)), None)
    if program is None:
        raise CompilerError(f"c: no C compiler found (tried {', '.join(candidates)})")
    main = MAIN.format(
        name=name,
        upper=name.upper(),
        neurons=quantized.neurons,
        each=int(quantized.pool == "none"),
        type=input_type(quantized),
        argument="x[0]" if quantized.tokens else "x",
        states=for_each_state(quantized, " " * 8, "put"),
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "network.h").write_text(text, encoding="ascii")
        Path(folder, "main.c").write_text(main, encoding="ascii")
        # If this process is stopped, it kills the compiler, whose own temporary files are then removed with the folder.
        compiled = subprocess.run(
            [program, *flags, "main.c", "-o", "main"], cwd=folder, capture_output=True, text=True,
            env={**os.environ, "TMPDIR": folder},
        )  # fmt: skip
        if compiled.returncode:
            raise CompilerError(f"c: {program} does not compile the header: {compiled.stderr.strip()[:2000]}")
        stdin = b"".join(_steps(quantized, x) for x in samples)
        ran = subprocess.run([str(Path(folder, "main"))], input=stdin, capture_output=True)
    if ran.returncode:
        raise CompilerError(f"c: the compiled program ended with {ran.returncode}")
    spikes = np.frombuffer(ran.stdout, np.uint8).reshape(-1, quantized.neurons)
    return _compare(quantized, samples, spikes, np.frombuffer(ran.stderr, "<i8"), program)


def input_type(quantized: Quantized) -> str:
    """The C type of a token or value."""
    return "uint32_t" if quantized.tokens else "uint8_t" if quantized.input_bits <= 8 else "uint16_t"


def for_each_state(quantized: Quantized, indent: str, function: str) -> str:
    """C code that calls a function on each state, in the order of `Simulation.run_with_states`."""
    kinds = {layer.neurons[0].kind for layer in quantized.layers}
    parts = "ur" if "prf" in kinds else "u" if "lif" in kinds else ""
    return "".join(
        f"{indent}for (unsigned i = 0; i < sizeof state.{part} / sizeof *state.{part}; i++)\n"
        f"{indent}    {function}(state.{part}[i]);\n"
        for part in parts
    )


def _steps(quantized: Quantized, x: Array) -> bytes:
    """A sequence as the program reads it."""
    codes = {"uint32_t": "<u4", "uint16_t": "<u2", "uint8_t": "u1"}[input_type(quantized)]
    return np.array(len(x), "<u4").tobytes() + quantized.encode(x).astype(codes).tobytes()


def _compare(
    quantized: Quantized, samples: Sequence[Array], spikes: Array, numbers: Array, compiler: str
) -> Verification:
    """What the program wrote, spikes [all steps, neurons] and scores and states [numbers], against the simulation."""
    simulation, different = Simulation(quantized), []
    step = number = spikes_different = deviation = scores = states = states_different = 0
    for i, x in enumerate(samples):
        result, state = simulation.run_with_states(x)
        expected = result.scores.reshape(-1)
        wrong_spikes = int(np.count_nonzero(spikes[step : step + len(x)] != np.concatenate(result.spikes, 1)))
        c_scores, c_state = np.split(numbers[number : number + len(expected) + len(state)], [len(expected)])
        wrong_states = int(np.count_nonzero(c_state != state))
        # As Python's integers: a difference of two int64 may not fit into one.
        apart = max(abs(int(a) - int(b)) for a, b in zip(c_scores, expected, strict=True))
        if wrong_spikes or wrong_states or apart:
            different.append(i)
        step, number = step + len(x), number + len(expected) + len(state)
        spikes_different, deviation = spikes_different + wrong_spikes, max(deviation, apart)
        scores, states, states_different = scores + len(expected), states + len(state), states_different + wrong_states
    return Verification(
        compiler=compiler,
        sequences=len(samples),
        steps=step,
        spikes=spikes.size,
        spikes_different=spikes_different,
        scores=scores,
        largest_deviation=deviation,
        states=states,
        states_different=states_different,
        different=tuple(different),
    )
