"""What `resofire measure` found, in panels: how much each layer fires, where the energy goes, and the peers'."""

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
def draw(found: Mapping[str, Any]) -> Figure:
    """A figure of what `resofire.measure.measure` returns, as it is or read back from JSON."""
    drawn, (rates, components, *peers) = figure(1, 3 if found["peers"] else 2, height=3.3)
    _rates(rates, found["rates"])
    _components(components, found["energy"])
    for panel in peers:
        _peers(panel, found)
    return drawn


def _rates(panel: Axes, rates: Mapping[str, Any]) -> None:
    """One line for each kind of neuron, over the blocks."""
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
    """Where the energy goes, from the input at the top to the head at the bottom."""
    audited, published = energy["audited"], energy["published"].get("components", {})
    names = list(audited["components"])
    style = hatches()
    shift = THICK / 2 if published else 0
    for offset, label, each in ((-shift, "audited", audited["components"]), (shift, "as published", published)):
        fill = next(style)
        if each:
            values = [each[name]["pJ_per_step"] / 1000 if name in each else 0 for name in names]
            places = [place + offset for place in range(len(names))]
            panel.barh(places, values, THICK, label=label, **fill)
    total = audited["pJ_per_step"]
    for place, name in enumerate(names):
        value = audited["components"][name]["pJ_per_step"]
        share = f" {100 * value / total:.0f} %" if total > 0 else ""
        panel.text(value / 1000, place - shift, share, va="center", ha="left", fontsize=9)
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    panel.set_axisbelow(True)
    panel.margins(x=0.14)
    panel.set_title("Energy by part")
    panel.set_xlabel("nJ per time step")
    if published:
        panel.legend()


def _peers(panel: Axes, found: Mapping[str, Any]) -> None:
    """How many times less; the axis is logarithmic, as it may be hundreds."""
    own = found["energy"]["audited"]["mJ_per_inference"]
    names = ["this network", *(each["title"] for each in found["peers"].values())]
    values = [own, *(each["audited"]["mJ_per_inference"] for each in found["peers"].values())]
    style = hatches()
    mine, theirs = next(style), next(style)
    for place, value in enumerate(values):
        panel.barh(place, value, 2 * THICK, **(mine if place == 0 else theirs))
        times = f" {value:.2g} mJ" if place == 0 else f" {value / own:,.3g}×"
        panel.text(value, place, times, va="center", ha="left", fontsize=10)
    panel.set_xscale("log")
    # A bar on a logarithmic axis has no true length; beginning well below the shortest keeps them comparable.
    panel.set_xlim(min(values) / 4, max(values) * 4)
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    panel.set_axisbelow(True)
    panel.set_title("Against peers of the same size")
    panel.set_xlabel("mJ per inference")
