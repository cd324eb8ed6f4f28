"""Figures and pages of `resofire bench peers` and `resofire bench events`, from the dict of their JSON."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resofire.plot import figure, hatches, lines, styled
from resofire.plot.style import PAPER

from . import events, peers


@styled
def draw_peers(result: dict[str, Any]) -> Figure:
    """Draw training time of neurons and layers over length, the speed-up over the loop, and forward and backward."""
    made, panels = figure(2, 2, width=4.6, height=4.2)
    batch, features = result["shape"].values()
    for panel, group, title in ((panels[0], "neuron", "Neurons"), (panels[1], "layer", "Layers")):
        chosen = {name: peer for name, peer in result["peers"].items() if peer["group"] == group}
        for (name, peer), style in zip(chosen.items(), lines(), strict=False):
            _measured_and_guessed(panel, peer["points"], name, style)
        panel.set(title=title, ylabel=f"training step, ms ({batch} x T x {features})")
        _legend_below(panel)
    _speedups(panels[2], result["speedups"])
    _halves(panels[3], result["paper"])
    guessed = any(point["extrapolated"] for peer in result["peers"].values() for point in peer["points"])
    for panel in panels[:3]:
        panel.set_xscale("log", base=2)
        panel.set_xlabel("sequence length T")
        panel.set_yscale("log")
    made.supxlabel(result["command"] + "    hollow: extrapolated" * guessed, fontsize=9, family="monospace")
    return made


def _measured_and_guessed(panel: Axes, points: list[dict[str, Any]], name: str, style: dict[str, Any]) -> None:
    """A line with filled markers; extrapolated points are thin, with hollow ones."""
    seen = [point for point in points if not point["extrapolated"]]
    panel.plot(*_times(seen), label=name, **style)
    if len(seen) < len(points):
        panel.plot(*_times(points[len(seen) - 1 :]), **style, linewidth=0.8, markerfacecolor="white", zorder=1.5)


def _times(points: Iterable[dict[str, Any]]) -> tuple[list[int], list[float]]:
    points = list(points)
    return [point["length"] for point in points], [1e3 * (point["forward"] + point["backward"]) for point in points]


def _speedups(panel: Axes, speedups: list[dict[str, Any]]) -> None:
    # The same styles as among the neurons.
    styles = islice(lines(), 1, None)
    for (kind, label), style in zip((("fused", "fused scan"), ("parallel", "by FFT")), styles, strict=False):
        for guessed in (False, True):
            # The extrapolated part starts at the last measured point.
            first = max(0, sum(not each["extrapolated"] for each in speedups) - 1) if guessed else 0
            shown = [each for each in speedups[first:] if guessed or not each["extrapolated"]]
            thin: Any = {"linewidth": 0.8, "markerfacecolor": "white", "zorder": 1.5} if guessed else {"label": label}
            if len(shown) > guessed:
                panel.plot([each["length"] for each in shown], [each[kind] for each in shown], **style, **thin)
    paper = [each for each in speedups if each["paper"]]
    lengths, ratios = [each["length"] for each in paper], [each["paper"] for each in paper]
    panel.plot(lengths, ratios, label="by FFT, the paper", **PAPER)
    panel.axhline(1, color="black", linewidth=0.8)
    panel.set(title="LIF: faster than the loop", ylabel="time of the loop / time")
    _legend_below(panel)


def _halves(panel: Axes, paper: dict[str, Any]) -> None:
    """Forward and backward in ms, one group per way of training; the paper's beside ours."""
    case, width = paper["case"], 0.2
    kinds = {"sequential": "loop", "parallel": "FFT", "fused": "fused scan"}
    styles = hatches()
    for i, half in enumerate(("forward", "backward")):
        ours = [1e3 * case["seconds"][kind][half] for kind in kinds]
        panel.bar([x + (2 * i - 1.5) * width for x in range(len(ours))], ours, width, label=half, **next(styles))
        theirs = [1e3 * sum(part["paper"] or 0 for part in case["profile"][kind] if part["half"] == half)
                  for kind in kinds]  # fmt: skip
        known = [x for x, value in enumerate(theirs) if value]
        look = {**next(styles), "facecolor": "white", "edgecolor": "black"}
        panel.bar([x + (2 * i - 0.5) * width for x in known], [theirs[x] for x in known], width,
                  label=f"{half}, the paper", **look)  # fmt: skip
    panel.set_yscale("log")
    panel.set_xticks(range(len(kinds)), list(kinds.values()))
    panel.grid(False, axis="x")
    panel.set_axisbelow(True)
    panel.set(title="LIF: forward and backward", ylabel=f"ms ({' x '.join(map(str, case['shape']))})")
    _legend_below(panel)


@styled
def draw_events(result: dict[str, Any]) -> Figure:
    """Draw inference time over the fire rate, and over operations with fitted lines."""
    made, panels = figure(2, width=4.6, height=4.2)
    case = result["cases"][0]
    names = {"events": "events", "dense": "dense synapses", "fused": "fused block", "stream": "stream, one core"}
    work = [point["operations"] / 1e6 for point in case["points"]]
    for kind, style in zip((kind for kind in names if kind in case["points"][0]["seconds"]), lines(), strict=False):
        seconds = [1e3 * point["seconds"][kind] for point in case["points"]]
        panels[0].plot([100 * point["rate"] for point in case["points"]], seconds, label=names[kind], **style)
        fit = case["fits"].get(kind)
        label = f"{names[kind]}, r = {fit['correlation']:.3f}" if fit else names[kind]
        panels[1].plot(work, seconds, label=label, **{**style, "linestyle": "none"})
        if fit:
            ends = [0, max(work)]
            # Milliseconds for a million rows are nanoseconds for one.
            fitted = [1e3 * fit["base_seconds"] + fit["nanoseconds_per_row"] * end for end in ends]
            panels[1].plot(ends, fitted, color=style["color"], linestyle=style["linestyle"], linewidth=1.2)
    panels[0].set_xscale("log")
    ticks = [0.5, 1, 2, 5, 10, 20, 50]
    panels[0].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panels[0].minorticks_off()
    panels[0].set(title=case["name"], xlabel="fire rate, %", ylabel="inference, ms")
    panels[1].set(title="Time by operations", xlabel="weight rows added, millions", ylabel="inference, ms")
    for panel in panels:
        panel.set_ylim(bottom=0)
        _legend_below(panel)
    made.supxlabel(result["command"], fontsize=9, family="monospace")
    return made


def _legend_below(panel: Axes) -> None:
    """Place the legend under the panel: seven names would cover the lines."""
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, columnspacing=1.0, handlelength=2.6)


DRAW = {"peers": draw_peers, "events": draw_events}
TITLES = {"peers": "Training time compared with other libraries", "events": "Does time grow with operations?"}


def page(name: str, result: dict[str, Any], picture: str) -> str:
    """A benchmark's result in Markdown: its picture, its conclusion if it has one, its table."""
    title = TITLES[name]
    parts = [f"# {title}", f"Made by `{result['command']}`.", f"![{title}]({picture})"]
    if name == "events":
        parts.append(events.answer(result))
    module = peers if name == "peers" else events
    return "\n\n".join([*parts, module.table(result)]) + "\n"
