"""ONNX: the graphs, run by onnxruntime, fire as the folded network does, whole or step by step."""

import numpy as np
import pytest
import torch
from folds import CASES, given, network

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")

from resofire.deploy import Stream, fold  # noqa: E402
from resofire.deploy.formats.agreement import running  # noqa: E402
from resofire.deploy.formats.onnx import read, sequence, step, write, write_step  # noqa: E402
from resofire.deploy.formats.onnxruntime import SequenceSession, StepSession  # noqa: E402
from resofire.deploy.reference import run  # noqa: E402
from resofire.models.storage import StorageError  # noqa: E402

CLOSE = {"float64": 1e-12, "float32": 1e-5}


def same_spikes(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("case", CASES)
def test_whole_sequences(case, dtype, tmp_path):
    folded, file = fold(network(CASES[case]), dtype), tmp_path / "network.onnx"
    write(folded, file)
    held = SequenceSession(file)
    for steps in (1, 63, 200):
        x = given(CASES[case], steps).numpy()
        ours, theirs = walk(folded, x), held.walk(x)
        same_spikes(ours.spikes, theirs.spikes)
        np.testing.assert_allclose(theirs.scores, ours.scores, rtol=CLOSE[dtype], atol=CLOSE[dtype])
        assert theirs.scores.dtype == dtype
    assert any(each.any() for each in ours.spikes)


@pytest.mark.parametrize("case", ["prenorm", "bidirectional", "tokens", "pool none"])
def test_a_batch_is_its_sequences(case, tmp_path):
    folded, file = fold(network(CASES[case])), tmp_path / "network.onnx"
    write(folded, file)
    x = np.stack([given(CASES[case], 30, seed).numpy() for seed in range(3)])
    scores = SequenceSession(file).run(x)
    for row, found in zip(x, scores, strict=True):
        np.testing.assert_allclose(found, walk(folded, row).scores, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("case", [case for case in CASES if "bidirectional" not in case])
def test_steps(case, dtype, tmp_path):
    folded, file = fold(network(CASES[case]), dtype), tmp_path / "network.onnx"
    write_step(folded, file)
    held, x = StepSession(file), given(CASES[case], 63).numpy()
    ours, theirs = running(folded, x), held.walk(x)
    same_spikes(ours.spikes, theirs.spikes)
    stepped = np.stack([held.step(now[None])[0] for now in x])
    for scores in (theirs.scores, stepped):
        np.testing.assert_allclose(scores, ours.scores, rtol=CLOSE[dtype], atol=CLOSE[dtype])
    held.reset()
    assert not any(array.any() for array in held.state.values())
    np.testing.assert_array_equal(np.stack([held.step(now[None])[0] for now in x]), stepped)


def test_steps_of_many_streams_are_those_of_a_stream(tmp_path):
    folded, file = fold(network(CASES["soft prf"])), tmp_path / "network.onnx"
    write_step(folded, file)
    x = np.stack([given(CASES["soft prf"], 40, seed).numpy() for seed in range(3)])
    held, stream = StepSession(file, batch=3), Stream(folded, 3)
    for t in range(40):
        np.testing.assert_allclose(held.step(x[:, t]), stream.step(x[:, t]), rtol=1e-12, atol=1e-12)
    assert (held.state["steps"] == 40).all()


def test_a_step_needs_a_causal_network_and_a_batch():
    with pytest.raises(ValueError, match="bidirectional: it needs whole sequences and cannot be stepped"):
        step(fold(network(CASES["bidirectional"])))
    for batch in (0, True, 1.5):
        with pytest.raises(ValueError, match="batch must be a positive integer"):
            StepSession("nowhere", batch=batch)


def test_graphs_are_of_their_kind(tmp_path):
    folded = fold(network(CASES["prenorm"], torch.float32))
    write(folded, tmp_path / "sequence.onnx")
    write_step(folded, tmp_path / "step.onnx")
    with pytest.raises(StorageError, match="is no step graph"):
        StepSession(tmp_path / "sequence.onnx")
    with pytest.raises(StorageError, match="is no sequence graph"):
        SequenceSession(tmp_path / "step.onnx")
    assert [each.op_type for each in sequence(folded).graph.node].count("Scan") == 3
    assert "Scan" not in [each.op_type for each in step(folded).graph.node]


def outside(model):
    tensor = model.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../secret")
    tensor.ClearField("raw_data")


def huge(model):
    model.graph.initializer[0].dims[0] = 10**12


def huge_input(model):
    model.graph.input[0].type.tensor_type.shape.dim[-1].dim_value = 10**12


def not_a_number(model):
    tensor = model.graph.initializer[0]
    tensor.raw_data = np.full(len(tensor.raw_data) // 4, np.nan, np.float32).tobytes()


def another_op(model):
    model.graph.node[0].op_type = "Expand"


def another_domain(model):
    model.graph.node[0].domain = "com.example"


def constant(model):
    tensor = onnx.helper.make_tensor("t", onnx.TensorProto.FLOAT, [1], [1.0])
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("value", tensor))


def nested(model):
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                attribute.g.node.append(node)
                return


def another_type(model):
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.BOOL


def function(model):
    model.functions.add().name = "f"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (outside, "lies in another file"),
        (huge, "claims 6000000000000 numbers and has 48 bytes"),
        (huge_input, "has the sizes"),
        (not_a_number, "must be finite"),
        (another_op, "it has the op 'Expand'"),
        (another_domain, "it has the op"),
        (constant, "an attribute 'value' that it must not have"),
        (nested, "its loops are nested"),
        (another_type, "'x' must be of float32, float64 or int64"),
        (function, "functions or training steps"),
    ],
)
def test_files_that_want_something_else_are_refused(change, words, tmp_path):
    model = sequence(fold(network(CASES["prenorm"], torch.float32)))
    change(model)
    file = tmp_path / "bad.onnx"
    file.write_bytes(model.SerializeToString())
    with pytest.raises(StorageError, match=words) as caught:
        read(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_that_are_no_text_are_refused(tmp_path):
    """Protobuf decodes them when they are looked at, which is too late."""
    good = sequence(fold(network(CASES["prenorm"], torch.float32))).SerializeToString()
    file = tmp_path / "bad.onnx"
    for name in (b"sequence", b"batch", b"spikes.0", b"MatMul_", b"axis"):
        file.write_bytes(good.replace(name, b"\x87" * len(name)))
        with pytest.raises(StorageError, match="cannot be used as an ONNX graph"):
            SequenceSession(file)
