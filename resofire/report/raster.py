"""One sequence through all layers of a network: its input, every spike, every potential, and the answer as it grows."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import Batch, Split, Task
from ..models import Classifier, Feedforward, Network, build
from ..train.evaluation import predictions
from .drawing import CHANNELS, drawing, letters, packed, short
from .recording import Layer, recorded, title

# Bytes of the potentials of one sequence: neurons are left out until they fit.
CELLS = 200_000
STEPS = 4096
FEWEST, MOST = 2, 64
CLASSES = 8


def raster(model: Network, task: Task, split: Split, row: int, share: float = 1.0) -> dict[str, Any]:
    """Run a network on one sample of a split; its potentials may take a share of CELLS bytes.

    Returns:
        Plain values for the page. `cells` is one signed byte for each drawn neuron and step, [rows, shown]: not
        negative where it fired; its size is the distance of the potential from the threshold, 127 meaning the
        `scale` of the layer (-1 is a distance of 0 below).
    """
    batch = split.batch(np.array([row]))
    with recorded(model, potentials=True) as layers:
        logits, labels = next(iter(predictions(model, [batch])))
    steps = batch.x.shape[1]
    # So that the fewest neurons of very many layers still fit.
    room = int(share * CELLS)
    shown = max(1, min(steps, STEPS, room // (FEWEST * max(1, len(layers)))))
    neurons = max(FEWEST, min(MOST, room // max(1, shown * len(layers))))
    rows, cells = [], []
    for name, layer in layers.items():
        kept, scale, block = _cells(layer, neurons, shown)
        rate = float(layer.spikes.double().mean()) if layer.spikes.numel() else 0.0
        rows.append({
            "title": title(name), "neurons": layer.spikes.shape[-1], "kept": kept.tolist(), "scale": scale,
            "potentials": layer.above is not None, "rate": rate,
        })  # fmt: skip
        cells.append(block)
    flat, target = logits.flatten(0, -2), labels.flatten()
    answer = torch.softmax(flat[-1].double(), -1)
    return {
        "row": row, "steps": steps, "shown": shown, "label": int(target[-1]), "answer": int(answer.argmax()),
        "confidence": float(answer.max()), "per_step": task.per_step, "input": _input(task, batch, shown),
        "bounds": None if batch.cu_seqlens is None or not task.pairs else batch.cu_seqlens.tolist(),
        "drawing": drawing(task, split, row), "layers": rows,
        "cells": packed(np.concatenate(cells)) if cells else "",
        "running": _running(model, batch, int(target[-1]), shown),
    }  # fmt: skip


def running_logits(model: Network, batch: Batch) -> Tensor | None:
    """The logits after each step of one sequence [T, classes]: those of the network if the sequence ended there.

    Of a bidirectional network the neurons have read all of it, and the steps so far are pooled. None for a network that
    answers otherwise than through one pool and one Linear.
    """
    if type(model) not in (Classifier, Feedforward):
        return None
    config = model.config
    network: Any = model
    if config.pool != "none":
        # Pool, last norm and head are linear: the answer on a mean is the mean of the answers.
        network = build(replace(config, pool="none", pool_steps=None)).eval()
        network.load_state_dict(model.state_dict())
        network.to(next(model.parameters()).device)
    with torch.no_grad():
        each = network(batch.x.to(next(model.parameters()).device), cu_seqlens=None)[0].double().cpu()
    if config.pool == "mean":
        return each.cumsum(0) / torch.arange(1, len(each) + 1)[:, None]
    if config.pool == "leaky":
        decay, total, weight = 1 - 1 / (config.pool_steps or 1), torch.zeros(each.shape[1]).double(), 0.0
        rows = []
        for step in each:
            total, weight = decay * total + step, decay * weight + 1
            rows.append(total / weight)
        return torch.stack(rows)
    return each


def _running(model: Network, batch: Batch, label: int, shown: int) -> dict[str, Any]:
    logits = running_logits(model, batch)
    if logits is None:
        return {"missing": "This network answers only when all has been read."}
    probabilities = torch.softmax(logits, -1).numpy()[:shown]
    # The true class and those that come closest to being answered.
    order = np.argsort(-probabilities.max(0, initial=0.0), kind="stable")[:CLASSES].tolist()
    classes = sorted({*order, label} & {*range(probabilities.shape[1])})
    values = np.round(255 * probabilities[:, classes]).astype(np.uint8)
    return {
        "classes": classes,
        "values": packed(values.T),
        "whole": bool(getattr(model.config, "bidirectional", False)),
    }


def _input(task: Task, batch: Batch, shown: int) -> dict[str, Any]:
    x = batch.x[0, :shown].numpy()
    if task.kind == "tokens" and task.symbols is None:
        return {"lines": [x.tolist()], "name": "token"}
    if task.kind == "tokens":
        return {"symbols": letters(task, x)}
    return {"lines": [short(channel, 3) for channel in x[:, :CHANNELS].T], "name": "value"}


def _cells(layer: Layer, neurons: int, shown: int) -> tuple[np.ndarray, float, np.ndarray]:
    """Which neurons are drawn, the potential that 127 stands for, and their bytes [neurons, shown]."""
    width = layer.spikes.shape[-1]
    kept = np.unique(np.linspace(0, width - 1, min(neurons, width)).astype(int))
    fired = layer.spikes[0, :shown].cpu().numpy().T[kept]
    if layer.above is None:
        return kept, 1.0, np.where(fired, 127, -128).astype(np.int8)
    above = layer.above[0, :shown].double().cpu().numpy().T[kept]
    finite = np.abs(np.where(np.isfinite(above), above, 0.0))
    scale = float(f"{max(np.quantile(finite, 0.999) if finite.size else 0.0, 1e-6):.4g}")
    size = np.minimum(127, np.round(127 * finite / scale)).astype(np.int16)
    return kept, scale, np.where(fired, size, -1 - size).astype(np.int8)
