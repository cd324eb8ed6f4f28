"""Networks on disk: weights as safetensors, the config as JSON. Loading runs no code and imports nothing.

model.safetensors    the weights; its header holds the config and a checksum as well, so that the file alone is enough
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
from ..nn import Config
from ..nn.config import fields_by_saved_name, find_kind, saved_fields, why_not_saveable
from ..ops import Surrogate
from ..ops.surrogate import surrogate_from
from . import checksum
from .config import NetworkConfig
from .network import Network

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
# Written into every config; a file without one is of format 1.
FORMAT = 2
# Run folders of the networks that come with the package, without their checkpoints.
SHIPPED = Path(__file__).parents[1] / "weights"
# The types that floating-point weights may have; integers keep the type that the network gives them.
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class StorageError(ValueError):
    """A network that cannot be saved, or a file that cannot be used. Its text is one sentence that names it."""


class UnknownKind(ValueError):
    """A config names a class that has not been imported."""

    def __init__(self, kind: str) -> None:
        module, _, name = kind.rpartition(".")
        # A nested class is found with the module, whose name ends before the first capital letter, as a rule.
        while "." in module and module.rpartition(".")[2][:1].isupper():
            module, _, outer = module.rpartition(".")
            name = f"{outer}.{name}"
        if module:
            text = f"{name} is not imported: import {module} first (on the command line: --import {module})"
        else:
            text = f"{kind!r} is not a class of this version of resofire"
        super().__init__(text)
        self.kind = kind


def to_json(value: Any) -> Any:
    """A config as plain values; each nested config carries its `kind`."""
    if isinstance(value, Surrogate):
        return {"kind": "Surrogate", "name": value.name, "numbers": value.numbers}
    if isinstance(value, Config):
        settings = {saved: to_json(getattr(value, name)) for saved, name in saved_fields(value).items()}
        return {"kind": value.kind, **settings}
    if isinstance(value, tuple | list):
        return [to_json(each) for each in value]
    if isinstance(value, dict):
        return {key: to_json(each) for key, each in value.items()}
    return value


def from_json(value: Any) -> Any:
    """The config that `to_json` described. Lists come back as tuples.

    Raises:
        UnknownKind: A class is named that has not been imported.
        ValueError, TypeError: The values do not make a config.
    """
    if isinstance(value, list):
        return tuple(from_json(each) for each in value)
    if not isinstance(value, dict):
        return value
    settings = {key: from_json(each) for key, each in value.items() if key != "kind"}
    kind = value.get("kind")
    if kind is None:
        return settings
    if kind == "Surrogate":
        return _surrogate(settings)
    if not isinstance(kind, str):
        raise ValueError(f"kind must be the name of a config, got {kind!r}")
    config = find_kind(kind)
    if config is None:
        raise UnknownKind(kind)
    known = fields_by_saved_name(config)
    for name in settings:
        if name not in known:
            raise ValueError(f"{kind} has no setting {name!r}")
    return config(**{known[name]: value for name, value in settings.items()})


def _surrogate(settings: dict[str, Any]) -> Surrogate:
    try:
        return surrogate_from(settings["name"], list(settings["numbers"]))
    except (KeyError, TypeError):
        if isinstance(settings.get("name"), str) and "." in settings["name"]:
            raise UnknownKind(settings["name"]) from None
        raise ValueError(f"surrogate {settings.get('name')!r} is not known") from None
    except OverflowError:
        raise ValueError(f"surrogate {settings['name']!r} has a number that is too large") from None


def require_saveable(config: Any) -> None:
    """Refuse a config that could not be loaded again in another process.

    Raises:
        StorageError: A class is defined in `__main__` or inside a function, or a value is not plain data.
    """
    _require_importable(config)
    try:
        again = from_json(json.loads(json.dumps(to_json(config))))
    except (ValueError, TypeError) as error:
        raise StorageError(f"the config of the network cannot be saved: {_sentence(error)}") from None
    if again != config:
        raise StorageError(f"the config of the network does not survive saving, got {again!r} for {config!r}")


def _require_importable(value: Any) -> None:
    if isinstance(value, Surrogate):
        cls = type(value)
        if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__ or "#" in cls.name:
            raise StorageError(
                f"the surrogate {cls.__name__} must be defined once, at the top level of a module to import"
            )
    elif isinstance(value, Config):
        reason = why_not_saveable(value)
        if reason is not None:
            raise StorageError(f"the network could not be loaded again: {reason}")
        for field in dataclasses.fields(value):
            _require_importable(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for each in value:
            _require_importable(each)


def save(model: Network, folder: str | os.PathLike[str]) -> Path:
    """Write a network into a folder, each file whole or not at all.

    Args:
        model: The network.
        folder: The folder, made if it does not exist; it gets config.json and model.safetensors.

    Returns:
        The file of its weights.

    Raises:
        StorageError: The network could not be loaded again.
    """
    folder = Path(folder)
    require_saveable(model.config)
    described = {"format": FORMAT, **to_json(model.config)}
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    # One entry: safetensors writes several in arbitrary order, but equal networks must give equal files.
    header = {"config": json.dumps(described)}
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / CONFIG, (json.dumps(described, indent=2) + "\n").encode())
    checksum.sidecar(folder / WEIGHTS).unlink(missing_ok=True)
    write_atomic(folder / WEIGHTS, checksum.seal(safetensors.torch.save(weights, header)))
    return folder / WEIGHTS


def load(path: str | os.PathLike[str]) -> Network:
    """Load the network of a run folder or a file of weights, in evaluation mode.

    Raises:
        StorageError: The file is missing, damaged, or names a class that has not been imported.
    """
    file = Path(path)
    if file.is_dir():
        file = file / WEIGHTS
    if not file.is_file():
        raise StorageError(f"load: path must be a run folder or a file of weights, got {file}, which does not exist")
    config, weights = _read(file)
    model = _outline(file, config, len(weights))
    expected = model.state_dict()
    for name in (*expected, *weights):
        if name not in weights or name not in expected:
            has = "lacks" if name in expected else "has, against its config,"
            raise StorageError(f"{file} {has} the tensor {name[:100]!r}")
        value, like = weights[name], expected[name]
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
    lost = unsaved_tensor(model)
    if lost is not None:
        raise StorageError(f"{file} cannot be loaded: {lost}")
    return model.eval()


def unsaved_tensor(outline: torch.nn.Module) -> str | None:
    """A sentence on the first tensor that a network keeps outside its state dict; None if there is none.

    Args:
        outline: The network built on the meta device, where such a tensor has no values after loading.
    """
    for module in outline.modules():
        saved = module.state_dict(keep_vars=True)
        buffers = {name: value for name, value in module._buffers.items() if name not in saved}
        for name, value in {**vars(module), **buffers}.items():
            if isinstance(value, torch.Tensor) and value.is_meta:
                owner = type(module).__name__
                return (
                    f"{owner}.{name} is a tensor that is not saved with the network; "
                    f"in {owner}.__init__, use self.register_buffer({name!r}, ...)"
                )
    return None


def shipped() -> tuple[str, ...]:
    """The names of the trained networks that come with the package."""
    return tuple(sorted(file.parent.name for file in SHIPPED.glob(f"*/{WEIGHTS}")))


def find(model: str | os.PathLike[str]) -> Path:
    """Find a network: the folder of a shipped one by its name, or a path that exists.

    A path that has the name of a shipped network is written ./name.

    Raises:
        StorageError: There is neither.
    """
    if str(model) in shipped():
        return SHIPPED / str(model)
    path = Path(model)
    try:
        # Opening a pipe would block until a process writes into it.
        there = path.is_dir() or path.is_file()
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
    """Build the network on the meta device: a damaged config may need more memory than there is."""
    if config.layers > tensors:
        raise StorageError(f"{file} must hold a network of {config.layers} layers, got {tensors} tensors")
    try:
        with torch.device("meta"):
            return config.build()
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise StorageError(f"{file} has a config from which no network can be built: {_sentence(error)}") from None


def _sentence(error: BaseException) -> str:
    """An error's text on one line, without the C++ stack that torch appends to some, and of bounded length."""
    text = " ".join(str(error).partition("Exception raised from")[0].split())
    return text if len(text) <= 400 else f"{text[:400]} ..."


def _read(file: Path) -> tuple[NetworkConfig, dict[str, torch.Tensor]]:
    try:
        with safetensors.safe_open(file, "pt") as opened:
            header = opened.metadata() or {}
            # Copies, because these tensors are mapped from the file, which may change.
            weights = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118 - not a dict
        fault = checksum.fault(file)
    except Exception as error:  # whatever a damaged file makes safetensors or torch raise
        raise StorageError(f"{file} cannot be read, it is truncated or corrupt: {_sentence(error)}") from None
    if fault:
        raise StorageError(f"{file} cannot be used, {fault}")
    if "folded" in header and "config" not in header:
        raise StorageError(f"{file} is a folded network, for resofire stream or resofire.deploy.load")
    beside = file.with_name(CONFIG)
    try:
        text = header["config"] if "config" in header else beside.read_text("utf-8")
        described = json.loads(text)
        version = described.pop("format", 1) if isinstance(described, dict) else 1
        if not isinstance(version, int) or version > FORMAT:
            raise StorageError(f"{file} has format {version!r}; this version of resofire reads up to {FORMAT}")
        config = from_json(described)
    except (StorageError, UnknownKind) as error:
        raise StorageError(f"{file}: {error}" if isinstance(error, UnknownKind) else str(error)) from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise StorageError(f"{file} has no usable config in its header or in {beside}: {_sentence(error)}") from None
    if not isinstance(config, NetworkConfig):
        raise StorageError(f"{file} must hold the config of a network, got {type(config).__name__}")
    return config, weights
