"""The paper's complexity table and its two columns, "no nonlinear function" and "no floating-point MAC", counted."""

from typing import Any

import torch
from matplotlib.figure import Figure

from ..measure import PEERS, complexity, count_ops, peer
from ..measure.peers import TITLES, law
from ..models import ClassifierConfig, build
from ..nn import PRF
from ..plot import figure, lines, styled
from .pages import table
from .workplace import Workplace

TITLE = "The cost of a block's dynamics: products per time step"
STATE, CONTEXT, WIDTHS = 64, 1024, (32, 64, 128, 256, 512, 1024)
COLUMNS = ("dynamics", "no_nonlinear", "no_mac")
PAPER = {
    **dict.fromkeys(("s4", "binary-s4d", "gsu"), ("H² + 2DH", False, False)), "s4d": (None, None, None),
    "transformer": (None, False, False), "sdtcm": ("5D", True, True),
}  # fmt: skip
NAMES = {**TITLES, "sdtcm": "SD-TCM with PRF"}


def run(workplace: Workplace) -> dict[str, Any]:
    rows = {}
    for name in PEERS:
        block = peer(name, (128,), CONTEXT, state_size=STATE, rate=0.05)
        rows[name] = {
            "dynamics": complexity(name), "no_nonlinear": block.no_nonlinear, "no_mac": block.no_mac,
            "products": [_products(name, width) for width in WIDTHS],
        }  # fmt: skip
    # Only shapes are counted, so no weights are needed.
    with torch.device("meta"):
        model = build(ClassifierConfig(inputs=1, classes=10, features=128, depth=1))
        neurons = [PRF(width).count("prf", 1).multiply for width in WIDTHS]
        dynamics = law(lambda width, _: PRF(width).count("prf", 1).multiply)
    names = ("encoder.blocks.0.token_neuron", "encoder.blocks.0.channel_neuron")
    counts = count_ops(model, (CONTEXT, 1), dict.fromkeys(names, 0.05))
    outside = counts.only("encoder", "head").per_inference("mac")
    rows["sdtcm"] = {
        "dynamics": dynamics, "no_nonlinear": counts.no_nonlinear, "no_mac": counts.no_mac, "products": neurons,
    }  # fmt: skip
    return {
        "state_size": STATE, "context": CONTEXT, "widths": WIDTHS, "rows": rows,
        "paper": {name: dict(zip(COLUMNS, each, strict=True)) for name, each in PAPER.items()},
        "macs_outside_blocks": outside, "share_outside_blocks": outside / counts.per_inference("ac"),
    }  # fmt: skip


def _products(name: str, width: int) -> float:
    block = peer(name, (width,), 2 * CONTEXT - 1, state_size=STATE, rate=0.05).only("state space", "attention")
    return block.per_step("mac") + block.per_step("multiply")


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (panel,) = figure(height=4.2)
    labels = {
        "transformer": f"attention to {result['context']:,}", "s4d": "S4D, diagonal", "s4": "S4 and its spiking kin",
        "sdtcm": "PRF",
    }  # fmt: skip
    for (name, label), style in zip(labels.items(), lines(), strict=False):
        panel.plot(result["widths"], result["rows"][name]["products"], label=label, **style)
    panel.set(title=f"products per step, state size {result['state_size']}", xlabel="channels D", xscale="log",
              yscale="log", ylim=(50, 6e7))  # fmt: skip
    panel.set_xticks(result["widths"], [str(width) for width in result["widths"]])
    panel.minorticks_off()
    panel.legend(loc="upper left", ncols=2)
    return drawn


def page(result: dict[str, Any]) -> str:
    word = {True: "yes", False: "no", None: "-"}
    at, paper, rows = result["widths"].index(256), result["paper"], result["rows"]
    cells = [
        (NAMES[name], f"{row['dynamics']} / {paper[name]['dynamics'] or '-'}",
         *(f"{word[row[key]]} / {word[paper[name][key]]}" for key in COLUMNS[1:]), f"{row['products'][at]:,.0f}")
        for name, row in rows.items()
    ]  # fmt: skip
    same = all(paper[name][key] in (None, row[key]) for name, row in rows.items() for key in COLUMNS)
    prf, s4, s4d = (rows[name]["products"][at] for name in ("sdtcm", "s4", "s4d"))
    head = ("", "dynamics", "no nonlinear function in a block", "no floating-point MAC in a block", "products")
    return f"""
Counted / the paper's. Dynamics: products per time step for the state and its read-out, with D channels, H states and C
tokens attended to. The last column is for D = 256, H = {result["state_size"]}, C = {result["context"]:,}.

{table(head, cells)}

{"Every entry agrees with the paper's." if same else "Not every entry agrees with the paper's."} At these sizes S4's
formula has {s4 / prf:.0f} times the PRF's products. It takes A as a full H × H matrix, which no implementation of S4
does; a diagonal one with H/2 complex states per channel has {s4d / prf:.0f} times.

Two caveats. A PRF's products are floating-point products as well, only not with a matrix. And the columns are about
blocks: input layer and head of the network counted here take {result["macs_outside_blocks"]:,.0f} MACs in an inference
of {result["context"]:,} steps, {result["share_outside_blocks"]:.2f} per accumulate of its one block. The paper's other
rows (SpikingSSMs, stochastic S4, LMU, ELM) are not counted: it has no formula for them. After folding, a PRF takes 4D,
see [deployment-operations](deployment-operations.md).
"""
