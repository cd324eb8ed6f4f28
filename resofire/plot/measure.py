"""A measured network as a figure: fire rate by layer, energy by component, energy of the peers."""

import re
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .style import figure, hatches, lines, styled

KINDS = {
    "token_neuron": "temporal", "token_neuron_reverse": "temporal, reversed", "channel_neuron": "spatial",
    "neurons": "temporal",
}  # fmt: skip
THICK = 0.38


@styled
def draw(measured: Mapping[str, Any]) -> Figure:
    """Draw what `resofire.measure.measure` returns, directly or read back from JSON."""
    spikes, peers = bool(measured["rates"]["layers"]), bool(measured["peers"])
    drawn, panels = figure(1, 1 + spikes + peers, height=3.3)
    if spikes:
        _rates(panels[0], measured["rates"])
    _components(panels[spikes], measured["energy"])
    if peers:
        _peers(panels[-1], measured)
    return drawn


def _rates(panel: Axes, rates: Mapping[str, Any]) -> None:
    """One line per kind of neuron, over the blocks."""
    kinds: dict[str, dict[int, float]] = {}
    for name, rate in rates["layers"].items():
        numbers = re.findall(r"\.(\d+)", name)
        kind = KINDS.get(re.sub(r"\.\d+$", "", name).rsplit(".", 1)[-1], name)
        kinds.setdefault(kind, {})[int(numbers[-1]) + 1 if numbers else 1] = 100 * rate
    style = lines()
    for kind, values in kinds.items():
        panel.plot(list(values), list(values.values()), label=kind, **next(style))
    panel.axhline(100 * rates["mean"], color="#6b6b6b", linewidth=1, label=f"mean {100 * rates['mean']:.1f} %")
    top = max(max(values.values()) for values in kinds.values())
    # Room for the legend above the lines.
    panel.set_ylim(0, 1.45 * top if top > 0 else 1)
    panel.set_title("Fire rate")
    panel.set_xlabel("block")
    panel.set_ylabel("per cent of neurons, each step")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if max(max(values) for values in kinds.values()) == 1:
        panel.set_xlim(0.5, 1.5)
    panel.legend(loc="upper center", ncols=2)


def _components(panel: Axes, energy: Mapping[str, Any]) -> None:
    """Energy by component, from the input at the top to the head at the bottom."""
    total, names = energy["pJ_per_step"], list(energy["components"])
    values = [each["pJ_per_step"] for each in energy["components"].values()]
    panel.barh(range(len(names)), [value / 1000 for value in values], 2 * THICK, **next(hatches()))
    for place, value in enumerate(values):
        share = f" {100 * value / total:.0f} %" if total > 0 else ""
        panel.text(value / 1000, place, share, va="center", ha="left", fontsize=9)
    panel.margins(x=0.14)
    _rows(panel, "Energy by part", names)
    panel.set_xlabel("nJ per time step")


def _peers(panel: Axes, measured: Mapping[str, Any]) -> None:
    """Energy of the peers on a logarithmic axis: factors may be in the hundreds."""
    own = measured["energy"]["mJ_per_inference"]
    names = ["this network", *(each["title"] for each in measured["peers"].values())]
    values = [own, *(each["energy"]["mJ_per_inference"] for each in measured["peers"].values())]
    style = hatches()
    mine, theirs = next(style), next(style)
    for place, value in enumerate(values):
        panel.barh(place, value, 2 * THICK, **(mine if place == 0 else theirs))
        times = f" {value:.2g} mJ" if place == 0 else f" {value / own:,.3g}×"
        panel.text(value, place, times, va="center", ha="left", fontsize=10)
    panel.set_xscale("log")
    # Bars on a logarithmic axis have no natural start; well below the shortest, they stay comparable.
    panel.set_xlim(min(values) / 4, max(values) * 4)
    _rows(panel, "Against peers of the same size", names)
    panel.set_xlabel("mJ per inference")


def _rows(panel: Axes, title: str, names: list[str]) -> None:
    """Label horizontal bars, the first at the top."""
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    panel.set_axisbelow(True)
    panel.set_title(title)
