"""From a trained network to a folded one; how modules fold themselves is written in `resofire.nn.folded`."""

from typing import Any

import numpy as np
import torch
from torch import nn

from ..nn.folded import Folded, FoldError, fold_method


def fold(model: nn.Module, dtype: Any = None) -> Folded:
    """Fold a trained network: merge norms, amplitudes, biases, Δ, τ and θ into thresholds, currents and weight rows.

    Args:
        model: A network with a method `fold(floor) -> Folded`: a `Classifier`, a `Feedforward`, an `Encoder` (its
            scores are then its features), or your own. It is folded as in evaluation mode and not changed.
        dtype: float32 or float64; that of the weights if not given (half precision becomes float32).

    Returns:
        The folded network.

    Raises:
        FoldError: A module has no `fold`; the message says which and where. It is a TypeError.
        ValueError: The dtype is not one of these, or a number does not fit into it.
    """
    precision = _precision(model, dtype)
    try:
        folded = fold_method(model)(float(np.sqrt(np.finfo(precision).tiny)))
    except FoldError as error:
        raise _located(model, error) from None
    if not isinstance(folded, Folded):
        raise TypeError(f"fold: {type(model).__name__}.fold must return a Folded, got {type(folded).__name__}")
    with np.errstate(over="ignore"):
        folded = folded.astype(precision)
    fault = folded.fault()
    if fault:
        raise ValueError(f"fold: the network cannot be folded in {precision}: {fault}")
    return folded


def _located(model: nn.Module, error: FoldError) -> FoldError:
    """The error with the name of its module in the model."""
    place = next((name for name, module in model.named_modules() if module is error.module), "")
    foldable = [name for name, child in model.named_children() if callable(getattr(child, "fold", None))]
    hint = "" if place or not foldable else f"; fold its {foldable[0]} instead"
    return FoldError(error.module, error.reason + hint, place)


def _precision(model: nn.Module, dtype: Any) -> np.dtype[Any]:
    if dtype is None:
        weights = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        dtype = "float64" if weights == torch.float64 else "float32"
    precision = np.dtype(dtype)
    if precision not in (np.float32, np.float64):
        raise ValueError(f"fold: dtype must be float32 or float64, got {dtype}")
    return precision
