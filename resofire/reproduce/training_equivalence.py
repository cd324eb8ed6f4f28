"""The LIF trained three ways from the same weights and batches: as a loop, decoupled by FFT, and as a fused scan.

In float64 the three give the same spikes and gradients to rounding, so their curves must lie on each other for as long
as no potential comes within rounding of the threshold.
"""

import time
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import torch
from matplotlib.figure import Figure
from torch.nn.functional import cross_entropy

from .. import data
from ..models import FeedforwardConfig, build
from ..models.network import Network
from ..nn import LIFConfig
from ..ops import retain_buffers
from ..plot import figure, lines, styled
from ..recipes.ablation import ablation_lif
from .workplace import Workplace

TITLE = "Sequential and parallel training of the LIF come to the same"
BACKENDS = {"reference": "loop", "fft": "decoupled, FFT", "scan": "decoupled, fused scan"}
BATCH, MOST = 4, 300


@dataclass
class Way:
    """One of the ways, and what it has come to."""

    model: Network
    optimiser: torch.optim.Optimizer
    losses: list[float]
    seconds: list[float]

    def step(self, batch: data.Batch) -> None:
        begun = time.perf_counter()
        loss = cross_entropy(self.model(batch.x.double()), batch.labels)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.seconds.append(time.perf_counter() - begun)
        self.losses.append(loss.item())


def run(workplace: Workplace) -> dict[str, Any]:
    retain_buffers()
    task = workplace.task("smnist")
    config = ablation_lif().model
    assert isinstance(config, FeedforwardConfig)
    ways = {backend: _way(config, backend) for backend in BACKENDS}
    begun = time.monotonic()
    batches = (batch for epoch in count() for batch in task["train"].batches(BATCH, seed=0, epoch=epoch))
    for batch in islice(batches, MOST):
        for way in ways.values():
            way.step(batch)
        if time.monotonic() - begun > 60 * workplace.minutes:
            break
    loop = ways["reference"]
    return {
        "task": "smnist",
        "sizes": config.sizes,
        "batch": BATCH,
        "steps": len(loop.losses),
        "losses": {backend: way.losses for backend, way in ways.items()},
        # The first step compiles kernels and fills caches.
        "median_seconds": {backend: _median(way.seconds[1:] or way.seconds) for backend, way in ways.items()},
        "largest_difference": {
            backend: max(abs(a - b) for a, b in zip(way.losses, loop.losses, strict=True))
            for backend, way in ways.items()
            if way is not loop
        },
        "weights_apart": {
            backend: max(
                float((a - b).detach().abs().max())
                for a, b in zip(way.model.parameters(), loop.model.parameters(), strict=True)
            )
            for backend, way in ways.items()
            if way is not loop
        },
    }


def _way(config: FeedforwardConfig, backend: str) -> Way:
    assert isinstance(config.neuron, LIFConfig)
    torch.manual_seed(0)
    model = build(replace(config, neuron=replace(config.neuron, backend=backend))).double()
    return Way(model, torch.optim.AdamW(model.parameters(), lr=1e-3), [], [])


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (left, right) = figure(2)
    steps = range(1, result["steps"] + 1)
    for (backend, losses), style in zip(result["losses"].items(), lines(), strict=False):
        width = {"reference": 5.0, "fft": 2.6, "scan": 1.0}[backend]
        left.plot(steps, losses, label=BACKENDS[backend], **{**style, "marker": "", "linewidth": width})
        if backend != "reference":
            apart = [max(abs(a - b), 1e-17) for a, b in zip(losses, result["losses"]["reference"], strict=True)]
            right.plot(steps, apart, label=BACKENDS[backend], **{**style, "marker": ""})
    left.set(title="loss, three curves on each other", xlabel="step", ylabel="loss")
    right.set(title="distance from the loop", xlabel="step", ylabel="difference of the losses", yscale="log")
    left.legend()
    right.legend()
    return drawn


def page(result: dict[str, Any]) -> str:
    seconds = result["median_seconds"]
    rows = []
    for backend, label in BACKENDS.items():
        apart = "" if backend == "reference" else f"{result['largest_difference'][backend]:.1e}"
        weights = "" if backend == "reference" else f"{result['weights_apart'][backend]:.1e}"
        faster = seconds["reference"] / seconds[backend]
        rows.append(f"| {label} | {1000 * seconds[backend]:.0f} ms | {faster:.1f}x | {apart} | {weights} |")
    sizes = "-".join(map(str, result["sizes"]))
    return f"""
The LIF network {sizes} on sMNIST (784 time steps), float64, {result["steps"]} steps of {result["batch"]} images, AdamW;
the same first weights and batches for each way.

| way | time of a step | speed-up | largest difference of a loss from the loop's | weights apart at the end |
|---|---|---|---|---|
{chr(10).join(rows)}

The paper shows curves close to each other over 64 epochs of a CIFAR task with 1,024 steps, and a speed-up of 8.58x. The
times here are those of whole training steps with this small batch.
"""
