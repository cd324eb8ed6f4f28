"""The text of the C99 header of a fixed-point network: constants, a state, reset, step and scores."""

import numpy as np

from ...nn.folded import Array
from ..quantized import IntegerLayer, IntegerNeurons, Quantized
from .c_literals import best, class_names, lines
from .c_packing import PER_WORD, is_packed, raised_by, words

TOP = """/* A spiking network in fixed point, written by resofire: {weight} bit weights, {state} bit states.
 *
 *   {name}_state state;
 *   {name}_reset(&state);
 *   {name}_step(&state, {example});      once for each time step
 *   {name}_scores(&state, scores);    {when}
 *
 * C99, no heap, no floating point. Include it in one file only: it contains the constants.
 *{input}
 * A score times {unit:.9g}{over} approximates the trained network's; {name}_best returns the class with
 * the largest.{memory} States saturate at -{top} and {top}. Right shifts round half up: (x + 2^(s-1)) >> s.
 * Define {upper}_SPIKE(layer, neuron) before the #include to be called for every spike.
 */
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>
#include <string.h>

#define {upper}_INPUTS {inputs}
#define {upper}_CLASSES {classes}
#define {upper}_LAYERS {layers}
#define {upper}_NEURONS {neurons}
{steps}
#ifndef {upper}_SPIKE
#define {upper}_SPIKE(layer, neuron) ((void)0)
#endif

/* Stops the compiler if it does not shift negative numbers arithmetically. */
typedef char {name}_needs_arithmetic_shifts[(-1 >> 1) == -1 ? 1 : -1];

"""


class Text:
    """Writes the header piece by piece; `whole` returns it."""

    def __init__(self, quantized: Quantized, name: str) -> None:
        self.q, self.name, self.upper = quantized, name, name.upper()
        self.mean, self.leaky = quantized.pool == "mean", quantized.pool == "leaky"
        self.window = (quantized.pool_steps or 0) if quantized.pool == "window" else 0
        self.sums = bool(self.mean or self.leaky or self.window)
        self.state = "int16_t" if quantized.state_bits == 16 else "int32_t"
        value = "uint8_t" if quantized.input_bits <= 8 else "uint16_t"
        self.parameter = "uint32_t token" if quantized.tokens else f"const {value} x[{len(quantized.table)}]"
        self.argument = "token" if quantized.tokens else "x"
        self.entry, self.last = quantized.table.shape[1], len(quantized.head)
        self.parts: list[str] = []

    def whole(self) -> str:
        self._top()
        self._saturation()
        self._constants()
        self._struct()
        self._input()
        temporal = place = 0
        for number, layer in enumerate(self.q.layers):
            self._layer(number, layer, temporal, place)
            place += layer.neurons[0].count
            temporal += 0 if layer.neurons[0].kind == "spatial" else layer.neurons[0].count
        self._step()
        self._weight()
        self._scores()
        self.parts.append(class_names(self.name, self.q.class_names))
        self.parts.append("#endif\n")
        return "".join(self.parts)

    def _top(self) -> None:
        q = self.q
        if q.tokens:
            described = f"\n * A token is a number below {len(q.table)}; for others, step only returns -1.\n *"
        else:
            inputs = zip(q.origin, q.pitch, strict=True)
            described = f"\n * A value is an integer k from 0 to {(1 << q.input_bits) - 1}; input i stands for\n"
            described += "".join(f" *   {i}: {at:.9g} + {by:.9g} k\n" for i, (at, by) in enumerate(inputs)) + " *"
        self.parts.append(
            TOP.format(
                name=self.name, upper=self.upper, weight=q.weight_bits, state=q.state_bits, top=q.top,
                unit=q.score_unit, over=" / steps" if self.mean else f" / {self.name}_weight" if self.sums else "",
                example="token" if q.tokens else "values", input=described,
                when=self._when(), memory=self._memory(),
                inputs=1 if q.tokens else len(q.table), classes=len(q.bias), layers=len(q.layers), neurons=q.neurons,
                steps=f"#define {self.upper}_MOST_STEPS {q.most_steps}\n" if self.mean else "",
            )
        )  # fmt: skip

    def _when(self) -> str:
        if self.leaky:
            return f"of a mean that forgets, with a memory of {self.q.pool_steps} steps"
        if self.window:
            return f"of the last {self.window} steps"
        return "of all steps so far" if self.mean else "of the last step"

    def _memory(self) -> str:
        if not self.window:
            return ""
        size = self.window * self.last * (2 if self.q.state_bits == 16 else 4)
        return f" The window takes {size} bytes of the state.\n *"

    def _saturation(self) -> None:
        # With 32-bit states no sum is narrow, and comparing one with the bounds would be a compiler warning.
        for bits in (32, 64) if self.q.state_bits < 32 else (64,):
            kind, top = f"int{bits}_t", self.q.top
            self.parts.append(
                f"static inline int32_t {self.name}_hold{bits}({kind} x)\n{{\n"
                f"    return x > {top} ? {top} : x < -{top} ? -{top} : (int32_t)x;\n}}\n\n"
                f"static inline {kind} {self.name}_drop{bits}({kind} x, int shift)\n{{\n"
                f"    return (x + ((({kind})1 << shift) >> 1)) >> shift;\n}}\n\n"
            )

    def _constants(self) -> None:
        q = self.q
        self._array("table", q.table)
        self._array("shift", q.shift)
        if not q.tokens:
            self._array("base", q.base)
        for number, layer in enumerate(q.layers):
            (neurons,) = layer.neurons
            self._records(number, neurons)
            self._array(f"rows{number}", words(layer.rows, q.weight_bits) if is_packed(layer, q) else layer.rows)
            self._array(f"add{number}", layer.lift)
            if layer.drop.any() and not layer.fresh:
                self._array(f"less{number}", layer.drop)
            if layer.clear is not None:
                self._array(f"keep{number}", ~layer.clear)
        self._array("head", q.head)
        self._array("bias", q.bias)

    def _records(self, number: int, neurons: IntegerNeurons) -> None:
        """All constants of a neuron in one struct, so that one pointer is enough."""
        names = ["threshold"]
        if neurons.kind != "spatial":
            names += ["current", "phi_re", *(["phi_im"] if neurons.kind == "prf" else []), "lift"]
        if not _same(neurons.sign):
            names.append("sign")
        columns = [getattr(neurons, each) for each in names]
        fields = "".join(f"    {_type(column)} {each};\n" for each, column in zip(names, columns, strict=True))
        marks = ["LL" if _type(column) == "int64_t" else "" for column in columns]
        self.parts.append(f"static const struct {{\n{fields}}} {self.name}_neurons{number}[{neurons.count}] = {{\n")
        self.parts.append(
            lines(
                "{" + ", ".join(f"{int(value)}{mark}" for value, mark in zip(row, marks, strict=True)) + "}"
                for row in zip(*columns, strict=True)
            )
        )
        self.parts.append("};\n\n")

    def _struct(self) -> None:
        q = self.q
        groups = [layer.neurons[0] for layer in q.layers if layer.neurons[0].kind != "spatial"]
        temporal = max(1, sum(group.count for group in groups))
        widest = max(self.entry, *(layer.rows.shape[1] for layer in q.layers))
        r = f"    {self.state} r[{temporal}];\n" if any(group.kind == "prf" for group in groups) else ""
        extra = "    int64_t weight;\n" if self.leaky else ""
        if self.window:
            extra = f"    {self.state} ring[{self.window * self.last}];\n    uint32_t slot, filled;\n"
        self.parts.append(
            f"typedef struct {{\n    {self.state} u[{temporal}];\n{r}"
            f"    int{64 if self.sums else 32}_t read[{self.last}];\n{extra}"
            "    uint32_t steps;\n"
            f"    uint32_t spikes[{len(q.layers)}]; /* of each layer so far; they wrap around */\n"
            f"    int32_t z[{widest}]; /* of this step only */\n"
            f"    uint32_t sum[{max(map(self._sums, q.layers))}]; /* zero between layers */\n"
            f"}} {self.name}_state;\n\n"
        )

    def _input(self) -> None:
        q, n = self.q, self.name
        if q.tokens:
            wide = self._wide(np.abs(q.table).max(0) << q.shift)
            body = (
                f"    const {_type(q.table)} *row = {n}_table + token * {self.entry}u;\n\n"
                f"    for (int i = 0; i < {self.entry}; i++)\n"
                f"        s->z[i] = {n}_hold{wide}(row[i] * ((int{wide}_t)1 << {n}_shift[i]));\n"
            )
        else:
            most = np.abs(q.base) + np.abs(q.table).sum(0) * (255 if q.input_bits <= 8 else 65535) + (1 << q.shift)
            wide = self._wide(most)
            body = (
                f"    for (int i = 0; i < {self.entry}; i++) {{\n"
                f"        int{wide}_t sum = {n}_base[i];\n\n"
                f"        for (int j = 0; j < {len(q.table)}; j++)\n"
                f"            sum += (int{wide}_t)x[j] * {n}_table[j * {self.entry} + i];\n"
                f"        s->z[i] = {n}_hold{wide}({n}_drop{wide}(sum, {n}_shift[i]));\n"
                "    }\n"
            )
        self.parts.append(f"static inline void {n}_input({n}_state *s, {self.parameter})\n{{\n{body}}}\n\n")

    def _layer(self, number: int, layer: IntegerLayer, temporal: int, place: int) -> None:
        n, (neurons,) = self.name, layer.neurons
        packed = is_packed(layer, self.q)
        self.parts.append(
            f"static inline void {n}_layer{number}({n}_state *s)\n{{\n    int32_t firing = 0;\n\n"
            f"    for (int i = 0; i < {neurons.count}; i++) {{\n{self._neuron(number, neurons, temporal)}"
            f"        if (fires) {{\n{self._row(number, layer, packed)}"
            f"            firing++;\n            {self.upper}_SPIKE({number}, {place} + i);\n        }}\n    }}\n"
            f"{self._synapses(number, layer, packed)}"
            f"    s->spikes[{number}] += (uint32_t)firing;\n}}\n\n"
        )

    def _row(self, number: int, layer: IntegerLayer, packed: bool) -> str:
        """Code that adds row i to the sums."""
        outputs = layer.rows.shape[1]
        if not packed:
            return (
                f"            const int8_t *row = {self.name}_rows{number} + i * {outputs};\n\n"
                f"            for (int j = 0; j < {outputs}; j++)\n                s->sum[j] += (uint32_t)row[j];\n"
            )
        per = PER_WORD[self.q.weight_bits]
        words = -(-outputs // per)
        parts, mask, by = (2, "0x00ff00ffu", 8) if per == 4 else (4, "0x000f000fu", 4)
        # A loop iteration costs as much as adding two weights: unroll some words.
        round_ = next(size for size in (4, 2, 1) if words % size == 0)
        adds = "".join(
            f"                sum[{w * parts + p}] += {f'(row[{w}] >> {p * by})' if p else f'row[{w}]'} & {mask};\n"
            for w in range(round_)
            for p in range(parts)
        )
        return (
            f"            const uint32_t *row = {self.name}_rows{number} + i * {words};\n"
            f"            const uint32_t *const end = row + {words};\n            uint32_t *sum = s->sum;\n\n"
            f"            for (; row < end; row += {round_}, sum += {round_ * parts}) {{\n{adds}            }}\n"
        )

    def _synapses(self, number: int, layer: IntegerLayer, packed: bool) -> str:
        """Code that adds the sums to z and leaves them at zero."""
        n, outputs = self.name, layer.rows.shape[1]
        wide = self._wide((np.abs(layer.rows.astype(np.int64)).sum(0) << layer.lift) + self.q.top + 1)

        def add(j: str, added: str) -> str:
            total = f"(int{wide}_t)({added}) * ((int{wide}_t)1 << {n}_add{number}[{j}])"
            if not layer.fresh:
                z = f"{n}_drop{wide}(s->z[{j}], {n}_less{number}[{j}])" if layer.drop.any() else f"s->z[{j}]"
                total += f"\n            + {z}"
            text = f"        s->z[{j}] = {n}_hold{wide}(\n            {total});\n"
            if layer.clear is not None:
                text += f"        if (!{n}_keep{number}[{j}])\n            s->z[{j}] = 0;\n"
            return text

        if not packed:
            both = add("j", "(int32_t)s->sum[j]")
            return f"    for (int j = 0; j < {outputs}; j++) {{\n{both}        s->sum[j] = 0;\n    }}\n"
        low, high = add("2 * j", "(int32_t)(sum & 0xffff) - bias"), add("2 * j + 1", "(int32_t)(sum >> 16) - bias")
        text = (
            f"    const int32_t bias = firing * {raised_by(self.q.weight_bits)};\n\n"
            f"    for (int j = 0; j < {outputs // 2}; j++) {{\n        const uint32_t sum = s->sum[j];\n\n"
            f"        s->sum[j] = 0;\n{low}{high}    }}\n"
        )
        if outputs % 2:
            text += f"    {{\n        const int j = {outputs // 2};\n"
            text += f"        const uint32_t sum = s->sum[j];\n\n{low}    }}\n"
        # An odd last channel has no neighbour; the padding after it is reset as well.
        return text + "".join(f"    s->sum[{j}] = 0;\n" for j in range(outputs // 2, self._sums(layer)))

    def _neuron(self, number: int, neurons: IntegerNeurons, temporal: int) -> str:
        """Code that sets `fires` and advances the state of neuron i."""
        n, bits, top = self.name, self.q.phi_bits, self.q.top
        one = int(neurons.sign[0]) if _same(neurons.sign) else None
        z = {1: "s->z[i]", -1: "-s->z[i]", 0: "0", None: f"{n}_neurons{number}[i].sign * s->z[i]"}[one]
        it = f"{n}_neurons{number}[i]"
        if neurons.kind == "spatial":
            return f"        const int fires = {z} > {it}.threshold;\n\n"
        at = f"{temporal} + i" if temporal else "i"
        prf, half = neurons.kind == "prf", 1 << (bits - 1)
        turned = (np.abs(neurons.phi_re) + np.abs(neurons.phi_im)) * top
        wide = self._wide(turned + ((top + np.abs(neurons.current)) << neurons.lift) + half)
        kind = f"int{wide}_t"
        reset = {
            "none": "",
            "soft": f"        if (fires)\n            now = {n}_hold64((int64_t)now - {it}.threshold - 1);\n",
            "hard": "        if (fires)\n            now = 0;\n",
        }[neurons.reset]
        text = (
            f"        const {kind} u = s->u[{at}]{f', r = s->r[{at}]' if prf else ''};\n"
            f"        const {kind} seen = {z if wide == 32 else f'({kind})({z})'} + {it}.current;\n"
            f"        const {kind} turned = {it}.phi_re * u{f' - {it}.phi_im * r' if prf else ''}\n"
            f"            + seen * ((int32_t)1 << {it}.lift);\n"
            f"        {'' if reset else 'const '}int32_t now = {n}_hold{wide}((turned + {half}) >> {bits});\n"
            f"        const int fires = now > {it}.threshold;\n\n"
            f"{reset}        s->u[{at}] = ({self.state})now;\n"
        )
        if prf:
            text += (
                f"        s->r[{at}] = ({self.state}){n}_hold{wide}(\n"
                f"            ({it}.phi_im * u + {it}.phi_re * r + {half}) >> {bits});\n"
            )
        return text

    def _sums(self, layer: IntegerLayer) -> int:
        """Number of words that the sums of a layer take."""
        outputs, per = layer.rows.shape[1], PER_WORD[self.q.weight_bits]
        return -(-outputs // per) * per // 2 if is_packed(layer, self.q) else outputs

    def _wide(self, most: Array) -> int:
        """The bits of the type that holds sums up to this size."""
        return 64 if self.q.state_bits == 32 or int(most.max()) >= 1 << 31 else 32

    def _step(self) -> None:
        q, n = self.q, self.name
        check = f"    if (token >= {len(q.table)}u)\n        return -1;\n" if q.tokens else ""
        calls = "".join(f"    {n}_layer{i}(s);\n" for i in range(len(q.layers)))
        wide = 64 if q.state_bits == 32 else 32
        z = f"(int32_t){n}_drop{wide}(s->z[i], {q.head_drop})" if q.head_drop else "s->z[i]"
        if self.mean:
            kept = (
                f"    if (s->steps == {self.upper}_MOST_STEPS) /* the mean is that of the steps up to here */\n"
                f"        return 0;\n    s->steps++;\n"
                f"    for (int i = 0; i < {self.last}; i++)\n        s->read[i] += {z};\n"
            )
        elif self.leaky:
            one = f"((int64_t)1 << {q.leak.fraction})"
            kept = (
                f"    s->steps++;\n    for (int i = 0; i < {self.last}; i++)\n"
                f"        s->read[i] += {z} * {one} - {self._leaked('s->read[i]')};\n"
                f"    s->weight += {one} - {self._leaked('s->weight')};\n"
            )
        elif self.window:
            kept = (
                f"    s->steps++;\n    for (int i = 0; i < {self.last}; i++) {{\n"
                f"        {self.state} *const old = s->ring + s->slot * {self.last}u + i;\n"
                f"        const int32_t now = {z};\n\n"
                f"        s->read[i] += now - *old;\n        *old = ({self.state})now;\n    }}\n"
                f"    s->slot = s->slot + 1 == {self.window}u ? 0 : s->slot + 1;\n"
                f"    if (s->filled < {self.window}u)\n        s->filled++;\n"
            )
        else:
            kept = f"    s->steps++;\n    for (int i = 0; i < {self.last}; i++)\n        s->read[i] = {z};\n"
        self.parts.append(
            f"static inline void {n}_reset({n}_state *s)\n{{\n    memset(s, 0, sizeof *s);\n}}\n\n"
            f"/* One time step: 0{', or -1 for an unknown token' if q.tokens else ''}. */\n"
            f"static inline int {n}_step({n}_state *s, {self.parameter})\n{{\n{check}"
            f"    {n}_input(s, {self.argument});\n{calls}{kept}    return 0;\n}}\n\n"
        )

    def _leaked(self, total: str) -> str:
        """The loss of a leaky sum in a step."""
        factor = "" if self.q.leak.factor == 1 else f" * {self.q.leak.factor}"
        return f"{self.name}_drop64({total}{factor}, {self.q.leak.shift})"

    def _weight(self) -> None:
        if not self.leaky and not self.window:
            return
        value = f"{self.name}_drop64(s->weight, {self.q.leak.drop})" if self.leaky else "(int64_t)s->filled"
        self.parts.append(
            f"/* What the scores are to be divided by. */\n"
            f"static inline int64_t {self.name}_weight(const {self.name}_state *s)\n{{\n    return {value};\n}}\n\n"
        )

    def _scores(self) -> None:
        n, classes = self.name, len(self.q.bias)
        times = f"(int64_t)s->steps * {n}_bias[k]" if self.mean else f"{n}_bias[k]"
        if self.leaky or self.window:
            times = f"{n}_weight(s) * {n}_bias[k]"
        read = f"{n}_drop64(s->read[i], {self.q.leak.drop})" if self.leaky else "s->read[i]"
        self.parts.append(
            f"static inline void {n}_scores(const {n}_state *s, int64_t scores[{classes}])\n{{\n"
            f"    for (int k = 0; k < {classes}; k++) {{\n        int64_t score = {times};\n\n"
            f"        for (int i = 0; i < {self.last}; i++)\n"
            f"            score += {'' if self.sums else '(int64_t)'}{read} * {n}_head[i * {classes} + k];\n"
            f"        scores[k] = score;\n    }}\n}}\n\n"
        )
        self.parts.append(best(n, classes, "int64_t"))

    def _array(self, name: str, array: Array) -> None:
        kind = _type(array)
        self.parts.append(f"static const {kind} {self.name}_{name}[{array.size}] = {{\n")
        mark = {"uint32_t": "u", "int64_t": "LL"}.get(kind, "")
        self.parts.append(lines(f"{int(value)}{mark}" for value in array.reshape(-1)))
        self.parts.append("};\n\n")


def _same(sign: Array) -> bool:
    return bool((sign == sign[0]).all())


def _type(array: Array) -> str:
    """The smallest type for these numbers."""
    if array.dtype == np.uint32:
        return "uint32_t"
    least, most = int(array.min()), int(array.max())
    for bits in (8, 16, 32):
        if least >= -(1 << (bits - 1)) + (bits == 32) and most < 1 << (bits - 1):
            return f"int{bits}_t"
    return "int64_t"
