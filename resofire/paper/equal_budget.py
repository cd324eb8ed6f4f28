"""Tables of `resofire compare` on a page of the paper: networks trained here under one budget, apart from copied
numbers.

A comparison is kept for good by copying its compare.json into `records`, and is also read from runs/.
"""

import json
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from ..plot.compare import budget_words
from .pages import percent, table

RECORDS = Path(__file__).with_name("records")
# What a page needs of a row.
COLUMNS = (
    "title", "accuracy", "spread", "seeds", "threads", "tested", "parameters", "epochs", "fire_rate", "energy",
    "no_nonlinear", "no_mac",
)  # fmt: skip


def comparisons(tasks: Container[str], *folders: Path) -> list[dict[str, Any]]:
    """Find finished comparisons of some tasks: all records, and the compare.json in any sub-folder of `folders`.

    Of several with the same recipe and budget, the first is taken.
    """
    files = sorted(RECORDS.glob("*.json"))
    for folder in folders:
        files += sorted(folder.glob("*/compare.json"))
    comparisons_by_budget: dict[tuple[Any, ...], dict[str, Any]] = {}
    for file in files:
        try:
            read = json.loads(file.read_text("utf-8"))
            rows = [{name: row[name] for name in COLUMNS} for row in read["rows"]]
            kept = {name: read[name] for name in ("task", "recipe", "budget")}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            # Half-written, or of another program.
            continue
        if kept["task"] in tasks and rows:
            comparisons_by_budget.setdefault((kept["recipe"], *kept["budget"].values()), {**kept, "rows": rows})
    return list(comparisons_by_budget.values())


def section(results: Iterable[dict[str, Any]]) -> str:
    """The comparisons as Markdown, one table each; nothing if there are none."""
    parts = [_part(each) for each in results]
    if not parts:
        return ""
    text = (
        "## Trained here, equal budget\n\n"
        "None of these numbers is copied: `resofire compare` trained every network on the same data with the same "
        "recipe, budget and, unless it has a size of its own, number of parameters. Budgets are far below those of the "
        "published results above, so only rows of one table compare.\n\n"
    )
    return text + "\n\n".join(parts)


def _part(result: dict[str, Any]) -> str:
    head = ("network", "test, %", "seeds", "parameters", "epochs", "fire rate", "mJ, audited", "no nonlinear", "no MAC")
    rows = [
        (
            row["title"],
            f"{100 * row['accuracy']:.2f}" + ("" if row["spread"] is None else f" ± {100 * row['spread']:.2f}"),
            len(row["seeds"]), f"{row['parameters']:,}", f"{row['epochs']:.3g}",
            "" if row["fire_rate"] is None else percent(row["fire_rate"]), f"{row['energy']['audited']:.3g}",
            "yes" if row["no_nonlinear"] else "no", "yes" if row["no_mac"] else "no",
        )
        for row in sorted(result["rows"], key=lambda each: -each["accuracy"])
    ]  # fmt: skip
    tested = max(row["tested"] for row in result["rows"])
    threads = " or ".join(map(str, sorted({each for row in result["rows"] for each in row["threads"]})))
    title = f"`{result['recipe']}`, {budget_words(result['budget'])} each"
    title += f" (threads: {threads}), {tested:,} test sequences:"
    return f"{title}\n\n{table(head, rows)}"
