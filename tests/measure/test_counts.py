"""Counts of operations and bytes equal, exactly, those of a plain loop that records each one."""

from dataclasses import replace
from fractions import Fraction

import counting
import pytest
import torch

from resofire.data.task import Batch
from resofire.measure import Count, CountError, Counts, count_ops, energy, fire_rates
from resofire.models import ClassifierConfig, FeedforwardConfig, RetrievalConfig, build
from resofire.nn import LIFConfig, PRFConfig
from resofire.nn.counts import OPERATIONS

PRF = PRFConfig(delta=(0.2, 0.8), threshold=0.3)
LIF = LIFConfig(threshold=0.5)
VALUES = ClassifierConfig(inputs=2, classes=3, features=5, depth=2, neuron=PRF)
TOKENS = ClassifierConfig(vocabulary=7, classes=3, features=5, depth=2, neuron=PRF)
CASES = {
    "values": VALUES,
    "tokens": TOKENS,
    "bidirectional": replace(VALUES, bidirectional=True),
    "postnorm": replace(VALUES, prenorm=False),
    "postnorm-last-norm": replace(VALUES, prenorm=False, last_norm=True),
    "no-norm": replace(VALUES, norm="none"),
    "amplitude-none": replace(TOKENS, amplitude="none"),
    "amplitude-tn": replace(TOKENS, amplitude="tn"),
    "amplitude-both": replace(TOKENS, amplitude="both", bidirectional=True),
    "pool-last": replace(VALUES, pool="last"),
    "pool-none": replace(VALUES, pool="none"),
    "soft-reset": replace(VALUES, neuron=replace(PRF, reset="soft")),
    "lif": replace(VALUES, neuron=LIF),
    "lif-hard": replace(VALUES, neuron=replace(LIF, reset="hard")),
    "lif-no-reset": replace(VALUES, neuron=replace(LIF, reset="none")),
    "retrieval": RetrievalConfig(vocabulary=7, features=5, depth=1, neuron=PRF),
    "retrieval-values-last": RetrievalConfig(inputs=2, features=4, depth=2, neuron=PRF, pool="last"),
    "feedforward": FeedforwardConfig(sizes=(2, 4, 6, 3), neuron=PRF, gain=3.0),
    "feedforward-none": FeedforwardConfig(sizes=(2, 4, 6, 3), neuron=LIF, pool="none", gain=3.0),
}
MEMORY = ("weights_read", "state_read", "state_written")
STEPS = (4, 9, 6, 1)


def network(config):
    """In float64, with running statistics and amplitudes as after some training."""
    model = build(config).double().eval().requires_grad_(False)
    for name, value in [*model.named_buffers(), *model.named_parameters()]:
        if "running" in name:
            value.uniform_(0.5, 1.5)
        elif "log_amplitude" in name:
            torch.nn.init.constant_(value, 0.4)
    return model


def sequences(config):
    """The inputs of some inferences: sequences of different lengths, or pairs of them."""

    def one(steps):
        if getattr(config, "vocabulary", None) is not None:
            return torch.randint(config.vocabulary, (steps,))
        return 2 * torch.randn(steps, 2, dtype=torch.float64)

    if isinstance(config, RetrievalConfig):
        return [(one(steps), one(steps + 2)) for steps in STEPS]
    return [one(steps) for steps in STEPS]


def packed(inferences):
    """One batch of these."""
    pieces = [piece for each in inferences for piece in (each if isinstance(each, tuple) else (each,))]
    bounds = torch.tensor([0, *(len(piece) for piece in pieces)]).cumsum(0).int()
    return Batch(torch.cat(pieces)[None], torch.zeros(len(inferences)), bounds)


def total(inferences):
    return sum(len(piece) for each in inferences for piece in (each if isinstance(each, tuple) else (each,)))


def shape(model, steps):
    return (steps,) if getattr(model.config, "vocabulary", None) is not None else (steps, 2)


@pytest.mark.parametrize("name", CASES)
def test_counts_and_rates_are_those_of_a_plain_loop(name):
    """The loop computes the network's logits; fire rates and counts equal what it has recorded, exactly."""
    config = CASES[name]
    model, inferences, tally = network(config), sequences(config), counting.Tally()
    logits = [row for each in inferences for row in counting.run(tally, model, each)]
    batch = packed(inferences)
    with torch.no_grad():
        expected = model(batch.x, cu_seqlens=batch.cu_seqlens).flatten(0, -2)
    torch.testing.assert_close(torch.tensor(logits).double(), expected)
    # Over batches of different sizes, in which a mean of means would be wrong.
    rates = fire_rates(model, [packed(inferences[:1]), packed(inferences[1:])])
    # The number of spikes is an integer, so a rate is a fraction over the number of neurons and steps.
    exact = {layer: Fraction(rate).limit_denominator(tally.seen[layer]) for layer, rate in rates.items()}
    assert exact == tally.rates()
    assert rates == pytest.approx({layer: float(rate) for layer, rate in exact.items()}, rel=1e-12)
    assert 0 < max(exact.values()) < 1
    # All inferences together are like one of all their time steps, except for what is done once in each.
    counts = count_ops(model, shape(model, Fraction(total(inferences), len(inferences))), exact)
    for kind in (*OPERATIONS, *MEMORY):
        expected = {place: count for (place, each), count in tally.done.items() if each == kind}
        counted = {place: counts.only(place).per_inference(kind) * len(inferences) for place in counts.components()}
        assert {place: count for place, count in counted.items() if count} == expected, kind


def test_activations_of_a_block_by_hand():
    """5 channels: a number is 4 bytes, a spike 1 bit."""
    model = network(replace(VALUES, depth=1))
    rates = fire_rates(model, [packed(sequences(VALUES))])
    parts = {part.layer.split(".")[-1]: part for part in count_ops(model, (8, 2), rates).blocks}
    moved = {name: (part.activations_read, part.activations_written) for name, part in parts.items()}
    assert moved == {
        "norm": (20, 20), "token_neuron": (20, 0.625), "token_linear": (0.625, 20), "token_shortcut": (40, 20),
        "channel_neuron": (20, 0.625), "channel_linear": (0.625, 20), "channel_shortcut": (40, 20),
    }  # fmt: skip


def test_an_embedding_moves_bytes_but_computes_nothing():
    rates = dict.fromkeys(fire_rates(network(TOKENS), [packed(sequences(TOKENS))]), 0.5)
    table = count_ops(network(TOKENS), (8,), rates).only("encoder")
    linear = count_ops(network(VALUES), (8, 2), rates).only("encoder")
    assert [table.per_step(kind) for kind in OPERATIONS] == [0] * len(OPERATIONS)
    assert table.per_step("weights_read") == 4 * 5
    assert linear.per_step("mac") == 2 * 5
    assert energy(table).pj_per_step == 0 < energy(table, "sram").pj_per_step


def test_a_pool_of_the_last_step_takes_the_mean_rate_for_the_head():
    model = network(FeedforwardConfig(sizes=(2, 4, 6, 3), neuron=PRF, pool="last"))
    head = count_ops(model, (8, 2), {"neurons.0": 0.1, "neurons.1": 0.5}).only("head")
    assert head.per_inference("ac") == 0.5 * 6 * 3


@pytest.mark.parametrize(
    ("shape", "rates", "message"),
    [
        ((8,), {}, r"count_ops: shape must be \(steps, 2\) for this model, got \(8,\)"),
        ((8, 3), {}, r"count_ops: shape must be \(steps, 2\) for this model, got \(8, 3\)"),
        ((0, 2), {}, r"count_ops: shape\[0\] must be a positive number, got 0"),
        ((8, 2), {}, "count_ops: rates must have one for 'neurons.0', got those of no layer"),
        ((8, 2), {"neurons.0": 1.5}, r"count_ops: rates\['neurons.0'\] must be a rate from 0 to 1, got 1.5"),
    ],
)
def test_bad_input(shape, rates, message):
    model = build(FeedforwardConfig(sizes=(2, 4, 3)))
    with pytest.raises(ValueError, match=message):
        count_ops(model, shape, rates)


def test_bad_counts():
    with pytest.raises(ValueError, match=r"component must be one of .*, got 'cache'"):
        Count(layer="x", component="cache", times=1)
    with pytest.raises(ValueError, match="mac must be a number of at least 0, got -1"):
        Count(layer="x", component="pool", times=1, mac=-1)
    with pytest.raises(ValueError, match="steps must be a positive number, got 0"):
        Counts("x", 0, ())
    with pytest.raises(CountError, match="count_ops: the Linear has no `count`"):
        count_ops(torch.nn.Linear(2, 2), (1,), {})


class Silent(torch.nn.Module):
    """A neuron without `count`."""

    def scan(self, x, state=None, **options):
        return x, None

    step = scan


def test_a_module_without_a_count_is_named():
    model = network(VALUES)
    model.encoder.blocks[1].token_neuron = Silent()
    rates = dict.fromkeys((f"encoder.blocks.{i}.{kind}_neuron" for i in (0, 1) for kind in ("token", "channel")), 0.1)
    with pytest.raises(CountError, match=r"the Silent at encoder.blocks.1.token_neuron has no `count`"):
        count_ops(model, (8, 2), rates)
