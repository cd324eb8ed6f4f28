"""What a folded network does, counted number by number: no multiply-accumulate, no product but in a neuron's state."""

from dataclasses import replace

import numpy as np
import pytest
from counting import Number, Tally
from deploy_cases import CASES, make_input, network

from resofire.deploy import fold
from resofire.deploy.operations import operations
from resofire.deploy.reference import run

STEPS = 12
PRODUCTS = {"prf": 4, "lif": 1, "spatial": 0}


def layers_counted(folded, x):
    """The layers of a folded network in plain Python on numbers that note what is done with them; and the spikes."""
    tally = Tally()
    spikes = [[] for _ in folded.layers]
    states = [[(Number(0.0, tally), Number(0.0, tally))] * layer.neurons[0].count for layer in folded.layers]
    for now in x:
        first = folded.table[now] if folded.tokens else now @ folded.table
        z = [Number(float(value), tally) for value in first]
        for number, layer in enumerate(folded.layers):
            (neurons,) = layer.neurons
            with tally.at(neurons.kind):
                fired = [fire(neurons, i, z[i], states[number], tally) for i in range(neurons.count)]
            spikes[number].append(fired)
            with tally.at("synapses"):
                if layer.fresh:
                    z = [Number(0.0, tally) for _ in layer.rows[0]]
                for row in layer.rows[fired]:
                    z = [total.plus_weight(Number(float(weight), tally)) for total, weight in zip(z, row, strict=True)]
                if layer.clear is not None:
                    z = [Number(0.0, tally) if clear else value for clear, value in zip(layer.clear, z, strict=True)]
    return tally, [np.array(each) for each in spikes]


def fire(neurons, i, z, states, tally):
    # A sign is no product: the number is added, subtracted or left out.
    seen = Number(float(neurons.sign[i]) * z.value, tally)
    if neurons.kind == "spatial":
        return seen >= float(neurons.threshold[i])
    u, r = states[i]
    re, im, current = (Number(float(each[i]), tally) for each in (neurons.phi_re, neurons.phi_im, neurons.current))
    drive = seen + current
    u, r = (re * u - im * r + drive, im * u + re * r) if neurons.kind == "prf" else (re * u + drive, r)
    fired = u >= float(neurons.threshold[i])
    if fired and neurons.reset == "soft":
        u = u - Number(float(neurons.threshold[i]), tally)
    elif fired and neurons.reset == "hard":
        u = Number(0.0, tally)
    states[i] = (u, r)
    return fired


def test_a_layer_adds_rows_compares_and_multiplies_its_state_only(subtests):
    for case in (name for name in CASES if "bidirectional" not in name):
        with subtests.test(case):
            folded = fold(network(CASES[case]))
            x = make_input(CASES[case], STEPS).numpy()
            tally, spikes = layers_counted(folded, x)
            for ours, theirs in zip(spikes, run(folded, x).spikes, strict=True):
                np.testing.assert_array_equal(ours, theirs)
            done = tally.done
            assert not [kind for _, kind in done if kind in ("mac", "nonlinear")]
            for kind, products in PRODUCTS.items():
                count = sum(layer.neurons[0].count for layer in folded.layers if layer.neurons[0].kind == kind)
                assert done[kind, "multiply"] == products * count * STEPS
                assert done[kind, "compare"] == count * STEPS
            rows = sum(
                int(fired.sum()) * layer.rows.shape[1] for fired, layer in zip(spikes, folded.layers, strict=True)
            )
            assert done["synapses", "ac"] == rows > 0
            assert {kind for place, kind in done if place == "synapses"} == {"ac"}
            rates = [fired.mean() for fired in spikes]
            counted = operations(replace(folded, pool="last"), rates, STEPS)
            for kind in ("ac", "multiply", "add", "compare"):
                recorded = sum(count for (_, each), count in done.items() if each == kind)
                assert counted.per_inference(kind) == pytest.approx(recorded)
            dense = 0 if folded.tokens else folded.table.size * STEPS
            assert counted.per_inference("mac") == dense + folded.head.size


def test_rates_must_be_one_for_each_layer():
    with pytest.raises(ValueError, match="rates must be one for each of 6 layers, got 1"):
        operations(fold(network(CASES["prenorm"])), [0.1], 10)
