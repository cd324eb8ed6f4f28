"""Folded networks on disk: arrays and a JSON header in one safetensors file. No code runs when one is read.

The header has the entry `folded`: {"version", "tokens", "pool", "layers": [{"fresh", "clear", "neurons": [{"kind",
"reset"}]}]}. The arrays are `table`, `head`, `bias` and, for each layer i and group of neurons j, `i.rows`, `i.clear`
(if the header says so) and `i.j.sign`, `i.j.threshold`, `i.j.current`, `i.j.phi_re`, `i.j.phi_im`; see `folded`.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from ..models.storage import StorageError, replace
from .folded import KINDS, POOLS, RESETS, Array, Folded, Layer, Neurons
from .reference import Walked, walk

VERSION = 1
NUMBERS = ("threshold", "current", "phi_re", "phi_im")


def save(folded: Folded, file: str | os.PathLike[str]) -> Path:
    """Writes a folded network whole or not at all; gives the file."""
    file = Path(file)
    fault = wrong(folded)
    if fault:
        raise StorageError(f"save: {file} could not be read again: {fault}")
    arrays = {"table": folded.table, "head": folded.head, "bias": folded.bias}
    layers = []
    for i, layer in enumerate(folded.layers):
        arrays[f"{i}.rows"] = layer.rows
        if layer.clear is not None:
            arrays[f"{i}.clear"] = layer.clear
        for j, group in enumerate(layer.neurons):
            arrays |= {f"{i}.{j}.{name}": getattr(group, name) for name in ("sign", *NUMBERS)}
        groups = [{"kind": group.kind, "reset": group.reset} for group in layer.neurons]
        layers.append({"fresh": layer.fresh, "clear": layer.clear is not None, "neurons": groups})
    about = {"version": VERSION, "tokens": folded.tokens, "pool": folded.pool, "layers": layers}
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    replace(file, safetensors.numpy.save(whole, {"folded": json.dumps(about)}))
    return file


def load(file: str | os.PathLike[str]) -> Folded:
    """The folded network in a file; StorageError, in one sentence that names it, if there is none."""
    file = Path(file)
    if not file.is_file():
        raise StorageError(f"load: file must be a folded network, got {file}, which is not a file")
    about, arrays = _read(file)
    try:
        folded = _put_together(about, arrays)
    except KeyError as error:
        raise StorageError(f"{file} lacks the array or setting {error}") from None
    except (TypeError, AttributeError):
        raise StorageError(f"{file} has a header that describes no folded network") from None
    if arrays:
        raise StorageError(f"{file} has, against its header, the array {next(iter(arrays))[:100]!r}")
    fault = wrong(folded)
    if fault:
        raise StorageError(f"{file}: {fault[:400]}")
    return folded


def replay(file: Path, samples: list[Array]) -> list[Walked]:
    """What the network in a file makes of sequences."""
    folded = load(file)
    return [walk(folded, sample) for sample in samples]


def wrong(folded: Folded) -> str | None:
    """What is wrong with a folded network, as a sentence that names it; None if nothing is."""
    dtype = folded.dtype
    if dtype not in (np.float32, np.float64):
        return f"table must be float32 or float64, got {dtype}"
    if not isinstance(folded.tokens, bool) or folded.pool not in POOLS:
        return (
            f"tokens must be true or false and pool one of {', '.join(POOLS)}, got {folded.tokens!r}, {folded.pool!r}"
        )
    if folded.table.ndim != 2 or not folded.table.size:
        return f"table must have two dimensions and be filled, got {list(folded.table.shape)}"
    if folded.head.ndim != 2 or not folded.head.size:
        return f"head must have two dimensions and be filled, got {list(folded.head.shape)}"
    if not folded.layers:
        return "layers must be at least one, got none"
    width = folded.table.shape[1]
    wanted = [("table", folded.table, folded.table.shape)]
    for i, layer in enumerate(folded.layers):
        fault = _wrong_layer(i, layer, width)
        if fault:
            return fault
        inputs = width * len(layer.neurons)
        outputs = layer.rows.shape[1] if layer.fresh and layer.rows.ndim == 2 else width
        wanted.append((f"{i}.rows", layer.rows, (inputs, outputs)))
        for j, group in enumerate(layer.neurons):
            wanted += [(f"{i}.{j}.{name}", getattr(group, name), (width,)) for name in NUMBERS]
        width = outputs
        if layer.clear is not None and (layer.clear.dtype != bool or layer.clear.shape != (width,)):
            return f"{i}.clear must be bool [{width}], got {layer.clear.dtype} {list(layer.clear.shape)}"
    wanted += [("head", folded.head, (width, folded.head.shape[1])), ("bias", folded.bias, (folded.head.shape[1],))]
    for name, array, shape in wanted:
        if array.dtype != dtype or array.shape != shape:
            return f"{name} must be {dtype} {list(shape)}, got {array.dtype} {list(array.shape)}"
        if not np.isfinite(array).all():
            return f"{name} must be finite, got NaN or Inf"
    return None


def _wrong_layer(i: int, layer: Layer, width: int) -> str | None:
    if not isinstance(layer.fresh, bool):
        return f"{i}.fresh must be true or false, got {layer.fresh!r}"
    if len(layer.neurons) not in (1, 2):
        return f"{i}.neurons must be one group or two, got {len(layer.neurons)}"
    for j, group in enumerate(layer.neurons):
        if group.kind not in KINDS or group.reset not in RESETS:
            return (
                f"{i}.{j} must be one of {', '.join(KINDS)} with reset one of {', '.join(RESETS)}, "
                f"got {group.kind!r} with {group.reset!r}"
            )
        if (group.kind, group.reset) in (("prf", "hard"), ("spatial", "soft"), ("spatial", "hard")):
            return f"{i}.{j}.reset must not be {group.reset} for {group.kind} neurons"
        if group.sign.dtype != np.int8 or group.sign.shape != (width,) or (abs(group.sign.astype(int)) > 1).any():
            return (
                f"{i}.{j}.sign must be int8 [{width}] of -1, 0 and 1, got {group.sign.dtype} {list(group.sign.shape)}"
            )
    return None


def _read(file: Path) -> tuple[Any, dict[str, Array]]:
    try:
        # Sizes are held against the length of the file here, before anything is read.
        with safetensors.safe_open(file, "np") as held:
            header = held.metadata() or {}
            arrays = {name: held.get_tensor(name).copy() for name in held.keys()}  # noqa: SIM118 - it is no dict
    except Exception as error:  # whatever a damaged file makes safetensors or NumPy say
        raise StorageError(
            f"{file} cannot be read, it is truncated or corrupt: {' '.join(str(error).split())}"
        ) from None
    try:
        about = json.loads(header["folded"])
    except KeyError:
        raise StorageError(f"{file} holds no folded network, its header has no entry 'folded'") from None
    except (ValueError, RecursionError):
        raise StorageError(f"{file} has a header that is no JSON") from None
    version = about.get("version") if isinstance(about, dict) else None
    if version != VERSION or isinstance(version, bool):
        raise StorageError(f"{file} must be of version {VERSION}, got {version!r}"[:400])
    return about, arrays


def _put_together(about: Any, arrays: dict[str, Array]) -> Folded:
    """Takes what it uses out of `arrays`."""
    layers = []
    for i, layer in enumerate(about["layers"]):
        if not isinstance(layer["clear"], bool):
            raise TypeError
        clear = arrays.pop(f"{i}.clear") if layer["clear"] else None
        groups = [
            Neurons(
                kind=_word(group["kind"]),
                reset=_word(group["reset"]),
                **{name: arrays.pop(f"{i}.{j}.{name}") for name in ("sign", *NUMBERS)},
            )
            for j, group in enumerate(layer["neurons"])
        ]
        layers.append(Layer(tuple(groups), arrays.pop(f"{i}.rows"), layer["fresh"], clear))
    top = {name: arrays.pop(name) for name in ("table", "head", "bias")}
    return Folded(layers=tuple(layers), tokens=about["tokens"], pool=_word(about["pool"]), **top)


def _word(value: Any) -> str:
    """A list or object is not to be looked up among words."""
    if not isinstance(value, str):
        raise TypeError
    return value[:40]
