"""Damaged and hostile files: whatever is in one, a loader gives a network or one sentence of its own kind of error.

A few hundred files of each kind, seeded: bits flipped, bytes replaced, sizes made huge, pieces cut, put in or moved.
While they are read, memory must not grow beyond what the true file takes, nor any of them take long.
"""

import json
import os
from dataclasses import fields

import numpy as np
import pytest
import safetensors.numpy
import torch
from deploy_cases import CASES, make_input, network
from hostile import mutated, tried, without_checksum

import resofire
from resofire import models
from resofire.deploy import Stream, load, save
from resofire.models.storage import StorageError, to_json


def shapes(network):
    return [[each.shape for each in (layer.rows, layer.neurons[0].sign)] for layer in network.layers]


def test_folded_networks(folded, tmp_path, watched):
    file = tmp_path / "network.safetensors"
    good = without_checksum(save(folded, file))
    loaded = 0
    for seed in range(600):
        file.write_bytes(mutated(good, seed))
        network = watched(lambda: load(file), file)
        if network is not None:
            loaded += 1
            assert network.fault() is None
            assert shapes(network) == shapes(folded)
    assert 5 < loaded < 300


def test_a_flipped_bit_is_noticed(folded, tmp_path):
    file = save(folded, tmp_path / "network.safetensors")
    good = file.read_bytes()
    file.write_bytes(good[:-3] + bytes([good[-3] ^ 1]) + good[-2:])
    with pytest.raises(StorageError, match="it is corrupt: its checksum does not match"):
        load(file)


def described(folded, file):
    save(folded, file)
    with safetensors.safe_open(file, "np") as opened:
        return json.loads(opened.metadata()["folded"]), {name: opened.get_tensor(name).copy() for name in opened.keys()}  # noqa: SIM118


def test_headers_of_folded_networks(folded, tmp_path, watched):
    """Every setting of the header replaced by what it should not be."""
    file = tmp_path / "network.safetensors"
    about, arrays = described(folded, file)
    values = (None, True, -1, 0, 10**30, 1e308, "x", "a\nb", "a" * 10_000, [], [1], [[]], {}, {"kind": "prf"})
    settings = [(top, None, None) for top in about]
    settings += [("layers", 0, key) for key in about["layers"][0]] + [("layers", 1, "neurons")]
    tries = loaded = 0
    for top, number, key in settings:
        for value in values:
            changed = json.loads(json.dumps(about))
            if number is None:
                changed[top] = value
            else:
                changed[top][number][key] = value
            file.write_bytes(safetensors.numpy.save(arrays, {"folded": json.dumps(changed)}))
            loaded += watched(lambda: load(file), file) is not None
            tries += 1
    assert tries > 80
    assert loaded < 5


BAD_ARRAYS = [
    ("head", np.full((6, 3), np.nan, np.float32), "head must be finite, got NaN or Inf"),
    ("0.0.threshold", np.full(6, np.inf, np.float32), "0.0.threshold must be finite"),
    ("0.rows", np.zeros((6, 7), np.float32), r"0.rows must be float32 \[6, 6\], got float32 \[6, 7\]"),
    ("0.rows", np.zeros((6, 6)), "0.rows must be float32"),
    ("0.0.sign", np.full(6, 2, np.int8), "0.0.sign must be int8 .* of -1, 0 and 1"),
    ("0.0.sign", np.full(6, -128, np.int8), "0.0.sign must be int8"),
    ("0.0.phi_im", None, "lacks the array or setting '0.0.phi_im'"),
    ("../../x", np.zeros(1, np.float32), "has an array that its header does not mention: '../../x'"),
    ("table", np.zeros((2, 0), np.float32), "table must have two dimensions and be filled"),
    ("bias", np.zeros((), np.float32), r"bias must be float32 \[3\], got float32 \[\]"),
]


def test_arrays_of_folded_networks(subtests, folded, tmp_path):
    for name, value, message in BAD_ARRAYS:
        with subtests.test(message):
            file = tmp_path / "network.safetensors"
            about, arrays = described(folded, file)
            arrays.pop(name, None)
            if value is not None:
                arrays[name] = value
            file.write_bytes(safetensors.numpy.save(arrays, {"folded": json.dumps(about)}))
            with pytest.raises(StorageError, match=message):
                load(file)


def test_other_files_are_no_folded_networks(folded, tmp_path):
    for file in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StorageError, match="which is not a file"):
            load(file)
    model = models.save(network(CASES["soft prf"], torch.float32), tmp_path / "run")
    with pytest.raises(StorageError, match="holds no folded network, its header has no entry 'folded'"):
        load(model)
    with pytest.raises(StorageError, match=r"a folded network, for resofire stream or resofire\.deploy\.load"):
        models.load(save(folded, tmp_path / "folded.safetensors"))
    file = tmp_path / "old.safetensors"
    file.write_bytes(safetensors.numpy.save({}, {"folded": json.dumps({"version": "a\nb"})}))
    with pytest.raises(StorageError, match=r"must be of version 1, got 'a\\nb'"):
        load(file)
    file.write_bytes(safetensors.numpy.save({}, {"folded": "[" * 100_000}))
    with pytest.raises(StorageError, match="a header that is not JSON"):
        load(file)


def test_run_folders(tmp_path, watched):
    folder = tmp_path / "run"
    weights = models.save(network(CASES["soft prf"], torch.float32), folder)
    expected = {name: value.shape for name, value in models.load(weights).state_dict().items()}
    good = without_checksum(weights)
    loaded = 0
    for seed in range(300):
        weights.write_bytes(mutated(good, seed))
        model = watched(lambda: resofire.load(folder), folder)
        if model is not None:
            loaded += 1
            state = model.state_dict()
            assert {name: value.shape for name, value in state.items()} == expected
            assert all(bool(value.isfinite().all()) for value in state.values())
    assert 3 < loaded < 150


def test_configs_of_run_folders(tmp_path, watched):
    """Every setting replaced by what it should not be; the config stands beside weights that do not tell theirs."""
    config = CASES["soft prf"]
    folder = tmp_path / "run"
    weights = models.save(network(config, torch.float32), folder)
    with safetensors.safe_open(weights, "np") as opened:
        arrays = {name: opened.get_tensor(name).copy() for name in opened.keys()}  # noqa: SIM118
    weights.write_bytes(safetensors.numpy.save(arrays, {"format": "np"}))
    values = (None, True, -1, 0, 10**30, 1e308, float("nan"), float("inf"), "x", "a\nb", [], [1], [[1]], {}, 2**63)
    good = to_json(config)
    tries = loaded = 0
    for path in [(each.name,) for each in fields(config)] + [("neuron", each.name) for each in fields(config.neuron)]:
        for value in values:
            changed = json.loads(json.dumps(good))
            place = changed if len(path) == 1 else changed["neuron"]
            place[path[-1]] = value
            (folder / "config.json").write_text(json.dumps(changed))
            loaded += watched(lambda: resofire.load(folder), folder) is not None
            tries += 1
    assert tries > 300
    assert 0 < loaded < tries / 4


def test_states_of_streams(folded):
    stream = Stream(folded)
    stream.feed(make_input(CASES["soft prf"], 5).numpy()[None])
    good = stream.save()
    refused = 0
    for seed in range(600):
        before, state = stream.save(), mutated(good, seed)
        if tried(lambda state=state: stream.restore(state) or True, "Stream.restore: state ", ValueError) is None:
            refused += 1
            assert stream.save() == before
        assert np.isfinite(stream._state.potentials).all()
        assert (stream.steps >= 0).all()
    assert 590 < refused <= 600


def test_reading_runs_no_code(folded, tmp_path):
    """A pickle in the place of each kind of file is refused, and not opened as one."""
    import pickle

    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was here"),)

    file = tmp_path / "file"
    file.write_bytes(pickle.dumps(Malicious()))
    for loader in (load, models.load):
        assert tried(lambda loader=loader: loader(file), file) is None
    with pytest.raises(ValueError, match=r"Stream\.restore: state must be what save returned"):
        Stream(folded).restore(file.read_bytes())
    assert not (tmp_path / "was here").exists()
