"""What `resofire doctor` tells: versions, cores, and which backends can run here, and why others cannot."""

import importlib.metadata
import os
import platform
from collections.abc import Callable

import torch
from torch import Tensor

from . import __version__
from .ops import lif, prf, registry
from .ops.registry import Call

PACKAGES = ("torch", "numpy", "numba", "llvmlite", "triton", "spikingjelly", "snntorch")


def examine() -> dict[str, object]:
    """All of it as plain values."""
    versions = {"python": platform.python_version(), "resofire": __version__}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "versions": versions,
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "torch threads": torch.get_num_threads(),
        "gpus": gpus,
        "backends": {op: _backends(op, "cuda" if gpus else "cpu") for op in ("prf", "lif")},
        "works": _works(),
    }


def _example(op: str, device: str) -> Call:
    coefficients = (0.9, 0.1, 0.1) if op == "prf" else (0.9,)
    return registry.prepare(op, torch.ones(1, 4, 2, device=device), *coefficients)


def _backends(op: str, device: str) -> dict[str, str]:
    call = _example(op, device)
    return {name: registry.why_not(op, name, call) or "available" for name in registry.names(op)}


def _works() -> bool:
    """Runs both neurons on the backend that "auto" takes, forward and backward, on a handful of numbers."""
    current = torch.linspace(-1, 3, 24).reshape(1, 12, 2).requires_grad_()
    neurons: list[Callable[[str], Tensor]] = [
        lambda backend: prf(current, 0.9, 0.1, 1.0, backend=backend)[0],
        lambda backend: lif(current, 0.9, backend=backend)[0],
    ]
    for neuron in neurons:
        spikes, wanted = neuron("auto"), neuron("reference")
        (slope,) = torch.autograd.grad(spikes.sum(), current)
        (wanted_slope,) = torch.autograd.grad(wanted.sum(), current)
        if not torch.equal(spikes, wanted) or not torch.allclose(slope, wanted_slope, atol=1e-5):
            return False
    return True


def report(found: dict[str, object]) -> str:
    """The same as text."""
    lines = []
    for key, value in found.items():
        if isinstance(value, dict):
            lines.append(f"{key}")
            for name, entry in value.items():
                if isinstance(entry, dict):
                    lines.append(f"  {name}")
                    lines += [f"    {backend:<10} {note}" for backend, note in entry.items()]
                else:
                    lines.append(f"  {name:<12} {entry}")
        elif key == "gpus":
            lines.append(f"{key:<14} {', '.join(map(str, value)) if value else 'none'}")  # type: ignore[call-overload]
        elif key == "works":
            lines.append("Both neurons run and agree with their reference." if value else "A neuron does NOT agree.")
        else:
            lines.append(f"{key:<14} {value}")
    return "\n".join(lines)
