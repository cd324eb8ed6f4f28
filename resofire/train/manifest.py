"""What a run's folder says of where it came from: data, versions, commit, machine, and the backend of each operator."""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..models.network import Network
from ..nn import SDTCM
from ..ops import registry
from .config import RunConfig
from .stream import Batch, Task

PACKAGES = ("numpy", "numba", "pytorch-lightning", "safetensors")


def manifest(config: RunConfig, model: Network, task: Task, devices: int) -> dict[str, Any]:
    split = task.splits["train"]
    sample = next(iter(split.batches(min(2, len(split)))))
    return {
        "config": config.to_json(),
        "seed": config.seed,
        "data": fingerprints(task),
        **conditions(devices),
        "backends": backends(model, sample),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def fingerprints(task: Task) -> dict[str, str]:
    """Of each split its length and a checksum of its first sequences: enough to tell other data of the same name."""
    found = {}
    for name, split in task.splits.items():
        digest = hashlib.sha256()
        for batch in islice(split.batches(min(8, max(1, len(split)))), 1):
            for values in (batch.x, batch.labels, batch.cu_seqlens):
                digest.update(b"" if values is None else values.contiguous().numpy().tobytes())
        found[name] = f"{len(split)} sequences, {digest.hexdigest()[:16]}"
    return found


def conditions(devices: int) -> dict[str, Any]:
    """What the bits of a run depend on besides its config; noted again whenever it is resumed."""
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
        # Not the commit of a repository that merely holds an environment we are installed in.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


@torch.no_grad()
def backends(model: Network, sample: Batch) -> dict[str, list[str]]:
    """The backends that each operator takes for a batch such as this one."""
    found: dict[str, list[str]] = {}
    with registry.watching() as taken:
        model.eval()(sample.x, cu_seqlens=sample.cu_seqlens)
    for op, name in sorted(taken):
        found.setdefault(op, []).append(name)
    blocks = [module for module in model.modules() if isinstance(module, SDTCM)]
    if blocks:
        stream = torch.zeros(1, 1, blocks[0].features)
        reasons = {block.why_not_fused(stream) for block in blocks}
        found["sdtcm"] = sorted("fused" if reason is None else f"composed: {reason}" for reason in reasons)
    return found
