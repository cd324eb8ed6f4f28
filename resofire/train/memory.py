"""Refuse a run that does not fit into memory before its network is built: the kernel would kill it without a message.

The estimate is a lower bound, so a run that is refused could not have worked. It counts weights, gradients, moments
and averages, and what the neurons save of one batch for the backward pass.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ..data import Task
from ..models import NetworkConfig
from ..models.config import EncoderConfig
from ..nn import SDTCM, Neuron
from .config import RunConfig
from .processes import training_device
from .record import USER_CODE_ERRORS, RunError, source_line

# Deeper networks are extrapolated: building blocks takes time, even on the meta device.
DEPTH = 16
# Bytes of the Python objects of one block, whatever its width.
BLOCK = 10_000
UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


class Size(NamedTuple):
    """The size of a network: number of weights, numbers saved per time step, bytes of Python objects."""

    weights: int
    saved: int
    objects: int


def require_memory(config: RunConfig, task: Task, processes: int, share: float, own: nn.Module | None = None) -> None:
    """Refuse a run that needs more memory than there is.

    Args:
        config: The run.
        task: Its data.
        processes: Processes on this machine, each with a copy of the network.
        share: The share of each batch that they process together.
        own: The user's own network; None is the config's, which is not built here.
    """
    free = available()
    if free is None:
        return
    size = _size_of(own) if own is not None else network_size(config.model)
    lengths = task.splits["train"].lengths
    # A batch above the number of sequences is refused elsewhere.
    steps = int(share * min(config.batch, len(lengths)) * lengths.sum() / max(1, len(lengths)))
    copies = 4 + (config.ema is not None)
    needed = processes * (4 * copies * size.weights + size.objects) + 4 * steps * size.saved
    if training_device().type != "cpu":
        # The CPU only holds the weights while the network is built.
        needed = 4 * size.weights
    if needed > free:
        raise RunError(
            f"train: memory must be at least {_amount(needed)} for {size.weights:,} parameters and {steps:,} time "
            f"steps in a batch, got {_amount(free)}; choose a smaller model or batch"
        )


def network_size(config: NetworkConfig) -> Size:
    """The size of the network of a config, computed without allocating it.

    Raises:
        RunError: No network can be built from the config.
    """
    if not isinstance(config, EncoderConfig) or config.depth <= DEPTH:
        return _outlined(config)
    one, two = (_outlined(replace(config, depth=depth)) for depth in (1, 2))
    return Size(*(first + (config.depth - 1) * (second - first) for first, second in zip(one, two, strict=True)))


def available() -> int | None:
    """Bytes of memory that a process can get: free and swap, within the limit of its container; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        fields = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        free = fields["MemAvailable"] + fields["SwapFree"]
    except (OSError, ValueError, KeyError, IndexError):
        if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
            return None
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            free = min(free, int(Path(file).read_text("ascii")))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    return free


def _outlined(config: NetworkConfig) -> Size:
    try:
        with torch.device("meta"):
            return _size_of(config.build())
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        # For example a weight whose size overflows an integer.
        text = " ".join(str(error).partition("Exception raised from")[0].split())[:400]
        raise RunError(f"train: model cannot be built: {text}{source_line(error)}") from None
    except USER_CODE_ERRORS as error:
        place = source_line(error)
        if not place:
            raise
        raise RunError(f"train: model cannot be built: {type(error).__name__}: {error}{place}") from error


def _size_of(model: nn.Module) -> Size:
    blocks = [module for module in model.modules() if isinstance(module, SDTCM)]
    inside = {id(part) for block in blocks for part in block.modules()}
    neurons: list[Any] = [each for each in model.modules() if isinstance(each, Neuron) and id(each) not in inside]
    # A block saves its input and the stream between its halves, a neuron on its own at least its current.
    saved = sum(2 * block.features for block in blocks) + sum(neuron.features for neuron in neurons)
    weights = sum(value.numel() for value in model.parameters())
    return Size(weights, saved, BLOCK * len(blocks))


def _amount(size: float) -> str:
    unit = 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:,.3g} {UNITS[unit]}" if size < 1000 else f"{size:,.0f} {UNITS[unit]}"
