"""Every table, figure and theorem of the paper, one file each, ours beside the paper's.

A file of this package that is in NAMES has

TITLE          one line: what it shows
run            from a `Workplace` (budget, data, where trainings are kept) to a result that JSON can hold
draw           from such a result to its figure
page           from such a result to Markdown: what came out, what the paper says, what differs

Drawing and writing take the result alone, so they can be done again from NAME.json without running anything.
"""

import importlib
import json
import math
from pathlib import Path
from typing import Any

from ..atomic import write_atomic
from ..plot import save
from .workplace import Workplace

NAMES = (
    "problem", "dynamics", "theorems", "discretisation", "frequency-response", "inference-equivalence",
    "training-equivalence", "run-time", "ablation", "decay", "loss-landscape", "kernel-gradient", "initialisation",
    "theta-ranges", "amplitude", "sequential-mnist", "long-range-arena", "complexity", "energy", "fire-rates",
    "deployment-operations",
)  # fmt: skip


def title(name: str) -> str:
    return _module(name).TITLE


def reproduce(name: str, out: Path, minutes: float, data_dir: Path | None = None, runs: Path | None = None) -> Path:
    """Runs one at a budget of minutes; writes NAME.json, its figure and its page into `out`, and gives the page."""
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
    """The figure and the page of a result that is there, and the index of all that are."""
    module, result = _module(name), json.loads((out / f"{name}.json").read_text())
    save(module.draw(result), out / name)
    page = out / f"{name}.md"
    write_atomic(page, _page(name, module.TITLE, module.page(result), result).encode())
    write_atomic(out / "README.md", _index(out).encode())
    return page


def _page(name: str, heading: str, body: str, result: dict[str, Any]) -> str:
    command = f"resofire reproduce {name} --budget {result['budget_minutes']:g}"
    made = f"Made by `{command}`; all figures are in [{name}.json]({name}.json)."
    return f"# {heading}\n\n![{heading}]({name}.png)\n\n{body.strip()}\n\n{made}\n"


def _index(out: Path) -> str:
    done = [f"| [{name}]({name}.md) | {title(name)} |" for name in NAMES if (out / f"{name}.md").exists()]
    rest = [f"`{name}`" for name in NAMES if not (out / f"{name}.md").exists()]
    text = "# The paper, done again\n\nOne page each: ours beside the paper's, and what differs.\n\n"
    return (
        text
        + "| page | what |\n|---|---|\n"
        + "\n".join(done)
        + "\n"
        + (f"\nNot run yet: {', '.join(rest)}.\n" if rest else "")
    )


def _module(name: str) -> Any:
    return importlib.import_module(f".{name.replace('-', '_')}", __name__)
