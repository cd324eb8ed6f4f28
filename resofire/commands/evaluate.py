"""resofire evaluate."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from .runs import open_run, open_task


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained network again, on its own data set, and compare with what its run recorded."""

    model: tyro.conf.Positional[str]
    """A run folder, or the name of a network that comes with the package."""
    data_dir: Path | None = None
    """Where the data set's files are; see resofire data."""
    json: bool = False
    """Print it as JSON."""

    def run(self) -> int:
        from .. import train

        folder, config, model = open_run("evaluate", self.model)
        if model.config != config.model:
            print(f"resofire: {self.model} holds another network than the run trained", file=sys.stderr)
            return 1
        found = train.weigh(model, open_task(config, self.data_dir), config.batch)
        recorded = train.recorded(folder)
        same = recorded is None or recorded["correct"] == found["correct"]
        if self.json:
            print(json.dumps({**found, "same as recorded": recorded and same}, indent=2))
        else:
            print(train.report(Path(self.model), found))
            if recorded is not None:
                print("the same as the run recorded" if same else f"not as recorded: {recorded['correct']}")
        return 0 if same else 1
