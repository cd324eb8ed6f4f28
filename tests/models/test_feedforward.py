"""The plain network: its sizes, its equation by hand, packing, streaming, the regulariser, bad input."""

import copy
import itertools

import pytest
import torch

from resofire.models import Feedforward, FeedforwardConfig, build
from resofire.nn import LIFConfig, PRFConfig, SpikeLinear
from resofire.nn.linear import InputLinear

QUICK = PRFConfig(delta=(0.1, 0.5), threshold=0.3)
DOUBLE = torch.float64
LENGTHS = [9, 0, 14, 1]


def feedforward(**settings) -> Feedforward:
    return build(FeedforwardConfig(**{"sizes": (2, 6, 5, 3), "neuron": QUICK, **settings})).double()


@pytest.mark.parametrize(
    ("neuron", "count"),
    [
        (PRFConfig(train_delta=False, train_theta=False), 85_130),
        (LIFConfig(), 85_130),
        (PRFConfig(train_tau=True), 86_858),
    ],
    ids=["untrained", "lif", "three trained"],
)
def test_the_papers_sizes(neuron, count):
    model = build(FeedforwardConfig(sizes=(1, 64, 256, 256, 10), neuron=neuron))
    assert sum(p.numel() for p in model.parameters()) == count
    assert [type(linear) for linear in model.linears] == [InputLinear, *[SpikeLinear] * 3]


def test_a_gain_multiplies_the_first_weights_before_neurons():
    made = []
    for gain in (1.0, 2.5):
        torch.manual_seed(0)
        made.append(build(FeedforwardConfig(sizes=(2, 6, 5, 3), gain=gain)))
    plain, larger = made
    for i, (before, after) in enumerate(zip(plain.linears, larger.linears, strict=True)):
        torch.testing.assert_close(after.weight, before.weight * (2.5 if i < 2 else 1.0))
        torch.testing.assert_close(after.bias, before.bias)


@pytest.mark.parametrize("pool", ["mean", "last", "none"])
@pytest.mark.parametrize("neuron", [QUICK, LIFConfig(threshold=0.3)], ids=["prf", "lif"])
def test_the_equation(neuron, pool):
    model = feedforward(neuron=neuron, pool=pool)
    x = 3 * torch.randn(4, 14, 2, dtype=DOUBLE)
    y = x
    for linear, layer in zip(model.linears, model.neurons, strict=False):
        y = layer(y @ linear.weight.T + linear.bias)
        assert 0 < y.mean() < 1
    y = y @ model.linears[-1].weight.T + model.linears[-1].bias
    expected = {"mean": y.mean(1), "last": y[:, -1], "none": y}[pool]
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("pool", ["mean", "last", "none"])
def test_padded_packed_and_alone_agree(pool):
    model = feedforward(pool=pool)
    twin = copy.deepcopy(model)
    x = 3 * torch.randn(4, 14, 2, dtype=DOUBLE)
    packed = torch.cat([row[:n] for row, n in zip(x, LENGTHS, strict=True)])[None]
    cu = torch.tensor([0, *itertools.accumulate(LENGTHS)], dtype=torch.int32)
    alone = [model(x[i : i + 1, :n]) for i, n in enumerate(LENGTHS)]
    for row, n in enumerate(LENGTHS):
        x[row, n:] = torch.nan
    ours, expected = model(x, lengths=torch.tensor(LENGTHS)), twin(packed, cu_seqlens=cu)
    if pool == "none":
        assert not any(row[n:].any() for row, n in zip(ours, LENGTHS, strict=True))
        ours = torch.cat([row[:n] for row, n in zip(ours, LENGTHS, strict=True)])[None]
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(expected, torch.cat(alone, int(pool == "none")))
    ours.square().sum().backward()
    expected.square().sum().backward()
    for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
        assert pool == "last" or a.grad.abs().max() > 0, name


@pytest.mark.parametrize("pool", ["mean", "last", "none"])
@pytest.mark.parametrize("neuron", [QUICK, LIFConfig(threshold=0.3)], ids=["prf", "lif"])
def test_after_every_step_the_logits_are_those_of_the_steps_so_far(neuron, pool):
    model = feedforward(neuron=neuron, pool=pool)
    x = 3 * torch.randn(3, 25, 2, dtype=DOUBLE)
    for state in (None, model.init_state(3)):
        for t in range(25):
            logits, state = model.step(x[:, t], state)
            expected = model(x[:, : t + 1])
            expected = expected[:, -1] if pool == "none" else expected
            torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)


def test_the_regulariser_draws_the_rates_to_the_target():
    model = feedforward(rate_target=0.1, rate_weight=1.0)
    x = 3 * torch.randn(8, 20, 2, dtype=DOUBLE)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    seen = []
    for _ in range(40):
        _, penalty, rates = model.penalised(x)
        seen.append(penalty.item())
        optimiser.zero_grad()
        penalty.backward()
        optimiser.step()
    assert set(rates) == {"neurons.0", "neurons.1"}
    assert seen[-1] < 0.5 * seen[0]


@pytest.mark.parametrize("pool", ["mean", "last", "none"])
def test_a_named_backend_is_handed_on(pool):
    model = feedforward(pool=pool, backend="events")
    twin = feedforward(pool=pool, backend="reference")
    twin.load_state_dict(model.state_dict())
    x = 3 * torch.randn(4, 14, 2, dtype=DOUBLE)
    assert model.linears[1].backend == "events"
    torch.testing.assert_close(model(x), twin(x))


def test_state_dict_round_trip():
    one, other = feedforward(), feedforward()
    x = 3 * torch.randn(2, 10, 2, dtype=DOUBLE)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x), other(x))
    assert torch.equal(one(x), copy.deepcopy(one)(x))


BAD_CONFIGS = {
    "short": ({"sizes": (1, 2)}, r"sizes must be a tuple of at least three .* got \(1, 2\)"),
    "a list": ({"sizes": [1, 2, 3]}, r"sizes must be a tuple of at least three .* got \[1, 2, 3\]"),
    "zero": ({"sizes": (1, 0, 3)}, r"sizes\[1\] must be a positive integer, got 0"),
    "pool": ({"pool": "sum"}, "pool must be one of .* got 'sum'"),
    "neuron": ({"neuron": None}, "neuron must be a config such as .* got None"),
}


def test_bad_settings_are_named(subtests):
    for case, (settings, pattern) in BAD_CONFIGS.items():
        with subtests.test(case), pytest.raises(ValueError, match=f"FeedforwardConfig: {pattern}"):
            feedforward(**settings)


X = torch.zeros(3, 5, 2, dtype=DOUBLE)
BAD = {
    "width": (lambda model: model(X[..., :1]), r"Feedforward: x must have shape \[B, T, 2\], got \[3, 5, 1\]"),
    "type": (lambda model: model(X.float()), "Feedforward: x must be float64 like the weights, got float32"),
    "lengths": (lambda model: model(X, lengths=torch.tensor([1, 2, 6])), "lengths must be from 0 to 5, got 6"),
    "a sequence": (lambda model: model.step(X, None), r"Feedforward.step: x must have shape \[B, 2\], got \[3, 5, 2\]"),
    "state": (lambda model: model.step(X[:, 0], (1,)), "Feedforward.step: state must be what .* got tuple"),
}  # fmt: skip


def test_bad_input_is_named(subtests):
    for case, (call, pattern) in BAD.items():
        with subtests.test(case), pytest.raises((ValueError, TypeError), match=pattern):
            call(feedforward())
