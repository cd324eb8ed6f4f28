"""The paper's complexity table and its two columns, "no nonlinear function" and "no floating-point MAC", counted."""

from typing import Any

import torch
from matplotlib.figure import Figure

from ..measure import PEERS, complexity, count_ops, peer
from ..measure.peers import TITLES, law
from ..models import ClassifierConfig, build
from ..nn import PRF
from ..plot import figure, lines, styled
from .workplace import Workplace

TITLE = "What the dynamics of a block cost: products per time step"
STATE, CONTEXT, WIDTHS = 64, 1024, (32, 64, 128, 256, 512, 1024)
PAPER = {
    "s4": ("H² + 2DH", False, False),
    "binary-s4d": ("H² + 2DH", False, False),
    "gsu": ("H² + 2DH", False, False),
    "s4d": (None, None, None),
    "transformer": (None, False, False),
    "sdtcm": ("5D", True, True),
}
NAMES = {**TITLES, "sdtcm": "SD-TCM with PRF"}


def run(workplace: Workplace) -> dict[str, Any]:
    rows = {}
    for name in PEERS:
        block = peer(name, (128,), CONTEXT, state_size=STATE, rate=0.05)
        rows[name] = {
            "dynamics": complexity(name), "no_nonlinear": block.no_nonlinear, "no_mac": block.no_mac,
            "products": [_products(name, width) for width in WIDTHS],
        }  # fmt: skip
    # Shapes are enough to count: no weight needs to exist.
    with torch.device("meta"):
        model = build(ClassifierConfig(inputs=1, classes=10, features=128, depth=1))
        neurons = [PRF(width).count("prf", 1).multiply for width in WIDTHS]
        dynamics = law(lambda width, _: PRF(width).count("prf", 1).multiply)
    names = ("encoder.blocks.0.token_neuron", "encoder.blocks.0.channel_neuron")
    counts = count_ops(model, (CONTEXT, 1), dict.fromkeys(names, 0.05))
    outside = counts.only("encoder", "head")
    rows["sdtcm"] = {
        "dynamics": dynamics, "no_nonlinear": counts.no_nonlinear, "no_mac": counts.no_mac, "products": neurons,
    }  # fmt: skip
    return {
        "state_size": STATE,
        "context": CONTEXT,
        "widths": WIDTHS,
        "rows": rows,
        "paper": {
            name: dict(zip(("dynamics", "no_nonlinear", "no_mac"), each, strict=True)) for name, each in PAPER.items()
        },
        "macs_outside_blocks": outside.per_inference("mac"),
        "share_outside_blocks": outside.per_inference("mac") / counts.per_inference("ac"),
    }


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
    rows, same = [], True
    for name, row in result["rows"].items():
        paper = result["paper"][name]
        same = same and all(paper[key] in (None, row[key]) for key in paper)
        flags = " | ".join(f"{word[row[key]]} / {word[paper[key]]}" for key in ("no_nonlinear", "no_mac"))
        at = row["products"][result["widths"].index(256)]
        rows.append(f"| {NAMES[name]} | {row['dynamics']} / {paper['dynamics'] or '-'} | {flags} | {at:,.0f} |")
    prf = result["rows"]["sdtcm"]["products"][result["widths"].index(256)]
    s4 = result["rows"]["s4"]["products"][result["widths"].index(256)]
    s4d = result["rows"]["s4d"]["products"][result["widths"].index(256)]
    return f"""
Counted / the paper's. Dynamics: products in a time step for the state and its read-out, D channels, H states, C tokens
looked at. The last column is at D = 256, H = {result["state_size"]}, C = {result["context"]:,}.

| | dynamics | no nonlinear function in a block | no floating-point MAC in a block | products |
|---|---|---|---|---|
{chr(10).join(rows)}

{"Every entry agrees with the paper's." if same else "Not every entry agrees with the paper's."} At these sizes S4's
formula has {s4 / prf:.0f} times the PRF's products. That formula takes A as a full matrix of H by H, which no S4 is run
with; a diagonal one with H/2 complex states for each channel has {s4d / prf:.0f} times.

What the columns do not say: a PRF's products are floating-point products too, only none with a matrix; and the two
columns are about blocks. The input layer and the head of the network counted here do
{result["macs_outside_blocks"]:,.0f} MACs in an inference of {result["context"]:,} steps,
{result["share_outside_blocks"]:.2f} for each accumulate in its one block. The paper's other rows (SpikingSSMs,
stochastic S4, LMU, ELM) are not counted: it has no formula for them. After folding, a PRF takes 4D, see
[deployment-operations](deployment-operations.md).
"""
