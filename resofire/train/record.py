"""run.json, the record of a run: config, data, versions, commit, machine, and the backend of each operator."""

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import traceback
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import __version__
from ..data import Batch, Split, Task
from ..data.task import value_range
from ..nn import SDTCM
from ..ops import registry
from .config import RunConfig
from .evaluation import predictions
from .processes import training_device

RUN = "run.json"
# Records without a format have format 1, which lacks `source` and `own`.
FORMAT = 2
# Parts of a record that are read back: type, and description for the error.
PARTS: dict[str, tuple[Any, str]] = {
    "data": (dict, "a fingerprint for each split"),
    "own": (dict | None, "the names of the user's own parts"),
    "source": (dict | None, "a data set and its settings"),
    "resumed": (list, "a list"),
}
PACKAGES = ("numpy", "numba", "lightning-fabric", "safetensors")


class RunError(Exception):
    """Why a run cannot start or resume. Its text is one sentence."""


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the record of a run.

    Raises:
        RunError: The folder is not a run, or its record cannot be used.
    """
    file = Path(folder) / RUN
    try:
        record = {"devices": 1, **json.loads(file.read_text("utf-8"))}
        RunConfig.from_json(record["config"])
        if not isinstance(record.get("format", 1), int) or record.get("format", 1) > FORMAT:
            raise ValueError(f"format must be at most {FORMAT} for this version, got {record['format']!r}")
        if type(record["devices"]) is not int or record["devices"] < 1:
            raise ValueError(f"devices must be a positive integer, got {record['devices']!r}")
        _require_parts(record)
        return record
    except FileNotFoundError:
        raise RunError(f"run: {folder} is not a run folder, it has no {RUN}") from None
    except OSError as error:
        raise RunError(f"run: {file} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"run: {file} cannot be used: {reason[:300]}{' ...' if len(reason) > 300 else ''}") from None


def _require_parts(record: dict[str, Any]) -> None:
    """Check the types of the parts: in a damaged file they may be any JSON value."""
    for name, (kind, content) in PARTS.items():
        if name in record and not isinstance(record[name], kind):
            raise ValueError(f"{name} must be {content}, got {record[name]!r}")
    if record.get("gradient_dtype", "float32") not in ("float32", "bfloat16"):
        raise ValueError(f"gradient_dtype must be float32 or bfloat16, got {record['gradient_dtype']!r}")
    source = record.get("source") or {}
    texts = [source[name] for name in ("name", "path") if name in source]
    texts += [] if source.get("data_dir") is None else [source["data_dir"]]
    complete = "arrays" in source or not texts or isinstance(source.get("settings"), dict)
    if not complete or not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise ValueError(f"source must be {PARTS['source'][1]}, got {source!r}")


def manifest(
    config: RunConfig, model: nn.Module, task: Task, devices: int, own: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The record of a new run; `own` names the user's parts, which must be passed again to resume."""
    return {
        "format": FORMAT,
        "config": config.to_json(),
        "seed": config.seed,
        "data": fingerprints(task),
        "source": task.source,
        "class_names": task.class_names,
        "input_range": input_range(task),
        "own": own or {},
        **conditions(devices),
        "backends": backends(model, sample(task.splits["train"]), training_device()),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def sample(split: Split) -> Batch:
    """A batch of the first two sequences, or of the only one."""
    return next(iter(split.batches(min(2, len(split)))))


# What a slip in a user's code raises, besides errors of value and type.
USER_CODE_ERRORS = (AttributeError, LookupError, NameError, ArithmeticError, AssertionError)


def source_line(error: BaseException) -> str:
    """The place in the user's code that raised an error, as " (file.py, line 7)"; empty for errors in this package."""
    ours = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent))
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((*ours, "<"))]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def fingerprints(task: Task) -> dict[str, str]:
    """Length of each split and a checksum of its first sequences: enough to recognise other data of that name."""
    marks = {}
    for name, split in task.splits.items():
        digest = hashlib.sha256()
        for batch in islice(split.batches(min(8, max(1, len(split)))), 1):
            for values in (batch.x, batch.labels, batch.cu_seqlens):
                digest.update(b"" if values is None else values.contiguous().numpy().tobytes())
        marks[name] = f"{len(split)} sequences, {digest.hexdigest()[:16]}"
    return marks


def input_range(task: Task) -> list[tuple[float, float]] | None:
    """The smallest and largest training value of each channel; None for tokens."""
    ends = value_range(task.splits["train"])
    if ends is None or not all(np.isfinite(each).all() for each in ends):
        return None
    return list(zip(*(each.tolist() for each in ends), strict=True))


def conditions(devices: int) -> dict[str, Any]:
    """What the bits of a run depend on besides its config; recorded again at each resume."""
    return {
        "versions": {
            "resofire": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),  # with its build, which the package's own version may lack
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
        "commit": commit(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": devices,
    }


def commit() -> str | None:
    """The commit of this package's source, with a + if files differ from it; None outside of a repository."""
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        # Not the commit of a repository that merely contains the environment we are installed in.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


@torch.no_grad()
def backends(model: nn.Module, batch: Batch, device: torch.device) -> dict[str, list[str]]:
    """The backends that each operator chooses for such a batch; moves the model to the device."""
    chosen: dict[str, list[str]] = {}
    with registry.watching() as calls:
        for _ in predictions(model.eval().to(device), [batch]):
            pass
    for op, name in sorted(calls):
        chosen.setdefault(op, []).append(name)
    blocks = [module for module in model.modules() if isinstance(module, SDTCM)]
    if blocks:
        stream = torch.zeros(1, 1, blocks[0].features, device=device)
        reasons = {block.why_not_fused(stream) for block in blocks}
        chosen["sdtcm"] = sorted("fused" if reason is None else f"composed: {reason}" for reason in reasons)
    return chosen
