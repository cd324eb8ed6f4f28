"""resofire data."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ..atomic import write_atomic
from .output import print_table
from .parsing import File, Folder, Switch
from .usage import UsageError, as_usage_errors, require_one_of, require_writable, writing

ACTIONS = ("list", "prepare", "show")


@dataclass(frozen=True)
class Data:
    """List the data sets, prepare one, or show statistics and samples."""

    action: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ACTION")]
    """One of list, prepare, show."""
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[NAME]", help_behavior_hint="")] = None
    """The data set; see resofire data list."""
    data_dir: Folder = None
    """Folder with the files, or with a sub-folder NAME. Default: RESOFIRE_DATA in the environment, else a download."""
    png: File = None
    """Draw some samples to this file. Default: NAME.png for show, unless --json is set."""
    json: Switch = False
    """Print JSON."""

    def run(self) -> int:
        from .. import data

        require_one_of("data: action", self.action, ACTIONS)
        if self.action == "list":
            about = {name: data.about(name) for name in data.NAMES}
            if self.json:
                print(json.dumps(about, indent=2))
            else:
                print_table([*about.items()])
            return 0
        if self.name is None:
            raise UsageError(f"data: {self.action} needs the name of a data set, one of {', '.join(data.NAMES)}")
        with as_usage_errors(data.DataError):
            data.about(self.name)
            png = self._png()
            task = data.load(self.name, self.data_dir)
        from ..data import show

        if self.json:
            print(json.dumps(show.facts(task), indent=2))
        else:
            print(show.report(task, 3 if self.action == "show" else 0))
        if png is not None:
            picture = io.BytesIO()
            show.picture(task).save(picture, "PNG")
            with writing("data: --png", png):
                write_atomic(png, picture.getvalue())
            if not self.json:
                print(f"samples drawn in {png}")
        return 0

    def _png(self) -> Path | None:
        png = self.png
        if png is None and self.action == "show" and not self.json:
            png = Path(f"{self.name}.png")
        if png is not None:
            require_writable("data: --png", png)
        return png
