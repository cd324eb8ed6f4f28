"""Whole networks once more, number by number in plain Python, with every operation and every byte of weights and state
counted as it happens. Shares nothing with what it checks but the equations."""

import math
from collections import Counter
from contextlib import contextmanager
from fractions import Fraction

from resofire.models import Feedforward, Retrieval
from resofire.nn import PRF


class Tally:
    """What was done, as (component, kind) -> how often; and the spikes of each layer by its name."""

    def __init__(self):
        self.done, self.spikes, self.seen, self.place = Counter(), Counter(), Counter(), None

    @contextmanager
    def at(self, component):
        before, self.place = self.place, component
        yield
        self.place = before

    def note(self, kind, count=1):
        self.done[self.place, kind] += count

    def rates(self):
        return {name: Fraction(self.spikes[name], self.seen[name]) for name in self.seen}

    def read(self, value):
        """A weight, from memory."""
        self.note("weights_read", 4)
        return Number(float(value), self)

    def load(self, values):
        self.note("state_read", 4 * len(values))
        return values

    def store(self, values):
        self.note("state_written", 4 * len(values))
        return values


class Number:
    """A number that notes what is done with it."""

    def __init__(self, value, tally):
        self.value, self.tally = value, tally

    def _new(self, kind, value):
        self.tally.note(kind)
        return Number(value, self.tally)

    def __add__(self, other):
        return self._new("add", self.value + other.value)

    def __sub__(self, other):
        return self._new("add", self.value - other.value)

    def __mul__(self, other):
        return self._new("multiply", self.value * other.value)

    def __ge__(self, other):
        self.tally.note("compare")
        return self.value >= other

    def gelu(self):
        return self._new("nonlinear", self.value * 0.5 * (1 + math.erf(self.value / math.sqrt(2))))

    def plus_product(self, a, b):
        return self._new("mac", self.value + a.value * b.value)

    def plus_weight(self, weight):
        return self._new("ac", self.value + weight.value)


def dense(tally, linear, x):
    out = []
    for row, bias in zip(linear.weight.tolist(), linear.bias.tolist(), strict=True):
        total = tally.read(bias)
        for weight, value in zip(row, x, strict=True):
            total = total.plus_product(tally.read(weight), value)
        out.append(total)
    return out


def synapses(tally, linear, spikes, alpha=1.0):
    """The weights, α among them, of active inputs are added; the others are not even read."""
    out = [tally.read(bias) for bias in linear.bias.tolist()]
    columns = (alpha * linear.weight).T.tolist()
    for active, column in zip(spikes, columns, strict=True):
        if active:
            out = [total.plus_weight(tally.read(weight)) for total, weight in zip(out, column, strict=True)]
    return out


def norm(tally, module, x):
    scale, shift = (each.tolist() for each in module.affine())
    return [value * tally.read(a) + tally.read(b) for value, a, b in zip(x, scale, shift, strict=True)]


def fire(tally, name, spikes):
    tally.spikes[name] += sum(spikes)
    tally.seen[name] += len(spikes)
    return spikes


def walk(tally, neuron, name, inputs):
    """A neuron along a sequence; from its end if its name says so."""
    backwards = name.endswith("reverse")
    rows = neuron.rows().T.tolist()
    states = [[Number(0.0, tally) for _ in range(2 if isinstance(neuron, PRF) else 1)] for _ in rows]
    out = []
    with tally.at("temporal neuron"):
        for x in reversed(inputs) if backwards else inputs:
            spikes = []
            for channel, (*coefficients, threshold) in enumerate(rows):
                given = [tally.read(each) for each in coefficients]
                state = tally.load(states[channel])
                if isinstance(neuron, PRF):
                    phi_re, phi_im, delta = given
                    u, r = state
                    peak = phi_re * u - phi_im * r + delta * x[channel]
                    rest = [phi_im * u + phi_re * r]
                else:
                    peak, rest = given[0] * state[0] + x[channel], []
                spike = peak >= threshold
                if neuron.reset == "soft":
                    peak = peak - Number(threshold if spike else 0.0, tally)
                elif neuron.reset == "hard" and spike:
                    peak = Number(0.0, tally)
                states[channel] = tally.store([peak, *rest])
                spikes.append(spike)
            out.append(fire(tally, name, spikes))
    return out[::-1] if backwards else out


def block(tally, module, name, stream):
    given = stream
    if module.norm is not None and module.prenorm:
        with tally.at("norm"):
            given = [norm(tally, module.norm, u) for u in stream]
    spikes = walk(tally, module.token_neuron, f"{name}.token_neuron", given)
    if module.token_neuron_reverse is not None:
        behind = walk(tally, module.token_neuron_reverse, f"{name}.token_neuron_reverse", given)
        spikes = [one + other for one, other in zip(spikes, behind, strict=True)]
    amplitudes = (module.log_amplitude, module.channel_neuron.log_amplitude)
    token, channel = (1.0 if log is None else float(log.exp()) for log in amplitudes)
    out = []
    for u, active in zip(stream, spikes, strict=True):
        with tally.at("token linear"):
            branch = synapses(tally, module.token_linear, active, token)
        with tally.at("residual"):
            r = [a + b for a, b in zip(u, branch, strict=True)]
        with tally.at("spatial neuron"):
            seen = fire(tally, f"{name}.channel_neuron", [x >= module.channel_neuron.threshold for x in r])
        with tally.at("channel linear"):
            branch = synapses(tally, module.channel_linear, seen, channel)
        with tally.at("residual"):
            u = [a + b for a, b in zip(r, branch, strict=True)]
        if module.norm is not None and not module.prenorm:
            with tally.at("norm"):
                u = norm(tally, module.norm, u)
        out.append(u)
    return out


def pooled(tally, how, vectors):
    """[D] of a sequence; the mean by a running sum."""
    if how == "last":
        return vectors[-1]
    with tally.at("pool"):
        total = [Number(0.0, tally) for _ in vectors[0]]
        for vector in vectors:
            total = tally.store([a + b for a, b in zip(tally.load(total), vector, strict=True)])
        return [each * Number(1 / len(vectors), tally) for each in tally.load(total)]


def encode(tally, model, x):
    """The pooled vector of a sequence, or with pool "none" that of each step, behind the last norm."""
    encoder = model.encoder
    with tally.at("encoder"):
        if model.config.vocabulary is not None:
            table = encoder.input.weight.tolist()
            stream = [[tally.read(value) for value in table[token]] for token in x.tolist()]
        else:
            stream = [dense(tally, encoder.input, [Number(v, tally) for v in values]) for values in x.tolist()]
    for number, module in enumerate(encoder.blocks):
        stream = block(tally, module, f"encoder.blocks.{number}", stream)
    vectors = stream if model.config.pool == "none" else [pooled(tally, model.config.pool, stream)]
    if encoder.norm is not None:
        with tally.at("norm"):
            vectors = [norm(tally, encoder.norm, vector) for vector in vectors]
    return vectors


def feedforward(tally, model, x):
    with tally.at("encoder"):
        currents = [dense(tally, model.linears[0], [Number(v, tally) for v in values]) for values in x.tolist()]
    for number, neuron in enumerate(model.neurons):
        spikes = walk(tally, neuron, f"neurons.{number}", currents)
        if number + 1 < len(model.neurons):
            with tally.at("token linear"):
                currents = [synapses(tally, model.linears[number + 1], active) for active in spikes]
    last = model.linears[-1]
    if model.config.pool == "mean":
        with tally.at("pool"):
            counters = [Number(0.0, tally) for _ in spikes[0]]
            for active in spikes:
                for i in (i for i, spike in enumerate(active) if spike):
                    (counters[i],) = tally.store([tally.load([counters[i]])[0].plus_weight(Number(1.0, tally))])
            mean = [each * Number(1 / len(spikes), tally) for each in tally.load(counters)]
        with tally.at("head"):
            return [dense(tally, last, mean)]
    with tally.at("head"):
        return [synapses(tally, last, active) for active in (spikes if model.config.pool == "none" else spikes[-1:])]


def run(tally, model, x):
    """The logits of one inference, [vectors, classes]."""
    if isinstance(model, Feedforward):
        logits = feedforward(tally, model, x)
    elif isinstance(model, Retrieval):
        (a,), (b,) = (encode(tally, model, document) for document in x)
        with tally.at("head"):
            pairs = list(zip(a, b, strict=True))
            hidden = dense(tally, model.head[0], [*a, *b, *(p - q for p, q in pairs), *(p * q for p, q in pairs)])
            logits = [dense(tally, model.head[2], [value.gelu() for value in hidden])]
    else:
        vectors = encode(tally, model, x)
        with tally.at("head"):
            logits = [dense(tally, model.head, vector) for vector in vectors]
    return [[value.value for value in each] for each in logits]
