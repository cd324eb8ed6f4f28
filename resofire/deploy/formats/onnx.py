"""Folded networks as ONNX graphs, for runtimes that know nothing of spikes.

`sequence`   x [batch, time, inputs] or tokens [batch, time] -> scores, and the spikes of each layer. Temporal neurons
             are a `Scan` over time (the second direction runs backwards); all else is computed for all steps at once.
`step`       x [batch, inputs] or tokens [batch], and the state -> scores, and the new state (the old name with `.new`):
             `u.i`, `r.i` for the temporal layer i, and for the mean over time `total` and `steps` (float64; both decay
             if the mean is leaky). It has no loop; the caller keeps the state. Spikes are optional outputs.

Batch and time are free. Weights are dense, in the precision of the network; a spike is 0 or 1 in the same precision.
"""

from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ...nn.folded import Array, Folded, Layer, Neurons

OPSET = 17
IR_VERSION = 8


class _Draft:
    """A graph under construction: every op returns the name of its output."""

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

    def input(self, name: str, kind: int, *shape: Any) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, kind: int, *shape: Any) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def model(self, name: str) -> Any:
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, producer_name="resofire", opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model


class _Group(NamedTuple):
    """Neurons, the name that begins those of their constants, and the name of their spikes."""

    name: str
    neurons: Neurons
    spikes: str


def sequence(folded: Folded) -> Any:
    """The ModelProto for whole sequences."""
    draft = _Draft(folded)
    z = _input(draft, "batch", "time")
    for i, layer in enumerate(folded.layers):
        names = [f"spikes.{i}"] if len(layer.neurons) == 1 else [f"{i}.{j}.spikes" for j in range(len(layer.neurons))]
        for j, (group, name) in enumerate(zip(layer.neurons, names, strict=True)):
            _spikes(draft, _Group(f"{i}.{j}", group, name), z, backwards=j == 1)
        if len(names) > 1:
            draft.op("Concat", *names, name=f"spikes.{i}", axis=-1)
        draft.output(f"spikes.{i}", draft.type, "batch", "time", len(layer.rows))
        z = _synapses(draft, str(i), layer, z, f"spikes.{i}")
    if folded.pool in ("mean", "window"):
        if folded.pool == "window":
            places = {"start": -(folded.pool_steps or 0), "stop": np.iinfo(np.int64).max, "axis": 1}
            z = draft.op("Slice", z, *(draft.constant(name, np.array([at])) for name, at in places.items()))
        z = draft.op("ReduceMean", z, axes=[1], keepdims=0)
    elif folded.pool == "leaky":
        z = _leaky_mean(draft, z)
    elif folded.pool == "last":
        z = draft.op("Gather", z, draft.constant("end", np.array(-1)), axis=1)
    shape = ("batch", "time") if folded.pool == "none" else ("batch",)
    _scores(draft, z, *shape)
    draft.outputs.insert(0, draft.outputs.pop())
    return draft.model("sequence")


def step(folded: Folded) -> Any:
    """The ModelProto for one time step.

    Raises:
        ValueError: The network is bidirectional, or its read-out is a window.
    """
    if folded.pool == "window":
        raise ValueError("a step graph has no memory for a window of time steps; use the read-out leaky:STEPS")
    if not folded.causal:
        raise ValueError("the network is bidirectional: it needs whole sequences and cannot be run step by step")
    draft = _Draft(folded)
    z = _input(draft, "batch")
    for i, layer in enumerate(folded.layers):
        (group,) = layer.neurons
        named = _Group(str(i), group, f"spikes.{i}")
        if group.kind == "spatial":
            _fire_spatial(draft, named, z)
        else:
            before = [
                draft.input(f"{state}.{i}", draft.type, "batch", group.count) for state in ("u", "r")[: _states(group)]
            ]
            current = _current(draft, named, z)
            for name in _advance(draft, named, _constants(draft, named), before, current):
                draft.output(name, draft.type, "batch", group.count)
        draft.output(f"spikes.{i}", draft.type, "batch", group.count)
        z = _synapses(draft, str(i), layer, z, f"spikes.{i}")
    if folded.pool in ("mean", "leaky"):
        z = _running_mean(draft, z)
    _scores(draft, z, "batch")
    draft.outputs.insert(0, draft.outputs.pop())
    return draft.model("step")


def _input(draft: _Draft, *free: str) -> str:
    table = draft.number("table", draft.folded.table)
    if draft.folded.tokens:
        return draft.op("Gather", table, draft.input("x", TensorProto.INT64, *free), axis=0)
    x = draft.input("x", draft.type, *free, len(draft.folded.table))
    if draft.folded.origin is not None:
        x = draft.op("Sub", x, draft.number("origin", draft.folded.origin))
    return draft.op("MatMul", x, table)


def _scores(draft: _Draft, z: str, *free: str) -> None:
    product = draft.op("MatMul", z, draft.number("head", draft.folded.head))
    draft.op("Add", product, draft.number("bias", draft.folded.bias), name="scores")
    draft.output("scores", draft.type, *free, len(draft.folded.bias))


def _running_mean(draft: _Draft, z: str) -> str:
    width = len(draft.folded.head)
    total = draft.input("total", TensorProto.DOUBLE, "batch", width)
    steps = draft.input("steps", TensorProto.DOUBLE, "batch", 1)
    wide = z if draft.type == TensorProto.DOUBLE else draft.op("Cast", z, to=TensorProto.DOUBLE)
    if draft.folded.pool_steps is not None:
        decay = draft.constant("decay", np.array(1 - 1 / draft.folded.pool_steps))
        total, steps = draft.op("Mul", total, decay), draft.op("Mul", steps, decay)
    draft.op("Add", total, wide, name="total.new")
    draft.op("Add", steps, draft.constant("one", np.array(1.0)), name="steps.new")
    draft.output("total.new", TensorProto.DOUBLE, "batch", width)
    draft.output("steps.new", TensorProto.DOUBLE, "batch", 1)
    mean = draft.op("Div", "total.new", "steps.new")
    return mean if draft.type == TensorProto.DOUBLE else draft.op("Cast", mean, to=draft.type)


def _leaky_mean(draft: _Draft, z: str) -> str:
    """The mean over time [batch, D] in which a step of age t counts decay^t."""
    decay = draft.constant("decay", np.array(1 - 1 / (draft.folded.pool_steps or 1)))
    one, axis = draft.constant("one", np.array(1)), draft.constant("axis", np.array([1]))
    time = draft.op("Gather", draft.op("Shape", z), one, axis=0)
    last = draft.op("Sub", time, one)
    ages = draft.op("Sub", last, draft.op("Range", draft.constant("newest", np.array(0)), time, one))
    weights = draft.op("Pow", decay, draft.op("Cast", ages, to=TensorProto.DOUBLE))
    shares = draft.op("Div", weights, draft.op("ReduceSum", weights))
    row = draft.op("Unsqueeze", draft.op("Cast", shares, to=draft.type), draft.constant("row", np.array([0])))
    return draft.op("Squeeze", draft.op("MatMul", row, z), axis)


def _synapses(draft: _Draft, name: str, layer: Layer, z: str, fired: str) -> str:
    added = draft.op("MatMul", fired, draft.number(f"{name}.rows", layer.rows))
    if not layer.fresh:
        added = draft.op("Add", z, added)
    if layer.clear is not None:
        added = draft.op("Mul", added, draft.number(f"{name}.keep", ~layer.clear))
    return added


def _current(draft: _Draft, group: _Group, z: str) -> str:
    """σ z + κ, without what has no effect."""
    neurons = group.neurons
    if (neurons.sign != 1).any():
        z = draft.op("Mul", z, draft.number(f"{group.name}.sign", neurons.sign))
    if not neurons.current.any():
        return z
    return draft.op("Add", z, draft.number(f"{group.name}.current", neurons.current))


def _fire_spatial(draft: _Draft, group: _Group, z: str) -> None:
    above = draft.op("GreaterOrEqual", _current(draft, group, z), _threshold(draft, group))
    draft.op("Cast", above, name=group.spikes, to=draft.type)


def _threshold(draft: _Draft, group: _Group) -> str:
    return draft.number(f"{group.name}.threshold", group.neurons.threshold)


def _states(neurons: Neurons) -> int:
    return 2 if neurons.kind == "prf" else 1


def _constants(draft: _Draft, group: _Group) -> dict[str, str]:
    """The names of the constants that `_advance` uses."""
    name, neurons = group.name, group.neurons
    constants = {"threshold": _threshold(draft, group), "re": draft.number(f"{name}.phi_re", neurons.phi_re)}
    if neurons.kind == "prf":
        constants["im"] = draft.number(f"{name}.phi_im", neurons.phi_im)
    if neurons.reset == "hard":
        constants["zero"] = draft.number(f"{name}.zero", np.zeros(()))
    return constants


def _advance(draft: _Draft, group: _Group, constants: dict[str, str], before: list[str], current: str) -> list[str]:
    """One step of temporal neurons, in the order of `reference.trajectory`; returns the names of the new states."""
    neurons, after = group.neurons, [f"{name}.new" for name in before]
    u = draft.op("Mul", constants["re"], before[0])
    if neurons.kind == "prf":
        u = draft.op("Sub", u, draft.op("Mul", constants["im"], before[1]))
        turned = draft.op("Mul", constants["im"], before[0])
        draft.op("Add", turned, draft.op("Mul", constants["re"], before[1]), name=after[1])
    u = draft.op("Add", u, current, name=after[0] if neurons.reset == "none" else None)
    above = draft.op("GreaterOrEqual", u, constants["threshold"])
    draft.op("Cast", above, name=group.spikes, to=draft.type)
    if neurons.reset == "soft":
        draft.op("Where", above, draft.op("Sub", u, constants["threshold"]), u, name=after[0])
    elif neurons.reset == "hard":
        draft.op("Where", above, constants["zero"], u, name=after[0])
    return after


def _spikes(draft: _Draft, group: _Group, z: str, *, backwards: bool) -> None:
    """The spikes of a group for all steps, [batch, time, neurons]."""
    name, neurons = group.name, group.neurons
    if neurons.kind == "spatial":
        _fire_spatial(draft, group, z)
        return
    current = _current(draft, group, z)
    # Names in the body must differ from those in the graph around it.
    body, inner = _Draft(draft.folded, f"{name}."), _Group(name, neurons, f"{name}.fired")
    constants = _constants(draft, group)
    before = [
        body.input(f"{name}.{state}", draft.type, None, neurons.count) for state in ("u", "r")[: _states(neurons)]
    ]
    after = _advance(body, inner, constants, before, body.input(f"{name}.given", draft.type, None, neurons.count))
    for each in (*after, inner.spikes):
        body.output(each, draft.type, None, neurons.count)
    # A state of zeros for a batch of any size: a comparison of the first step, times zero (never Inf · 0).
    first = draft.op("Gather", current, draft.constant(f"{name}.first", np.array(0)), axis=1)
    flags = draft.op("Cast", draft.op("GreaterOrEqual", first, first), to=draft.type)
    zeros = draft.op("Mul", flags, draft.number(f"{name}.none", np.zeros(())))
    draft.nodes.append(
        helper.make_node(
            "Scan",
            [*[zeros] * len(before), current],
            [*(f"{each}.end" for each in before), group.spikes],
            body=helper.make_graph(body.nodes, f"{name}.step", body.inputs, body.outputs),
            num_scan_inputs=1,
            scan_input_axes=[1],
            scan_output_axes=[1],
            scan_input_directions=[int(backwards)],
            scan_output_directions=[int(backwards)],
        )
    )
