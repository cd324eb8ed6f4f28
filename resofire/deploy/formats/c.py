"""Networks as a folder of C99: a header, and a test that checks it where it is compiled.

    text = header(quantized, "network")
    verify(text, quantized, samples, "network")

In fixed point the header needs only <stdint.h> and memset: no heap, no floating point; `verify` compiles it with the
system's compiler together with a small program that feeds samples and writes every spike, the scores and the last
states, and compares all of them with the simulation. In floats (`c_float`) it is compared with the reference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...nn.folded import Array, Folded
from ...ops.equation.c import literal
from ..compare import Comparison, compare
from ..quantize import quantize
from ..quantized import Quantized
from ..reference import Result, run
from ..simulate import Simulation
from . import c_run
from .c_float import FloatText
from .c_literals import identifier, require_identifier
from .c_run import FLAGS, Interface, NoCompilerError
from .c_text import Text
from .format import FloatFormat, VerificationError

NUMBERS = ("fixed", "float")
# Least share of samples on which fixed point must agree with float.
LEAST_AGREEMENT = 0.8
# Tolerance of scores in the test in floats, relative to the largest: another compiler may fuse a product with a sum.
TEST_TOLERANCE = 1e-3
BIDIRECTIONAL = "the network is bidirectional: it needs whole sequences and cannot be run step by step"


@dataclass(frozen=True)
class Verification:
    """The comparison of a compiled header with the simulation."""

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
    samples: list[Array]

    def files(self) -> dict[str, str]:
        """The texts of the folder, by name."""
        samples, simulation = c_run.short_samples(self.samples), Simulation(self.quantized)
        test = c_run.self_test(
            interface(self.quantized, self.name),
            [list(map(str, _codes(self.quantized, x).reshape(-1))) for x in samples],
            [len(x) for x in samples],
            [[f"{score}LL" for score in np.atleast_2d(simulation.run(x).scores)[-1]] for x in samples],
            None,
        )
        return {f"{self.name}.h": header(self.quantized, self.name), f"{self.name}_test.c": test}

    def report(self, text: str, samples: list[Array]) -> dict[str, Any]:
        """Verify a header and report what was compared, see `Format.verify`."""
        result = verify(text, self.quantized, samples, self.name)
        if not result.equal:
            raise VerificationError(
                f"compiled by {result.compiler} disagrees with the fixed-point simulation in {len(result.different)} "
                f"of {result.sequences} sequences: {result.spikes_different} of {result.spikes} spikes and "
                f"{result.states_different} of {result.states} states differ, scores by up to "
                f"{result.largest_deviation}"
            )
        return {
            "compared": f"bits of spikes, scores and states of {result.sequences} sequences ({result.steps} steps) "
            f"with the fixed-point simulation, compiled by {result.compiler}",
            "sequences": result.sequences,
            "steps": result.steps,
            "dtype": "fixed point",
            "largest_deviation": float(result.largest_deviation),
            "spikes_compared": result.spikes,
            "spikes_different": result.spikes_different,
            "scores_compared": result.scores,
            "states_compared": result.states,
            "states_different": result.states_different,
            **self.report_without_run(),
        }

    def report_without_run(self) -> dict[str, Any]:
        """The part of the report that needs no compiler: agreement of fixed point with float."""
        return {"agreement": self.comparison.agreement, "spikes_apart": list(self.comparison.divergence)}


@dataclass(frozen=True)
class FloatNetwork(FloatFormat):
    """A network to export in floats; also verified in double, by a second header."""

    folded: Folded
    """In float32."""
    name: str
    samples: list[Array]

    def files(self) -> dict[str, str]:
        """The texts of the folder, by name."""
        samples, real = c_run.short_samples(self.samples), "float"
        scores = [np.atleast_2d(run(self.folded, x).scores)[-1] for x in samples]
        tolerance = TEST_TOLERANCE * (1 + max(float(np.abs(each).max()) for each in scores))
        test = c_run.self_test(
            self._interface(real),
            [[str(value) if self.folded.tokens else literal(value, real) for value in x.reshape(-1)] for x in samples],
            [len(x) for x in samples],
            [[literal(score, real) for score in each] for each in scores],
            literal(tolerance, real),
        )
        return {f"{self.name}.h": FloatText(self.folded, self.name).whole(), f"{self.name}_test.c": test}

    def write(self, network: Folded) -> bytes:
        return FloatText(network, self.name).whole().encode("ascii")

    def replay(self, content: bytes, samples: list[Array]) -> list[Result]:
        text = content.decode("ascii")
        # The first line of a header says what its numbers are.
        real, dtype = ("double", np.float64) if " in double, " in text[:80] else ("float", np.float32)
        folded, each = self.folded, self.folded.pool == "none"
        stdout, stderr = c_run.execute(
            text, self._interface(real), (x.astype(np.uint32 if folded.tokens else dtype) for x in samples),
            compiler=c_run.find_compiler(), neurons=folded.neurons, each=each,
        )  # fmt: skip
        spikes = np.frombuffer(stdout, np.uint8).reshape(-1, folded.neurons).astype(bool)
        scores = np.frombuffer(stderr, dtype).reshape(-1, len(folded.bias))
        edges = np.cumsum([layer.neurons[0].count for layer in folded.layers])[:-1]
        ends = np.cumsum([len(x) for x in samples])[:-1]
        parts = np.split(scores, ends) if each else list(scores)
        return [
            Result(score, np.split(fired, edges, 1)) for score, fired in zip(parts, np.split(spikes, ends), strict=True)
        ]

    def report(self, text: str, samples: list[Array]) -> dict[str, Any]:
        """Verify a header and report what was compared, see `Format.verify`."""
        report = self.verify(self.folded, text.encode("ascii"), samples)
        compiler = c_run.find_compiler()
        return {**report, "compared": f"{report['compared']}, compiled by {compiler}"}

    def report_without_run(self) -> dict[str, Any]:
        """The part of the report that needs no compiler: empty."""
        return {}

    def _interface(self, real: str) -> Interface:
        return Interface(self.name, "uint32_t" if self.folded.tokens else real, self.folded.tokens, real)


def prepare(
    folded: Folded, samples: list[Array], name: str, *, numbers: str = "fixed", scales: list[Array] | None = None,
    **options: Any,
) -> FixedPoint | FloatNetwork:  # fmt: skip
    """Prepare a network to be written in floats, or quantise it and compare it with the float network.

    Args:
        folded: The network.
        samples: Sequences to compare on.
        name: The name of the folder; names in the header begin with it, as far as C allows.
        numbers: "fixed" or "float".
        scales: Sequences to calibrate fixed point on; otherwise the samples.
        options: Those of `quantize`, for fixed point.
    """
    if numbers not in NUMBERS:
        raise ValueError(f"numbers must be fixed or float, got {numbers!r}")
    if not folded.causal:
        raise ValueError(BIDIRECTIONAL)
    if numbers == "float":
        if options:
            raise ValueError(f"{next(iter(options))} is for fixed point, got numbers 'float'")
        return FloatNetwork(folded.astype(np.float32), identifier(name), samples)
    if folded.equation_owner is not None:
        raise ValueError(
            f"fixed point takes PRF and LIF neurons, got {folded.equation_owner}; in floats any neuron can be written "
            f"(--numbers float)"
        )
    quantized = quantize(folded, samples if scales is None else scales, **options)
    (comparison,) = compare(folded, quantized, samples, np.zeros(len(samples), np.int64))
    if comparison.agreement < LEAST_AGREEMENT:
        raise VerificationError(
            f"in fixed point agrees with float on {100 * comparison.agreement:.1f} % of the samples, less than "
            f"{100 * LEAST_AGREEMENT:.0f} %; calibrate on more or longer sequences, or use more bits"
        )
    return FixedPoint(quantized, identifier(name), comparison, samples)


def report(network: FixedPoint | FloatNetwork, files: dict[str, str], samples: list[Array]) -> dict[str, Any]:
    """Compile and run what was written, the test too, and report what was compared, see `Format.verify`.

    Without a compiler nothing can be run: `run` is False, and `compared` says why.

    Raises:
        VerificationError: It does not compute what the network computes.
        CompilerError: It could not be compiled or run.
    """
    try:
        compiler = c_run.find_compiler()
    except NoCompilerError as error:
        nothing = {"sequences": 0, "steps": 0, "largest_deviation": 0.0, "spikes_compared": 0, "spikes_different": 0}
        return {"run": False, "compared": str(error), "dtype": "", **nothing, **network.report_without_run()}
    compared = network.report(files[f"{network.name}.h"], samples)
    failed = c_run.check_test(files, network.name, compiler)
    if failed is not None:
        raise VerificationError(f"fails its own test: {failed}")
    return {"run": True, **compared}


def header(quantized: Quantized, name: str = "resofire") -> str:
    """The text of the header. Its names begin with `name`: name_state, name_reset, name_step, name_scores, name_best.

    Raises:
        ValueError: The name is not a C identifier, or the network is bidirectional.
    """
    if not isinstance(quantized, Quantized):
        raise TypeError(f"c: quantized must be a Quantized (see quantize), got {type(quantized).__name__}")
    require_identifier(name)
    if not quantized.causal:
        raise ValueError(BIDIRECTIONAL)
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
    """Compile the header of a network and compare every spike, score and last state with the simulation.

    The compiler is by default the first of cc, gcc and clang that exists.

    Raises:
        CompilerError: There is no compiler, it refuses the header, or the program fails.
    """
    program = c_run.find_compiler(compiler)
    stdout, stderr = c_run.execute(
        text, interface(quantized, name), (_codes(quantized, x) for x in samples), compiler=program, flags=flags,
        neurons=quantized.neurons, each=quantized.pool == "none", states=for_each_state(quantized, " " * 8, "put"),
    )  # fmt: skip
    spikes = np.frombuffer(stdout, np.uint8).reshape(-1, quantized.neurons)
    return _compare(quantized, samples, spikes, np.frombuffer(stderr, np.int64), program)


def interface(quantized: Quantized, name: str) -> Interface:
    """The names and types of a header that programs around it need."""
    return Interface(name, input_type(quantized), quantized.tokens, "int64_t")


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


def _codes(quantized: Quantized, x: Array) -> Array:
    """A sequence as the header reads it."""
    return quantized.encode(x).astype(input_type(quantized).removesuffix("_t"))


def _compare(
    quantized: Quantized, samples: Sequence[Array], spikes: Array, numbers: Array, compiler: str
) -> Verification:
    """Compare the program's spikes [all steps, neurons], scores and states [numbers] with the simulation."""
    simulation, different = Simulation(quantized), []
    step = number = spikes_different = deviation = scores = states = states_different = 0
    for i, x in enumerate(samples):
        result, state = simulation.run_with_states(x)
        expected = result.scores.reshape(-1)
        wrong_spikes = int(np.count_nonzero(spikes[step : step + len(x)] != np.concatenate(result.spikes, 1)))
        c_scores, c_state = np.split(numbers[number : number + len(expected) + len(state)], [len(expected)])
        wrong_states = int(np.count_nonzero(c_state != state))
        # As Python's integers: a difference of two int64 may not fit into one.
        difference = max(abs(int(a) - int(b)) for a, b in zip(c_scores, expected, strict=True))
        if wrong_spikes or wrong_states or difference:
            different.append(i)
        step, number = step + len(x), number + len(expected) + len(state)
        spikes_different, deviation = spikes_different + wrong_spikes, max(deviation, difference)
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
