"""The paper's sweep of a fixed decay β on psMNIST, with and without oscillation. No neuron parameter is trained."""

import math
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from ..plot import figure, lines, styled
from .pages import percent, table
from .recipes import decay
from .workplace import Trained, Workplace, by_chance

TITLE = "Accuracy over the decay β on psMNIST, with and without oscillation"
BETAS = (0.5, 0.9, 0.97, 0.99, 0.999)
THETAS = {"oscillating": math.pi / 2, "plain": 0.0}
# With the paper's batches of 256, a small budget has few steps.
BATCH = 32


def run(workplace: Workplace) -> dict[str, Any]:
    trained = networks(workplace)
    results = {kind: [trained[label(beta, kind)].result for beta in BETAS] for kind in THETAS}
    return {
        "task": "psmnist-bitrev", **next(iter(trained.values())).scale, "betas": BETAS,
        "accuracy": {kind: [each["accuracy"] for each in of_kind] for kind, of_kind in results.items()},
        "fire_rates": {kind: [each["fire_rates"] for each in of_kind] for kind, of_kind in results.items()},
    }  # fmt: skip


def networks(workplace: Workplace) -> dict[str, Trained]:
    """Return all networks of the sweep by label; experiments with the same budget share them."""
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
    memories = [1 / (1 - beta) for beta in result["betas"]]
    for (kind, accuracies), style in zip(result["accuracy"].items(), lines(), strict=False):
        panel.plot(memories, [100 * each["test"] for each in accuracies], label=labels[kind], **style)
    panel.set_xscale("log")
    panel.set_xticks(memories, [f"{beta:g}" for beta in result["betas"]])
    panel.minorticks_off()
    panel.set(xlabel="β, what is left after one step", ylabel="test accuracy, %", ylim=(0, None))
    panel.legend(loc="best")
    return drawn


def page(result: dict[str, Any]) -> str:
    kinds = zip(result["betas"], result["accuracy"]["plain"], result["accuracy"]["oscillating"], strict=True)
    rows = [(f"{beta:g}", percent(plain["test"], 2), percent(turning["test"], 2)) for beta, plain, turning in kinds]
    return f"""
Network 1-64-256-256-10, Δ = 1, β = exp(-1/τ) and θ equal for all neurons and not trained, initial weights scaled so
that initial potentials do not depend on β; psMNIST in bit-reversed order, {result["steps"]:,} steps of
{result["batch"]} images each ({result["epochs"]:.2f} epochs), one seed; accuracy on {result["tested"]:,} test images.
The paper trains 50 epochs with batches of 256 and shows a figure without numbers.

{table(("β", "θ = 0", "θ = π/2"), rows)}

The paper's reading of its figure: without oscillation accuracy first rises with β and then falls; with it, the fall
is countered. Here {_fall("plain", "θ = 0", result)}; {_fall("oscillating", "θ = π/2", result)}.
"""


def _fall(kind: str, label: str, result: dict[str, Any]) -> str:
    accuracies = result["accuracy"][kind]
    shares = [100 * each["test"] for each in accuracies]
    best = max(range(len(shares)), key=lambda place: accuracies[place]["validation"])
    where = f"with {label} β = {result['betas'][best]:g} is the best on validation ({shares[best]:.1f} % on test)"
    if best == len(shares) - 1:
        return f"{where}, the slowest decay tried"
    last = f"{shares[-1]:.1f} % at β = {result['betas'][-1]:g}"
    if shares[best] - shares[-1] <= by_chance((shares[best], shares[-1]), result["tested"]):
        return f"{where}, not significantly above {last}"
    return f"{where}, against {last}"
