"""The paper's sweep of a fixed decay β on psMNIST, with and without oscillation. Nothing in the neuron is trained."""

import math
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from ..plot import figure, lines, styled
from .recipes import decay
from .workplace import Trained, Workplace, by_chance

TITLE = "How fast to forget: accuracy over the decay β on psMNIST, with and without oscillation"
BETAS = (0.5, 0.9, 0.97, 0.99, 0.999)
THETAS = {"oscillating": math.pi / 2, "plain": 0.0}
# The paper's batches of 256 make few steps of a small budget.
BATCH = 32


def run(workplace: Workplace) -> dict[str, Any]:
    trained = networks(workplace)
    first = next(iter(trained.values()))
    results = {kind: [trained[label(beta, kind)].result for beta in BETAS] for kind in THETAS}
    return {
        "task": "psmnist-bitrev",
        "steps": first.config.steps,
        "batch": BATCH,
        "epochs": first.epochs,
        "tested": first.tested,
        "betas": BETAS,
        "accuracy": {kind: [result["accuracy"] for result in found] for kind, found in results.items()},
        "fire_rates": {kind: [result["fire_rates"] for result in found] for kind, found in results.items()},
    }


def networks(workplace: Workplace) -> dict[str, Trained]:
    """All networks of the sweep, by label. Whoever asks for the same budget gets the same ones."""
    configs = {
        label(beta, kind): replace(decay(beta, theta), batch=BATCH) for beta in BETAS for kind, theta in THETAS.items()
    }
    return replace(workplace, name="decay").train(configs, validations=1, thin=True)


def label(beta: float, kind: str) -> str:
    return f"{beta:g}-{kind}"


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (panel,) = figure()
    labels = {"oscillating": "θ = π/2 (oscillating)", "plain": "θ = 0"}
    for (kind, found), style in zip(result["accuracy"].items(), lines(), strict=False):
        shares = [100 * accuracy["test"] for accuracy in found]
        panel.plot([1 / (1 - beta) for beta in result["betas"]], shares, label=labels[kind], **style)
    panel.set_xscale("log")
    panel.set_xticks([1 / (1 - beta) for beta in result["betas"]], [f"{beta:g}" for beta in result["betas"]])
    panel.minorticks_off()
    panel.set(xlabel="β, what is left after one step", ylabel="test accuracy, %", ylim=(0, None))
    panel.legend(loc="best")
    return drawn


def page(result: dict[str, Any]) -> str:
    found = result["accuracy"]
    rows = [
        f"| {beta:g} | {100 * plain['test']:.2f} % | {100 * resonant['test']:.2f} % |"
        for beta, plain, resonant in zip(result["betas"], found["plain"], found["oscillating"], strict=True)
    ]
    return f"""
Network 1-64-256-256-10, Δ = 1, β = exp(-1/τ) and θ the same for all neurons and not trained, first weights scaled so
that potentials begin as large with every β; psMNIST in the bitrev order, {result["steps"]:,} steps of {result["batch"]}
images each ({result["epochs"]:.2f} epochs), one seed; accuracy on {result["tested"]:,} test images. The paper trains 50
epochs with batches of 256 and shows a figure without numbers.

| β | θ = 0 | θ = π/2 |
|---|---|---|
{chr(10).join(rows)}

What the paper reads off its figure: without oscillation accuracy first rises with β and then falls; with it, the fall
is countered. Here {_fall("plain", "θ = 0", result)}; {_fall("oscillating", "θ = π/2", result)}.
"""


def _fall(kind: str, label: str, result: dict[str, Any]) -> str:
    found = result["accuracy"][kind]
    shares = [100 * accuracy["test"] for accuracy in found]
    best = max(range(len(found)), key=lambda place: found[place]["validation"])
    where = f"with {label} β = {result['betas'][best]:g} is the best on validation ({shares[best]:.1f} % on test)"
    if best == len(shares) - 1:
        return f"{where}, the slowest decay tried"
    last = f"{shares[-1]:.1f} % at β = {result['betas'][-1]:g}"
    if shares[best] - shares[-1] <= by_chance((shares[best], shares[-1]), result["tested"]):
        return f"{where}, too close to {last} to be told apart"
    return f"{where}, against {last}"
