"""What an ONNX file from anywhere must be before a runtime sees it: only what `deploy.onnx` writes.

A few bytes could ask for any amount of memory, so the ops, their settings and the dimensions of every value are
followed through the graph.
"""

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

# What these graphs are made of. A file with anything else is not run: an op like Expand makes much out of little.
OPS = {"Add", "Cast", "Concat", "Div", "Gather", "GreaterOrEqual", "MatMul", "Mul", "ReduceMean", "Scan",
       "Sub", "Where"}  # fmt: skip
WALKED = {"num_scan_inputs": 1, "scan_input_axes": [1], "scan_output_axes": [1]}
# What each may be told; the others have no settings. (The body of a Scan is looked at apart.)
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "Cast": [{"to": TensorProto.FLOAT}, {"to": TensorProto.DOUBLE}],
    "Concat": [{"axis": -1}],
    "Gather": [{"axis": 0}, {"axis": 1}],
    "ReduceMean": [{"axes": [1], "keepdims": 0}],
    "Scan": [{**WALKED, "scan_input_directions": [i], "scan_output_directions": [i]} for i in (0, 1)],
}
SIZES = {TensorProto.FLOAT: 4, TensorProto.DOUBLE: 8, TensorProto.INT64: 8}


def wrong(model: Any) -> str | None:
    """What is wrong with a graph, before anything but its bytes has been looked at."""
    graph = model.graph
    if model.functions or model.training_info:
        return "it has functions or training steps of its own"
    if any(each.domain not in ("", "ai.onnx") for each in model.opset_import):
        return "it uses ops from outside the standard"
    for each in (graph, *(attribute.g for node in graph.node for attribute in node.attribute)):
        if each.sparse_initializer or not _is_text(each):
            return "it has sparse weights, or a name that is no text"
    for tensor in graph.initializer:
        fault = _wrong_tensor(tensor)
        if fault:
            return fault
    weights = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    longest = max((size for tensor in graph.initializer for size in tensor.dims), default=0)
    ranks = {each.name: len(_dims(each)) for each in graph.input if each.name not in weights}
    return _wrong_graph(graph, weights, longest, ranks)


def _wrong_graph(
    graph: Any, weights: dict[str, int], longest: int, ranks: dict[str, int], loop: bool = False
) -> str | None:
    """What is wrong with a graph or the body of a loop, given the dimensions of its weights and inputs.

    A few bytes could ask for any amount of memory. Values here are [batch, time, row] or [batch, row], and no row is
    longer than the weights (or two of them, on their way into a MatMul): sizes grow with the input, and as the file.
    """
    for value in (*graph.input, *graph.output):
        fault = _wrong_value(value, longest)
        if fault:
            return fault
    free = {each.name for each in graph.input if not any(d.HasField("dim_value") for d in _dims(each)) and not loop}
    joined: set[str] = set()
    for node in graph.node:
        kind = node.op_type
        if kind not in OPS or node.domain not in ("", "ai.onnx"):
            return f"it has the op {kind[:40]!r}, and {', '.join(sorted(OPS))} are known"
        if kind == "Scan" and loop:
            return "its loops are nested"
        bodies, settings = [], {}
        for attribute in node.attribute:
            if attribute.t.ByteSize() or attribute.tensors or attribute.graphs or attribute.sparse_tensors:
                return f"{kind} has an attribute {attribute.name[:40]!r} that it must not have"
            if attribute.name == "body":
                bodies.append(attribute.g)
            else:
                settings[attribute.name] = helper.get_attribute_value(attribute)
        if settings not in SETTINGS.get(kind, [{}]) or len(bodies) != (kind == "Scan"):
            return f"{kind} has settings that are not written here"
        found = [weights.get(name, ranks.get(name)) for name in node.input]
        made = _rank(kind, settings, found, [name in weights for name in node.input])
        if kind != "MatMul" and joined.intersection(node.input):
            made = None
        if kind == "Gather" and settings["axis"] == 0 and node.input[1] not in free:
            made = None
        if made is None or any(name in weights for name in node.output):
            return f"{kind} has inputs or outputs that are not written here: {', '.join(node.input)[:80]!r}"
        ranks.update(dict.fromkeys(node.output, made))
        if kind == "Concat":
            joined.update(node.output)
        if kind == "Scan":
            body, states = bodies[0], len(node.input) - 1
            inside = {each.name: 2 for each in body.input}
            if body.initializer or weights.keys() & inside or len(body.input) != len(node.input):
                return "a loop has weights of its own, or other inputs than it is given"
            fault = _wrong_graph(body, weights, longest, inside, loop=True)
            if fault:
                return fault
            ranks.update(dict.fromkeys(node.output[:states], 2))
    return None if all(each.name in ranks for each in graph.output) else "it has an output that is not computed"


def _rank(kind: str, settings: dict[str, Any], found: list[int | None], weight: list[bool]) -> int | None:
    """The dimensions of what a node computes (a Scan: of its spikes); None if the writer here has no such node."""
    values = [rank for rank, fixed in zip(found, weight, strict=True) if not fixed]
    first = values[0] if values else None
    if first is None:
        return None
    if kind == "MatMul":
        return first if weight == [False, True] and found[1] == 2 <= first else None
    if kind == "Gather" and settings["axis"] == 0:
        return first + 1 if weight == [True, False] and found[0] == 2 else None
    if kind == "Gather":
        return 2 if weight == [False, True] and found == [3, 0] else None
    if kind == "ReduceMean":
        return 2 if found == [3] else None
    if kind == "Scan":
        return 3 if values == found == [2] * (len(found) - 1) + [3] else None
    if kind == "Concat":
        return first if values == found == [first] * 2 else None
    small = all(rank is not None and rank <= 1 for rank, fixed in zip(found, weight, strict=True) if fixed)
    return first if small and set(values) == {first} else None


def _dims(value: Any) -> Any:
    return value.type.tensor_type.shape.dim


def _wrong_value(value: Any, longest: int) -> str | None:
    if value.type.tensor_type.elem_type not in SIZES:
        return f"{value.name[:40]!r} must be of float32, float64 or int64"
    fixed = [each.dim_value if each.HasField("dim_value") else None for each in _dims(value)]
    if len(fixed) > 3 or any(fixed[:-1]) or any(size is not None and not 0 < size <= longest for size in fixed):
        sizes = [size for size in fixed if size is not None]
        return f"{value.name[:40]!r} has the sizes {sizes[:4]}, and its weights have none above {longest}"
    return None


def _is_text(graph: Any) -> bool:
    """Whether all names in a graph are: protobuf gives what it cannot decode as bytes, or raises when looked at."""
    values = [*graph.input, *graph.output, *graph.value_info]
    names = [graph.name, *(each.name for each in (*values, *graph.initializer))]
    names += [each.dim_param for value in values for each in value.type.tensor_type.shape.dim]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
    return all(isinstance(name, str) for name in names)


def _wrong_tensor(tensor: Any) -> str | None:
    name = tensor.name[:40]
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        return f"{name!r} lies in another file"
    if tensor.data_type not in SIZES or not tensor.HasField("raw_data"):
        return f"{name!r} must be raw float32, float64 or int64"
    count = 1
    for size in tensor.dims:
        if size < 0:
            return f"{name!r} must have sizes that are not negative, got {size}"
        count *= size
    if count * SIZES[tensor.data_type] != len(tensor.raw_data):
        return f"{name!r} claims {count} numbers and has {len(tensor.raw_data)} bytes"
    if not np.isfinite(numpy_helper.to_array(tensor)).all():
        return f"{name!r} must be finite, got NaN or Inf"
    return None
