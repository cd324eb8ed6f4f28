"""A comparison from its settings to its table: plan once, train or resume every network and seed, collect.

compare.json    settings, the config of each network as planned (its width, and its steps within a budget of minutes),
                the figures of each finished run, and the table; with compare.md and a figure
NETWORK-SEED/   the runs, as `resofire train` writes them

What compare.json holds is not planned or trained again, so a copy of it continues a comparison on another machine.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import train
from ..data import Task
from ..ops import retain_buffers
from ..train import RunConfig, RunError
from ..train.memory import network_size, require_memory
from .memory import peak_memory
from .networks import Contender
from .table import JSON, figures, rows, write_json

# In a run within a number of steps.
VALIDATIONS = 3


@dataclass(frozen=True)
class Budget:
    """The budget of every run: exactly one of minutes, epochs and steps."""

    minutes: float | None = None
    epochs: int | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        limits = [value for value in (self.minutes, self.epochs, self.steps) if value is not None]
        if len(limits) != 1 or not limits[0] > 0:
            raise ValueError(f"Budget: exactly one of minutes, epochs, steps must be given and positive, got {self!r}")

    def __str__(self) -> str:
        return next(f"{value:g} {name}" for name, value in vars(self).items() if value is not None)


@dataclass(frozen=True)
class Comparison:
    """The settings of a comparison.

    Attributes:
        recipe: Task, optimiser, schedule and augmentation of all runs, and the network that the others replace.
        contenders: The networks by name.
        budget: Of each run.
        parameters: Of each network; None: those of the recipe's network, and networks of a size of their own keep it.
        seeds: Runs of each network, with seeds 0, 1, …
        folder: Folder of the runs and tables.
    """

    recipe: RunConfig
    contenders: dict[str, Contender]
    budget: Budget
    parameters: int | None
    seeds: int
    folder: Path

    def run_folder(self, name: str, seed: int) -> Path:
        return self.folder / f"{name.replace(':', '.')}-{seed}"


def run(
    comparison: Comparison, task: Task, done: Callable[[dict[str, Any]], object] = lambda table: None
) -> dict[str, Any]:
    """Train every network with every seed; finished runs are reused, interrupted ones resumed.

    Args:
        comparison: The comparison.
        task: The data of its recipe.
        done: Called with the table so far: after each run, and at the start if there is one.

    Returns:
        The table, a dict for JSON; see `table`.

    Raises:
        RunError: The folder holds another comparison, or a run cannot begin.
        Stopped: A run was interrupted; the same call resumes it.
    """
    table = _planned_table(comparison, task)
    if table["rows"]:
        done(table)
    for seed in range(comparison.seeds):
        for name, contender in comparison.contenders.items():
            network = table["networks"][name]
            if seed in [each["seed"] for each in network["runs"]]:
                continue
            config = replace(RunConfig.from_json(network["config"]), seed=seed)
            folder = comparison.run_folder(name, seed)
            result = train.complete("compare", config, task, folder)
            network["runs"].append(figures(folder, result, task, contender.published))
            table["rows"] = rows(table, task)
            done(table)
    return table


def _planned_table(comparison: Comparison, task: Task) -> dict[str, Any]:
    """The table so far, with a plan for each network that is new to it."""
    file, recipe = comparison.folder / JSON, comparison.recipe
    request = {"settings": recipe.to_json(), "budget": vars(comparison.budget), "parameters": comparison.parameters}
    table: dict[str, Any] = {"task": recipe.task, "recipe": recipe.name, **request, "networks": {}, "rows": []}
    if file.exists():
        try:
            table = json.loads(file.read_text("utf-8"))
            known = {name: table[name] for name in request}
            table["rows"] = rows(table, task)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RunError(
                f"compare: {file} cannot be read: {type(error).__name__}: {error}; choose another --out"
            ) from None
        # Tuples come back from JSON as lists.
        if known != json.loads(json.dumps(request)):
            raise RunError(f"compare: {comparison.folder} holds another comparison; choose another --out")
    retain_buffers()
    for name, contender in comparison.contenders.items():
        if name not in table["networks"]:
            config = _planned(comparison, contender, task)
            require_memory(config, task, 1, 1.0)
            table["networks"][name] = {
                "title": contender.title, "config": config.to_json(), "peak_memory": peak_memory(config, task),
                "runs": [],
            }  # fmt: skip
            comparison.folder.mkdir(parents=True, exist_ok=True)
            write_json(table, comparison.folder)
    return table


def _planned(comparison: Comparison, contender: Contender, task: Task) -> RunConfig:
    """The run of a network: its width, and its number of steps."""
    recipe, budget = comparison.recipe, comparison.budget
    parameters = comparison.parameters
    if parameters is None and not contender.fixed:
        parameters = network_size(recipe.model).weights
    model = contender.sized(recipe, float(task["train"].lengths.mean()), parameters)
    config = replace(recipe, model=model, **contender.settings)
    if budget.epochs is not None:
        return replace(config, epochs=budget.epochs, steps=None, validate_every=None)
    steps = budget.steps
    if budget.minutes is not None:
        # Evaluating large test sets can take longer than the training: it is not part of the budget.
        steps = train.steps_within(config, task, budget.minutes, VALIDATIONS, evaluation=False)
    assert steps is not None
    return replace(config, steps=steps, validate_every=max(1, math.ceil(steps / VALIDATIONS)))
