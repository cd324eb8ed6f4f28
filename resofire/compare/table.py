"""The table of a comparison: one row for each network, from figures of its runs; as Markdown, JSON and a figure."""

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ..atomic import write_atomic
from ..data import Task
from ..measure import count_ops, energy
from ..models import load
from ..nn.counts import OPERATIONS
from ..paper.pages import table
from ..paper.published import as_published, published_peer
from ..plot import save
from ..plot.compare import budget_words, draw
from ..train import read

JSON, PAGE, FIGURE = "compare.json", "compare.md", "compare"


def figures(folder: Path, result: dict[str, Any], task: Task, published: str | None) -> dict[str, Any]:
    """The figures of a finished run that the table needs, for JSON.

    Among others energies in mJ per inference: `audited` counts the whole network; `published` is the paper's formula of
    that name for its blocks, or None.
    """
    split = [*result["accuracy"]][-1]
    lengths = task[split].lengths
    length = float(lengths.sum() / len(lengths))
    model = load(folder)
    inputs = getattr(model.config, "inputs", None)
    counts = count_ops(model, (length,) if inputs is None else (length, inputs), result["fire_rates"])
    return {
        "seed": result["seed"],
        "threads": read(folder)["threads"],
        "parameters": result["parameters"],
        "seconds": result["seconds"],
        "split": split,
        "tested": result["correct"][split][1],
        "accuracy": result["accuracy"],
        "fire_rate": result["mean_fire_rate"] if result["fire_rates"] else None,
        "length": length,
        "operations": {kind: float(counts.per_inference(kind)) for kind in OPERATIONS},
        "energy": {
            "audited": energy(counts).mj_per_inference, "published": _published(model, result, length, published),
        },
        "no_nonlinear": counts.no_nonlinear,
        "no_mac": counts.no_mac,
    }  # fmt: skip


def rows(result: dict[str, Any], task: Task) -> list[dict[str, Any]]:
    """The rows of the table, one for each network with a finished run, from the figures of its runs."""
    made = []
    for name, network in result["networks"].items():
        runs = network["runs"]
        if not runs:
            continue
        # As JSON: the classes of a network of one's own may not have been imported this time.
        config, first, count = network["config"], runs[0], len(task["train"])
        epoch = count / config["batch"]
        steps = config["steps"] or config["epochs"] * (count // config["batch"])
        accuracies = [each["accuracy"][first["split"]] for each in runs]

        def average(kind: str, part: str, runs: list[dict[str, Any]] = runs) -> float | None:
            values = [each[kind][part] for each in runs]
            return None if None in values else mean(values)

        made.append({
            "network": name,
            "title": network["title"],
            "peak_memory": network["peak_memory"],
            "model": network["config"]["model"],
            **{kind: first[kind] for kind in ("parameters", "split", "tested", "length")},
            "steps": steps,
            "epochs": steps / epoch,
            "seeds": [each["seed"] for each in runs],
            "threads": sorted({each["threads"] for each in runs}),
            "accuracies": accuracies,
            "accuracy": mean(accuracies),
            "spread": stdev(accuracies) if len(accuracies) > 1 else None,
            "train_accuracy": average("accuracy", "train"),
            "seconds_per_epoch": mean(each["seconds"] for each in runs) / steps * epoch,
            "fire_rate": None if first["fire_rate"] is None else mean(each["fire_rate"] for each in runs),
            "operations": {kind: average("operations", kind) for kind in OPERATIONS},
            "energy": {kind: average("energy", kind) for kind in first["energy"]},
            "no_nonlinear": all(each["no_nonlinear"] for each in runs),
            "no_mac": all(each["no_mac"] for each in runs),
        })  # fmt: skip
    return made


def _published(model: Any, result: dict[str, Any], length: float, name: str | None) -> float | None:
    """mJ per inference by the paper's formula."""
    if name is None:
        return None
    if name == "sdtcm":
        network = {"widths": model.widths, "neuron": "PRF"}
        measured = {
            "rates": {"layers": result["fire_rates"]}, "network": network, "length": {"value": length}, "peers": {},
        }  # fmt: skip
        formula = as_published(measured)
        return None if formula is None else formula["mJ_per_inference"]
    states = model.config.block.states
    counted = published_peer(name, model.widths, length, state_size=states, rate=result["mean_fire_rate"], printed=True)
    return energy(counted).mj_per_inference


def markdown(result: dict[str, Any]) -> str:
    """The comparison as a page with one table, the best network first."""
    rows = sorted(result["rows"], key=lambda each: -each["accuracy"])
    head = (
        "network", "test, %", "parameters", "epochs", "s per epoch", "peak MB", "fire rate, %", "MAC", "AC",
        "mJ, published", "mJ, audited", "no nonlinear", "no MAC",
    )  # fmt: skip
    seeds = sorted({len(each["seeds"]) for each in rows})
    threads = " or ".join(map(str, sorted({each for row in rows for each in row["threads"]})))
    many = "one seed" if seeds == [1] else f"{' to '.join(map(str, seeds))} seeds, mean ± standard deviation"
    text = (
        f"# {result['recipe']}: equal budget\n\n"
        f"Trained here on {result['task']}, each network for {budget_words(result['budget'])} with the settings of the "
        f"recipe `{result['recipe']}` (threads: {threads}; {many}). Peak memory is that of one training step, "
        "operations and energy are per inference of mean length: published is the paper's formula for the blocks, "
        "audited counts the whole network.\n\n"
    )
    return text + table(head, [_cells(each) for each in rows]) + f"\n\n![]({FIGURE}.png)\n"


def _cells(row: dict[str, Any]) -> list[str]:
    spread = "" if row["spread"] is None else f" ± {100 * row['spread']:.2f}"
    published = row["energy"]["published"]
    return [
        row["title"],
        f"{100 * row['accuracy']:.2f}{spread}",
        f"{row['parameters']:,}",
        f"{row['epochs']:.3g}",
        f"{row['seconds_per_epoch']:,.3g}",
        "" if row["peak_memory"] is None else f"{row['peak_memory'] / 1e6:,.0f}",
        "" if row["fire_rate"] is None else f"{100 * row['fire_rate']:.1f}",
        f"{row['operations']['mac']:,.3g}",
        f"{row['operations']['ac']:,.3g}",
        "" if published is None else f"{published:.3g}",
        f"{row['energy']['audited']:.3g}",
        "yes" if row["no_nonlinear"] else "no",
        "yes" if row["no_mac"] else "no",
    ]


def write_json(result: dict[str, Any], folder: Path) -> None:
    """Write compare.json."""
    write_atomic(folder / JSON, (json.dumps(result, indent=1) + "\n").encode())


def write(result: dict[str, Any], folder: Path) -> Path:
    """Write compare.json, compare.md and the figure.

    Args:
        result: What `run` returned.
        folder: Where to write them.

    Returns:
        The page, compare.md.
    """
    write_json(result, folder)
    save(draw(result), folder / FIGURE)
    write_atomic(folder / PAGE, markdown(result).encode())
    return folder / PAGE
