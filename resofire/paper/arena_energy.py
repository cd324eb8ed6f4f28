"""Accuracy, size, fire rate and energy of the shipped networks of the Long Range Arena, and the paper's."""

from collections.abc import Mapping, Sequence
from typing import Any

from .. import models, pretrained
from ..measure import account
from ..train import RunConfig, read, recorded
from .pages import table
from .published import as_published, compare_published

# As the paper prints them.
PARAMETERS = {"ListOps": "272k", "Text": "830k", "Retrieval": "1.1M", "Image": "4.1M", "Pathfinder": "1.3M"}


def energies(titles: Mapping[str, str], accuracies: Mapping[str, float]) -> list[dict[str, Any]]:
    """Compute a row for each shipped network of these tasks and one for each task's network in the paper.

    Our fire rates are those recorded on the test split. Lengths are the paper's, which are padded, so that the
    energies can be compared. `titles` are the paper's names of tasks by ours; accuracies, rates and savings are in %.
    """
    paper = {each["task"]: each for each in compare_published()}
    shipped: dict[str, list[dict[str, Any]]] = {}
    for name in models.shipped():
        config = RunConfig.from_json(read(models.find(name))["config"])
        if titles.get(config.task) in paper:
            length = paper[titles[config.task]]["length"]
            shipped.setdefault(config.task, []).append(_ours(titles[config.task], name, length))
    rows = []
    for task, title in titles.items():
        if task in shipped:
            best_first = sorted(shipped[task], key=lambda row: row["accuracy"], reverse=True)
            rows += [*best_first, _theirs(paper[title], accuracies[title])]
    return rows


def _ours(title: str, name: str, length: int) -> dict[str, Any]:
    result = recorded(models.find(name))
    assert result is not None
    measured = account(pretrained(name), result["fire_rates"], length, against=("s4",))
    formula = as_published(measured)
    assert formula is not None
    audited, s4 = measured["energy"]["mJ_per_inference"], measured["peers"]["s4"]["energy"]["mJ_per_inference"]
    return {
        "task": title, "network": name, "accuracy": 100 * result["accuracy"]["test"],
        "parameters": f"{result['parameters']:,}", "fire_rate": 100 * result["mean_fire_rate"],
        "published": formula["mJ_per_inference"],
        "saving_published": 100 * (1 - formula["mJ_per_inference"] / formula["peers"]["s4"]),
        "audited": audited, "saving_audited": 100 * (1 - audited / s4),
    }  # fmt: skip


def _theirs(paper: dict[str, Any], accuracy: float) -> dict[str, Any]:
    return {
        "task": paper["task"], "network": None, "accuracy": accuracy,
        "parameters": PARAMETERS[paper["task"]],
        "fire_rate": paper["average"]["true"], "published": float(paper["energy"]["printed"]),
        "saving_published": paper["saving"]["printed"], "audited": paper["energy"]["audited"],
        "saving_audited": paper["saving"]["audited"],
    }  # fmt: skip


def section(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of `energies` as Markdown; empty if no network is shipped."""
    if not rows:
        return ""
    head = ("task", "network", "test", "parameters", "fire rate", "mJ, published", "saved", "mJ, audited", "saved")
    cells = [
        (row["task"], f"`{row['network']}`" if row["network"] else "the paper's", f"{row['accuracy']:.2f}",
         row["parameters"], f"{row['fire_rate']:.2f} %", f"{row['published']:.4f}",
         f"{row['saving_published']:.2f} %", f"{row['audited']:.4f}", f"{row['saving_audited']:.2f} %")
        for row in rows
    ]  # fmt: skip
    return f"""## Energy

mJ per inference at the paper's lengths (sequences padded), from the fire rates on test data, and the share saved
against an S4 of the same width and depth with a state size of 64. *Published* is the paper's formula, which charges
blocks alone; in its own rows, its printed figures, whose S4 has other sizes. *Audited* counts the whole network
([energy.md](../energy.md)). Fire rates are means over all layers of neurons; the paper's are recomputed.

{table(head, cells)}
"""
