"""The text of the C99 header of a folded network in floats: constants, one step of each neuron, reset, step and scores.

Each neuron's step is written from the graph of its equation; PRF, LIF and spatial neurons have theirs in folded form.
Coefficients that all neurons of a layer share are numbers in the code, others a row of constants per neuron. The mean
of the read-out is updated in place, m += (z - m) / W: with W = 1, 2, 3, … it is the mean of all steps, with
W = λ W + 1 the leaky one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...nn.folded import Array, Folded, Layer, Neurons
from ...ops.equation.c import literal, step_source, uses_functions
from ...ops.equation.graph import Program
from ...ops.equation.trace import trace
from .c_literals import best, class_names, lines

TOP = """/* A spiking network in {real}, written by resofire; its neurons: {kinds}.
 *
 *   {name}_state state;
 *   {name}_reset(&state);
 *   {name}_step(&state, {example});      once for each time step
 *   {name}_scores(&state, scores);    {when}
 *
 * C99, no heap. Include it in one file only: it contains the constants.
 * {input}
 * Scores are the trained network's, up to rounding; {name}_best returns the class with the largest.
 * Define {upper}_SPIKE(layer, neuron) before the #include to be called for every spike.
 */
#ifndef {upper}_H
#define {upper}_H

{include}#include <stdint.h>
#include <string.h>

#define {upper}_INPUTS {inputs}
#define {upper}_CLASSES {classes}
#define {upper}_LAYERS {layers}
#define {upper}_NEURONS {neurons}

#ifndef {upper}_SPIKE
#define {upper}_SPIKE(layer, neuron) ((void)0)
#endif

"""


def _prf(reset: str) -> Any:
    def dynamics(current: Any, state: Any, c: Any, spike: Any) -> Any:
        u = c.phi_re * state.u - c.phi_im * state.r + current
        s = spike(u - c.threshold)
        following = u - c.threshold * s if reset == "soft" else u
        return s, {"u": following, "r": c.phi_im * state.u + c.phi_re * state.r}

    return dynamics


def _lif(reset: str) -> Any:
    def dynamics(current: Any, state: Any, c: Any, spike: Any) -> Any:
        u = c.beta * state.u + current
        s = spike(u - c.threshold)
        return s, {"u": {"none": u, "soft": u - c.threshold * s, "hard": u * (1 - s)}[reset]}

    return dynamics


def _spatial(current: Any, state: Any, c: Any, spike: Any) -> Any:
    return spike(current - c.threshold), {}


@dataclass(frozen=True)
class Step:
    """One step of a group of neurons: its graph, and all numbers in it, each [] or [N]."""

    title: str
    program: Program
    coefficients: Mapping[str, Array]
    slope: Array
    offset: Array


def step_of(neurons: Neurons) -> Step:
    """The step of any group of neurons."""
    offset, threshold = neurons.current, neurons.threshold
    slope = neurons.sign.astype(threshold.dtype)
    if neurons.equation is not None:
        own = neurons.equation
        values = dict(zip(own.program.coefficients, own.coefficients, strict=True))
        return Step(own.owner, own.program, values, slope * own.gain, offset)
    values = {"threshold": threshold}
    if neurons.kind == "prf":
        values = {"phi_re": neurons.phi_re, "phi_im": neurons.phi_im, **values}
        program = trace(_prf(neurons.reset), ("u", "r"), tuple(values), "PRF")
    elif neurons.kind == "lif":
        values = {"beta": neurons.phi_re, **values}
        program = trace(_lif(neurons.reset), ("u",), tuple(values), "LIF")
    else:
        program = trace(_spatial, (), tuple(values), "SpatialNeuron")
    title = {"prf": "PRF", "lif": "LIF", "spatial": "spatial neuron"}[neurons.kind]
    return Step(title, program, values, slope, offset)


class FloatText:
    """Writes the header piece by piece, in double if the network is float64; `whole` returns it."""

    def __init__(self, folded: Folded, name: str) -> None:
        self.folded, self.name, self.upper = folded, name, name.upper()
        self.real = "float" if folded.dtype == np.float32 else "double"
        self.window = (folded.pool_steps or 0) if folded.pool == "window" else 0
        self.mean = folded.pool in ("mean", "leaky")
        self.entry, self.last = folded.table.shape[1], len(folded.head)
        self.most = max(layer.neurons[0].count for layer in folded.layers)
        self.index = "uint16_t" if self.most < 1 << 16 else "uint32_t"
        self.parameter = "uint32_t token" if folded.tokens else f"const {self.real} x[{len(folded.table)}]"
        self.steps = [step_of(layer.neurons[0]) for layer in folded.layers]
        self.parts: list[str] = []
        # The functions written so far, by their text without a name.
        self.functions: dict[str, str] = {}

    def whole(self) -> str:
        """The text."""
        self._top()
        self._constants()
        self._struct()
        place = 0
        for number, layer in enumerate(self.folded.layers):
            self._layer(number, layer, place)
            place += layer.neurons[0].count
        self._step()
        self._scores()
        self.parts += [best(self.name, len(self.folded.bias), self.real)]
        self.parts += [class_names(self.name, self.folded.class_names), "#endif\n"]
        return "".join(self.parts)

    def _top(self) -> None:
        folded = self.folded
        described = f"A step has {len(folded.table)} values, in the units of the training data."
        if folded.tokens:
            described = f"A token is a number below {len(folded.table)}; for others, step only returns -1."
        when = {"mean": "of all steps so far", "window": f"of the last {self.window} steps"}
        when["leaky"] = f"of a mean that forgets, with a memory of {folded.pool_steps} steps"
        functions = any(uses_functions(step.program) for step in self.steps)
        self.parts.append(
            TOP.format(
                name=self.name, upper=self.upper, real=self.real,
                kinds=", ".join(dict.fromkeys(step.title for step in self.steps)),
                example="token" if folded.tokens else "values", when=when.get(folded.pool, "of the last step"),
                input=described, include="#include <math.h>\n" if functions else "",
                inputs=1 if folded.tokens else len(folded.table), classes=len(folded.bias),
                layers=len(folded.layers), neurons=folded.neurons,
            )
        )  # fmt: skip

    def _constants(self) -> None:
        folded = self.folded
        self._array("table", folded.table)
        if folded.origin is not None:
            self._array("origin", folded.origin)
        for number, (layer, step) in enumerate(zip(folded.layers, self.steps, strict=True)):
            columns = _columns(step)
            if columns:
                self._array(f"c{number}", np.stack([*columns.values()], 1))
            self._array(f"rows{number}", layer.rows)
            if layer.clear is not None:
                kept = lines(str(int(each)) for each in ~layer.clear)
                self.parts.append(
                    f"static const uint8_t {self.name}_keep{number}[{len(layer.clear)}] = {{\n{kept}}};\n\n"
                )
        self._array("head", folded.head)
        self._array("bias", folded.bias)

    def _struct(self) -> None:
        folded, real = self.folded, self.real
        states = "".join(
            f"    {real} s{number}[{layer.neurons[0].count}][{len(step.program.states)}]; "
            f"/* {', '.join(step.program.states)} */\n"
            for number, (layer, step) in enumerate(zip(folded.layers, self.steps, strict=True))
            if step.program.states
        )
        extra = f"    {real} weight;\n" if self.mean else ""
        if self.window:
            extra = f"    {real} ring[{self.window * self.last}];\n    uint32_t slot, filled;\n"
        widest = max(self.entry, *(layer.rows.shape[1] for layer in folded.layers))
        self.parts.append(
            f"typedef struct {{\n{states}    {real} read[{self.last}];\n{extra}    uint32_t steps;\n"
            f"    uint32_t spikes[{len(folded.layers)}]; /* of each layer so far; they wrap around */\n"
            f"    {real} z[{widest}]; /* of this step only */\n"
            f"    {self.index} active[{self.most}]; /* of this layer only */\n"
            f"}} {self.name}_state;\n\n"
        )

    def _layer(self, number: int, layer: Layer, place: int) -> None:
        n, real, step = self.name, self.real, self.steps[number]
        columns, count, outputs = _columns(step), layer.neurons[0].count, layer.rows.shape[1]
        function = self._function(step)
        arguments = [self._current(step, list(columns))]
        arguments += [f"s->s{number}[i]"] if step.program.states else []
        own = [each for each in columns if each.startswith("c.")]
        offset = len(columns) - len(own)
        arguments += [f"c + {offset}" if offset else "c"] if own else []
        constants = f"        const {real} *const c = {n}_c{number} + {len(columns)} * i;\n\n" if columns else ""
        fresh = "" if not layer.fresh else f"    for (int j = 0; j < {outputs}; j++)\n        s->z[j] = 0;\n"
        silence = ""
        if layer.clear is not None:
            kept = f"{n}_keep{number}[j]"
            silence = f"    for (int j = 0; j < {outputs}; j++)\n        if (!{kept})\n            s->z[j] = 0;\n"
        self.parts.append(
            f"static inline void {n}_layer{number}({n}_state *s)\n{{\n    uint32_t firing = 0;\n\n"
            f"    for (int i = 0; i < {count}; i++) {{\n{constants}"
            f"        if ({function}({', '.join(arguments)})) {{\n"
            f"            s->active[firing++] = ({self.index})i;\n"
            f"            {self.upper}_SPIKE({number}, {place} + i);\n        }}\n    }}\n{fresh}"
            f"    for (uint32_t k = 0; k < firing; k++) {{\n"
            f"        const {real} *const row = {n}_rows{number} + {outputs}u * s->active[k];\n\n"
            f"        for (int j = 0; j < {outputs}; j++)\n            s->z[j] += row[j];\n    }}\n{silence}"
            f"    s->spikes[{number}] += firing;\n}}\n\n"
        )

    def _function(self, step: Step) -> str:
        """The name of the function that runs a step; layers with the same step share it."""
        shared = {name: float(value.flat[0]) for name, value in step.coefficients.items() if _same(value)}
        text = step_source(step.program, "@", shared, self.real)
        if text not in self.functions:
            self.functions[text] = f"{self.name}_neuron{len(self.functions)}"
            self.parts.append(f"/* {step.title}: one step of one neuron; returns whether it fires. */\n")
            self.parts.append(text.replace("@", self.functions[text]) + "\n")
        return self.functions[text]

    def _current(self, step: Step, columns: list[str]) -> str:
        """The current of a neuron, slope · z + offset, without terms that change nothing."""

        def value(name: str, array: Array) -> str:
            return f"c[{columns.index(name)}]" if name in columns else literal(float(array.flat[0]), self.real)

        slope, offset = value("slope", step.slope), value("offset", step.offset)
        text = "s->z[i]" if _only(step.slope, 1) else "-s->z[i]" if _only(step.slope, -1) else f"{slope} * s->z[i]"
        return text if _only(step.offset, 0) else f"{text} + {offset}"

    def _step(self) -> None:
        folded, n, real = self.folded, self.name, self.real
        if folded.tokens:
            entry = (
                f"    if (token >= {len(folded.table)}u)\n        return -1;\n"
                f"    memcpy(s->z, {n}_table + token * {self.entry}u, {self.entry} * sizeof *s->z);\n"
            )
        else:
            origin = f" - {n}_origin[j]" if folded.origin is not None else ""
            entry = (
                f"    for (int i = 0; i < {self.entry}; i++)\n        s->z[i] = 0;\n"
                f"    for (int j = 0; j < {len(folded.table)}; j++) {{\n        const {real} value = x[j]{origin};\n\n"
                f"        for (int i = 0; i < {self.entry}; i++)\n"
                f"            s->z[i] += value * {n}_table[j * {self.entry} + i];\n    }}\n"
            )
        calls = "".join(f"    {n}_layer{i}(s);\n" for i in range(len(folded.layers)))
        self.parts.append(
            f"static inline void {n}_reset({n}_state *s)\n{{\n    memset(s, 0, sizeof *s);\n}}\n\n"
            f"/* One time step: 0{', or -1 for an unknown token' if folded.tokens else ''}. */\n"
            f"static inline int {n}_step({n}_state *s, {self.parameter})\n{{\n{entry}{calls}    s->steps++;\n"
            f"{self._readout()}    return 0;\n}}\n\n"
        )

    def _readout(self) -> str:
        """Code that adds a step to the read-out."""
        real, each = self.real, f"    for (int i = 0; i < {self.last}; i++)\n"
        if self.mean:
            one, forgets = literal(1, real), ""
            if self.folded.pool == "leaky":
                forgets = f" - s->weight * {literal(1 / (self.folded.pool_steps or 1), real)}"
            return (
                f"    s->weight += {one}{forgets};\n    const {real} part = {one} / s->weight;\n"
                f"{each}        s->read[i] += part * (s->z[i] - s->read[i]);\n"
            )
        if not self.window:
            return f"{each}        s->read[i] = s->z[i];\n"
        return (
            f"    for (int i = 0; i < {self.last}; i++) {{\n"
            f"        {real} *const old = s->ring + s->slot * {self.last}u + i;\n\n"
            f"        s->read[i] += s->z[i] - *old;\n        *old = s->z[i];\n    }}\n"
            f"    if (s->filled < {self.window}u)\n        s->filled++;\n"
            f"    if (++s->slot == {self.window}u) {{\n        s->slot = 0;\n"
            f"        /* Sums and differences round; once a window the sum is computed afresh. */\n"
            f"        memset(s->read, 0, sizeof s->read);\n"
            f"        for (uint32_t k = 0; k < {self.window}u; k++)\n"
            f"            for (int i = 0; i < {self.last}; i++)\n"
            f"                s->read[i] += s->ring[k * {self.last}u + i];\n    }}\n"
        )

    def _scores(self) -> None:
        n, real, classes = self.name, self.real, len(self.folded.bias)
        read = "s->read[i]"
        weight = ""
        if self.window:
            read = "s->read[i] / filled"
            weight = f"    const {real} filled = s->filled ? ({real})s->filled : {literal(1, real)};\n\n"
        self.parts.append(
            f"static inline void {n}_scores(const {n}_state *s, {real} scores[{classes}])\n{{\n{weight}"
            f"    memcpy(scores, {n}_bias, {classes} * sizeof *scores);\n"
            f"    for (int i = 0; i < {self.last}; i++) {{\n        const {real} value = {read};\n\n"
            f"        for (int k = 0; k < {classes}; k++)\n"
            f"            scores[k] += value * {n}_head[i * {classes} + k];\n    }}\n}}\n\n"
        )

    def _array(self, name: str, array: Array) -> None:
        numbers = lines(literal(float(value), self.real).strip("()") for value in array.reshape(-1))
        self.parts.append(f"static const {self.real} {self.name}_{name}[{array.size}] = {{\n{numbers}}};\n\n")


def _columns(step: Step) -> dict[str, Array]:
    """The numbers that differ between the neurons of a layer: slope, offset, then those of the equation."""
    every = {"slope": step.slope, "offset": step.offset}
    every |= {f"c.{name}": value for name, value in step.coefficients.items()}
    return {name: value for name, value in every.items() if not _same(value)}


def _same(array: Array) -> bool:
    return bool((array == array.flat[0]).all())


def _only(array: Array, value: float) -> bool:
    return bool((array == value).all())
