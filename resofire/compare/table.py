"""The table of a comparison: one row for each network, from its runs; as Markdown, JSON and a figure."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ..atomic import write_atomic
from ..data import Task
from ..measure import Counts, count_ops, energy
from ..models import load
from ..models.storage import to_json
from ..nn.counts import OPERATIONS
from ..paper.pages import table
from ..paper.published import as_published, published_peer
from ..plot import save
from ..plot.compare import draw
from ..train import RunConfig

JSON, PAGE, FIGURE = "compare.json", "compare.md", "compare"


def row(
    config: RunConfig, task: Task, runs: Sequence[tuple[Path, dict[str, Any]]], published: str | None
) -> dict[str, Any]:
    """What is known of a network, from its finished runs.

    Args:
        config: Any of its runs.
        task: Their data.
        runs: The folder and result of each run.
        published: Name of the paper's energy formula for it; None: there is none.

    Returns:
        A dict for JSON. Energies are in mJ per inference: `audited` counts the whole network, `published` is the
        paper's formula for its blocks, or None.
    """
    results = [result for _, result in runs]
    split = [*results[0]["accuracy"]][-1]
    steps = config.steps or config.epochs * (len(task["train"]) // config.batch)
    lengths = task[split].lengths
    length = float(lengths.sum() / len(lengths))
    counts = [_counts(folder, result, length) for folder, result in runs]
    formula = [_published(folder, result, length, published) for folder, result in runs]
    accuracies = [result["accuracy"][split] for result in results]
    seconds = mean(result["seconds"] for result in results)
    spikes = bool(results[0]["fire_rates"])
    return {
        "model": to_json(config.model),
        "parameters": results[0]["parameters"],
        "steps": steps,
        "epochs": steps * config.batch / len(task["train"]),
        "seeds": [result["seed"] for result in results],
        "split": split,
        "tested": results[0]["correct"][split][1],
        "accuracies": accuracies,
        "accuracy": mean(accuracies),
        "spread": stdev(accuracies) if len(accuracies) > 1 else None,
        "train_accuracy": mean(result["accuracy"]["train"] for result in results),
        "seconds_per_epoch": seconds / steps * (len(task["train"]) / config.batch),
        "fire_rate": mean(result["mean_fire_rate"] for result in results) if spikes else None,
        "length": length,
        "operations": {kind: mean(float(each.per_inference(kind)) for each in counts) for kind in OPERATIONS},
        "energy": {
            "audited": mean(energy(each).mj_per_inference for each in counts),
            "published": None if formula[0] is None else mean(each for each in formula if each is not None),
        },
        "no_nonlinear": all(each.no_nonlinear for each in counts),
        "no_mac": all(each.no_mac for each in counts),
    }


def _counts(folder: Path, result: dict[str, Any], length: float) -> Counts:
    model = load(folder)
    inputs = getattr(model.config, "inputs", None)
    return count_ops(model, (length,) if inputs is None else (length, inputs), result["fire_rates"])


def _published(folder: Path, result: dict[str, Any], length: float, name: str | None) -> float | None:
    """mJ per inference by the paper's formula."""
    if name is None:
        return None
    model: Any = load(folder)
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
    budget = next(f"{value:g} {name}" for name, value in result["budget"].items() if value is not None)
    rows = sorted(result["rows"], key=lambda each: -each["accuracy"])
    head = (
        "network", "test, %", "parameters", "epochs", "s per epoch", "peak MB", "fire rate, %", "MAC", "AC",
        "mJ, published", "mJ, audited", "no nonlinear", "no MAC",
    )  # fmt: skip
    seeds = sorted({len(each["seeds"]) for each in rows})
    many = "one seed" if seeds == [1] else f"{' to '.join(map(str, seeds))} seeds, mean ± standard deviation"
    text = (
        f"# {result['recipe']}: equal budget\n\n"
        f"Trained here on {result['task']}, each network for {budget} with the settings of the recipe "
        f"`{result['recipe']}` (threads: {result['threads']}; {many}). Peak memory is that of one training step, "
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


def write(result: dict[str, Any], folder: Path) -> Path:
    """Write compare.json, compare.md and the figure.

    Args:
        result: What `run` returned.
        folder: Where to write them.

    Returns:
        The page, compare.md.
    """
    write_atomic(folder / JSON, (json.dumps(result, indent=1) + "\n").encode())
    save(draw(result), folder / FIGURE)
    write_atomic(folder / PAGE, markdown(result).encode())
    return folder / PAGE
