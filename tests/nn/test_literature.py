"""Neurons of the literature: against the published equations, and through everything a neuron goes through."""

import itertools

import numpy as np
import published
import pytest
import torch
import torch.nn.functional as F

from resofire import nn
from resofire.deploy import fold
from resofire.measure import count_ops
from resofire.models import ClassifierConfig, FeedforwardConfig, load, save
from resofire.models.storage import from_json, to_json
from resofire.nn import fire_rates
from resofire.train import RunConfig
from resofire.train.optimiser import parameter_groups

T, N = 60, 5
# The config, the published loop, and the scale of the input at which it fires.
NEURONS = {
    "plif": (nn.PLIF.config(), published.plif, 1.5),
    "glif": (nn.GLIF.config(), published.glif, 1.0),
    "tclif": (nn.TCLIF.config(), published.tclif, 1.0),
    "alif": (nn.ALIF.config(), published.alif, 2.0),
    "ahp": (nn.AHP.config(train=True), published.ahp, 1.0),
    "brf": (nn.BRF.config(gain="delta"), published.brf, 60.0),
    "bhrf": (nn.BHRF.config(gain="delta"), published.bhrf, 60.0),
    "psn": (nn.PSN.config(steps=T), published.psn, 1.5),
    "sliding psn": (nn.SlidingPSN.config(order=7), published.sliding_psn, 1.0),
    "drf": (nn.DRF.config(resonators=3, history=2, gain="delta"), published.drf, 150.0),
    "recurrent": (nn.Recurrent.config(neuron=nn.LIF), published.recurrent_lif, 1.0),
}
PACKED = torch.tensor([0, 7, 7, 20, 60], dtype=torch.int32)


@pytest.fixture(params=NEURONS)
def case(request):
    """A neuron in float64 with perturbed parameters, its published loop, and inputs [2, T, N] that make it fire."""
    config, loop, scale = NEURONS[request.param]
    torch.manual_seed(3)
    neuron = config.build(N).double()
    with torch.no_grad():
        for value in neuron.parameters():
            value.mul_(1 + 0.1 * torch.randn_like(value)).add_(0.1 * torch.randn_like(value))
    return neuron, loop, scale * torch.randn(2, T, N, dtype=torch.float64)


def test_spikes_are_those_of_the_paper(case):
    neuron, loop, x = case
    raw = {name: value.detach().numpy() for name, value in neuron.named_parameters()}
    expected = np.stack([loop(each.numpy(), raw) for each in x])
    assert 0.01 < expected.mean() < 0.6
    np.testing.assert_array_equal(neuron(x).detach().numpy(), expected)
    assert 0.01 < neuron.trace(x).spikes.mean() < 0.6


def test_stepped_split_packed_and_reversed_agree_with_whole(case):
    neuron, _, x = case
    if isinstance(neuron, nn.PSN):
        both = x.reshape(1, 2 * T, N)
        packed = neuron(both, cu_seqlens=torch.tensor([0, T, 2 * T], dtype=torch.int32))
        assert torch.equal(packed.view(x.shape), neuron(x))
        assert torch.equal(neuron(x, reverse=True), neuron(x.flip(1)).flip(1))
        return
    whole, last = neuron.scan(x)
    first, middle = neuron.scan(x[:, :11])
    second, end = neuron.scan(x[:, 11:], middle)
    assert torch.equal(torch.cat((first, second), 1), whole)
    state = neuron.init_state(2)
    for t in range(T):
        spikes, state = neuron.step(x[:, t], state)
        assert torch.equal(spikes, whole[:, t])
    assert state._fields == tuple(neuron.states)
    for other in (end, state):
        torch.testing.assert_close(tuple(other), tuple(last), rtol=1e-12, atol=1e-12)
    assert torch.equal(neuron(x, reverse=True), neuron(x.flip(1)).flip(1))
    for reverse in (False, True):
        packed, states = neuron.scan(x[:1], cu_seqlens=PACKED, reverse=reverse)
        parts = [neuron.scan(x[:1, a:b], reverse=reverse) for a, b in itertools.pairwise(PACKED)]
        assert torch.equal(packed, torch.cat([part[0] for part in parts], 1))
        alone = [torch.cat(field) for field in zip(*(part[1] for part in parts), strict=True)]
        torch.testing.assert_close(list(states), alone, rtol=1e-12, atol=1e-12)


def test_every_parameter_and_the_input_have_gradients(case):
    neuron, _, x = case
    x.requires_grad_()
    (neuron(x) * torch.randn(2, T, N)).sum().backward()
    for name, value in (("x", x), *neuron.named_parameters()):
        assert value.grad is not None, name
        assert value.grad.isfinite().all(), name
        # The refractory reset may silence single channels, never all of them.
        assert value.grad.abs().sum() > 0, name


@pytest.mark.parametrize("config", [config for config, *_ in NEURONS.values()], ids=NEURONS)
def test_networks_train_save_load_stream_and_count(config, tmp_path):
    """With default settings: behind a batch norm all of them fire."""
    kind = config.kind
    defaults = type(config)(**({"steps": T} if kind == "PSN" else {}))
    assert from_json(to_json(config)) == config
    torch.manual_seed(1)
    model = ClassifierConfig(inputs=2, classes=3, features=12, depth=2, neuron=defaults).build()
    optimizer = torch.optim.AdamW(parameter_groups(model, RunConfig(name="x", task="x", model=model.config)), lr=1e-2)
    before = [value.clone() for value in model.parameters()]
    x, labels = torch.randn(4, T, 2), torch.tensor([0, 1, 2, 1])
    with fire_rates(model) as rates:
        F.cross_entropy(model(x), labels).backward()
    optimizer.step()
    assert all(0.01 < rate < 0.6 for rate in rates.as_dict().values()), rates.as_dict()
    assert all(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    save(model.eval(), tmp_path)
    again = load(tmp_path)
    assert again.config == model.config
    assert torch.equal(again(x), model(x))
    assert f'"kind": "{kind}"' in (tmp_path / "config.json").read_text()
    counts = count_ops(model, (T, 2), rates.as_dict())
    assert counts.only("temporal neuron").per_step("compare") >= 24
    plain = FeedforwardConfig(sizes=(2, 6, 3), neuron=defaults, gain=3.0).build().eval()
    assert plain(x).isfinite().all()
    if kind == "PSN":
        with pytest.raises(RuntimeError, match="a PSN sees whole sequences and cannot be streamed"):
            model.init_state(1)
        return
    state = None
    for t in range(T):
        logits, state = again.step(x[:, t], state)
    torch.testing.assert_close(logits, model(x), rtol=1e-4, atol=1e-4)


def test_the_plif_folds_to_a_lif_with_a_gain():
    torch.manual_seed(2)
    neuron, x = nn.PLIF(N, tau=3.0).double(), 2 * torch.randn(T, N, dtype=torch.float64)
    folded = neuron.fold(np.full(N, -2.0), np.full(N, 0.1))
    v, spikes = np.zeros(N), []
    for z in x.numpy():
        v = folded.phi_re * v + folded.sign * z + folded.current
        spikes.append(v >= folded.threshold)
        v = np.where(spikes[-1], 0, v)
    assert 0.01 < np.mean(spikes) < 0.6
    np.testing.assert_array_equal(neuron(-2 * x[None] + 0.1)[0].detach().numpy(), spikes)
    assert fold(ClassifierConfig(inputs=2, classes=3, features=8, depth=1, neuron=nn.PLIF).build()).causal


def test_unit_gain_gives_potentials_of_deviation_1():
    torch.manual_seed(0)
    x = torch.randn(512, 800, 3, dtype=torch.float64)
    for neuron in (nn.BRF(3, offset=(2.0, 3.0), threshold=1e9), nn.BHRF(3, threshold=1e9)):
        deviation = neuron.double().trace(x).u[:, 400:].std((0, 1))
        torch.testing.assert_close(deviation, torch.ones_like(deviation), rtol=0.05, atol=0)


def test_one_resonator_without_history_is_the_prf():
    torch.manual_seed(0)
    drf, prf = (
        nn.DRF(6, resonators=1, history=0, train_tau=False).double(),
        nn.PRF(6, gain="unit", backend="reference").double(),
    )
    prf.load_state_dict({name: drf.state_dict()[name] for name in prf.state_dict()})
    x = torch.randn(2, 80, 6, dtype=torch.float64)
    assert 0.01 < drf(x).mean() < 0.6
    assert torch.equal(drf(x), prf(x))


def test_feedback_trains_as_a_weight_and_is_counted():
    config = ClassifierConfig(inputs=2, classes=3, features=6, depth=1, neuron=nn.Recurrent.config(neuron=nn.ALIF))
    model = config.build()
    names = {id(value): name for name, value in model.named_parameters()}
    run = RunConfig(name="x", task="x", model=config)
    members = {group["name"]: {names[id(value)] for value in group["params"]} for group in parameter_groups(model, run)}
    inner = "encoder.blocks.0.token_neuron"
    assert f"{inner}.feedback.weight" in members["weights"]
    assert {f"{inner}.neuron.log_tau", f"{inner}.neuron.log_tau_adapt"} <= members["neurons"]
    rates = {inner: 0.25, "encoder.blocks.0.channel_neuron": 0.5}
    parts = {part.layer: part for part in count_ops(model, (10, 2), rates)}
    assert parts[f"{inner}.feedback"].ac == 0.25 * 6 * 6
    assert parts[inner].compare == 6
    plain = FeedforwardConfig(sizes=(2, 6, 3), neuron=nn.Recurrent).build()
    assert any(part.layer == "neurons.0.feedback" for part in count_ops(plain, (10, 2), {"neurons.0": 0.1}))


# The settings of the authors' code; a pair is a range to sample from.
DEFAULTS = {
    nn.PLIF: {"tau": 2.0, "threshold": 1.0},
    nn.GLIF: {"decay": 0.25, "leak": 0.5 / (2 * 4), "threshold": 0.5, "reset": 0.5, "conductance": 0.5},
    nn.TCLIF: {"beta1": -published.sigmoid(0), "beta2": published.sigmoid(0), "gamma": 0.5, "threshold": 1.0},
    nn.ALIF: {"beta": 1.8, "threshold": 0.01},
    nn.AHP: {"tau": 20.0, "tau_ahp": 700.0, "threshold": 1.0, "train": False},
    nn.BRF: {"omega": (5.0, 10.0), "offset": (0.0, 3.0), "gamma": 0.9, "delta": 0.01, "threshold": 1.0},
    nn.BHRF: {"omega": (10.0, 50.0), "offset": (1.0, 6.0), "gamma": 0.9, "delta": 0.01, "threshold": 1.0},
    nn.SlidingPSN: {"threshold": 1.0},
}


def test_defaults_are_those_of_the_authors(subtests):
    for neuron, expected in DEFAULTS.items():
        with subtests.test(neuron.__name__):
            config = neuron.config()
            assert {name: getattr(config, name) for name in expected} == expected
    # A weight of 96 against a mantissa of 127, shifted by 6 bits.
    assert nn.AHP.config().strength == pytest.approx(96 / (127 * 64), rel=2e-3)
    for name, mean, deviation in (("tau", 20, 5), ("tau_adapt", 200, 25)):
        low, high = getattr(nn.ALIF.config(), name)
        assert ((low + high) / 2, (high - low) / 12**0.5) == pytest.approx((mean, deviation), rel=0.01)
    torch.manual_seed(0)
    assert nn.SlidingPSN(2, order=3).weight.tolist() == [1.0, 0.5, 0.25]
    assert nn.PSN(2, steps=400).weight.abs().max() <= 1 / 20


def test_ahp_is_the_two_compartments_of_the_authors_code():
    """With its integer decays: 204 and 5 of 4096 per step; a spike reaches the auxiliary compartment a step later."""
    torch.manual_seed(4)
    decays = 1 - 204 / 4096, 1 - 5 / 4096
    tau, slow = (-1 / np.log(decay) for decay in decays)
    neuron = nn.AHP(N, tau=float(tau), tau_ahp=float(slow), strength=96 / (127 * 64)).double()
    weights = np.random.default_rng(0).integers(-3000, 4500, (400, N))
    main, auxiliary, fired = np.zeros(N), np.zeros(N), np.zeros(N)
    expected = []
    for drive in weights:
        auxiliary = auxiliary * decays[1] - 96 * fired
        main = main * decays[0] + drive + auxiliary
        fired = (main >= 127 * 64).astype(float)
        main = np.where(fired == 1, 0.0, main)
        expected.append(fired)
    spikes = neuron(torch.from_numpy(weights / (127 * 64))[None])[0]
    assert 0.02 < np.mean(expected) < 0.5
    np.testing.assert_array_equal(spikes.numpy(), expected)


def test_feedback_around_a_neuron():
    torch.manual_seed(0)
    inner = nn.ALIF(5, tau=7.0)
    around, built = nn.Recurrent(inner), nn.Recurrent(5, neuron=nn.ALIF.config(tau=7.0))
    assert around.neuron is inner
    built.load_state_dict(around.state_dict())
    x = 0.1 * torch.randn(2, 40, 5)
    spikes = around(x)
    assert torch.equal(spikes, built(x))
    assert not torch.equal(spikes, inner(x))


BAD = [
    (lambda: nn.PSN(3, steps=4)(torch.zeros(1, 5, 3)), ValueError,
     "PSN: every sequence must have steps=4 steps, got one of 5"),
    (lambda: nn.PSN(3, steps=4).step(torch.zeros(1, 3)), RuntimeError, "PSN.step: a PSN sees whole sequences"),
    (lambda: nn.PSN.config(), TypeError, "steps"),
    (lambda: nn.BRF(3, omega=200.0), ValueError, "BRF: omega must be below 1/delta = 100, got 200.0"),
    (lambda: nn.TCLIF(3, beta1=0.5), ValueError, "TCLIF: beta1 must be between -1 and 0, got 0.5"),
    (lambda: nn.GLIF(3, decay=1.0), ValueError, "GLIF: decay must be between 0 and 1, got 1.0"),
    (lambda: nn.Recurrent(3, neuron=nn.PSN.config(steps=4)), TypeError, "neuron must be a Neuron with `dynamics`"),
    (lambda: nn.Recurrent(3, neuron=nn.Recurrent), TypeError, "no feedback yet, got Recurrent"),
    (lambda: nn.Recurrent(nn.Recurrent(3)), TypeError, "no feedback yet, got Recurrent"),
    (lambda: nn.Recurrent(nn.LIF(3), neuron=nn.ALIF), TypeError, "neuron must be left out if the neuron inside is the"),
    (lambda: nn.DRF(3, resonators=0), ValueError, "DRF: resonators must be a positive integer, got 0"),
]  # fmt: skip


def test_bad_settings_are_named(subtests):
    for call, kind, message in BAD:
        with subtests.test(message), pytest.raises(kind, match=message):
            call()
