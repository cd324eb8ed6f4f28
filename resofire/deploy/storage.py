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

from ..atomic import write_atomic
from ..models.storage import StorageError
from .folded import NUMBERS, Array, Folded, Layer, Neurons, wrong
from .reference import Walked, walk

VERSION = 1


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
    write_atomic(file, safetensors.numpy.save(whole, {"folded": json.dumps(about)}))
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


def holds_folded(file: Path) -> bool:
    """Whether a file says of itself that it is a folded network; `load` says what is wrong with it."""
    try:
        with safetensors.safe_open(file, "np") as held:
            return "folded" in (held.metadata() or {})
    except Exception:  # whatever a folder or a damaged file makes safetensors say
        return False


def replay(file: Path, samples: list[Array]) -> list[Walked]:
    """What the network in a file makes of sequences."""
    folded = load(file)
    return [walk(folded, sample) for sample in samples]


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
