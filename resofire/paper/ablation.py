"""The paper's ablation on sMNIST: three LIFs and a PRF in one plain network, with one seed and one budget."""

from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from ..plot import figure, lines, styled
from .pages import percent, percentages, table
from .recipes import ablation_lif, ablation_lif_no_reset, ablation_plif, ablation_prf
from .workplace import Workplace, by_chance

TITLE = "Three LIFs and a PRF in one network on sMNIST"
RECIPES = {"prf": ablation_prf, "lif": ablation_lif, "lif-no-reset": ablation_lif_no_reset, "plif": ablation_plif}
LABELS = {"prf": "PRF", "lif": "LIF", "lif-no-reset": "LIF without reset", "plif": "LIF, trained τ"}
# With the paper's batches of 256, a small budget has few steps.
BATCH = 64


def run(workplace: Workplace) -> dict[str, Any]:
    configs = {label: replace(recipe(), batch=BATCH) for label, recipe in RECIPES.items()}
    trained = workplace.train(configs, validations=5, thin=True)
    networks = {
        label: {
            **{key: done.result[key] for key in ("parameters", "accuracy", "fire_rates", "seconds")},
            "training_loss": done.curve("train", "loss"),
            "validation": done.curve("validation"),
        }
        for label, done in trained.items()
    }
    return {"task": "smnist", **trained["prf"].scale, "networks": networks}


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (left, right) = figure(2)
    for (label, network), style in zip(result["networks"].items(), lines(), strict=False):
        left.plot(*network["training_loss"], label=LABELS[label], **{**style, "marker": ""})
        steps, accuracy = network["validation"]
        right.plot(steps, percentages(accuracy), label=LABELS[label], **style)
    left.set(title="training", xlabel="step", ylabel="loss")
    right.set(title="validation", xlabel="step", ylabel="accuracy, %", ylim=(0, 100))
    right.legend(loc="best")
    return drawn


def page(result: dict[str, Any]) -> str:
    rows = [
        (LABELS[label], f"{network['parameters']:,}", percent(network["accuracy"]["test"], 2),
         ", ".join(f"{rate:.1f}" for rate in percentages(network["fire_rates"].values())) + " %")
        for label, network in result["networks"].items()
    ]  # fmt: skip
    return f"""
Network 1-64-256-256-10 without norms or shortcuts, initial τ = 2, one seed, {result["steps"]:,} steps of
{result["batch"]} images ({result["epochs"]:.1f} epochs; the paper trains 200). Accuracy of the weights that are best on
validation, on {result["tested"]:,} test images.

{table(("neuron", "parameters", "test accuracy", "fire rate of each layer"), rows)}

{_lead(result)} The paper shows curves without numbers, in which its LIFs fail and its PRF solves
the task. The LIF is trained with the exact decoupled reset; the plain loop is too slow for this and is compared with it
over fewer steps in [training-equivalence](training-equivalence.md).
"""


def _lead(result: dict[str, Any]) -> str:
    shares = {label: 100 * network["accuracy"]["test"] for label, network in result["networks"].items()}
    prf = shares.pop("prf")
    best = max(shares.values())
    if abs(prf - best) <= by_chance((prf, best), result["tested"]):
        return "The difference between the PRF and the best LIF is not significant."
    return f"The PRF is {abs(prf - best):.1f} points {'ahead of' if prf > best else 'behind'} the best LIF."
