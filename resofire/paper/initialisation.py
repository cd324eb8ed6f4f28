"""The paper's map of initial values: accuracy on sMNIST and psMNIST over Δ and θ, equal for all neurons, not trained.

Δ and θ also scale the potentials, and without norms a silent layer learns nothing. So that the map shows what neurons
remember rather than which layers are silent, the initial weights of each cell are scaled by the smallest gain at which
every layer fires.
"""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from ..models import FeedforwardConfig, build
from ..nn import PRFConfig, fire_rates
from ..plot import figure, styled
from ..train import RunConfig
from .pages import percent, table
from .recipes import SIZES
from .workplace import Trained, Workplace, by_chance

TITLE = "Initial Δ and θ: accuracy over both, on sMNIST and psMNIST"
TASKS = {"smnist": "sMNIST", "psmnist-bitrev": "psMNIST"}
DELTAS = (0.01, 0.03, 0.1, 0.3, 1.0)
THETAS = (0.0, 1.0, 2.0, 4.0, 8.0)
TAU = 2.0
BATCH = 16
# Three times the recipes' rate, which learns more in the few steps of a budget of minutes.
RATE = 1.5e-2
# Below this budget, in minutes, every other Δ and θ is skipped.
WHOLE = 4.0
GAINS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
LEAST_RATE = 0.03


def run(workplace: Workplace) -> dict[str, Any]:
    every = 1 if workplace.minutes >= WHOLE else 2
    deltas, thetas = DELTAS[::every], THETAS[::every]
    configs: dict[str, RunConfig] = {}
    for task in TASKS:
        x = next(workplace.task(task)["train"].batches(8, seed=0)).x
        for theta in thetas:
            configs |= {_label(task, delta, theta): _config(task, delta, theta, x) for delta in deltas}
    trained = workplace.train(configs, validations=1, thin=True)
    cells = {
        task: [[_cell(trained[_label(task, delta, theta)]) for delta in deltas] for theta in thetas] for task in TASKS
    }
    return {
        "tau": TAU, "lr": RATE, **next(iter(trained.values())).scale, "deltas": deltas, "thetas": thetas,
        "least_rate": LEAST_RATE, "cells": cells,
    }  # fmt: skip


def _label(task: str, delta: float, theta: float) -> str:
    return f"{task}-{delta:g}-{theta:g}"


def _config(task: str, delta: float, theta: float, x: Tensor) -> RunConfig:
    neuron = PRFConfig(tau=TAU, delta=delta, theta=theta, train_delta=False, train_theta=False)
    model = FeedforwardConfig(sizes=SIZES, neuron=neuron, gain=first_gain(neuron, x))
    return RunConfig(name="initialisation", task=task, model=model, batch=BATCH, lr=RATE, epochs=50, weight_decay=0.01)


@torch.no_grad()
def first_gain(neuron: PRFConfig, x: Tensor) -> float:
    """Return the smallest gain at which every layer fires at LEAST_RATE; the largest, if none is enough."""
    for gain in GAINS:
        torch.manual_seed(0)
        model = build(FeedforwardConfig(sizes=SIZES, neuron=neuron, gain=gain))
        with fire_rates(model) as rates:
            model(x)
        if min(rates.as_dict().values()) >= LEAST_RATE:
            break
    return gain


def _cell(done: Trained) -> dict[str, Any]:
    assert isinstance(done.config.model, FeedforwardConfig)
    return {
        "accuracy": done.result["accuracy"],
        "gain": done.config.model.gain,
        "least_rate": min(done.result["fire_rates"].values()),
    }


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, panels = figure(2, width=3.9, height=3.5)
    maps = {task: _shares(cells) for task, cells in result["cells"].items()}
    highest = max(max(row) for shares in maps.values() for row in shares)
    for (task, shares), panel in zip(maps.items(), panels, strict=True):
        row, column = _best(result["cells"][task])
        panel.imshow(shares, cmap="Greys", vmin=0, vmax=1.3 * highest, origin="lower", aspect="auto")
        for colour, width in (("white", 6), ("#d9730d", 2.5)):
            frame = Rectangle((column - 0.42, row - 0.42), 0.84, 0.84, fill=False, edgecolor=colour, linewidth=width)
            panel.add_patch(frame)
        _print(panel, shares, highest)
        panel.set(title=f"{TASKS[task]}, test, %", xlabel="Δ", ylabel="θ")
        panel.set_xticks(range(len(result["deltas"])), [f"{delta:g}" for delta in result["deltas"]])
        panel.set_yticks(range(len(result["thetas"])), [f"{theta:g}" for theta in result["thetas"]])
        panel.grid(visible=False)
    return drawn


def _print(panel: Axes, shares: list[list[float]], highest: float) -> None:
    """The numbers in their cells."""
    for y, line in enumerate(shares):
        for x, share in enumerate(line):
            colour = "white" if share > 0.7 * highest else "black"
            panel.text(x, y, f"{share:.0f}", ha="center", va="center", color=colour, fontsize=13)


def _shares(cells: list[list[dict[str, Any]]], split: str = "test") -> list[list[float]]:
    return [[100 * cell["accuracy"][split] for cell in row] for row in cells]


def _best(cells: list[list[dict[str, Any]]]) -> tuple[int, int]:
    """Row and column of the best cell on validation."""
    shares = _shares(cells, "validation")
    places = [(row, column) for row in range(len(shares)) for column in range(len(shares[0]))]
    return max(places, key=lambda place: shares[place[0]][place[1]])


def page(result: dict[str, Any]) -> str:
    cells = [cell for rows in result["cells"].values() for row in rows for cell in row]
    gains = sorted({cell["gain"] for cell in cells})
    rows = [
        (TASKS[task], f"{theta:g}", *(f"{share:.1f} %" for share in shares))
        for task, of_task in result["cells"].items()
        for theta, shares in zip(result["thetas"], _shares(of_task), strict=True)
    ]
    return f"""
Network 1-64-256-256-10 without norms, τ = {result["tau"]:g}, Δ and θ equal for all neurons and not trained. One
seed; {result["steps"]:,} steps of {result["batch"]} images per cell ({result["epochs"]:.2g} epochs) at a learning rate
of {result["lr"]:g}, tested on {result["tested"]:,} evenly spaced images of the test split. psMNIST is in bit-reversed
order. The paper trains 50 epochs with batches of 256 and shows two maps without numbers. Framed: the best cell on
validation.

{table(("task", "θ", *(f"Δ = {delta:g}" for delta in result["deltas"])), rows)}

{_moved(result)}

{_memory(result)}

Unlike in the paper, the initial weights of each cell are multiplied by the smallest of a few gains at which every layer
fires in {percent(result["least_rate"], 0)} of its steps, here {gains[0]:g} to {gains[-1]:g}. Otherwise the map would
show which layers are silent. {_silent(cells)}
"""


def _moved(result: dict[str, Any]) -> str:
    places, sentences = [], []
    for task, cells in result["cells"].items():
        shares = _shares(cells)
        row, column = _best(cells)
        best = shares[row][column]
        near = [best - share <= by_chance((best, share), result["tested"]) for line in shares for share in line]
        places.append((row, column))
        sentences.append(
            f"On {TASKS[task]} the best cell is Δ = {result['deltas'][column]:g}, θ = {result['thetas'][row]:g} with "
            f"{best:.1f} % on test; {sum(near)} of {len(near)} cells, including itself, are not significantly worse."
        )
    return " ".join([*sentences, _shift(result, *places)])


def _shift(result: dict[str, Any], first: tuple[int, int], second: tuple[int, int]) -> str:
    """Whether the best cell on sMNIST is significantly worse on psMNIST than the best one there."""
    claim = "The paper sees the sensitive region shift from sMNIST to psMNIST."
    if first == second:
        return f"{claim} Here the best cell is the same for both."
    shares = _shares(result["cells"]["psmnist-bitrev"])
    theirs, best = shares[first[0]][first[1]], shares[second[0]][second[1]]
    apart = best - theirs > by_chance((best, theirs), result["tested"])
    verdict = "so it shifts here as well (one seed)" if apart else "not a significant shift"
    return (
        f"{claim} Here sMNIST's best cell has {theirs:.1f} % on psMNIST and the best one there {best:.1f} %, {verdict}."
    )


def _memory(result: dict[str, Any]) -> str:
    best = []
    for task, cells in result["cells"].items():
        shares = _shares(cells, "validation")
        by_delta = [sum(column) / len(column) for column in zip(*shares, strict=True)]
        by_theta = [sum(row) / len(row) for row in shares]
        delta, theta = by_delta.index(max(by_delta)), by_theta.index(max(by_theta))
        best.append(
            f"for {TASKS[task]} Δ = {result['deltas'][delta]:g} ({by_delta[delta]:.1f} % over all θ) and "
            f"θ = {result['thetas'][theta]:g} ({by_theta[theta]:.1f} % over all Δ)"
        )
    return (
        f"The best means on validation are {'; '.join(best)}. A potential decays to 1/e in τ/Δ steps and has a period "
        "of 2π/(Δθ) steps."
    )


def _silent(cells: list[dict[str, Any]]) -> str:
    silent = sum(cell["least_rate"] < 1e-3 for cell in cells)
    if not silent:
        return "After training no layer of any cell is silent (below 0.1 %)."
    return f"After training {silent} of {len(cells)} cells have a layer that fires in less than 0.1 % of its steps."
