"""The type of the blocks' gradient products: the config's setting, resolved for this CPU."""

import sys
from typing import Any

from torch import nn

from ..nn import SDTCM
from ..ops import sdtcm


def apply_gradient_dtype(model: nn.Module, value: str) -> str:
    """Set the type of the gradient products of every SD-TCM block and return it; "auto" is the faster one.

    Raises:
        ValueError: If `value` is another name, or "bfloat16" on a CPU without it.
    """
    if value == "auto":
        value = "bfloat16" if sdtcm.has_bfloat16() else "float32"
    sdtcm.require_gradient_dtype("train", value)
    blocks = [module for module in model.modules() if isinstance(module, SDTCM)]
    for block in blocks:
        block.gradient_dtype = value
    return value if blocks else "float32"


def resume_gradient_dtype(model: nn.Module, run: dict[str, Any], *, first: bool) -> str:
    """Set the type that a run was begun with if this CPU has it, and return the type used; `first` warns of a change.

    On a CPU without bfloat16 the run continues in float32: its bits are then not those of an uninterrupted run.
    """
    value = run.get("gradient_dtype", "float32")
    if value == "bfloat16" and not sdtcm.has_bfloat16():
        value = "float32"
        if first:
            reason = "this CPU has neither AVX512-BF16 nor AMX"
            print(f"resume: {reason}; continuing with float32 gradients", file=sys.stderr)
    return apply_gradient_dtype(model, value)
