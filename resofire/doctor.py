"""The facts of `resofire doctor`: versions, cores, which backends run here and why others do not."""

import importlib.metadata
import os
import platform
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import __version__
from .ops import lif, prf, registry

PACKAGES = (
    "torch", "numpy", "numba", "llvmlite", "safetensors", "lightning-fabric", "tyro", "rich", "nir", "onnx",
    "onnxruntime", "triton", "spikingjelly", "snntorch",
)  # fmt: skip


def examine() -> dict[str, Any]:
    """Collect the facts and run both neurons once.

    Returns:
        Plain values: versions, machine, cores, torch threads, gpus, backends by operator, works.
    """
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


def _backends(op: str, device: str) -> dict[str, str]:
    coefficients = (0.9, 0.1, 0.1) if op == "prf" else (0.9,)
    call = registry.prepare(op, torch.ones(1, 4, 2, device=device), *coefficients)
    return {name: registry.why_not(op, name, call) or "available" for name in registry.names(op)}


def _works() -> bool:
    """Run both neurons on the backend that "auto" takes, forward and backward, and compare with the reference."""
    current = torch.linspace(-1, 3, 24).reshape(1, 12, 2).requires_grad_()
    neurons: list[Callable[[str], Tensor]] = [
        lambda backend: prf(current, 0.9, 0.1, 1.0, backend=backend)[0],
        lambda backend: lif(current, 0.9, backend=backend)[0],
    ]
    for neuron in neurons:
        spikes, expected = neuron("auto"), neuron("reference")
        (gradient,) = torch.autograd.grad(spikes.sum(), current)
        (expected_gradient,) = torch.autograd.grad(expected.sum(), current)
        if not torch.equal(spikes, expected) or not torch.allclose(gradient, expected_gradient, atol=1e-5):
            return False
    return True


def report(facts: dict[str, Any]) -> str:
    """The facts of `examine` as plain text."""
    lines = ["versions", *(f"  {name:<17}{version}" for name, version in facts["versions"].items())]
    lines += [f"{name:<19}{facts[name]}" for name in ("machine", "cores", "torch threads")]
    lines.append(f"{'gpus':<19}{', '.join(facts['gpus']) or 'none'}")
    for op, backends in facts["backends"].items():
        lines += [f"backends of {op}", *(f"  {name:<17}{note}" for name, note in backends.items())]
    lines.append(
        "Both neurons run and agree with their reference."
        if facts["works"]
        else "A neuron does NOT agree with its reference."
    )
    return "\n".join(lines)
