"""Damaged and hostile ONNX files, as in test_hostile; and small ones that ask for much memory."""

import numpy as np
import pytest
from folds import CASES, given
from hostile import mutated

from resofire.models.storage import StorageError


@pytest.mark.parametrize("kind", ["sequence", "step"])
def test_onnx_files(kind, folded, tmp_path, watched):
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")
    from resofire.deploy.formats.onnx import write, write_step
    from resofire.deploy.formats.onnxruntime import SequenceSession, StepSession

    file, x = tmp_path / "network.onnx", given(CASES["soft prf"], 3).numpy()
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
    from resofire.deploy.formats.onnxruntime import SequenceSession

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
    from resofire.deploy.formats.onnx import read, sequence

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
