"""resofire data."""

import json
from dataclasses import dataclass
from pathlib import Path

import tyro

from .usage import UsageError, hint, require_writable

ACTIONS = ("list", "prepare", "show")


@dataclass(frozen=True)
class Data:
    """Show the data sets, prepare one for training, or look at one."""

    action: tyro.conf.Positional[str]
    """What to do: list, prepare or show."""
    name: tyro.conf.Positional[str | None] = None
    """Which data set; see resofire data list."""
    data_dir: Path | None = None
    """Where its files are, or its sub-folder named after the set. Otherwise RESOFIRE_DATA, or a download."""
    png: Path | None = None
    """Where to draw some samples; show draws them into NAME.png if not told, but with --json."""
    json: bool = False
    """Print it as JSON."""

    def run(self) -> int:
        from .. import data

        if self.action not in ACTIONS:
            raise UsageError(
                f"data: action must be one of {', '.join(ACTIONS)}, got {self.action!r}{hint(self.action, ACTIONS)}"
            )
        if self.action == "list":
            known = {name: data.about(name) for name in data.NAMES}
            print(json.dumps(known, indent=2) if self.json else "\n".join(f"{k:<16}{v}" for k, v in known.items()))
            return 0
        if self.name is None:
            raise UsageError(f"data: {self.action} needs the name of a data set, one of {', '.join(data.NAMES)}")
        try:
            data.about(self.name)
        except data.DataError as error:
            raise UsageError(str(error)) from None
        png = self.png
        if png is None and self.action == "show" and not self.json:
            png = Path(f"{self.name}.png")
        if png is not None:
            require_writable("data: --png", png)
        try:
            task = data.load(self.name, self.data_dir)
        except data.DataError as error:
            raise UsageError(str(error)) from None
        from ..data import show

        if self.json:
            print(json.dumps(show.facts(task), indent=2))
        else:
            print(show.report(task, 3 if self.action == "show" else 0))
        if png is not None:
            show.picture(task).save(png, "PNG")
            if not self.json:
                print(f"samples drawn in {png}")
        return 0
