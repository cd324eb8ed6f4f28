"""A training step on Text of the networks of `resofire compare` at equal size: time per parameter, beside SD-TCM.

All times are a whole step in float32 (forward, loss, backward) on packed reviews, medians of rounds in which the
networks take turns.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from resofire.compare import NETWORKS
from resofire.models import build
from resofire.recipes import text_small
from resofire.train.memory import network_size

from .clock import Table, medians
from .networks import TEXT_LENGTHS

# A step may take this many times as long as that of SD-TCM, per parameter.
GOAL = 2.0


def run(quick: bool = False) -> dict[str, Any]:
    """Measures and prints; returns all figures with the machine they come from."""
    from resofire import doctor

    torch.manual_seed(0)
    recipe, lengths = text_small(), TEXT_LENGTHS[:4] if quick else TEXT_LENGTHS
    size, mean = network_size(recipe.model).weights, sum(lengths) / len(lengths)
    models: dict[str, Any] = {
        name: build(each.sized(recipe, mean, size)).train() for name, each in NETWORKS.items() if not each.fixed
    }  # fmt: skip
    x = torch.randint(recipe.model.vocabulary, (1, sum(lengths)))  # type: ignore[attr-defined] # a ClassifierConfig
    labels, bounds = torch.randint(2, (len(lengths),)), torch.tensor([0, *lengths]).cumsum(0).int()

    def step(model: Any) -> Callable[[], None]:
        def run_step() -> None:
            model.zero_grad()
            F.cross_entropy(model(x, cu_seqlens=bounds), labels).backward()

        return run_step

    print(f"{len(lengths)} reviews, {sum(lengths):,} packed steps; goals are the project's own\n")
    rounds = 1 if quick else 5
    seconds = medians({name: step(model) for name, model in models.items()}, rounds)
    table, counts = Table(), {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    for name, model in models.items():
        times = seconds[name] / counts[name] / (seconds["sdtcm"] / counts["sdtcm"])
        note = f"{1000 * seconds[name]:.0f} ms, {counts[name]:,} parameters, width {model.widths[0]}"
        table.add(f"time per parameter over SD-TCM: {NETWORKS[name].title}", times, "x", most=GOAL, note=note)
    command = "resofire bench baselines" + (" --quick" if quick else "")
    return {"command": command, "machine": doctor.examine(), "figures": table.rows}
