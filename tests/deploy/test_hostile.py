"""Damaged and hostile files: whatever is in one, a loader gives a network or one sentence of its own kind of error.

A few hundred files of each kind, seeded: bits flipped, bytes replaced, sizes made huge, pieces cut, put in or moved.
While they are read, memory must not grow beyond what the true file takes, nor any of them take long.
"""

import json
import os
import random
import struct
import time
from dataclasses import fields

import numpy as np
import pytest
import safetensors.numpy
import torch
from folds import CASES, given, network

import resofire
from resofire import models
from resofire.deploy import Stream, fold, storage
from resofire.models.storage import StorageError, to_json

resource = pytest.importorskip("resource", reason="this system does not tell how much memory is in use")

CASE = "soft prf"
SIZES = (0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 10**9, 10**12)


def mutated(good, seed):
    draw, data = random.Random(seed), bytearray(good)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        if not data:
            break
        # Headers come first and are what a loader trusts.
        at = draw.randrange(len(data) if draw.random() < 0.5 else min(len(data), 4096))
        how = draw.randrange(6)
        if how == 0:
            data[at] ^= 1 << draw.randrange(8)
        elif how == 1:
            data[at] = draw.randrange(256)
        elif how == 2:
            data[at : at + 8] = struct.pack("<Q", draw.choice(SIZES))
        elif how == 3:
            del data[at : at + draw.choice((1, 8, 100, 10**6))]
        elif how == 4:
            data[at:at] = draw.randbytes(draw.choice((1, 8, 100)))
        else:
            length, source = draw.choice((4, 8, 64, 512)), draw.randrange(len(data))
            data[at : at + length] = data[source : source + length]
    return bytes(data)


def tried(load, named=None, kind=StorageError):
    """What a loader gives, or None if it refused in one line."""
    try:
        return load()
    except kind as error:
        text = str(error)
    assert "\n" not in text
    assert len(text) < 1000
    assert named is None or str(named) in text
    return None


@pytest.fixture
def watched():
    """Memory and time of what is done between two calls."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    longest = [0.0]

    def timed(load, named=None):
        start = time.process_time()
        found = tried(load, named)
        longest[0] = max(longest[0], time.process_time() - start)
        return found

    yield timed
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 400, f"{grown:.0f} MB more memory"
    assert longest[0] < 5, f"{longest[0]:.1f} s for one file"


@pytest.fixture(scope="module")
def folded():
    return fold(network(CASES[CASE], torch.float32))


def shapes(network):
    return [[each.shape for each in (layer.rows, layer.neurons[0].sign)] for layer in network.layers]


def test_folded_networks(folded, tmp_path, watched):
    file = tmp_path / "network.safetensors"
    good = storage.save(folded, file).read_bytes()
    loaded = 0
    for seed in range(600):
        file.write_bytes(mutated(good, seed))
        found = watched(lambda: storage.load(file), file)
        if found is not None:
            loaded += 1
            assert storage.wrong(found) is None
            assert shapes(found) == shapes(folded)
    assert 5 < loaded < 300


def described(folded, file):
    storage.save(folded, file)
    with safetensors.safe_open(file, "np") as held:
        return json.loads(held.metadata()["folded"]), {name: held.get_tensor(name).copy() for name in held.keys()}  # noqa: SIM118


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
            loaded += watched(lambda: storage.load(file), file) is not None
            tries += 1
    assert tries > 80
    assert loaded < 5


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("head", np.full((6, 3), np.nan, np.float32), "head must be finite, got NaN or Inf"),
        ("0.0.threshold", np.full(6, np.inf, np.float32), "0.0.threshold must be finite"),
        ("0.rows", np.zeros((6, 7), np.float32), r"0.rows must be float32 \[6, 6\], got float32 \[6, 7\]"),
        ("0.rows", np.zeros((6, 6)), "0.rows must be float32"),
        ("0.0.sign", np.full(6, 2, np.int8), "0.0.sign must be int8 .* of -1, 0 and 1"),
        ("0.0.sign", np.full(6, -128, np.int8), "0.0.sign must be int8"),
        ("0.0.phi_im", None, "lacks the array or setting '0.0.phi_im'"),
        ("../../etc/passwd", np.zeros(1, np.float32), "has, against its header, the array '../../etc/passwd'"),
        ("table", np.zeros((2, 0), np.float32), "table must have two dimensions and be filled"),
        ("bias", np.zeros((), np.float32), r"bias must be float32 \[3\], got float32 \[\]"),
    ],
)
def test_arrays_of_folded_networks(name, value, words, folded, tmp_path):
    file = tmp_path / "network.safetensors"
    about, arrays = described(folded, file)
    arrays.pop(name, None)
    if value is not None:
        arrays[name] = value
    file.write_bytes(safetensors.numpy.save(arrays, {"folded": json.dumps(about)}))
    with pytest.raises(StorageError, match=words):
        storage.load(file)


def test_other_files_are_no_folded_networks(folded, tmp_path):
    for file in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StorageError, match="which is not a file"):
            storage.load(file)
    model = models.save(network(CASES[CASE], torch.float32), tmp_path / "run")
    with pytest.raises(StorageError, match="holds no folded network, its header has no entry 'folded'"):
        storage.load(model)
    with pytest.raises(StorageError, match=r"is a folded network, to be opened with resofire\.deploy\.storage\.load"):
        models.load(storage.save(folded, tmp_path / "folded.safetensors"))
    file = tmp_path / "old.safetensors"
    file.write_bytes(safetensors.numpy.save({}, {"folded": json.dumps({"version": "a\nb"})}))
    with pytest.raises(StorageError, match=r"must be of version 1, got 'a\\nb'"):
        storage.load(file)
    file.write_bytes(safetensors.numpy.save({}, {"folded": "[" * 100_000}))
    with pytest.raises(StorageError, match="a header that is no JSON"):
        storage.load(file)


def test_run_folders(tmp_path, watched):
    folder = tmp_path / "run"
    weights = models.save(network(CASES[CASE], torch.float32), folder)
    wanted = {name: value.shape for name, value in models.load(weights).state_dict().items()}
    good = weights.read_bytes()
    loaded = 0
    for seed in range(300):
        weights.write_bytes(mutated(good, seed))
        model = watched(lambda: resofire.load(folder), folder)
        if model is not None:
            loaded += 1
            state = model.state_dict()
            assert {name: value.shape for name, value in state.items()} == wanted
            assert all(bool(value.isfinite().all()) for value in state.values())
    assert 3 < loaded < 150


def test_configs_of_run_folders(tmp_path, watched):
    """Every setting replaced by what it should not be; the config stands beside weights that do not tell theirs."""
    config = CASES[CASE]
    folder = tmp_path / "run"
    weights = models.save(network(config, torch.float32), folder)
    with safetensors.safe_open(weights, "np") as held:
        arrays = {name: held.get_tensor(name).copy() for name in held.keys()}  # noqa: SIM118
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
    stream.feed(given(CASES[CASE], 5).numpy()[None])
    good = stream.save()
    refused = 0
    for seed in range(600):
        before, state = stream.save(), mutated(good, seed)
        if tried(lambda state=state: stream.restore(state) or True, "Stream.restore: state ", ValueError) is None:
            refused += 1
            assert stream.save() == before
        assert np.isfinite(stream._states).all()
        assert (stream.steps >= 0).all()
    assert 590 < refused <= 600


@pytest.mark.parametrize("kind", ["sequence", "step"])
def test_onnx_files(kind, folded, tmp_path, watched):
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")
    from resofire.deploy.onnx import write, write_step
    from resofire.deploy.onnxruntime import SequenceSession, StepSession

    file, x = tmp_path / "network.onnx", given(CASES[CASE], 3).numpy()
    (write if kind == "sequence" else write_step)(folded, file)
    good = file.read_bytes()

    def used():
        if kind == "sequence":
            return SequenceSession(file).walk(x)
        held = StepSession(file)
        held.step(x[:1])
        return held.walk(x)

    ran = 0
    for seed in range(400):
        file.write_bytes(mutated(good, seed))
        ran += watched(used, file) is not None
    assert 5 < ran < 200


WIDE = 20_000
# Graphs of a few hundred KB that ask for gigabytes: nodes, and the outputs they give in between.
BOMBS = {
    "a product of weights": [("MatMul", "column", "row")],
    "weights broadcast": [("Add", "column", "row")],
    "a column of weights": [("MatMul", "x", "row"), ("Add", "0", "column")],
    "weights from weights": [("Mul", "row", "row"), ("MatMul", "column", "0")],
    "no weights in a product": [("MatMul", "x", "row"), ("MatMul", "x", "0")],
    "many times the same step": [("Gather", "x", "many", {"axis": 1}), ("MatMul", "0", "row")],
    "time as a row": [("Gather", "x", "none", {"axis": 2}), ("Add", "x", "0")],
    "doubled and doubled": [("Concat", *[str(i - 1) if i else "x"] * 2, {"axis": -1}) for i in range(30)],
    "longer and longer": [("Concat", *[str(i - 1) if i else "x"] * 2, {"axis": 1}) for i in range(30)],
    "a mean over the batch": [("MatMul", "x", "row"), ("ReduceMean", "0", {"axes": [0, 1], "keepdims": 0})],
    "tokens that are weights": [("Gather", "row", "many", {"axis": 0})],
    "tokens that are computed": [("Cast", "x", {"to": 7}), ("Gather", "row", "0", {"axis": 0})],
    "a name of a weight": [("MatMul", "x", "row", "small")],
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_small_onnx_files_that_ask_for_much_memory(bomb, tmp_path, watched):
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")
    from resofire.deploy.onnxruntime import SequenceSession

    arrays = {
        "column": np.ones((WIDE, 1), np.float32), "row": np.ones((1, WIDE), np.float32), "none": np.array(0),
        "many": np.zeros(WIDE, np.int64), "small": np.zeros((1, 1), np.float32),
    }  # fmt: skip
    nodes = []
    for number, (kind, *words) in enumerate(BOMBS[bomb]):
        settings = words.pop() if isinstance(words[-1], dict) else {}
        out = words.pop() if len(words) == 3 else str(number)
        nodes.append(onnx.helper.make_node(kind, words, [out], **settings))
    nodes.append(onnx.helper.make_node("ReduceMean", [nodes[-1].output[0]], ["all"], keepdims=0))
    nodes.append(onnx.helper.make_node("Add", ["x", "all"], ["scores"]))
    put, free = onnx.helper.make_tensor_value_info, ["batch", "time", 1]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    ends = [put("x", 1, free)], [put("scores", 1, free)]
    made = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "sequence", *ends, weights), opset_imports=[onnx.helper.make_opsetid("", 17)]
    )
    made.ir_version, file = 8, tmp_path / "bomb.onnx"
    file.write_bytes(made.SerializeToString())
    with pytest.raises(StorageError, match="not written here"):
        SequenceSession(file)
    assert watched(lambda: SequenceSession(file).walk(np.zeros((2000, 1))), file) is None


def test_onnx_loops_that_ask_for_much_memory(folded, tmp_path):
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    from resofire.deploy.onnx import read, sequence

    def all_steps_as_state(scan):
        scan.input[0] = scan.input[-1]

    def outer_value(scan):
        scan.attribute[0].g.node[0].input[1] = scan.input[-1]

    def another_axis(scan):
        next(each for each in scan.attribute if each.name == "scan_output_axes").ints[0] = 2

    def own_weights(scan):
        scan.attribute[0].g.initializer.add().name = "w"

    file = tmp_path / "bomb.onnx"
    for change in (all_steps_as_state, outer_value, another_axis, own_weights):
        made = sequence(folded)
        scan = next(each for each in made.graph.node if each.op_type == "Scan")
        assert scan.attribute[0].name == "body"
        change(scan)
        file.write_bytes(made.SerializeToString())
        with pytest.raises(StorageError, match=r"not written here|weights of its own"):
            read(file)


@pytest.fixture
def nir():
    return pytest.importorskip("nir", reason="the package nir is not installed")


def test_nir_files(nir, folded, tmp_path, watched, monkeypatch):
    """Some of these make libhdf5 loop for ever or crash: they are looked at in another process, here all in one go."""
    from resofire.deploy import hdf5
    from resofire.deploy.nir import Player, read, write

    write(folded, tmp_path / "good.nir")
    good, files = (tmp_path / "good.nir").read_bytes(), []
    for seed in range(200):
        files.append(tmp_path / f"{seed}.nir")
        files[-1].write_bytes(mutated(good, seed))
    said = dict(zip(files, hdf5.faults(files, limit=1 << 28, seconds=1), strict=True))
    assert sum(each is None for each in said.values()) > 20
    monkeypatch.setattr(hdf5, "faults", lambda asked, **_: [said[file] for file in asked])
    x, ran = given(CASES[CASE], 3).numpy(), 0
    for file in files:
        found = watched(lambda file=file: read(file), file)
        if found is not None:
            ran += 1
            with np.errstate(all="ignore"):
                Player(found).play(x)
    assert 20 < ran < 150


def hdf5_file(tmp_path, fill):
    h5py = pytest.importorskip("h5py", reason="the package h5py is not installed")
    file = tmp_path / "hostile.nir"
    with h5py.File(file, "w") as held:
        node = held.create_group("node")
        node["type"] = "NIRGraph"
        fill(h5py, node)
    return file


def elsewhere(h5py, node):
    node["nodes"] = h5py.ExternalLink("/etc/passwd", "/")


def soft(h5py, node):
    node["nodes"] = h5py.SoftLink("/node")


def itself(h5py, node):
    node["nodes"] = node


def outside(h5py, node):
    node.create_dataset("edges", (100,), "u1", external=[("/etc/hostname", 0, 100)])


def unwritten(h5py, node):
    node.create_dataset("edges", (1 << 40,), "f4", chunks=(1 << 10,))


def packed(h5py, node):
    node.create_dataset("edges", data=np.zeros(1 << 27, np.uint8), compression="gzip", chunks=(1 << 24,))


def compound(h5py, node):
    node.create_dataset("edges", data=np.zeros(3, [("a", "f4"), ("b", "i4")]))


def deep(h5py, node):
    for _ in range(20):
        node = node.create_group("nodes")


@pytest.mark.parametrize(
    ("fill", "words"),
    [
        (elsewhere, "'nodes' is a link to somewhere else"),
        (soft, "'nodes' is a link to somewhere else"),
        (itself, "nested too deep or in themselves"),
        (outside, "'edges' is no array in this file"),
        (unwritten, "'edges' claims 4398046511104 bytes"),
        (packed, "its arrays take more than"),
        (compound, "'edges' must hold numbers or text"),
        (deep, "nested too deep"),
    ],
)
def test_tricks_of_hdf5(fill, words, nir, tmp_path):
    from resofire.deploy.nir import read

    file = hdf5_file(tmp_path, fill)
    with pytest.raises(StorageError, match=words) as caught:
        read(file, limit=1 << 26)
    assert str(file) in str(caught.value)


def test_a_nir_node_of_a_bad_number(nir, folded, tmp_path):
    from resofire.deploy.nir import graph, read

    made = graph(folded)
    made.nodes["head"].bias = np.array([1, np.nan, 1], np.float32)
    nir.write(tmp_path / "bad.nir", made)
    with pytest.raises(StorageError, match=r"head\.bias must be finite, got NaN or Inf"):
        read(tmp_path / "bad.nir")


def test_reading_runs_no_code(folded, tmp_path):
    """A pickle in the place of each kind of file is refused, and not opened as one."""
    import pickle

    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was here"),)

    file = tmp_path / "file"
    file.write_bytes(pickle.dumps(Malicious()))
    loaders = [storage.load, models.load]
    for package, name in (("nir", "nir"), ("onnx", "onnx")):
        try:
            __import__(package)
        except ModuleNotFoundError:
            continue
        loaders.append(__import__(f"resofire.deploy.{name}", fromlist=["read"]).read)
    for load in loaders:
        assert tried(lambda load=load: load(file), file) is None
    with pytest.raises(ValueError, match=r"Stream\.restore: state must be what save gave"):
        Stream(folded).restore(file.read_bytes())
    assert not (tmp_path / "was here").exists()
