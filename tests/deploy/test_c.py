"""The C header: compiled without a warning, it computes the simulation's bits; and `verify` finds a wrong one."""

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from deploy_cases import CASES, make_input, network
from test_quantize import extreme

import resofire
from resofire import data
from resofire.deploy import fold
from resofire.deploy.formats.c import header, verify
from resofire.deploy.formats.c_packing import words
from resofire.deploy.formats.c_run import FLAGS, CompilerError
from resofire.deploy.quantize import quantize
from resofire.deploy.quantized import STATE_BITS, WEIGHT_BITS
from resofire.deploy.simulate import Simulation
from resofire.models import FeedforwardConfig
from resofire.nn import LIFConfig

CAUSAL = [name for name in CASES if "bidirectional" not in name]
WIDTHS = [(weight, state) for weight in WEIGHT_BITS for state in STATE_BITS]
# The widths take turns: the cases that are not deep have each width and each kind of neuron among them.
DEEP = ("postnorm and last", "no amplitude", "both amplitudes", "lif", "lif no reset", "pool last")
TURNS = [
    pytest.param(case, WIDTHS[number % len(WIDTHS)], marks=pytest.mark.deep if case in DEEP else (), id=case)
    for number, case in enumerate(CAUSAL)
]
# Overflow, a shift too far, an index out of range: the program stops.
STRICT = (*FLAGS[:-1], "-O0", "-fsanitize=undefined", "-fno-sanitize-recover=all")

compiled = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


def made(config, weight_bits=8, state_bits=16, **settings):
    x = [make_input(config, 40, seed).numpy() for seed in range(3)]
    return quantize(fold(network(config)), x, weight_bits=weight_bits, state_bits=state_bits, **settings), x


@compiled
@pytest.mark.parametrize(("case", "bits"), TURNS)
def test_the_same_bits(case, bits):
    quantized, x = made(CASES[case], *bits)
    result = verify(header(quantized), quantized, x)
    assert result.equal
    assert (result.sequences, result.steps, result.spikes) == (3, 120, 120 * quantized.neurons)
    assert result.scores == (120 if quantized.pool == "none" else 3) * 3
    assert result.states > 0


@compiled
@pytest.mark.parametrize(
    ("case", "bits"),
    [("soft prf", (8, 16)), ("lif", (6, 24)), ("lif hard", (8, 32)), ("tokens", (4, 16)), ("feedforward", (4, 32))],
)
def test_the_same_bits_when_everything_saturates(case, bits):
    quantized, x = made(CASES[case], *bits)
    quantized = extreme(quantized, 1)
    assert verify(header(quantized), quantized, x, flags=STRICT).equal


@compiled
@pytest.mark.parametrize(("hidden", "weight_bits"), [(257, 8), (258, 8), (259, 6), (259, 4)])
def test_wide_layers_that_all_fire(hidden, weight_bits):
    """Two sums in a word hold 257 weights of 8 bits; with more neurons they are added one by one."""
    config = FeedforwardConfig(sizes=(2, hidden, 5, 3), neuron=LIFConfig(threshold=0.3, reset="none"))
    quantized, x = made(config, weight_bits)
    first = quantized.layers[0]
    always = replace(first.neurons[0], threshold=np.full(hidden, -quantized.top - 1))
    most = np.full_like(first.rows, (1 << (weight_bits - 1)) - 1)
    most[:, 1] *= -1
    quantized = replace(
        quantized, layers=(replace(first, neurons=(always,), rows=most), *quantized.layers[1:]), input_bits=8
    )
    text = header(quantized)
    assert ("int8_t resofire_rows0" in text) == (hidden > 257 and weight_bits == 8)
    assert verify(text, quantized, x, flags=STRICT).equal


@compiled
def test_digits_and_values_of_two_bytes():
    task = data.load("digits")
    train = next(task.splits["train"].batches(16, seed=0)).x.numpy()
    test = list(next(task.splits["test"].batches(10)).x.numpy())
    folded = fold(resofire.pretrained("digits"))
    for settings in ({}, {"weight_bits": 4, "input_bits": 12}):
        quantized = quantize(folded, list(train), **settings)
        assert verify(header(quantized, "digits"), quantized, test, "digits").equal
    config = replace(CASES["prenorm"], inputs=1)
    wide, x = made(config, input_bits=16)
    assert "const uint16_t x[1]" in header(wide)
    assert verify(header(wide), wide, x).equal


@compiled
def test_a_wrong_constant_and_another_rounding_are_found():
    quantized, x = made(CASES["lif"])
    x *= 5
    text = header(quantized)
    start = text.index("resofire_table")
    first = re.search(r"\{\n\s+(-?\d+),", text[start:])
    changed = text[: start + first.start(1)] + str(-int(first[1])) + text[start + first.end(1) :]
    result = verify(changed, quantized, x)
    assert not result.equal
    assert 0 < result.spikes_different < result.spikes
    assert 0 < result.states_different <= result.states
    assert result.largest_deviation > 0
    quietly = text.replace("+ 8192) >> 14", "+ 8191) >> 14")
    assert quietly != text
    assert not verify(quietly, quantized, x).equal
    with pytest.raises(CompilerError, match=r"(?s)c: .*cc does not compile the header: .*int33_t"):
        verify(text.replace("int32_t", "int33_t"), quantized, x)


@compiled
def test_a_step_more_than_can_be_summed_and_a_token_that_is_none(tmp_path):
    quantized, x = made(CASES["tokens"])
    (tmp_path / "net.h").write_text(re.sub(r"(_MOST_STEPS) \d+", r"\1 3", header(quantized)))
    tokens = ", ".join(map(str, x[0][:5]))
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "net.h"\n'
        "int main(void)\n{\n    static resofire_state s;\n    int64_t scores[3];\n"
        f"    const uint32_t x[5] = {{{tokens}}};\n\n    resofire_reset(&s);\n"
        '    for (int t = 0; t < 5; t++)\n        printf("%d ", resofire_step(&s, x[t]));\n'
        '    printf("%d ", resofire_step(&s, 11));\n    resofire_scores(&s, scores);\n'
        '    printf("%d %lld %lld %lld", resofire_best(&s), (long long)scores[0], (long long)scores[1],\n'
        "           (long long)scores[2]);\n    return 0;\n}\n"
    )
    subprocess.run(["cc", *STRICT, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.split()
    scores = Simulation(quantized).run(x[0][:3]).scores
    assert printed == ["0"] * 5 + ["-1", str(scores.argmax()), *map(str, scores)]


def test_the_header_stands_alone():
    text = header(made(CASES["soft prf"])[0], "edge_1")
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    assert re.findall(r"#include (.*)", code) == ["<stdint.h>", "<string.h>"]
    assert not re.search(r"\b(float|double|malloc|calloc|free|printf)\b|\d\.\d", code)
    defined = re.findall(r"^(?:static (?:inline|const) \w+ |typedef char |} )\*?(\w+)", code, flags=re.M)
    assert len(defined) > 20
    assert all(name.startswith("edge_1_") or name == "struct" for name in defined)
    assert all(len(line) <= 200 for line in text.splitlines())


def test_words_hold_what_was_put_in():
    generator = np.random.default_rng(0)
    for bits in WEIGHT_BITS:
        top = (1 << (bits - 1)) - 1
        rows = generator.integers(-top, top + 1, (5, 13)).astype(np.int8)
        packed = words(rows, bits).astype(np.int64)
        per, mask = (8, 0xF) if bits == 4 else (4, 0xFF)
        sums = np.stack([packed >> (32 // per * p) & (mask << 16 | mask) for p in range(per // 2)], -1).reshape(5, -1)
        unpacked = np.stack([sums & 0xFFFF, sums >> 16], -1).reshape(5, -1)[:, :13] - (top + 1)
        np.testing.assert_array_equal(unpacked, rows)


@compiled
def test_names_that_the_program_which_verifies_uses_itself():
    quantized, x = made(CASES["lif"])
    for name in ("put", "report"):
        assert verify(header(quantized, name), quantized, x, name).equal


def test_the_header_says_which_steps_the_scores_are_of():
    for case, steps in (("lif", "of all steps so far"), ("pool last", "of the last step")):
        assert f"scores);    {steps}\n" in header(made(CASES[case])[0])


def test_names_that_are_no_c_identifiers():
    quantized, _ = made(CASES["lif"])
    for name in ("", "2fast", "a-b", "a b", "_x", "für", "int", "a\nb", "x" * 64, "../x", 'a"', 3):
        with pytest.raises(ValueError, match="name must be a C identifier that begins with a letter, got"):
            header(quantized, name)


def test_what_cannot_be_written():
    quantized, x = made(CASES["lif"])
    with pytest.raises(ValueError, match="the network is bidirectional"):
        header(made(CASES["bidirectional"])[0])
    with pytest.raises(TypeError, match=r"quantized must be a Quantized \(see quantize\), got Folded"):
        header(fold(network(CASES["lif"])))
    with pytest.raises(CompilerError, match=r"no C compiler found \(tried no-such-compiler\)"):
        verify(header(quantized), quantized, x, compiler="no-such-compiler")


def test_the_compilers_temporary_files_are_removed_with_ours(tmp_path):
    """Whoever is stopped kills the compiler, which then cleans up nothing."""
    quantized, x = made(CASES["lif"])
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\n[ "$TMPDIR" = "$PWD" ] && echo in our folder >&2\nexit 1\n')
    compiler.chmod(0o755)
    with pytest.raises(CompilerError, match="does not compile the header: in our folder"):
        verify(header(quantized), quantized, x, compiler=str(compiler))
