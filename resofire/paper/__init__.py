"""The paper reproduced: every table, figure and theorem, one file each, our results next to the paper's.

Each module in NAMES has

TITLE    one line: what it shows
run      `Workplace` (budget, data, folder for trainings) -> result, a dict for JSON
draw     result -> figure
page     result -> Markdown: our numbers, the paper's, and the differences

`draw` and `page` depend on the result alone: `write` renders a page from its NAME.json without running anything.

Importing this package registers the recipes of the ablations. `published` is the paper's energy account.
"""

import importlib
import json
import math
from pathlib import Path
from typing import Any

from ..atomic import write_atomic
from . import recipes

NAMES = (
    "problem", "dynamics", "theorems", "discretisation", "frequency-response", "inference-equivalence",
    "training-equivalence", "run-time", "ablation", "decay", "loss-landscape", "kernel-gradient", "initialisation",
    "theta-ranges", "amplitude", "sequential-mnist", "long-range-arena", "complexity", "energy", "fire-rates",
    "deployment-operations",
)  # fmt: skip
__all__ = ["NAMES", "recipes", "reproduce", "title", "write"]


def title(name: str) -> str:
    """Return the title of a page."""
    return _module(name).TITLE


def reproduce(name: str, out: Path, minutes: float, data_dir: Path | None = None, runs: Path | None = None) -> Path:
    """Run one experiment and write NAME.json, its figure and its page.

    Args:
        name: One of NAMES.
        out: Folder for the results.
        minutes: Budget; trainings are cut to fit.
        data_dir: Folder of the data sets' files.
        runs: Folder for trainings, which are resumed.

    Returns:
        The page.

    Raises:
        ValueError: The name or the budget is invalid.
    """
    from .workplace import Workplace

    if name not in NAMES:
        raise ValueError(f"reproduce: name must be one of {', '.join(NAMES)}, got {name!r}")
    if not 0 < minutes < math.inf:
        raise ValueError(f"reproduce: minutes must be positive and finite, got {minutes!r}")
    workplace = Workplace(name, minutes, runs or Path("runs") / "reproduce", data_dir)
    result = {"name": name, "budget_minutes": minutes, **_module(name).run(workplace)}
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / f"{name}.json", (json.dumps(result, indent=1) + "\n").encode())
    return write(name, out)


def write(name: str, out: Path) -> Path:
    """Render the figure and the page of an existing NAME.json, and the index of all pages; return the page."""
    from ..plot import save

    module, result = _module(name), json.loads((out / f"{name}.json").read_text())
    save(module.draw(result), out / name)
    page = out / f"{name}.md"
    write_atomic(page, _page(name, module.TITLE, module.page(result), result).encode())
    write_atomic(out / "README.md", _index(out).encode())
    return page


def _page(name: str, heading: str, body: str, result: dict[str, Any]) -> str:
    command = f"resofire paper {name} --budget {result['budget_minutes']:g}"
    made = f"Made by `{command}`; all numbers are in [{name}.json]({name}.json)."
    return f"# {heading}\n\n![{heading}]({name}.png)\n\n{body.strip()}\n\n{made}\n"


def _index(out: Path) -> str:
    done = [f"| [{name}]({name}.md) | {title(name)} |\n" for name in NAMES if (out / f"{name}.md").exists()]
    missing = ", ".join(f"`{name}`" for name in NAMES if not (out / f"{name}.md").exists())
    head = "# The paper, reproduced\n\nOne page each: our result, the paper's, and the differences.\n\n"
    head += "| page | content |\n|---|---|\n"
    return head + "".join(done) + (f"\nNot run yet: {missing}.\n" if missing else "")


def _module(name: str) -> Any:
    return importlib.import_module(f".{name.replace('-', '_')}", __name__)
