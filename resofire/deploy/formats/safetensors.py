"""Folded networks on disk: arrays and a JSON header in one safetensors file. Loading one runs no code.

The header has the entry `folded`: {"version", "tokens", "pool", "layers": [{"fresh", "clear", "neurons": [{"kind",
"reset"}]}], "class_names" (if known), "pool_steps" (of leaky and window)}. The arrays are `table`, `head`, `bias`,
`origin` (if values have one) and, for each layer i and group of neurons j, `i.rows`, `i.clear` (if the header says so)
and `i.j.sign`, `i.j.threshold`, `i.j.current`, `i.j.phi_re`, `i.j.phi_im`; see `resofire.nn.folded`. Files may come
from anywhere, so everything read is checked.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from ...atomic import write_atomic
from ...models import checksum
from ...models.storage import StorageError
from ...nn.folded import NUMBERS, Array, Folded, Layer, Neurons
from ..reference import Result, run

VERSION = 1
ARRAYS = ("sign", *NUMBERS)


def save(folded: Folded, file: str | os.PathLike[str]) -> Path:
    """Write a folded network atomically.

    Args:
        folded: The network.
        file: The file.

    Returns:
        The file.

    Raises:
        StorageError: The network is not sound, so the file could not be loaded.
    """
    file = Path(file)
    fault = folded.fault()
    if fault:
        raise StorageError(f"save: {file} could not be loaded again: {fault}")
    write_atomic(file, encode(folded))
    return file


def load(file: str | os.PathLike[str]) -> Folded:
    """Load a folded network.

    Args:
        file: What `save` or `resofire export --to safetensors` wrote.

    Raises:
        StorageError: The file is missing, damaged, or holds something else; one sentence that names it.
    """
    file = Path(file)
    if not file.is_file():
        raise StorageError(f"load: file must be a folded network, got {file}, which is not a file")
    header, arrays = _read(file)
    try:
        folded = _assemble(header, arrays)
    except KeyError as error:
        raise StorageError(f"{file} lacks the array or setting {error}") from None
    except (TypeError, AttributeError):
        raise StorageError(f"{file} has a header that does not describe a folded network") from None
    if arrays:
        raise StorageError(f"{file} has an array that its header does not mention: {next(iter(arrays))[:100]!r}")
    fault = folded.fault()
    if fault:
        raise StorageError(f"{file}: {fault[:400]}")
    return folded


def holds_folded(file: str | os.PathLike[str]) -> bool:
    """Whether a file claims to be a folded network; `load` checks it."""
    if not Path(file).is_file():
        return False
    try:
        with safetensors.safe_open(file, "np") as opened:
            return "folded" in (opened.metadata() or {})
    except Exception:  # folders and damaged files raise types that safetensors does not document
        return False


def encode(folded: Folded) -> bytes:
    """The content of the file.

    Raises:
        ValueError: It has neurons that are neither PRF nor LIF.
    """
    if folded.equation_owner is not None:
        raise ValueError(f"save: folded must have PRF and LIF neurons, got {folded.equation_owner}")
    arrays = {"table": folded.table, "head": folded.head, "bias": folded.bias}
    if folded.origin is not None:
        arrays["origin"] = folded.origin
    layers = []
    for i, layer in enumerate(folded.layers):
        arrays[f"{i}.rows"] = layer.rows
        if layer.clear is not None:
            arrays[f"{i}.clear"] = layer.clear
        for j, group in enumerate(layer.neurons):
            arrays |= {f"{i}.{j}.{name}": getattr(group, name) for name in ARRAYS}
        groups = [{"kind": group.kind, "reset": group.reset} for group in layer.neurons]
        layers.append({"fresh": layer.fresh, "clear": layer.clear is not None, "neurons": groups})
    header = {"version": VERSION, "tokens": folded.tokens, "pool": folded.pool, "layers": layers}
    if folded.class_names is not None:
        header["class_names"] = folded.class_names
    if folded.pool_steps is not None:
        header["pool_steps"] = folded.pool_steps
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return checksum.seal(safetensors.numpy.save(contiguous, {"folded": json.dumps(header)}))


def replay(content: bytes, samples: list[Array]) -> list[Result]:
    """Run the network in the content of a file on each sample."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "folded.safetensors")
        file.write_bytes(content)
        folded = load(file)
    return [run(folded, sample) for sample in samples]


def _read(file: Path) -> tuple[Any, dict[str, Array]]:
    try:
        # safetensors checks all sizes against the length of the file before it reads anything.
        with safetensors.safe_open(file, "np") as opened:
            metadata = opened.metadata() or {}
            arrays = {name: opened.get_tensor(name).copy() for name in opened.keys()}  # noqa: SIM118 - not a dict
        fault = checksum.fault(file)
    except Exception as error:  # damaged files raise types that safetensors and NumPy do not document
        reason = " ".join(str(error).split())[:400]
        raise StorageError(f"{file} cannot be read, it is truncated or corrupt: {reason}") from None
    if fault:
        raise StorageError(f"{file} cannot be used, {fault}")
    try:
        header = json.loads(metadata["folded"])
    except KeyError:
        raise StorageError(f"{file} holds no folded network, its header has no entry 'folded'") from None
    except (ValueError, RecursionError):
        raise StorageError(f"{file} has a header that is not JSON") from None
    version = header.get("version") if isinstance(header, dict) else None
    if version != VERSION or isinstance(version, bool):
        raise StorageError(f"{file} must be of version {VERSION}, got {version!r}"[:400])
    return header, arrays


def _assemble(header: Any, arrays: dict[str, Array]) -> Folded:
    """The network; takes the arrays it uses out of `arrays`."""
    layers = []
    for i, layer in enumerate(header["layers"]):
        if not isinstance(layer["clear"], bool):
            raise TypeError
        clear = arrays.pop(f"{i}.clear") if layer["clear"] else None
        groups = []
        for j, group in enumerate(layer["neurons"]):
            numbers: Any = {name: arrays.pop(f"{i}.{j}.{name}") for name in ARRAYS}
            groups.append(Neurons(kind=_string(group["kind"]), reset=_string(group["reset"]), **numbers))
        layers.append(Layer(tuple(groups), arrays.pop(f"{i}.rows"), layer["fresh"], clear))
    ends = {name: arrays.pop(name) for name in ("table", "head", "bias")}
    names = header.get("class_names")
    return Folded(
        layers=tuple(layers), tokens=header["tokens"], pool=_string(header["pool"]),
        origin=arrays.pop("origin", None), class_names=None if names is None else tuple(names),
        pool_steps=header.get("pool_steps"), **ends,
    )  # fmt: skip


def _string(value: Any) -> str:
    """Refuses lists and objects, which could not be looked up among names."""
    if not isinstance(value, str):
        raise TypeError
    return value[:40]
