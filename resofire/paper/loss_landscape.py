"""The paper's loss landscapes: one network on psMNIST, trained with fast, moderate and slow decay and with resonance.

The networks are those of the decay sweep at the same budget. A plane goes through the trained weights along two random
directions. A direction is sampled from a normal distribution, each row of a weight matrix (the weights into one neuron)
scaled to the norm of that row of the trained weights (Li et al. 2018); biases and neurons are fixed. All four networks
have the same samples.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy

from .. import data
from ..atomic import write_atomic
from ..models import Feedforward, load
from ..plot import figure, styled
from . import decay as sweep
from .pages import percent, table
from .workplace import Trained, Workplace, read_json

TITLE = "Loss landscapes on psMNIST: fast, moderate and slow decay, and resonance"
# Decay, and kind of neuron as in the decay sweep.
CASES = {
    "fast": (0.5, "plain"), "moderate": (0.97, "plain"), "slow": (0.999, "plain"), "resonate": (0.999, "oscillating"),
}  # fmt: skip
LABELS = {"fast": "fast decay", "moderate": "moderate decay", "slow": "slow decay", "resonate": "resonate"}
TASK, CHUNK, RADIUS = "psmnist-bitrev", 64, 1.0
LEVELS = 10
# Test accuracy below which a network counts as untrained.
LEARNT = 0.5
# Planes, points along a side, images: the last plan that fits the budget is used.
PLANS = ((1, 5, 16), (1, 9, 32), (1, 9, 64), (1, 13, 64), (2, 13, 64), (3, 13, 128), (3, 17, 128), (3, 17, 256),
         (3, 21, 256), (3, 25, 512))  # fmt: skip


class Claim(NamedTuple):
    """A statement of the paper about its figure, and its measurement in one plane."""

    says: str
    measured: str
    holds: Callable[[dict[str, dict[str, float]]], bool]


CLAIMS = (
    Claim("(a) fast decay: gradients vanish, contours extremely sparse", "its slope is the smallest of the four",
          lambda of: min(of, key=lambda case: of[case]["slope"]) == "fast"),
    Claim("(b) moderate decay: gradients appear", "its slope is larger than that of fast decay",
          lambda of: of["moderate"]["slope"] > of["fast"]["slope"]),
    Claim("(b) moderate decay: a local optimum remains", "more than one minimum",
          lambda of: of["moderate"]["minima"] > 1),
    Claim("(c) slow decay: ambiguous gradients", "rougher than moderate decay",
          lambda of: of["slow"]["roughness"] > of["moderate"]["roughness"]),
    Claim("(d) resonate: smooth gradients", "the least rough of the four",
          lambda of: min(of, key=lambda case: of[case]["roughness"]) == "resonate"),
    Claim("(d) resonate: smooth gradients", "the closest to a quadratic of the four",
          lambda of: min(of, key=lambda case: of[case]["not_quadratic"]) == "resonate"),
)  # fmt: skip


def run(workplace: Workplace) -> dict[str, Any]:
    trained = networks(workplace)
    split = workplace.task(TASK)["train"]
    plan = planes, side, images = _plan(workplace, [model for _, model in trained.values()], split)
    batches = _images(split, images)
    cases = {}
    for label, (done, model) in trained.items():
        surfaces = _surfaces(done.folder / "landscape.json", model, batches, plan)
        beta, kind = CASES[label]
        cases[label] = {
            "beta": beta, "theta": sweep.THETAS[kind], "accuracy": done.result["accuracy"],
            "tested": done.scale["tested"], "trained_loss": surfaces[0][side // 2][side // 2], "surfaces": surfaces,
            "numbers": [smoothness(np.array(surface), 2 * RADIUS / (side - 1)) for surface in surfaces],
        }  # fmt: skip
    first, model = next(iter(trained.values()))
    return {
        "task": TASK, **first.scale, "planes": planes, "side": side, "images": images, "radius": RADIUS, "cases": cases,
        "weights": sum(weight.numel() for weight in direction(model, seed=0)),
    }  # fmt: skip


def networks(workplace: Workplace) -> dict[str, tuple[Trained, Feedforward]]:
    """Return the four networks of the decay sweep at this budget."""
    trained, pairs = sweep.networks(workplace), {}
    for case, which in CASES.items():
        done = trained[sweep.label(*which)]
        model = load(done.folder)
        assert isinstance(model, Feedforward)
        pairs[case] = (done, model)
    return pairs


def _plan(workplace: Workplace, models: list[Feedforward], split: data.Split) -> tuple[int, int, int]:
    """Planes, points and images that fit a quarter of the budget; determined once and kept."""
    file = workplace.folder / "plan.json"
    if not file.exists():
        seconds = sum(_seconds_per_image(model, _images(split, PLANS[0][2])) for model in models)
        room = [plan for plan in PLANS if plan[0] * plan[1] ** 2 * plan[2] * seconds <= 15 * workplace.minutes]
        workplace.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(file, (json.dumps(room[-1] if room else PLANS[0]) + "\n").encode())
    planes, side, images = read_json(file)
    return planes, side, images


def _seconds_per_image(model: Feedforward, batches: list[data.Batch]) -> float:
    loss(model, batches)
    start = time.perf_counter()
    loss(model, batches)
    return (time.perf_counter() - start) / sum(len(batch.labels) for batch in batches)


def _images(split: data.Split, count: int) -> list[data.Batch]:
    order = np.random.RandomState(0).permutation(len(split))[:count]
    return [split.batch(order[first : first + CHUNK]) for first in range(0, len(order), CHUNK)]


@torch.no_grad()
def loss(model: Feedforward, batches: list[data.Batch]) -> float:
    """Mean loss over all images."""
    total = sum(float(cross_entropy(model(batch.x), batch.labels, reduction="sum")) for batch in batches)
    return total / sum(len(batch.labels) for batch in batches)


def _surfaces(
    file: Path, model: Feedforward, batches: list[data.Batch], plan: tuple[int, int, int]
) -> list[list[list[float]]]:
    """Losses over each plane; those in the file are read."""
    planes, side, _ = plan
    stored = read_json(file) if file.exists() else {}
    surfaces = stored["surfaces"] if stored.get("plan") == list(plan) else []
    for plane in range(len(surfaces), planes):
        along = [direction(model, seed) for seed in (2 * plane, 2 * plane + 1)]
        surfaces.append(surface(model, batches, along, side))
        write_atomic(file, (json.dumps({"plan": plan, "surfaces": surfaces}) + "\n").encode())
    return surfaces


def direction(model: Feedforward, seed: int) -> list[Tensor]:
    """A random direction for each weight matrix, with the row norms of the weights."""
    generator = torch.Generator().manual_seed(seed)
    directions = []
    for linear in model.linears:
        weight = linear.get_parameter("weight").detach()
        sample = torch.randn(weight.shape, generator=generator)
        directions.append(sample * weight.norm(dim=1, keepdim=True) / sample.norm(dim=1, keepdim=True))
    return directions


@torch.no_grad()
def surface(model: Feedforward, batches: list[data.Batch], along: list[list[Tensor]], side: int) -> list[list[float]]:
    """The loss at side x side points, one row per step along the second direction. The weights are restored."""
    weights = [linear.get_parameter("weight") for linear in model.linears]
    middle = [weight.clone() for weight in weights]
    at = np.linspace(-RADIUS, RADIUS, side).tolist()

    def move(a: float, b: float) -> None:
        for weight, start, first, second in zip(weights, middle, *along, strict=True):
            weight.copy_(start + a * first + b * second)

    def height(a: float, b: float) -> float:
        move(a, b)
        return float(f"{loss(model, batches):.6g}")

    rows = [[height(a, b) for a in at] for b in at]
    move(0.0, 0.0)
    return rows


def smoothness(losses: np.ndarray, step: float) -> dict[str, float]:
    """Statistics of a surface of losses, `step` apart.

    range            highest minus lowest
    slope            mean norm of the gradient
    roughness        mean absolute second difference along both axes, as a share of the range
    not_quadratic    share of the variance that the best quadratic fit does not explain
    minima           inner points below all eight neighbours
    """
    height = float(np.ptp(losses))
    slope = float(np.hypot(*np.gradient(losses, step)).mean())
    statistics = {"range": height, "slope": slope, "roughness": 0.0, "not_quadratic": 0.0, "minima": _minima(losses)}
    if height > 0:
        bends = np.concatenate([np.diff(losses, 2, axis).ravel() for axis in (0, 1)])
        statistics["roughness"] = float(np.abs(bends).mean()) / height
        statistics["not_quadratic"] = _not_quadratic(losses)
    return statistics


def _not_quadratic(losses: np.ndarray) -> float:
    y, x = (axis.ravel().astype(float) for axis in np.indices(losses.shape))
    terms = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], 1)
    values = losses.ravel()
    fitted = terms @ np.linalg.lstsq(terms, values, rcond=None)[0]
    return float(((values - fitted) ** 2).sum() / ((values - values.mean()) ** 2).sum())


def _minima(losses: np.ndarray) -> int:
    rows, columns = losses.shape
    around = [
        losses[1 + dy : rows - 1 + dy, 1 + dx : columns - 1 + dx]
        for dy in (-1, 0, 1)
        for dx in (-1, 0, 1)
        if (dy, dx) != (0, 0)
    ]
    return int((losses[1:-1, 1:-1] < np.min(around, 0)).sum())


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, panels = figure(2, 2, width=3.6, height=3.5)
    surfaces = {label: np.array(case["surfaces"][0]) for label, case in result["cases"].items()}
    # Light enough for black lines and labels on it.
    greys = LinearSegmentedColormap.from_list("greys", ["#ffffff", "#8c8c8c"])
    at = np.linspace(-result["radius"], result["radius"], result["side"])
    for (label, losses), panel in zip(surfaces.items(), panels, strict=True):
        # Levels must increase, even on a flat surface.
        levels = np.linspace(losses.min(), max(losses.max(), losses.min() + 1e-6), LEVELS)
        panel.contourf(at, at, losses, levels, cmap=greys)
        lines = panel.contour(at, at, losses, levels, colors="black", linewidths=1.1)
        panel.clabel(lines, levels[1:-1:2], fmt="%.2f", fontsize=12)
        panel.plot(0, 0, "X", color="#d9730d", markeredgecolor="black", markersize=9)
        case = result["cases"][label]
        panel.set(title=f"{LABELS[label]}, β = {case['beta']:g}", aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        panel.grid(False)
    drawn.supxlabel("along the first direction (cross: the trained weights)", fontsize=11)
    drawn.supylabel("along the second direction", fontsize=11)
    return drawn


def page(result: dict[str, Any]) -> str:
    rows = [
        (LABELS[label], f"{case['beta']:g}", "π/2" if case["theta"] else "0", percent(case["accuracy"]["test"], 2),
         f"{case['trained_loss']:.3f}",
         *(_spread(case["numbers"], name) for name in ("range", "slope", "roughness", "not_quadratic", "minima")))
        for label, case in result["cases"].items()
    ]  # fmt: skip
    planes = result["planes"]
    confirmed = [_planes(claim, result) for claim in CLAIMS]
    claims = [
        (claim.says, claim.measured, _verdict(times, planes)) for claim, times in zip(CLAIMS, confirmed, strict=True)
    ]
    always, never = sum(times == planes for times in confirmed), sum(times == 0 for times in confirmed)
    several = f"{planes} planes; means, with minimum and maximum in brackets" if planes > 1 else "one plane"
    head = (
        "case", "β", "θ", "test accuracy", "loss, trained", "range", "slope", "roughness", "not quadratic", "minima",
    )  # fmt: skip
    return f"""
Network 1-64-256-256-10, Δ = 1, β and θ equal for all neurons and not trained; psMNIST in bit-reversed order,
{result["steps"]:,} steps of {result["batch"]} images ({result["epochs"]:.2f} epochs; the paper trains 50), one seed.
The paper does not give the β of its cases; these are ours. Accuracy on {result["cases"]["fast"]["tested"]:,} test
images.

Each plane goes through the trained weights along two random directions. A direction is sampled from a normal
distribution, and each row of a weight matrix scaled to the norm of that row of the trained weights (Li et al. 2018).
All four weight matrices move; biases and neurons do not. The directions are not orthogonalised, and the samples are the
same for each case. {result["side"]} x {result["side"]} points from -{result["radius"]:g} to {result["radius"]:g}; the
loss is the mean over the same {result["images"]} training images. Each panel of the figure has {LEVELS} contour levels
of its own, from its lowest loss to its highest.

{table(head, rows)}

From {several}. *Slope* is the mean norm of the gradient on the grid, *roughness* the mean absolute second difference
over the range of the loss, *not quadratic* the share of the variance that the best quadratic fit leaves, *minima* the
inner points below all eight neighbours. A smooth bowl has low roughness, little that is not quadratic and one minimum.

{table(("the paper's reading of its figure", "measured here as", "confirmed"), claims)}

Of these {len(CLAIMS)}, {_count(always)} in every plane and {_count(never)} in none.
{_best(result)}

Limits of such pictures: spikes are steps, so the loss over the weights before neurons is a staircase, smoothed only by
the number of images, and its slope is not the surrogate gradient that training follows. Two directions out of
{result["weights"]:,} show little of a landscape. The paper sees overlapping contours in (c); contours cannot overlap:
where they seem to, the loss is steep.
"""


def _spread(numbers: list[dict[str, float]], name: str) -> str:
    values = [each[name] for each in numbers]
    mean = f"{np.mean(values):.3g}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.2g} to {max(values):.2g})"


def _planes(claim: Claim, result: dict[str, Any]) -> int:
    """In how many planes a claim holds."""
    planes = zip(*(case["numbers"] for case in result["cases"].values()), strict=True)
    return sum(claim.holds(dict(zip(result["cases"], plane, strict=True))) for plane in planes)


def _verdict(times: int, planes: int) -> str:
    if planes == 1:
        return "yes" if times else "no"
    return {0: "no, in no plane", planes: f"yes, in all {planes} planes"}.get(times, f"in {times} of {planes} planes")


def _count(times: int) -> str:
    return "1 is confirmed" if times == 1 else f"{times or 'none'} are confirmed"


def _best(result: dict[str, Any]) -> str:
    shares = {label: case["accuracy"]["test"] for label, case in result["cases"].items()}
    best = max(shares, key=shares.__getitem__)
    least = min(result["cases"], key=lambda label: result["cases"][label]["trained_loss"])
    same = "which also has" if best == least else f"while {LABELS[least]} has"
    sentence = f"The best test accuracy is that of {LABELS[best]}, {same} the lowest training loss."
    behind = [LABELS[label] for label, share in shares.items() if share < LEARNT]
    if not behind:
        return sentence
    return f"""{sentence}
Below {100 * LEARNT:g} % at this budget: {", ".join(behind)}. There the landscape is one near the start of training, and
a smooth one may just be flat."""
