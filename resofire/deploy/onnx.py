"""Folded networks as ONNX graphs, for runtimes that know nothing of spikes.

`sequence`   x [batch, time, inputs] or tokens [batch, time] -> scores, and the spikes of each layer. Temporal neurons
             are a `Scan` over time (the second direction one that runs backwards); all else is done for all steps at
             once.
`step`       x [batch, inputs] or tokens [batch], and the state -> scores, and the new state (named as the old one with
             `.new`): `u.i`, `r.i` for the temporal layer i, and for the mean over time `total` and `steps` (float64).
             It has no loop; who runs it keeps the state. Spikes are there for who asks for them.

Batch and time are free. Weights are dense, in the precision of the network; a spike is 0 or 1 in the same precision.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..models.storage import StorageError
from .folded import Array, Folded, Layer, Neurons
from .strict import onnx as strict

OPSET = 17
IR_VERSION = 8
LARGEST = (1 << 31) - 1


class _Draft:
    """A graph in the making: every op gives the name of what it computes."""

    def __init__(self, folded: Folded, prefix: str = "") -> None:
        self.folded, self.prefix = folded, prefix
        self.type = helper.np_dtype_to_tensor_dtype(folded.dtype)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def op(self, kind: str, *inputs: str, name: str | None = None, **settings: Any) -> str:
        name = name or f"{self.prefix}{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **settings))
        return name

    def constant(self, name: str, value: Array) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def number(self, name: str, value: Array) -> str:
        return self.constant(name, np.asarray(value, self.folded.dtype))

    def enter(self, name: str, kind: int, *shape: Any) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def leave(self, name: str, kind: int, *shape: Any) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def model(self, name: str) -> Any:
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.weights)
        made = helper.make_model(graph, producer_name="resofire", opset_imports=[helper.make_opsetid("", OPSET)])
        made.ir_version = IR_VERSION
        onnx.checker.check_model(made)
        return made


def sequence(folded: Folded) -> Any:
    """The ModelProto for whole sequences."""
    draft = _Draft(folded)
    z = _input(draft, "batch", "time")
    for i, layer in enumerate(folded.layers):
        names = [f"spikes.{i}"] if len(layer.neurons) == 1 else [f"{i}.{j}.spikes" for j in range(len(layer.neurons))]
        for j, (group, name) in enumerate(zip(layer.neurons, names, strict=True)):
            _walked(draft, f"{i}.{j}", group, z, name, backwards=j == 1)
        if len(names) > 1:
            draft.op("Concat", *names, name=f"spikes.{i}", axis=-1)
        draft.leave(f"spikes.{i}", draft.type, "batch", "time", len(layer.rows))
        z = _synapses(draft, str(i), layer, z, f"spikes.{i}")
    if folded.pool == "mean":
        z = draft.op("ReduceMean", z, axes=[1], keepdims=0)
    elif folded.pool == "last":
        z = draft.op("Gather", z, draft.constant("end", np.array(-1)), axis=1)
    shape = ("batch", "time") if folded.pool == "none" else ("batch",)
    _scores(draft, z, *shape)
    draft.outputs.insert(0, draft.outputs.pop())
    return draft.model("sequence")


def step(folded: Folded) -> Any:
    """The ModelProto for one time step; ValueError if the network is not causal."""
    if not folded.causal:
        raise ValueError("onnx-step: the network is bidirectional: it needs whole sequences and cannot be stepped")
    draft = _Draft(folded)
    z = _input(draft, "batch")
    for i, layer in enumerate(folded.layers):
        (group,) = layer.neurons
        if group.kind == "spatial":
            _look(draft, str(i), group, z, f"spikes.{i}")
        else:
            before = [
                draft.enter(f"{state}.{i}", draft.type, "batch", group.count) for state in ("u", "r")[: _states(group)]
            ]
            after = [f"{name}.new" for name in before]
            current = _current(draft, str(i), group, z)
            _advance(draft, group, _numbers(draft, str(i), group), before, current, f"spikes.{i}", after)
            for name in after:
                draft.leave(name, draft.type, "batch", group.count)
        draft.leave(f"spikes.{i}", draft.type, "batch", group.count)
        z = _synapses(draft, str(i), layer, z, f"spikes.{i}")
    if folded.pool == "mean":
        z = _running_mean(draft, z)
    _scores(draft, z, "batch")
    draft.outputs.insert(0, draft.outputs.pop())
    return draft.model("step")


def write(folded: Folded, file: Path) -> None:
    file.write_bytes(sequence(folded).SerializeToString())


def write_step(folded: Folded, file: Path) -> None:
    file.write_bytes(step(folded).SerializeToString())


def read(file: str | os.PathLike[str]) -> Any:
    """The ModelProto in a file from anywhere, if it is made of what is written here; else StorageError, one sentence.

    What refers to another file or claims more numbers than the file holds is refused before a runtime sees it.
    """
    file = Path(file)
    if not file.is_file():
        raise StorageError(f"read: file must be an ONNX graph, got {file}, which is not a file")
    if file.stat().st_size > LARGEST:
        raise StorageError(f"{file} must be an ONNX graph of at most {LARGEST} bytes, got {file.stat().st_size}")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(file.read_bytes())
        fault = strict.wrong(model)
        if not fault:
            onnx.checker.check_model(model)
    except Exception as error:  # whatever a damaged file makes protobuf or onnx say
        fault = f"it is truncated or corrupt: {' '.join(str(error).split())[:300]}"
    if fault:
        raise StorageError(f"{file} cannot be used as an ONNX graph: {fault}")
    return model


def _input(draft: _Draft, *free: str) -> str:
    table = draft.number("table", draft.folded.table)
    if draft.folded.tokens:
        return draft.op("Gather", table, draft.enter("x", TensorProto.INT64, *free), axis=0)
    return draft.op("MatMul", draft.enter("x", draft.type, *free, len(draft.folded.table)), table)


def _scores(draft: _Draft, z: str, *free: str) -> None:
    weighed = draft.op("MatMul", z, draft.number("head", draft.folded.head))
    draft.op("Add", weighed, draft.number("bias", draft.folded.bias), name="scores")
    draft.leave("scores", draft.type, *free, len(draft.folded.bias))


def _running_mean(draft: _Draft, z: str) -> str:
    width = len(draft.folded.head)
    total = draft.enter("total", TensorProto.DOUBLE, "batch", width)
    steps = draft.enter("steps", TensorProto.DOUBLE, "batch", 1)
    wide = z if draft.type == TensorProto.DOUBLE else draft.op("Cast", z, to=TensorProto.DOUBLE)
    draft.op("Add", total, wide, name="total.new")
    draft.op("Add", steps, draft.constant("one", np.array(1.0)), name="steps.new")
    draft.leave("total.new", TensorProto.DOUBLE, "batch", width)
    draft.leave("steps.new", TensorProto.DOUBLE, "batch", 1)
    mean = draft.op("Div", "total.new", "steps.new")
    return mean if draft.type == TensorProto.DOUBLE else draft.op("Cast", mean, to=draft.type)


def _synapses(draft: _Draft, name: str, layer: Layer, z: str, fired: str) -> str:
    added = draft.op("MatMul", fired, draft.number(f"{name}.rows", layer.rows))
    if not layer.fresh:
        added = draft.op("Add", z, added)
    if layer.clear is not None:
        added = draft.op("Mul", added, draft.number(f"{name}.keep", ~layer.clear))
    return added


def _current(draft: _Draft, name: str, group: Neurons, z: str) -> str:
    """σ z + κ; what changes nothing is left out."""
    if (group.sign != 1).any():
        z = draft.op("Mul", z, draft.number(f"{name}.sign", group.sign))
    return draft.op("Add", z, draft.number(f"{name}.current", group.current)) if group.current.any() else z


def _look(draft: _Draft, name: str, group: Neurons, z: str, spikes: str) -> None:
    above = draft.op("GreaterOrEqual", _current(draft, name, group, z), _threshold(draft, name, group))
    draft.op("Cast", above, name=spikes, to=draft.type)


def _threshold(draft: _Draft, name: str, group: Neurons) -> str:
    return draft.number(f"{name}.threshold", group.threshold)


def _states(group: Neurons) -> int:
    return 2 if group.kind == "prf" else 1


def _numbers(draft: _Draft, name: str, group: Neurons) -> dict[str, str]:
    numbers = {"threshold": _threshold(draft, name, group), "re": draft.number(f"{name}.phi_re", group.phi_re)}
    if group.kind == "prf":
        numbers["im"] = draft.number(f"{name}.phi_im", group.phi_im)
    if group.reset == "hard":
        numbers["zero"] = draft.number(f"{name}.zero", np.zeros(()))
    return numbers


def _advance(
    draft: _Draft, group: Neurons, numbers: dict[str, str], before: list[str], current: str, spikes: str, new: list[str]
) -> None:
    """One step of temporal neurons, in the order of `reference.step`. `spikes` and `new` name what it computes."""
    u = draft.op("Mul", numbers["re"], before[0])
    if group.kind == "prf":
        u = draft.op("Sub", u, draft.op("Mul", numbers["im"], before[1]))
        turned = draft.op("Mul", numbers["im"], before[0])
        draft.op("Add", turned, draft.op("Mul", numbers["re"], before[1]), name=new[1])
    u = draft.op("Add", u, current, name=new[0] if group.reset == "none" else None)
    above = draft.op("GreaterOrEqual", u, numbers["threshold"])
    draft.op("Cast", above, name=spikes, to=draft.type)
    if group.reset == "soft":
        draft.op("Where", above, draft.op("Sub", u, numbers["threshold"]), u, name=new[0])
    elif group.reset == "hard":
        draft.op("Where", above, numbers["zero"], u, name=new[0])


def _walked(draft: _Draft, name: str, group: Neurons, z: str, spikes: str, *, backwards: bool) -> None:
    """The spikes of a group for all steps, [batch, time, neurons]."""
    if group.kind == "spatial":
        _look(draft, name, group, z, spikes)
        return
    current = _current(draft, name, group, z)
    # Names in the body must not be those of the graph around it.
    body = _Draft(draft.folded, f"{name}.")
    numbers, states = _numbers(draft, name, group), ("u", "r")[: _states(group)]
    before = [body.enter(f"{name}.{state}", draft.type, None, group.count) for state in states]
    after = [f"{each}.new" for each in before]
    given, fired = body.enter(f"{name}.given", draft.type, None, group.count), f"{name}.fired"
    _advance(body, group, numbers, before, given, fired, after)
    for each in (*after, fired):
        body.leave(each, draft.type, None, group.count)
    # A state of zeros for a batch of any size: a comparison of the first step, times zero (never Inf · 0).
    first = draft.op("Gather", current, draft.constant(f"{name}.first", np.array(0)), axis=1)
    flags = draft.op("Cast", draft.op("GreaterOrEqual", first, first), to=draft.type)
    zeros = draft.op("Mul", flags, draft.number(f"{name}.none", np.zeros(())))
    draft.nodes.append(
        helper.make_node(
            "Scan",
            [*[zeros] * len(before), current],
            [*(f"{each}.end" for each in before), spikes],
            body=helper.make_graph(body.nodes, f"{name}.step", body.inputs, body.outputs),
            num_scan_inputs=1,
            scan_input_axes=[1],
            scan_output_axes=[1],
            scan_input_directions=[int(backwards)],
            scan_output_directions=[int(backwards)],
        )
    )
