"""A neuron from the equation of one step: what the base class makes of it."""

import copy
import dataclasses
import itertools
import json
import pickle
from dataclasses import dataclass

import pytest
import torch
from own_neurons import ALIF, GateConfig, Threshold

from resofire.deploy import fold
from resofire.measure import count_ops
from resofire.models import ClassifierConfig, FeedforwardConfig, StorageError, checksum, load, require_saveable, save
from resofire.models.storage import from_json, to_json
from resofire.nn import LIF, PRF, SDTCM, Config, LIFConfig, Neuron, PRFConfig, fire_rates

PACKED = torch.tensor([0, 7, 7, 20, 30], dtype=torch.int32)


def by_hand(neuron: ALIF, x: torch.Tensor) -> torch.Tensor:
    """The adaptive LIF written out for one sequence [T, N], without the library."""
    beta, rho, kappa = (value.detach() for value in neuron.coefficients().values())
    u = a = torch.zeros(x.shape[1], dtype=x.dtype)
    spikes = []
    for now in x:
        u = beta * u + now
        s = (u >= 1 + kappa * a).to(x.dtype)
        u, a = u - s, rho * a + s
        spikes.append(s)
    return torch.stack(spikes)


@pytest.fixture
def neuron() -> ALIF:
    torch.manual_seed(0)
    return ALIF(5, tau=5.0).double()


def test_spikes_are_those_of_the_equation(neuron):
    x = torch.randn(3, 50, 5, dtype=torch.float64) + 0.3
    spikes = neuron(x)
    assert 0.02 < spikes.mean() < 0.9
    assert torch.equal(spikes, torch.stack([by_hand(neuron, each) for each in x]))


def test_whole_split_stepped_packed_and_reversed_agree(neuron):
    x = torch.randn(2, 30, 5, dtype=torch.float64) + 0.3
    whole, last = neuron.scan(x)
    first, middle = neuron.scan(x[:, :11])
    second, end = neuron.scan(x[:, 11:], middle)
    assert torch.equal(torch.cat((first, second), 1), whole)
    assert end._fields == ("u", "a")
    torch.testing.assert_close(tuple(end), tuple(last), rtol=0, atol=0)
    state = neuron.init_state(2)
    for t in range(30):
        out, state = neuron.step(x[:, t], state)
        assert torch.equal(out, whole[:, t])
    # The scan rounds a multiplication and an addition once.
    torch.testing.assert_close(tuple(state), tuple(last), rtol=1e-12, atol=1e-12)
    packed, states = neuron.scan(x[:1], cu_seqlens=PACKED)
    parts = [neuron.scan(x[:1, a:b]) for a, b in itertools.pairwise(PACKED)]
    assert torch.equal(packed, torch.cat([part[0] for part in parts], 1))
    torch.testing.assert_close(states.a, torch.cat([part[1].a for part in parts]), rtol=0, atol=0)
    backwards, _ = neuron.scan(x[:1], cu_seqlens=PACKED, reverse=True)
    parts = [neuron(x[:1, a:b].flip(1)).flip(1) for a, b in itertools.pairwise(PACKED)]
    assert torch.equal(backwards, torch.cat(parts, 1))
    carried, _ = neuron.scan(x[:1], states, cu_seqlens=PACKED)
    assert not torch.equal(carried, packed)


def test_gradients_of_packed_sequences_are_those_of_each_alone(neuron):
    x = (torch.randn(1, 30, 5, dtype=torch.float64) + 0.3).requires_grad_()
    weight = torch.randn(1, 30, 5, dtype=torch.float64)
    wrt = [x, neuron.log_tau]
    packed = torch.autograd.grad((neuron(x, cu_seqlens=PACKED) * weight).sum(), wrt)
    spikes = torch.cat([neuron(x[:, a:b]) for a, b in itertools.pairwise(PACKED)], 1)
    alone = torch.autograd.grad((spikes * weight).sum(), wrt)
    assert packed[1].abs().sum() > 0
    torch.testing.assert_close(packed, alone)


def test_trace_records_spikes_states_and_the_argument(neuron):
    x = torch.randn(2, 20, 5, dtype=torch.float64) + 0.3
    trace, (spikes, last) = neuron.trace(x), neuron.scan(x)
    assert torch.equal(trace.spikes, spikes)
    assert torch.equal((trace.argument >= 0).double(), spikes)
    torch.testing.assert_close(trace.a[:, -1], last.a, rtol=1e-12, atol=1e-12)
    assert trace.u.shape == (2, 20, 5)
    assert neuron.trace(x[:, :0]).u.shape == (2, 0, 5)
    assert "loop" in neuron.explain(x)


def test_a_neuron_without_state_or_settings():
    neuron = Threshold(3)
    x = 2 * torch.randn(2, 10, 3)
    with fire_rates(neuron) as rates:
        assert torch.equal(neuron(x), (x >= 1).float())
    assert rates[""] == pytest.approx((x >= 1).float().mean().item())
    assert neuron.scan(x)[1] == ()
    assert neuron.step(x[:, 0], neuron.init_state(2))[1] == ()
    half = neuron(x.bfloat16())
    assert half.dtype == torch.bfloat16


def test_config_has_the_keywords_of_init_and_is_saveable():
    config = ALIF.config(tau=30.0)
    assert dataclasses.asdict(config)["tau_adapt"] == 200.0
    assert config.kind == "own_neurons.ALIF"
    assert config == ALIF.config(tau=30.0) != ALIF.config()
    assert hash(config) == hash(ALIF.config(tau=30.0))
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
    assert config.build(4).coefficients()["beta"][0].item() == pytest.approx(0.96722, abs=1e-5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.tau = 1.0
    with pytest.raises(TypeError, match=r"ALIF.config: there is no setting 'tao'; settings are tau, tau_adapt"):
        ALIF.config(tao=1.0)
    assert PRF.config(tau=3.0) == PRFConfig(tau=3.0)
    assert isinstance(LIF.config(), LIFConfig)


def test_a_class_alone_means_its_defaults():
    config = ClassifierConfig(inputs=2, classes=3, features=4, depth=1, neuron=ALIF)
    assert config.neuron == ALIF.config()
    assert FeedforwardConfig(sizes=(1, 4, 2), neuron=LIF).neuron == LIFConfig()
    assert isinstance(SDTCM(4, neuron=ALIF).token_neuron, ALIF)
    with pytest.raises(ValueError, match=r"neuron must be a config such as PRFConfig\(\) or a Neuron class, got 'lif'"):
        FeedforwardConfig(sizes=(1, 4, 2), neuron="lif")


@pytest.mark.parametrize("network", ["classifier", "feedforward"])
def test_networks_of_own_neurons_save_load_and_stream(network, tmp_path):
    torch.manual_seed(1)
    neuron = ALIF.config(tau=10.0)
    if network == "classifier":
        config = ClassifierConfig(inputs=2, classes=3, features=6, depth=2, neuron=neuron)
    else:
        config = FeedforwardConfig(sizes=(2, 6, 3), neuron=neuron, gain=3.0)
    model = config.build().eval()
    x = torch.randn(2, 25, 2)
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.config == config
    assert torch.equal(again(x), model(x))
    state = None
    for t in range(25):
        logits, state = again.step(x[:, t], state)
    torch.testing.assert_close(logits, model(x), rtol=1e-4, atol=1e-5)


def test_an_own_block_is_used_and_what_it_lacks_is_refused_where_it_is_needed(tmp_path):
    config = ClassifierConfig(inputs=2, classes=3, features=6, depth=2, block=GateConfig(width=5))
    model = config.build().eval()
    assert model.encoder.blocks[1].gate.out_features == 5
    save(model, tmp_path)
    x = torch.randn(2, 9, 2)
    assert torch.equal(load(tmp_path)(x), model(x))
    packed = model(x.flatten(0, 1)[None], cu_seqlens=torch.tensor([0, 9, 18], dtype=torch.int32))
    torch.testing.assert_close(packed, model(x))
    with pytest.raises(RuntimeError, match=r"blocks.0 cannot be streamed, Gate has no `step`"):
        model.init_state(2)


def test_what_could_not_be_loaded_again_is_refused(tmp_path, monkeypatch):
    class Inside(Neuron):
        @staticmethod
        def dynamics(current, state, c, spike):
            return spike(current), {}

    with pytest.raises(StorageError, match="Inside is defined inside a function; move it to the top level"):
        save(ClassifierConfig(inputs=1, classes=2, features=3, depth=1, neuron=Inside).build(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(ALIF.config_class, "__module__", "__main__")
    with pytest.raises(StorageError, match="ALIF is defined in __main__; move it into a module and import it"):
        require_saveable(ALIF.config())


def test_a_file_whose_class_is_not_imported_names_the_module(tmp_path):
    model = ClassifierConfig(inputs=1, classes=2, features=3, depth=1, neuron=ALIF).build()
    file = save(model, tmp_path)
    file.write_bytes(checksum.seal(file.read_bytes().replace(b"own_neurons.ALIF", b"own_missing.ALIF")))
    with pytest.raises(StorageError, match=r"import own_missing first \(on the command line: --import own_missing\)"):
        load(tmp_path)


def test_a_newer_format_is_refused(tmp_path):
    file = save(FeedforwardConfig(sizes=(1, 2, 2)).build(), tmp_path)
    file.write_bytes(checksum.seal(file.read_bytes().replace(rb"\"format\": 2", rb"\"format\": 9")))
    with pytest.raises(StorageError, match="has format 9; this version of resofire reads up to 2"):
        load(tmp_path)


class Forgets(Neuron):
    states = ("u",)

    @staticmethod
    def dynamics(current, state, c, spike):
        return spike(current), {}


class Plain(Neuron):
    @staticmethod
    def dynamics(current, state, c, spike):
        return (current >= 1).float(), {}


class Wide(Neuron):
    def coefficients(self):
        return {"beta": torch.zeros(7)}

    @staticmethod
    def dynamics(current, state, c, spike):
        return spike(current), {}


class Number(Wide):
    def coefficients(self):
        return {"beta": 0.9}


class Letters(Neuron):
    states = "mem"


class Doubles(Neuron):
    states = ("u",)

    @staticmethod
    def dynamics(current, state, c, spike):
        return spike(current), {"u": current.double()}


class Twin(ALIF):
    """The equation of ALIF under another name: both run one compiled program."""


BEYOND = torch.tensor([0, 5], dtype=torch.int32)


class Shrinks(torch.nn.Module):
    def forward(self, u, *, cu_seqlens=None):
        return u[:, :1]

    def fold(self, c, d, floor):
        return [], c

    def count(self, name, steps, rates, *, fold_norm=False):
        return 3


@dataclass(frozen=True)
class ShrinksConfig(Config):
    def build(self, features):
        return Shrinks()


class Undecorated(Config):
    width: int = 3


class Selfless(Neuron):
    """Its dynamics lacks @staticmethod."""

    states = ("u",)

    def dynamics(current, state, c, spike):
        return spike(current - 1), {"u": current}


class Orphan(Neuron):
    """Its __init__ forgets that of Neuron."""

    def __init__(self, features, *, tau=2.0):
        self.tau = tau


SHRINKS = ClassifierConfig(inputs=1, classes=2, features=3, depth=1, block=ShrinksConfig())


def network_with(block):
    return ClassifierConfig(inputs=1, classes=2, features=3, depth=1, block=block)


BAD_CALLS = [
    (lambda: Number(3)(torch.zeros(1, 2, 3)), "Number: coefficient beta must be a tensor, got the float 0.9"),
    (lambda: Letters(3), "Letters: states must be a tuple of names such as"),
    (lambda: Doubles(3)(torch.zeros(1, 2, 3)), "Doubles: dynamics must return u in torch.float32 as it came"),
    (lambda: SHRINKS.build()(torch.zeros(1, 2, 1)), r"blocks.0, a Shrinks, must return a stream .*, got \[1, 1, 3\]"),
    (lambda: fold(SHRINKS.build()), r"Shrinks.fold must return \(list of Layer, c \[3\], d \[3\]\)"),
    (lambda: count_ops(SHRINKS.build(), (2, 1), {}), "Shrinks.count must return a list of Count, got int"),
    (lambda: network_with(ShrinksConfig), r"got the class ShrinksConfig; call it: ShrinksConfig\(\)"),
    (lambda: network_with(ALIF(3)), r"; pass ALIF.config\(...\), of which each layer builds its own"),
    (lambda: network_with(Shrinks), r"got the class Shrinks; write a Config whose build\(features\) makes this module"),
    (lambda: Undecorated(), r"Undecorated: a config with fields must be decorated with @dataclass\(frozen=True\)"),
    (lambda: Forgets(3)(torch.zeros(1, 2, 3)), "Forgets: dynamics must return the states u, got none"),
    (lambda: Wide(3)(torch.zeros(1, 2, 3)), r"Wide: coefficient beta must have shape \[\] or \[3\], got \[7\]"),
    (lambda: Threshold(3)(torch.zeros(1, 2, 4)), r"Threshold: the input must have 3 channels .*, got \[1, 2, 4\]"),
    (lambda: Threshold(3).step(torch.zeros(3)), r"Threshold.step: current must have shape \[B, N\], got \[3\]"),
    (lambda: ALIF(3).scan(torch.zeros(1, 4, 3), cu_seqlens=torch.tensor([0, 3], dtype=torch.int32)),
     "ALIF: cu_seqlens must run from 0 to 4, got 0 to 3"),
    (lambda: (ALIF(3)(torch.zeros(1, 4, 3)), Twin(3).scan(torch.zeros(1, 4, 3), cu_seqlens=BEYOND)),
     "Twin: cu_seqlens must run from 0 to 4, got 0 to 5"),
    (lambda: Neuron(3)(torch.zeros(1, 2, 3)), "Neuron does not define dynamics"),
    (lambda: Config().build(), "Config does not define build"),
    (lambda: Selfless(3), r"Selfless: dynamics must take \(current, state, c, spike\), as a @static"),
    (lambda: Orphan(3), r"Orphan: __init__ must call super\(\).__init__\(features, surrogate=surrogate\)"),
    (lambda: Threshold(3)([0.0, 0.0, 0.0]), "Threshold: the input must be a tensor, got list"),
    (lambda: ALIF(3).scan(torch.zeros(1, 2, 3), (torch.zeros(1, 3),)), r"state must be a tuple .*, got 1 values"),
    (lambda: Threshold(0), "Threshold: features must be a positive integer, got 0"),
]  # fmt: skip


def test_bad_calls_are_named(subtests):
    for call, message in BAD_CALLS:
        with subtests.test(message), pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
            call()
