"""Memory of a training step, as the operating system sees it: whatever allocates is included."""

import ctypes
import gc
from pathlib import Path

import torch

from ..data import Task
from ..models import build
from ..train import RunConfig
from ..train.evaluation import losses, predictions

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory(config: RunConfig, task: Task) -> int | None:
    """Bytes by which a training step on the CPU raises the memory of this process at most; None: unknown.

    Gradients and what is saved for them count, weights and moments do not. Known on Linux with glibc only.
    """
    torch.manual_seed(config.seed % 2**64)
    model = build(config.model).train()
    batch = next(iter(task["train"].batches(config.batch)))

    def step() -> None:
        model.zero_grad()
        ((logits, target),) = predictions(model, [batch])
        losses(logits, target)[0].backward()

    # Kernels are compiled in the first one.
    step()
    model.zero_grad()
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        before = _resident("VmRSS")
        # 5 sets the highest value back to the present one.
        CLEAR.write_text("5")
        step()
        return max(0, _resident("VmHWM") - before)
    except (OSError, AttributeError, KeyError, ValueError):
        return None


def _resident(entry: str) -> int:
    lines = dict(line.split(":", 1) for line in STATUS.read_text("ascii").splitlines())
    return 1024 * int(lines[entry].split()[0])
