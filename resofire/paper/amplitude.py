"""The paper's ablation of α on Text: which spikes have a trained size, those of SN, of TN, both or none."""

from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from ..models import ClassifierConfig
from ..plot import figure, hatches, styled
from ..recipes import text_small
from ..train import RunConfig
from .workplace import Workplace, by_chance

TITLE = "Which spikes need a size of their own: α on Text"
LABELS = {"none": "without α", "both": "α on SN and TN", "tn": "α on TN", "sn": "α on SN"}
# Their table, in %.
PAPER = {"none": 85.75, "both": 85.69, "tn": 86.11, "sn": 86.33}
BATCH = 16


def run(workplace: Workplace) -> dict[str, Any]:
    trained = workplace.train({which: _config(which) for which in LABELS}, validations=2, thin=True)
    first = next(iter(trained.values()))
    return {
        "task": "text",
        "steps": first.config.steps,
        "epochs": first.epochs,
        "batch": BATCH,
        "tested": first.tested,
        "validated": first.result["correct"]["validation"][1],
        "networks": {
            which: {
                "parameters": done.result["parameters"],
                "accuracy": done.result["accuracy"],
                "fire_rate": done.result["mean_fire_rate"],
            }
            for which, done in trained.items()
        },
    }


def _config(which: str) -> RunConfig:
    recipe = text_small()
    assert isinstance(recipe.model, ClassifierConfig)
    return replace(recipe, model=replace(recipe.model, amplitude=which), batch=BATCH)


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (panel,) = figure(width=6.4)
    kinds = {
        "here": {which: 100 * each["accuracy"]["test"] for which, each in result["networks"].items()},
        "paper": PAPER,
    }
    for offset, (kind, shares), style in zip((-0.2, 0.2), kinds.items(), hatches(), strict=False):
        places = [place + offset for place in range(len(shares))]
        bars = panel.bar(places, list(shares.values()), width=0.38, label=kind, **style)
        panel.bar_label(bars, fmt="%.1f", padding=2)
    panel.axhline(50, color="#6b6b6b", linestyle=":", label="chance", zorder=0)
    panel.set_xticks(range(len(LABELS)), [label.replace(" and ", "\nand ") for label in LABELS.values()])
    panel.set(ylabel="test accuracy, %", ylim=(0, 115))
    panel.grid(visible=False)
    panel.legend(loc="upper center", ncols=3)
    return drawn


def page(result: dict[str, Any]) -> str:
    shares = {which: 100 * each["accuracy"]["test"] for which, each in result["networks"].items()}
    rows = [
        f"| {LABELS[which]} | {each['parameters']:,} | {100 * each['accuracy']['validation']:.2f} % | "
        f"{shares[which]:.2f} % | {shares[which] - shares['none']:+.2f} | {PAPER[which]:.2f} % | "
        f"{PAPER[which] - PAPER['none']:+.2f} |"
        for which, each in result["networks"].items()
    ]
    epochs = result["epochs"]
    return f"""
The recipe `text-small` (three blocks of 128 channels, causal) with batches of {result["batch"]}, one seed, the same
{result["steps"]:,} steps each ({epochs:.2g} epochs; the paper trains 32 with six blocks of 256). The weights that are
best on {result["validated"]:,} validation reviews count; {result["tested"]:,} reviews of the test split, evenly spread
over it, are looked at. TN is the temporal neuron of a block (the PRF, which mixes time steps), SN the spatial one
(which mixes channels); with α the spikes of one have a trained size, one for each block.

| spikes with a size | parameters | validation | test | points above none | paper's test | its points above none |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

{_seen(result)}
"""


def _seen(result: dict[str, Any]) -> str:
    networks = result["networks"]
    best = max(networks, key=lambda which: networks[which]["accuracy"]["validation"])
    paper = max(PAPER, key=PAPER.__getitem__)
    same = "as in the paper" if best == paper else f"in the paper {LABELS[paper]}"
    shares = [100 * each["accuracy"]["test"] for each in networks.values()]
    spread = max(shares) - min(shares)
    chance = by_chance(shares, result["tested"])
    told = (
        f"more than the draw of test reviews may give ({chance:.1f})" if spread > chance
        else f"not more than the draw of test reviews may give ({chance:.1f}): no order can be told at this scale"
    )  # fmt: skip
    return (
        f"The best on validation is {LABELS[best]}, {same}. On test the four are {spread:.1f} points apart, {told}; "
        f"the paper's are {max(PAPER.values()) - min(PAPER.values()):.2f} apart."
    )
