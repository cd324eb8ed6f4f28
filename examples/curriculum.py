"""A curriculum for Pathfinder: short paths first, then longer ones from the weights of the stage before.

python -m examples.curriculum runs/pathfinder

From random weights the network stays at chance: where two discs are joined by a path of 14 paddles, nothing simpler
tells it so. It learns paths of two paddles within 150 steps. Each stage is a run of its own, and the last one is the
recipe. Stopped, the same command resumes it.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from resofire import data, train
from resofire.recipes import RECIPES

# Shortest and longest path of a stage, in paddles, and its steps.
STAGES = (((2, 3), 400), ((2, 5), 400), ((4, 8), 900), ((7, 11), 1_100), ((10, 14), 1_200))


def main(folder: Path, recipe: str = "pathfinder-small", stages: Any = STAGES, **settings: Any) -> dict[str, Any]:
    whole = replace(RECIPES[recipe](), **settings)
    init = None
    for number, (lengths, steps) in enumerate(stages, 1):
        # Validation and test images have 14 paddles at every stage; a thousand of them show how far it is.
        counts = (steps * whole.batch, 1_000, 1_000)
        stage = replace(
            whole, name=f"stage-{number}", task_settings={"lengths": lengths, "counts": counts}, init=init, steps=steps,
            warmup=0.1, final_lr=1.0, ema=None, recalibrate=0, select="last",
        )  # fmt: skip
        train.complete("curriculum", stage, data.load(whole.task, **stage.task_settings), folder / stage.name)
        init = str(folder / stage.name)
    task = data.load(whole.task, **whole.task_settings)
    return train.complete("curriculum", replace(whole, init=init), task, folder / whole.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
