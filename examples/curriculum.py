"""A curriculum: short paths or expressions first, then longer ones from the weights of the stage before.

python -m examples.curriculum pathfinder-small runs/pathfinder
python -m examples.curriculum listops runs/listops

From random weights a Pathfinder network stays at chance: where two discs are joined by a path of 14 paddles, nothing
simpler tells it so. It learns paths of two paddles within 150 steps. On ListOps a network first learns what the
outermost operator makes likely, and stays there for epochs; on short expressions, parts of the training sequences, it
learns the operators, and for a tenth of the time. Each stage is a run of its own, and the last one is the recipe.
Stopped, the same command resumes it.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from resofire import data, train
from resofire.recipes import RECIPES


class Stage(NamedTuple):
    lengths: tuple[int, int]  # shortest and longest path in paddles, or expression in tokens
    steps: int
    settings: dict[str, Any]  # of the run, where they are not the recipe's


PATHS = {"warmup": 0.1, "final_lr": 1.0}
# Short expressions come in larger batches, so that a step has about as many tokens.
PARTS = {"warmup": 0.05, "final_lr": 0.3}
STAGES = {
    "pathfinder": (
        Stage((2, 3), 400, PATHS),
        Stage((2, 5), 400, PATHS),
        Stage((4, 8), 900, PATHS),
        Stage((7, 11), 1_100, PATHS),
        Stage((10, 14), 1_200, PATHS),
    ),
    "listops": (
        Stage((4, 20), 1_500, PARTS | {"batch": 512}),
        Stage((10, 60), 1_500, PARTS | {"batch": 256}),
        Stage((40, 200), 2_000, PARTS | {"batch": 128}),
        Stage((150, 600), 2_500, PARTS | {"batch": 64}),
    ),
}


def main(recipe: str, folder: Path, stages: Sequence[Stage] | None = None, **settings: Any) -> dict[str, Any]:
    """Train a recipe by the stages of its task; `settings` replace the recipe's."""
    whole = replace(RECIPES[recipe](), **settings)
    init = None
    for number, stage in enumerate(STAGES[whole.task] if stages is None else stages, 1):
        config = replace(
            whole, name=f"stage-{number}", init=init, steps=stage.steps, ema=None, recalibrate=0, select="last",
            **stage.settings,
        )  # fmt: skip
        easier: dict[str, Any] = {"lengths": stage.lengths}
        if whole.task == "pathfinder":
            # Validation and test images have 14 paddles at every stage; a thousand of them show how far it is.
            easier["counts"] = (stage.steps * config.batch, 1_000, 1_000)
        config = replace(config, task_settings=easier)
        train.complete("curriculum", config, data.load(whole.task, **easier), folder / config.name)
        init = str(folder / config.name)
    task = data.load(whole.task, **whole.task_settings)
    return train.complete("curriculum", replace(whole, init=init), task, folder / whole.name)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
