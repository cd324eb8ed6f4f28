"""Export to C: one C99 header with the network in integers, and a check that it computes the same bits.

    write(quantized, "network.h", name="network")
    verify("network.h", quantized, samples, name="network")

The header needs only <stdint.h> and memset: no memory from the heap, no floating point. `verify` compiles it with the
system's compiler beside a small program that feeds samples and prints scores, spike counts and a digest of all spikes
and the last states.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .c_text import Text
from .folded import Array
from .quantized import Quantized
from .simulate import Simulation

FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2")
COMPILERS = ("cc", "gcc", "clang")
KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"
)

MAIN = """/* Feeds sequences from the standard input: the number of steps in 4 bytes, lowest first, then the steps. */
#include <stdint.h>
#include <stdio.h>

static uint32_t digest;
#define {upper}_SPIKE(layer, neuron) (digest = (digest ^ (uint32_t)(neuron)) * 16777619u)
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

static void add(int32_t value)
{{
    digest = (digest ^ (uint32_t)value) * 16777619u;
}}

static void print(const {name}_state *state)
{{
    int64_t scores[{upper}_CLASSES];

    {name}_scores(state, scores);
    for (int k = 0; k < {upper}_CLASSES; k++)
        printf("%lld ", (long long)scores[k]);
    printf("\\n");
}}

int main(void)
{{
    static {name}_state state;
    uint32_t steps;

    while (number(&steps, 4)) {{
        {name}_reset(&state);
        digest = 2166136261u;
        for (uint32_t t = 0; t < steps; t++) {{
            {type} x[{upper}_INPUTS];
            for (int i = 0; i < {upper}_INPUTS; i++) {{
                uint32_t value;
                if (!number(&value, sizeof x[0]))
                    return 1;
                x[i] = ({type})value;
            }}
            if ({name}_step(&state, {passed}) != 0)
                return 2;
            add(-1);
            if ({each})
                print(&state);
        }}
        if (!{each})
            print(&state);
{states}        printf("%lu", (unsigned long)digest);
        for (int i = 0; i < {upper}_LAYERS; i++)
            printf(" %lu", (unsigned long)state.spikes[i]);
        printf("\\n");
    }}
    return 0;
}}
"""


@dataclass(frozen=True)
class Verification:
    compiler: str
    sequences: int
    different: tuple[int, ...]
    """Which sequences gave other bits."""

    @property
    def equal(self) -> bool:
        return not self.different


def write(quantized: Quantized, file: str | os.PathLike[str], name: str = "resofire") -> Path:
    """Writes the header. `name` begins every name in it: name_state, name_reset, name_step, name_scores, name_best."""
    _require(quantized, name, "write")
    path = Path(file)
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"write: file must be a file in a folder that exists, got {str(path)!r}")
    path.write_text(Text(quantized, name).whole(), encoding="ascii")
    return path


def verify(
    file: str | os.PathLike[str],
    quantized: Quantized,
    samples: Sequence[Array],
    name: str = "resofire",
    *,
    compiler: str | None = None,
    flags: Sequence[str] = FLAGS,
) -> Verification:
    """Compiles the header and compares, on all samples, every spike, the last states and scores with the simulation.

    compiler    a program; otherwise the first of cc, gcc and clang that is there; FileNotFoundError if there is none
    """
    _require(quantized, name, "verify")
    wanted = COMPILERS if compiler is None else (compiler,)
    found = next(filter(None, map(shutil.which, wanted)), None)
    if found is None:
        raise FileNotFoundError(f"verify: there is no C compiler here (looked for {', '.join(wanted)})")
    main = MAIN.format(
        name=name, upper=name.upper(), each=int(quantized.pool == "none"), type=_type(quantized),
        passed="x[0]" if quantized.tokens else "x", states=digests(quantized, " " * 8),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "network.h").write_bytes(Path(file).read_bytes())
        Path(folder, "main.c").write_text(main, encoding="ascii")
        made = subprocess.run([found, *flags, "main.c", "-o", "main"], cwd=folder, capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(f"verify: {found} does not compile {str(file)!r}: {made.stderr.strip()[:2000]}")
        given = b"".join(steps(quantized, x) for x in samples)
        ran = subprocess.run([str(Path(folder, "main"))], input=given, capture_output=True)
    if ran.returncode:
        raise RuntimeError(f"verify: the program made of {str(file)!r} ended with {ran.returncode}")
    lines = ran.stdout.decode().splitlines()
    simulation, at, different = Simulation(quantized), 0, []
    for number, x in enumerate(samples):
        told = expected(simulation, x)
        if [line.split() for line in lines[at : at + len(told)]] != told:
            different.append(number)
        at += len(told)
    return Verification(found, len(samples), tuple(different))


def steps(quantized: Quantized, x: Array) -> bytes:
    """A sequence as the check reads it: the number of steps in 4 bytes, then tokens of 4, or values of 1 or 2."""
    return np.uint32(len(x)).astype("<u4").tobytes() + quantized.encode(x).astype(_bytes(quantized)).tobytes()


def digests(quantized: Quantized, indent: str) -> str:
    """C code that adds the states to the digest, in the order of `Simulation.states`."""
    parts = "ur" if any(layer.neurons[0].kind == "prf" for layer in quantized.layers) else "u"
    return "".join(
        f"{indent}for (unsigned i = 0; i < sizeof state.{part} / sizeof *state.{part}; i++)\n"
        f"{indent}    add(state.{part}[i]);\n"
        for part in parts
    )


def expected(simulation: Simulation, x: Array) -> list[list[str]]:
    """What the check prints for a sequence: scores (a line for each step with pool "none"), digest and spike counts."""
    scores, spikes = simulation.walk(x)
    counts = [simulation.digest(x), *(int(fired.sum()) for fired in spikes)]
    return [[str(int(value)) for value in line] for line in (*np.atleast_2d(scores), counts)]


def _bytes(quantized: Quantized) -> str:
    return "<u4" if quantized.tokens else "<u1" if quantized.input_bits <= 8 else "<u2"


def _type(quantized: Quantized) -> str:
    return {"<u4": "uint32_t", "<u1": "uint8_t", "<u2": "uint16_t"}[_bytes(quantized)]


def _require(quantized: Quantized, name: str, where: str) -> None:
    if not isinstance(quantized, Quantized):
        raise TypeError(f"{where}: quantized must be a Quantized (see quantize), got {type(quantized).__name__}")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", name) or name in KEYWORDS.split():
        raise ValueError(f"{where}: name must be a C identifier that begins with a letter, got {name!r}")
    if not quantized.causal:
        raise ValueError(f"{where}: the network is bidirectional: it needs whole sequences and cannot be run by steps")
