"""Compiling and running exported C: a program that feeds sequences, and the test that comes with an export."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...nn.folded import Array
from .c_literals import lines

FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2")
COMPILERS = ("cc", "gcc", "clang")
# Limits of the test that comes with an export: sequences, their steps and their numbers.
TEST_SEQUENCES, TEST_STEPS, TEST_NUMBERS = 3, 200, 3_000

# Names without an underscore: none is one of the header's, whatever those begin with.
MAIN = """/* Reads sequences from standard input: the number of steps, then the steps.
   Writes the spikes of each step, one byte a neuron, to standard output, scores and last states to standard error. */
#include <stdint.h>
#include <stdio.h>

static unsigned char fired[{neurons}];
#define {upper}_SPIKE(layer, neuron) (fired[neuron] = 1)
#include "network.h"

{put}static void report(const {name}_state *state)
{{
    {score} scores[{upper}_CLASSES];

    {name}_scores(state, scores);
    fwrite(scores, sizeof scores, 1, stderr);
}}

int main(void)
{{
    static {name}_state state;
    uint32_t steps;

    while (fread(&steps, sizeof steps, 1, stdin) == 1) {{
        {name}_reset(&state);
        for (uint32_t t = 0; t < steps; t++) {{
            {type} x[{upper}_INPUTS];
            if (fread(x, sizeof x, 1, stdin) != 1)
                return 1;
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
PUT = """static void put(int64_t value)
{
    fwrite(&value, sizeof value, 1, stderr);
}

"""

TEST = """/* Checks {name}.h where it is compiled and run:
 *
 *   cc -std=c99 {name}_test.c -o {name}_test{library} && ./{name}_test
 *
 * It feeds a few sequences and compares the scores with those that the network had when it was exported. It ends with 0
 * if {criterion}.
 */
#include <stdint.h>
#include <stdio.h>

#include "{name}.h"

static const uint32_t lengths[{count}] = {{{lengths}}};
static const {type} samples[{size}] = {{
{samples}}};
static const {score} expected[{count}][{upper}_CLASSES] = {{
{expected}}};

int main(void)
{{
    static {name}_state state;
    const {type} *x = samples;
    int wrong = 0;

    for (int i = 0; i < {count}; i++) {{
        {score} scores[{upper}_CLASSES];

        {name}_reset(&state);
        for (uint32_t t = 0; t < lengths[i]; t++, x += {upper}_INPUTS)
            if ({name}_step(&state, {argument}) != 0)
                return 2;
        {name}_scores(&state, scores);
        for (int k = 0; k < {upper}_CLASSES; k++)
            if ({differs}) {{
                wrong++;
                break;
            }}
    }}
    printf("{name}: %d of {count} sequences differ\\n", wrong);
    return wrong != 0;
}}
"""


class CompilerError(RuntimeError):
    """The compiler refuses the file, or the program fails."""


class NoCompilerError(CompilerError):
    """There is no C compiler."""


@dataclass(frozen=True)
class Interface:
    """The names and types of a header that programs around it need."""

    name: str
    """Prefix of its names."""
    type: str
    """The C type of a token or value."""
    tokens: bool
    score: str
    """The C type of a score."""


def find_compiler(compiler: str | None = None) -> str:
    """The compiler of this name, or the first of `COMPILERS` that exists.

    Raises:
        NoCompilerError: There is none.
    """
    candidates = COMPILERS if compiler is None else (compiler,)
    program = next(filter(None, map(shutil.which, candidates)), None)
    if program is None:
        raise NoCompilerError(f"c: no C compiler found (tried {', '.join(candidates)})")
    return program


def execute(
    text: str, interface: Interface, sequences: Iterable[Array], *, compiler: str, neurons: int, each: bool,
    flags: Sequence[str] = FLAGS, states: str = "",
) -> tuple[bytes, bytes]:  # fmt: skip
    """Feed sequences, tokens [T] or values [T, inputs] of the header's type, to a header.

    Args:
        text: The header.
        interface: Its names and types.
        sequences: The sequences.
        compiler: The compiler, see `find_compiler`.
        neurons: Number of neurons in the network.
        each: Write scores after every step instead of after the last one.
        flags: Flags of the compiler.
        states: C code that calls `put` on every state; empty: states are not written.

    Returns:
        The spikes, a byte for each neuron and step; and for each sequence its scores, then its last states.

    Raises:
        CompilerError: The compiler refuses the header, or the program fails.
    """
    main = MAIN.format(
        name=interface.name, upper=interface.name.upper(), neurons=neurons, each=int(each), type=interface.type,
        score=interface.score, argument="x[0]" if interface.tokens else "x", states=states, put=PUT if states else "",
    )  # fmt: skip
    stdin = b"".join(np.array(len(x), np.uint32).tobytes() + np.ascontiguousarray(x).tobytes() for x in sequences)
    ran = build_and_run({"network.h": text, "main.c": main}, "main.c", compiler, flags, stdin)
    if ran.returncode:
        raise CompilerError(f"c: the compiled program ended with {ran.returncode}")
    return ran.stdout, ran.stderr


def build_and_run(
    files: Mapping[str, str], main: str, compiler: str, flags: Sequence[str] = FLAGS, stdin: bytes = b""
) -> Any:
    """Compile one of some files and run it; returns what `subprocess.run` returns.

    Raises:
        CompilerError: The compiler refuses it.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text, encoding="ascii")
        # If this process is stopped, it kills the compiler, whose own temporary files are then removed with the folder.
        compiled = subprocess.run(
            [compiler, *flags, main, "-o", "program", "-lm"], cwd=folder, capture_output=True, text=True,
            env={**os.environ, "TMPDIR": folder},
        )  # fmt: skip
        if compiled.returncode:
            raise CompilerError(f"c: {compiler} does not compile the header: {compiled.stderr.strip()[:2000]}")
        return subprocess.run([str(Path(folder, "program"))], input=stdin, capture_output=True)


def short_samples(samples: Sequence[Array]) -> list[Array]:
    """A few short sequences, for the test that comes with an export."""
    inputs = 1 if samples[0].ndim == 1 else samples[0].shape[1]
    longest = max(1, min(TEST_STEPS, TEST_NUMBERS // (TEST_SEQUENCES * inputs)))
    return [x[:longest] for x in samples[:TEST_SEQUENCES]]


def self_test(
    interface: Interface, samples: Sequence[list[str]], steps: Sequence[int], scores: Sequence[list[str]],
    tolerance: str | None,
) -> str:  # fmt: skip
    """The test that comes with an export.

    Args:
        interface: The names and types of the header.
        samples: The numbers of each sample, as C literals.
        steps: The number of steps of each sample.
        scores: The expected scores of each sample, as C literals.
        tolerance: Largest allowed difference of a score, as a C literal; None: scores must be equal.
    """
    numbers = [number for sample in samples for number in sample]
    differs = "scores[k] != expected[i][k]"
    if tolerance is not None:
        differs = f"!(scores[k] - expected[i][k] <= {tolerance} && expected[i][k] - scores[k] <= {tolerance})"
    criterion = "all scores are equal" if tolerance is None else "no score differs by more than rounding allows"
    return TEST.format(
        name=interface.name, upper=interface.name.upper(), count=len(samples), size=len(numbers), type=interface.type,
        score=interface.score, lengths=", ".join(map(str, steps)), samples=lines(numbers),
        expected="".join(f"    {{\n{lines(row)}    }},\n" for row in scores), differs=differs, criterion=criterion,
        argument="*x" if interface.tokens else "x", library="" if tolerance is None else " -lm",
    )  # fmt: skip


def check_test(files: Mapping[str, str], name: str, compiler: str) -> str | None:
    """Compile and run the test of an export: what it prints if it fails, None if it succeeds."""
    ran = build_and_run(files, f"{name}_test.c", compiler)
    return None if ran.returncode == 0 else str(ran.stdout.decode().strip() or f"it ended with {ran.returncode}")
