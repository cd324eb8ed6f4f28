"""The LIF trained three ways from the same weights and batches: as a loop, decoupled by FFT, and as a fused scan.

In float64 the three give the same spikes and gradients to rounding, so their curves coincide until a potential comes
within rounding of the threshold. However it was trained, a network is tested step by step.
"""

import time
from dataclasses import dataclass, field
from itertools import count, islice
from statistics import median_high
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy

from .. import data
from ..models import Feedforward, FeedforwardConfig, build
from ..nn import LIFConfig
from ..ops import retain_buffers
from ..plot import figure, lines, styled
from .pages import percent, percentages, table
from .workplace import Workplace

TITLE = "Sequential and parallel training of the LIF"
BACKENDS = {"reference": "loop", "fft": "decoupled, FFT", "scan": "decoupled, fused scan"}
# Five layers of a Linear and a LIF, and a Linear for the output.
SIZES, GAIN, RATE = (1, 32, 32, 32, 32, 32, 10), 3.0, 5e-3
BATCH, MOST = 8, 300
TESTED, EVERY = 256, 50
# Rounding alone stays far below this, one spike more or less is far above.
APART = 1e-9
PAPER = 8.58


@dataclass
class Way:
    """One way of training, and its record."""

    model: Feedforward
    optimiser: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    def step(self, batch: data.Batch) -> None:
        start = time.perf_counter()
        loss = cross_entropy(self.model(batch.x.double()), batch.labels)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(loss.item())

    @torch.no_grad()
    def test(self, batch: data.Batch) -> None:
        logits, state = torch.empty(0), None
        for x in batch.x.double().unbind(1):
            logits, state = self.model.step(x, state)
        answers = logits.argmax(-1)
        self.accuracy.append(float((answers == batch.labels).double().mean()))
        self.answers = answers.tolist()


def run(workplace: Workplace) -> dict[str, Any]:
    retain_buffers()
    task = workplace.task("image")
    held_out = next(task["test"].batches(TESTED))
    ways = {backend: _way(backend) for backend in BACKENDS}
    loop = ways["reference"]
    others = {backend: way for backend, way in ways.items() if way is not loop}
    tested = []
    weights_apart: dict[str, list[float]] = {backend: [] for backend in others}
    start = time.monotonic()
    batches = (batch for epoch in count() for batch in task["train"].batches(BATCH, seed=0, epoch=epoch))
    for step, batch in enumerate(islice(batches, MOST), start=1):
        for way in ways.values():
            way.step(batch)
        for backend, way in others.items():
            weights_apart[backend].append(_weights_apart(way.model, loop.model))
        last = step == MOST or time.monotonic() - start > 60 * workplace.minutes
        if last or step % EVERY == 0:
            tested.append(step)
            for way in ways.values():
                way.test(held_out)
        if last:
            break
    return {
        "task": "image", "length": held_out.x.shape[1], "sizes": SIZES, "batch": BATCH, "steps": len(loop.losses),
        "epochs": len(loop.losses) * BATCH / len(task["train"]), "threads": torch.get_num_threads(),
        "losses": {backend: way.losses for backend, way in ways.items()},
        # The first step compiles kernels and fills caches.
        "median_seconds": {backend: median_high(way.seconds[1:] or way.seconds) for backend, way in ways.items()},
        "largest_difference": {backend: max(_differences(way.losses, loop.losses)) for backend, way in others.items()},
        "apart": APART,
        "parts_at": {backend: _parts_at(way.losses, loop.losses) for backend, way in others.items()},
        "weights_apart": weights_apart,
        "tested": {"steps": tested, "images": len(held_out.labels)},
        "accuracy": {backend: way.accuracy for backend, way in ways.items()},
        "other_answers": {
            backend: sum(a != b for a, b in zip(way.answers, loop.answers, strict=True))
            for backend, way in others.items()
        },
    }  # fmt: skip


def _way(backend: str) -> Way:
    torch.manual_seed(0)
    neuron = LIFConfig(tau=2.0, backend=backend)
    model = build(FeedforwardConfig(sizes=SIZES, neuron=neuron, gain=GAIN)).double()
    assert isinstance(model, Feedforward)
    return Way(model, torch.optim.AdamW(model.parameters(), lr=RATE))


def _differences(losses: list[float], expected: list[float]) -> list[float]:
    return [abs(a - b) for a, b in zip(losses, expected, strict=True)]


def _parts_at(losses: list[float], expected: list[float]) -> int | None:
    """The first step whose loss is more than APART from the expected one."""
    steps = enumerate(_differences(losses, expected), start=1)
    return next((step for step, difference in steps if difference > APART), None)


def _weights_apart(model: Feedforward, other: Feedforward) -> float:
    pairs: list[tuple[Tensor, Tensor]] = list(zip(model.parameters(), other.parameters(), strict=True))
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (above, middle, below) = figure(1, 3, height=2.5)
    steps = range(1, result["steps"] + 1)
    # Single steps of few images are noisy.
    block = max(1, result["steps"] // 30)
    ends = range(block, result["steps"] + 1, block)
    sizes = {"reference": 5.0, "fft": 2.6, "scan": 1.0}
    for (backend, losses), style in zip(result["losses"].items(), lines(), strict=False):
        plain, label = {**style, "marker": ""}, BACKENDS[backend]
        means = [sum(losses[end - block : end]) / block for end in ends]
        above.plot(ends, means, label=label, **{**plain, "linewidth": sizes[backend]})
        if backend != "reference":
            # A logarithm has no zero.
            apart = [max(each, 1e-17) for each in result["weights_apart"][backend]]
            middle.plot(steps, apart, label=label, **plain)
        shares = percentages(result["accuracy"][backend])
        look = {**style, "linewidth": sizes[backend], "markersize": 5 + 2 * sizes[backend], "markerfacecolor": "none"}
        below.plot(result["tested"]["steps"], shares, label=label, **look)
    above.set(title="training" if block == 1 else f"training, means of {block} steps", ylabel="loss")
    middle.set(title="weights, largest difference from the loop's", ylabel="difference", yscale="log", ylim=(1e-17, 10))
    middle.set_yticks([1e-15, 1e-10, 1e-5, 1])
    below.set(title="test, one time step after the other", xlabel="training step", ylabel="accuracy, %")
    below.set_ylim(0, 120 * max(map(max, result["accuracy"].values())) + 1)
    for panel in (above, middle, below):
        panel.set_xlim(0, 1.05 * result["steps"])
    middle.legend(loc="upper left")
    below.legend(loc="lower center")
    return drawn


def page(result: dict[str, Any]) -> str:
    seconds, threads, reference = result["median_seconds"], result["threads"], result["losses"]["reference"]
    rows = []
    for backend, label in BACKENDS.items():
        differences = ["", ""]
        if backend != "reference":
            apart = (result["largest_difference"][backend], result["weights_apart"][backend][-1])
            differences = [f"{each:.2g}" for each in apart]
        rows.append((label, f"{1000 * seconds[backend]:,.0f} ms", f"{seconds['reference'] / seconds[backend]:.1f}x",
                     *differences, percent(result["accuracy"][backend][-1])))  # fmt: skip
    few = min(20, result["steps"])
    first, last = (sum(part) / few for part in (reference[:few], reference[-few:]))
    head = ("way", "time of a step", "speed-up", "a loss differs from the loop's by up to", "a weight at the end",
            "test accuracy")  # fmt: skip
    return f"""
Five layers of a Linear and a LIF with reset (τ = 2), and a Linear on their mean: {"-".join(map(str, result["sizes"]))},
on grey CIFAR-10 pixel by pixel ({result["length"]:,} time steps). float64, AdamW, {result["steps"]} steps of
{result["batch"]} images ({result["epochs"]:.3f} epochs), one seed, {threads} CPU thread{"s" * (threads > 1)}; the same
initial weights and batches for each way. Accuracy of the last weights on the first {result["tested"]["images"]} test
images, computed step by step for all three.

{table(head, rows)}

{_parting(result)}
{_answers(result)} Over the run the loop's loss goes from {first:.3f} to {last:.3f} (means of {few} steps).

The paper trains a 5-layer MLP of unspecified size for 64 epochs on CIFAR at 1,024 time steps. Its curves are close but
not identical, and its parallel training is {PAPER}x as fast as the loop, on a GPU; here that way (FFT) is
{seconds["reference"] / seconds["fft"]:.1f}x as fast and the fused scan
{seconds["reference"] / seconds["scan"]:.1f}x. The ways add in different orders: once a potential is within rounding of
the threshold, a spike may differ, and from there on the weights diverge. [run-time](run-time.md) has the time over the
length.
"""


def _parting(result: dict[str, Any]) -> str:
    parts_at, apart = result["parts_at"], result["apart"]
    if not any(parts_at.values()):
        return f"Every loss is within {apart:g} of the loop's, to the last step: the curves coincide."
    steps = ", ".join(
        f"{BACKENDS[backend]}: {f'at step {step}' if step else 'never'}" for backend, step in parts_at.items()
    )
    return f"More than {apart:g} from the loop's loss for the first time: {steps}."


def _answers(result: dict[str, Any]) -> str:
    others, images = result["other_answers"], result["tested"]["images"]
    if not any(others.values()):
        return f"The three networks agree on each of the {images} images."
    counts = ", ".join(f"{BACKENDS[backend]}: {number}" for backend, number in others.items())
    return f"Predictions that differ from the loop's network, of {images}: {counts}."
