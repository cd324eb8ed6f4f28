"""The paper's ablation of α on Text: which spikes have a trained size, those of SN, of TN, both or none."""

from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from ..models import ClassifierConfig
from ..plot import figure, hatches, styled
from ..train import RunConfig
from .pages import percent, table
from .recipes import text_small_paper
from .workplace import Workplace, by_chance

TITLE = "Which spikes need a trained amplitude: α on Text"
LABELS = {"none": "without α", "both": "α on SN and TN", "tn": "α on TN", "sn": "α on SN"}
# The paper's table, in %.
PAPER = {"none": 85.75, "both": 85.69, "tn": 86.11, "sn": 86.33}
BATCH = 16


def run(workplace: Workplace) -> dict[str, Any]:
    trained = workplace.train({which: _config(which) for which in LABELS}, validations=2, thin=True)
    results = {which: done.result for which, done in trained.items()}
    networks = {
        which: {"parameters": each["parameters"], "accuracy": each["accuracy"], "fire_rate": each["mean_fire_rate"]}
        for which, each in results.items()
    }
    validated = results["none"]["correct"]["validation"][1]
    return {"task": "text", **trained["none"].scale, "validated": validated, "networks": networks}


def _config(which: str) -> RunConfig:
    recipe = text_small_paper()
    assert isinstance(recipe.model, ClassifierConfig)
    return replace(recipe, model=replace(recipe.model, amplitude=which), batch=BATCH)


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (panel,) = figure(width=6.4)
    for offset, (kind, shares), style in zip(
        (-0.2, 0.2), (("here", _tests(result)), ("paper", PAPER)), hatches(), strict=False
    ):
        places = [place + offset for place in range(len(shares))]
        bars = panel.bar(places, list(shares.values()), width=0.38, label=kind, **style)
        panel.bar_label(bars, fmt="%.1f", padding=2)
    panel.axhline(50, color="#6b6b6b", linestyle=":", label="chance", zorder=0)
    panel.set_xticks(range(len(LABELS)), [label.replace(" and ", "\nand ") for label in LABELS.values()])
    panel.set(ylabel="test accuracy, %", ylim=(0, 115))
    panel.grid(visible=False)
    panel.legend(loc="upper center", ncols=3)
    return drawn


def _tests(result: dict[str, Any]) -> dict[str, float]:
    return {which: 100 * each["accuracy"]["test"] for which, each in result["networks"].items()}


def page(result: dict[str, Any]) -> str:
    head = ("amplitude", "parameters", "validation", "test", "points above none", "paper's test",
            "its points above none")  # fmt: skip
    shares = _tests(result)
    rows = [
        (LABELS[which], f"{each['parameters']:,}", percent(each["accuracy"]["validation"], 2),
         f"{shares[which]:.2f} %", f"{shares[which] - shares['none']:+.2f}", f"{PAPER[which]:.2f} %",
         f"{PAPER[which] - PAPER['none']:+.2f}")
        for which, each in result["networks"].items()
    ]  # fmt: skip
    return f"""
Recipe `text-small` (three blocks of 128 channels, causal) with batches of {result["batch"]}, one seed, the same
{result["steps"]:,} steps each ({result["epochs"]:.2g} epochs; the paper trains 32 with six blocks of 256). Accuracy of
the weights that are best on {result["validated"]:,} validation reviews, on {result["tested"]:,} evenly spaced test
reviews. TN is the temporal neuron of a block (the PRF, which mixes time steps), SN the spatial one (which mixes
channels); with α, the spikes of one have a trained size, one per block.

{table(head, rows)}

{_conclusion(result)}
"""


def _conclusion(result: dict[str, Any]) -> str:
    networks, shares = result["networks"], _tests(result).values()
    best = max(networks, key=lambda which: networks[which]["accuracy"]["validation"])
    paper = max(PAPER, key=PAPER.__getitem__)
    same = "as in the paper" if best == paper else f"in the paper {LABELS[paper]}"
    spread, chance = max(shares) - min(shares), by_chance(shares, result["tested"])
    verdict = "a significant difference" if spread > chance else "not a significant difference at this scale"
    return (
        f"The best on validation is {LABELS[best]}, {same}. On test the four are within {spread:.1f} points, {verdict} "
        f"(limit {chance:.1f}); the paper's are within {max(PAPER.values()) - min(PAPER.values()):.2f}."
    )
