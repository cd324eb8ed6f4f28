"""Networks on disk: weights as safetensors, the config as JSON. No code runs when one is read.

model.safetensors    the weights; its header holds the config as well, so that the file alone is enough
config.json          the same config, for people
"""

import dataclasses
import difflib
import json
import os
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from ..atomic import write_atomic
from ..nn import LIFConfig, PRFConfig
from ..ops import Surrogate
from ..ops.surrogate import surrogate_from
from .classifier import ClassifierConfig
from .config import EncoderConfig, NetworkConfig
from .feedforward import FeedforwardConfig
from .network import Network
from .retrieval import RetrievalConfig

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
# Run folders of the networks that come with the package, without their checkpoints.
SHIPPED = Path(__file__).parents[1] / "weights"
# What a network's weights may be; integers are as the network has them.
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
CONFIGS = {kind.__name__: kind for kind in (ClassifierConfig, RetrievalConfig, FeedforwardConfig, PRFConfig, LIFConfig)}


class StorageError(ValueError):
    """A file that cannot be used. Its text is one sentence that names it."""


def to_json(value: Any) -> Any:
    """A config as plain values; a dataclass says its `kind`."""
    if isinstance(value, Surrogate):
        return {"kind": "Surrogate", "name": value.name, "numbers": value.numbers}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, tuple | list):
        return [to_json(each) for each in value]
    if isinstance(value, dict):
        return {key: to_json(each) for key, each in value.items()}
    return value


def from_json(value: Any, kinds: dict[str, Any] = CONFIGS) -> Any:
    """The config that `to_json` was given; ValueError or TypeError if it is none. Lists come back as tuples."""
    if isinstance(value, list):
        return tuple(from_json(each, kinds) for each in value)
    if not isinstance(value, dict):
        return value
    given = {key: from_json(each, kinds) for key, each in value.items() if key != "kind"}
    kind = value.get("kind")
    if kind is None:
        return given
    if kind == "Surrogate":
        try:
            return surrogate_from(given["name"], list(given["numbers"]))
        except (KeyError, TypeError):
            raise ValueError(f"surrogate {given.get('name')!r} is not known") from None
        except OverflowError:
            raise ValueError(f"surrogate {given['name']!r} has a number that is too large") from None
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"kind must be one of {', '.join(kinds)}, got {kind!r}")
    known = {field.name for field in dataclasses.fields(kinds[kind])}
    for name in given:
        if name not in known:
            raise ValueError(f"{kind} has no setting {name!r}")
    return kinds[kind](**given)


def save(model: Network, folder: str | os.PathLike[str]) -> Path:
    """Writes a network into a folder, each file whole or not at all; gives the file of its weights."""
    folder = Path(folder)
    described = to_json(model.config)
    try:
        from_json(described)
    except (ValueError, TypeError) as error:
        raise StorageError(f"save: {folder / CONFIG} could not be read again: {_sentence(error)}") from None
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    # One entry: safetensors writes several in an order of chance, and equal networks are to be equal files.
    header = {"config": json.dumps(described)}
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / CONFIG, (json.dumps(described, indent=2) + "\n").encode())
    write_atomic(folder / WEIGHTS, safetensors.torch.save(weights, header))
    return folder / WEIGHTS


def load(path: str | os.PathLike[str]) -> Network:
    """The network in a run folder or a file of weights, ready to be used (`.eval()`)."""
    file = Path(path)
    if file.is_dir():
        file = file / WEIGHTS
    if not file.is_file():
        raise StorageError(f"load: path must be a run folder or a file of weights, got {file}, which is not there")
    config, weights = _read(file)
    model = _outline(file, config, len(weights))
    wanted = model.state_dict()
    for name in (*wanted, *weights):
        if name not in weights or name not in wanted:
            has = "lacks" if name in wanted else "has, against its config,"
            raise StorageError(f"{file} {has} the tensor {name[:100]!r}")
        value, like = weights[name], wanted[name]
        types = FLOATING if like.is_floating_point() else (like.dtype,)
        if value.shape != like.shape or value.dtype not in types:
            raise StorageError(
                f"{file}: {name} must be {like.dtype} {list(like.shape)}, got {value.dtype} {list(value.shape)}"
            )
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise StorageError(f"{file}: {name} must be finite, got NaN or Inf")
        if name.endswith("running_var") and bool((value < 0).any()):
            raise StorageError(f"{file}: {name} must not be negative, got {value.min().item():g}")
    kinds = sorted({str(value.dtype) for value in weights.values() if value.is_floating_point()})
    if len(kinds) > 1:
        raise StorageError(f"{file} must hold floating-point numbers of one type, got {' and '.join(kinds)}")
    model.load_state_dict(weights, assign=True)
    return model.eval()


def shipped() -> tuple[str, ...]:
    """The names of the trained networks that come with the package."""
    return tuple(sorted(file.parent.name for file in SHIPPED.glob(f"*/{WEIGHTS}")))


def find(model: str | os.PathLike[str]) -> Path:
    """Where a network is: a path that exists, or the folder of a shipped one by its name. (A path to be told apart from
    a name that is shipped, too, is written ./name.)"""
    if str(model) in shipped():
        return SHIPPED / str(model)
    path = Path(model)
    try:
        there = path.exists()
    except OSError as error:  # a folder that may not be read, a name that is too long
        raise StorageError(f"model {str(model)!r} cannot be read: {error.strerror}") from None
    if not there:
        close = difflib.get_close_matches(str(model), shipped(), n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise StorageError(
            f"model must be a run folder, a file of weights or one of {', '.join(shipped())}{hint}, got {str(model)!r}"
        )
    return path


def _outline(file: Path, config: NetworkConfig, tensors: int) -> Network:
    """The network without memory for its weights: a config may ask for more than there is."""
    from . import build

    layers = config.depth if isinstance(config, EncoderConfig) else len(getattr(config, "sizes", ()))
    if layers > tensors:
        raise StorageError(f"{file} must hold a network of {layers} layers, got {tensors} tensors")
    try:
        with torch.device("meta"):
            return build(config)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise StorageError(f"{file} has a config that makes no network: {_sentence(error)}") from None


def _sentence(error: BaseException) -> str:
    """Without the stack that torch writes behind some of its errors, and no longer than a few lines."""
    said = " ".join(str(error).partition("Exception raised from")[0].split())
    return said if len(said) <= 400 else f"{said[:400]} ..."


def _read(file: Path) -> tuple[NetworkConfig, dict[str, torch.Tensor]]:
    try:
        with safetensors.safe_open(file, "pt") as held:
            header = held.metadata() or {}
            # Copies: what is given lies in the file itself, which may change.
            weights = {name: held.get_tensor(name).clone() for name in held.keys()}  # noqa: SIM118 - it is no dict
    except Exception as error:  # whatever a damaged file makes safetensors or torch say
        raise StorageError(f"{file} cannot be read, it is truncated or corrupt: {_sentence(error)}") from None
    if "folded" in header and "config" not in header:
        raise StorageError(f"{file} is a folded network, for resofire stream or resofire.deploy.load")
    beside = file.with_name(CONFIG)
    try:
        text = header["config"] if "config" in header else beside.read_text("utf-8")
        config = from_json(json.loads(text))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise StorageError(f"{file} has no usable config in its header or in {beside}: {_sentence(error)}") from None
    if not isinstance(config, NetworkConfig):
        raise StorageError(f"{file} must hold the config of a network, got {type(config).__name__}")
    return config, weights
