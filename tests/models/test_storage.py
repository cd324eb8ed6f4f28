"""Networks on disk: what is written comes back to the bit, and no file, however bad, gets more than one sentence."""

import hashlib
import json
import math
import os
import pickle
import random
import struct
from dataclasses import replace

import pytest
import safetensors.torch
import torch

import resofire
from resofire import deploy, models
from resofire.models import ClassifierConfig, FeedforwardConfig, RetrievalConfig, StorageError, build, checksum
from resofire.models.config import NetworkConfig
from resofire.models.network import Network
from resofire.models.storage import CONFIG, WEIGHTS, from_json, to_json
from resofire.nn import LIFConfig, PRFConfig
from resofire.ops import ATan, Rectangle, Sigmoid, Surrogate, Triangle

PRF = PRFConfig(
    tau=(2.0, 5.0), delta=(0.1, 0.5), theta=0.7, threshold=0.5, train_theta=False, train_tau=True, evenly_spaced=True
)
LIF = LIFConfig(tau=(1.5, 4.0), train_tau=True, reset="hard", reset_gradient="full", threshold=0.5)
NETWORKS = {
    "classifier, PRF": ClassifierConfig(
        inputs=2, classes=3, features=6, depth=2, neuron=PRF, rate_target=0.1, positional_bias=1.5
    ),
    "classifier, LIF": ClassifierConfig(
        vocabulary=7, classes=3, features=6, depth=1, neuron=LIF, bidirectional=True, prenorm=False, amplitude="both",
        pool="last", dropout=0.25,
    ),
    "classifier, no norm": ClassifierConfig(
        inputs=1, classes=2, features=4, depth=1, norm="none", last_norm=True, amplitude="none", pool="none"
    ),
    "retrieval, PRF": RetrievalConfig(vocabulary=7, features=5, depth=1, neuron=PRF),
    "retrieval, LIF": RetrievalConfig(inputs=2, features=5, depth=1, classes=4, neuron=LIF),
    "feedforward, PRF": FeedforwardConfig(sizes=(2, 8, 5, 3), neuron=PRF),
    "feedforward, LIF": FeedforwardConfig(sizes=(2, 8, 3), neuron=LIFConfig(), pool="last", backend="reference"),
}  # fmt: skip
SURROGATES = (ATan(3), Triangle(0.5), Sigmoid(2.5), Rectangle(0.75))
TINY = ClassifierConfig(inputs=1, classes=2, features=3, depth=1)


def trained(config: NetworkConfig) -> Network:
    """With every number other than a fresh network's."""
    model = build(config)
    with torch.no_grad():
        for value in model.state_dict().values():
            value.add_(torch.rand_like(value) if value.is_floating_point() else 3)
    return model.eval()


def sequences(config: NetworkConfig) -> torch.Tensor:
    shape = (2, 2, 20) if isinstance(config, RetrievalConfig) else (2, 20)
    inputs = config.sizes[0] if isinstance(config, FeedforwardConfig) else config.inputs
    return torch.randint(config.vocabulary, shape) if inputs is None else 3 * torch.randn(*shape, inputs)


def refusal(path) -> str:
    """What is said of a file that cannot be used."""
    with pytest.raises(StorageError) as caught:
        models.load(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def loaded_or_refused(file) -> Network | None:
    """The network in a file, or None if it was refused in one sentence that names it."""
    try:
        return models.load(file)
    except StorageError as error:
        text = str(error)
    assert str(file) in text
    assert "\n" not in text
    return None


@pytest.fixture
def stored(tmp_path):
    """The file of a tiny network, alone in its folder."""
    file = models.save(trained(TINY), tmp_path)
    (tmp_path / CONFIG).unlink()
    return file


def rewrite(file, *, config=None, header=None, **tensors) -> None:
    """Changes the config or tensors of a file; a tensor that is None is left out."""
    weights = {**safetensors.torch.load_file(file), **{name.replace("__", "."): x for name, x in tensors.items()}}
    if header is None:
        header = {"config": config if isinstance(config, str) else json.dumps(config or to_json(TINY))}
    data = safetensors.torch.save({name: x for name, x in weights.items() if x is not None}, header)
    file.write_bytes(data)


def test_a_config_comes_back_from_json(subtests):
    for name, config in NETWORKS.items():
        with subtests.test(name):
            described = json.loads(json.dumps(to_json(config)))
            assert described["kind"] == type(config).__name__
            assert from_json(described) == config


def test_a_surrogate_comes_back_from_json(subtests):
    for neuron in [PRFConfig, LIFConfig]:
        for surrogate in SURROGATES:
            with subtests.test(surrogate=surrogate, neuron=neuron):
                config = replace(TINY, neuron=neuron(surrogate=surrogate), spatial_surrogate=surrogate)
                back = from_json(json.loads(json.dumps(to_json(config))))
                assert back == config
                assert type(back.neuron.surrogate) is type(back.spatial_surrogate) is type(surrogate)


def test_every_surrogate_of_the_library_is_among_these():
    own = {kind for kind in Surrogate.__subclasses__() if kind.__module__.startswith("resofire.")}
    assert own == {type(surrogate) for surrogate in SURROGATES}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_loaded_network_gives_the_same_bits(name, tmp_path):
    model, x = trained(NETWORKS[name]), sequences(NETWORKS[name])
    file = models.save(model.train(), tmp_path / "new" / "run")
    assert sorted(each.name for each in file.parent.iterdir()) == sorted((CONFIG, WEIGHTS))
    before = torch.get_rng_state()
    for path in (file.parent, str(file)):
        loaded = resofire.load(path)
        assert loaded.config == model.config
        assert not loaded.training
        assert torch.equal(loaded(x), model.eval()(x))
        assert [(n, p.requires_grad) for n, p in loaded.named_parameters()] == [
            (n, p.requires_grad) for n, p in model.named_parameters()
        ]
    assert torch.equal(torch.get_rng_state(), before)


def test_equal_networks_are_equal_files(tmp_path):
    model = trained(TINY)
    assert len({models.save(model, tmp_path).read_bytes() for _ in range(20)}) == 1


def test_a_file_alone_is_enough(stored):
    assert models.load(stored).config == TINY


def test_a_header_without_config_is_read_with_the_file_beside_it(stored):
    rewrite(stored, header={"format": "pt"})
    assert CONFIG in refusal(stored)
    (stored.parent / CONFIG).write_text(json.dumps(to_json(TINY)))
    assert models.load(stored).config == TINY


def test_the_header_counts_where_the_file_beside_it_says_otherwise(stored):
    (stored.parent / CONFIG).write_text("{}")
    assert models.load(stored).config == TINY


def test_weights_of_another_precision_stay_so(tmp_path):
    model = trained(NETWORKS["classifier, PRF"]).double()
    x = sequences(model.config).double()
    assert torch.equal(models.load(models.save(model, tmp_path))(x), model(x))


def test_a_loaded_network_does_not_depend_on_its_file(stored):
    model, x = models.load(stored), sequences(TINY)
    before = model(x)
    with stored.open("r+b") as stream:
        stream.write(bytes(stored.stat().st_size))
    assert torch.equal(model(x), before)


def test_a_network_that_could_not_be_read_again_is_not_written(tmp_path):
    class Own(PRFConfig):
        pass

    model = build(ClassifierConfig(inputs=1, classes=2, features=3, depth=1, neuron=Own()))
    with pytest.raises(StorageError, match="Own"):
        models.save(model, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_path_without_a_network_is_refused(tmp_path):
    assert "does not exist" in refusal(tmp_path / "none")
    assert "does not exist" in refusal(tmp_path)


def test_a_truncated_file_is_refused(stored):
    data = stored.read_bytes()
    for length in [*range(64), *range(64, len(data), 97), len(data) - 1]:
        stored.write_bytes(data[:length])
        assert "truncated" in refusal(stored)


def test_a_longer_file_is_refused(stored):
    stored.write_bytes(stored.read_bytes() + b"x")
    refusal(stored)


def test_a_pipe_is_no_network(tmp_path):
    """Opening it would wait for ever, inside safetensors, where no signal is heard."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="model must be a run folder, a file of weights or one of"):
        models.find(tmp_path / "pipe")
    assert not deploy.holds_folded(tmp_path / "pipe")


def test_a_flipped_bit_is_noticed(stored):
    good = stored.read_bytes()
    for place in (len(good) - 3, good.index(b"spatial_threshold") + 24):
        stored.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        assert "it is corrupt: its checksum does not match" in refusal(stored)
    stored.write_bytes(good)
    beside = checksum.sidecar(stored)
    beside.write_text(f"{hashlib.sha256(good[1:]).hexdigest()}  {stored.name}\n")
    assert "it is corrupt: it does not match model.safetensors.sha256" in refusal(stored)
    # Another network of that name has another checksum.
    models.load(models.save(trained(TINY), stored.parent))
    assert not beside.exists()


def test_flipped_bits_give_a_network_of_the_same_form_or_a_sentence(stored):
    draw = random.Random(0)
    # Without a checksum, as files of earlier versions.
    rewrite(stored)
    good = stored.read_bytes()
    header = 8 + struct.unpack("<Q", good[:8])[0]
    shapes = {name: value.shape for name, value in build(TINY).state_dict().items()}
    loaded = 0
    for _ in range(600):
        data = bytearray(good)
        for _ in range(draw.choice((1, 1, 2, 8))):
            first, end = draw.choice(((0, 8), (8, header), (header, len(data))))
            data[draw.randrange(first, end)] ^= 1 << draw.randrange(8)
        stored.write_bytes(data)
        model = loaded_or_refused(stored)
        if model is not None:
            loaded += 1
            state = model.state_dict()
            assert {name: value.shape for name, value in state.items()} == shapes
            assert all(value.isfinite().all() for value in state.values())
    assert 20 < loaded < 580


def test_a_changed_letter_of_the_config_gives_a_network_or_a_sentence(stored):
    draw = random.Random(0)
    good = json.dumps(to_json(TINY))
    loaded = 0
    for _ in range(800):
        place = draw.randrange(len(good))
        rewrite(stored, config=good[:place] + draw.choice('0123456789-."[]{},:eNntf\\ué') + good[place + 1 :])
        model = loaded_or_refused(stored)
        loaded += model is not None and model.config != TINY
    assert 10 < loaded < 790


def test_a_header_of_a_wrong_length_is_refused(subtests, stored):
    for length in [0, 1, 10**6, 10**8, 10**9, 2**63, 2**64 - 1]:
        with subtests.test(length=length):
            stored.write_bytes(struct.pack("<Q", length) + stored.read_bytes()[8:])
            refusal(stored)


BAD_HEADERS = [b"\xff\xfe\xfd", b"[" * 200_000, b"{}", b"null", b"\0" * 64, b'{"a":{"b":' * 1000]


def test_a_bad_header_is_refused(subtests, stored):
    for header in BAD_HEADERS:
        with subtests.test(header=header[:16]):
            stored.write_bytes(struct.pack("<Q", len(header)) + header)
            refusal(stored)


def test_a_pickle_is_refused_and_not_run(stored):
    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(stored.parent / "was here"),)

    stored.write_bytes(pickle.dumps(Malicious()))
    refusal(stored)
    torch.save({"x": Malicious()}, stored)
    refusal(stored)
    assert not (stored.parent / "was here").exists()


def test_weights_must_be_finite(subtests, stored):
    for value in [math.nan, math.inf, -math.inf]:
        with subtests.test(str(value)):
            rewrite(stored, head__bias=torch.tensor([0.0, value]))
            assert "head.bias must be finite" in refusal(stored)


OTHER_TENSORS = (
    torch.zeros(3), torch.zeros(2, 1), torch.zeros(()), torch.zeros(2, dtype=torch.int32), torch.zeros(2).bool(),
    torch.zeros(2, dtype=torch.float8_e4m3fn), torch.zeros(2, dtype=torch.complex64),
)  # fmt: skip


def test_tensors_must_have_their_shape_and_type(subtests, stored):
    for value in OTHER_TENSORS:
        with subtests.test(f"{value.dtype} {list(value.shape)}"):
            rewrite(stored, head__bias=value)
            assert "head.bias must be torch.float32 [2], got" in refusal(stored)


def test_tensors_must_all_be_there_and_no_others(stored):
    rewrite(stored, head__bias=None)
    assert "lacks the tensor 'head.bias'" in refusal(stored)
    rewrite(stored, head__bias=torch.zeros(2), **{"more\nlines": torch.zeros(2)})
    assert "has, against its config, the tensor 'more\\nlines'" in refusal(stored)


BAD_CONFIGS = {
    "unknown kind": ({"kind": "System"}, "'System' is not a class of this version of resofire"),
    "a kind that is no word": ({"kind": ["ClassifierConfig"]}, "kind must be the name of a config, got"),
    "a neuron's config": (to_json(PRFConfig()), "must hold the config of a network, got PRFConfig"),
    "no kind": ({"features": 3}, "must hold the config of a network, got dict"),
    "a list": ([1, 2], "must hold the config of a network, got tuple"),
    "unknown setting": ({**to_json(TINY), "colour": 1}, "no setting 'colour'"),
    "missing setting": ({"kind": "ClassifierConfig", "features": 3, "depth": 1, "inputs": 1}, "classes"),
    "text for a number": ({**to_json(TINY), "features": "64"}, "features must be a positive integer, got '64'"),
    "a huge width": ({**to_json(TINY), "features": 10**9}, r"must be torch.float32 [1000000000"),
    "a huge depth": ({**to_json(TINY), "depth": 10**9}, "must hold a network of 1000000000 layers"),
    "more blocks than tensors": ({**to_json(TINY), "depth": 100}, "must hold a network of 100 layers"),
    "a huge vocabulary": ({**to_json(TINY), "inputs": None, "vocabulary": 10**12}, "[1000000000000, 3]"),
    "an impossible width": ({**to_json(TINY), "features": 10**30}, "no network can be built"),
    "many sizes": ({"kind": "FeedforwardConfig", "sizes": [1] * 100_000}, "must hold a network of 100000 layers"),
    "a neuron with a bad setting": ({**to_json(TINY), "neuron": {"kind": "PRFConfig", "tau": -1.0}}, "tau must be"),
    "an unknown surrogate": (
        {**to_json(TINY), "spatial_surrogate": {"kind": "Surrogate", "name": "os.system", "numbers": ["ls"]}},
        "system is not imported: import os first",
    ),
    "a surrogate of a huge number": (
        {**to_json(TINY), "spatial_surrogate": {"kind": "Surrogate", "name": "ATan", "numbers": [10**400]}},
        "surrogate 'ATan' has a number that is too large",
    ),
    "a huge time constant": (
        {**to_json(TINY), "neuron": {"kind": "PRFConfig", "tau": 10**400}},
        "no network can be built",
    ),
    "a surrogate without a name": ({**to_json(TINY), "spatial_surrogate": {"kind": "Surrogate"}}, "surrogate"),
    "nested too deep": ("[" * 200_000 + "]" * 200_000, "no usable config"),
    "nested too deep, objects": ('{"neuron":' * 50_000 + "1" + "}" * 50_000, "no usable config"),
    "no JSON": ("{'kind': 1}", "no usable config"),
    "a number of 10,000 digits": ("9" * 10_000, "no usable config"),
    "empty": ("", "no usable config"),
}


def test_a_bad_config_is_refused(subtests, stored):
    for name, (config, message) in BAD_CONFIGS.items():
        with subtests.test(name):
            (stored.parent / CONFIG).unlink(missing_ok=True)
            rewrite(stored, config=config)
            assert message in refusal(stored)
            rewrite(stored, header={"format": "pt"})
            (stored.parent / CONFIG).write_text(config if isinstance(config, str) else json.dumps(config))
            assert message in refusal(stored.parent)


def test_a_config_that_is_no_text_is_refused(stored):
    rewrite(stored, header={"format": "pt"})
    (stored.parent / CONFIG).write_bytes(b"\xff\xfe\x00{}")
    assert "no usable config" in refusal(stored)


HOSTILE = (
    "64", "", None, True, -1, 0, 0.5, 10**9, 10**30, 10**400, math.nan, math.inf, [], [1], [2.0, 1.0], [0.0, 1e308],
    ["a", {}], {}, {"build": 1}, {"kind": "LIFConfig"}, {"kind": "Surrogate", "name": "ATan", "numbers": [10**400]},
)  # fmt: skip


@pytest.mark.parametrize("kind", ["ClassifierConfig", "PRFConfig", "LIFConfig", "FeedforwardConfig", "Surrogate"])
def test_any_setting_may_hold_anything_and_gets_a_sentence(kind, stored):
    """Or a network, where the value is one that the setting may have."""
    feedforward = kind == "FeedforwardConfig"
    config = FeedforwardConfig(sizes=(1, 3, 2)) if feedforward else TINY
    models.save(trained(config), stored.parent)
    refused = 0
    settings = to_json({"PRFConfig": PRFConfig(), "LIFConfig": LIFConfig(), "Surrogate": ATan()}.get(kind, config))
    for name in settings:
        for value in HOSTILE:
            described = to_json(config)
            if kind in ("PRFConfig", "LIFConfig"):
                described["neuron"] = {"kind": kind, name: value}
            elif kind == "Surrogate":
                described["spatial_surrogate"] = {**to_json(ATan()), name: value}
            else:
                described[name] = value
            rewrite(stored, config=described)
            refused += loaded_or_refused(stored) is None
    assert refused > 20


def test_a_variance_must_not_be_negative(stored):
    name = next(name for name in safetensors.torch.load_file(stored) if name.endswith("running_var"))
    rewrite(stored, **{name: torch.tensor([1.0, -0.5, 1.0])})
    assert f"{name} must not be negative, got -0.5" in refusal(stored)


def test_numbers_must_be_of_one_type(stored):
    rewrite(stored, head__bias=torch.zeros(2, dtype=torch.float16))
    assert "must hold floating-point numbers of one type, got torch.float16 and torch.float32" in refusal(stored)
