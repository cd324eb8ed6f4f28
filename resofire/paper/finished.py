"""Runs that went to their end, for pages that train nothing and set what is there beside the paper's."""

from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

from ..train import RunConfig, RunError, read, recorded


class Finished(NamedTuple):
    config: RunConfig
    row: dict[str, Any]
    """What a page keeps of it."""


def finished(tasks: Container[str], *folders: Path) -> list[Finished]:
    """All under these folders, except runs cut to a number of steps and those whose weights the test split chose."""
    found = (_finished(file.parent, folder) for folder in folders for file in sorted(folder.glob("**/result.json")))
    return [each for each in found if each is not None and each.config.task in tasks]


def _finished(run_folder: Path, folder: Path) -> Finished | None:
    result = recorded(run_folder)
    try:
        config = RunConfig.from_json(read(run_folder)["config"])
    except RunError:
        return None
    # The runs of the other pages, which fit a budget, are cut to a number of steps.
    if result is None or result.get("selected_on") != "validation" or config.steps is not None:
        return None
    return Finished(config, {
        "task": config.task, "run": str(run_folder.relative_to(folder)), "recipe": config.name, "seed": config.seed,
        "parameters": result["parameters"], "epochs": config.epochs, "batch": config.batch,
        "validation": result["accuracy"]["validation"], "test": result["accuracy"]["test"],
        "tested": result["correct"]["test"][1], "fire_rate": result["mean_fire_rate"],
    })  # fmt: skip
