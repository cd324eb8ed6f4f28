"""A comparison of networks as a figure: accuracy over energy, and the networks that no other beats in both."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from .style import COLOURS, MARKERS, figure, lines, styled


@styled
def draw(result: Mapping[str, Any]) -> Figure:
    """Draw the table of `resofire.compare.run`, directly or read back from JSON."""
    drawn, (panel,) = figure(width=7.0, height=4.6)
    points = [(row["energy"]["audited"], 100 * row["accuracy"], row) for row in result["rows"]]
    for number, ((mj, accuracy, row), style) in enumerate(zip(points, lines(), strict=False)):
        # Colours come back after some networks, then with other markers.
        style["marker"] = MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]
        spread = None if row["spread"] is None else 100 * row["spread"]
        panel.errorbar(mj, accuracy, spread, **{**style, "linestyle": ""}, capsize=3, label=row["title"])
    front = pareto([(mj, accuracy) for mj, accuracy, _ in points])
    panel.plot(*zip(*front, strict=True), color="#6b6b6b", linewidth=1, drawstyle="steps-post", zorder=0)
    panel.set_xscale("log")
    # Few plain numbers: powers of ten beside each other overlap.
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    panel.xaxis.set_minor_formatter("{x:g}")
    title = f"{result['recipe']}, {budget_words(result['budget'])} each"
    panel.set(title=title, xlabel="mJ per inference, audited", ylabel="test accuracy, %")
    drawn.legend(loc="outside right upper")
    return drawn


def budget_words(budget: Mapping[str, float | None]) -> str:
    """The budget of each run, such as 15 minutes."""
    name, value = next((name, value) for name, value in budget.items() if value is not None)
    return f"{value:g} {name.removesuffix('s') if value == 1 else name}"


def pareto(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points (cost, gain) that no other beats in both, by cost."""
    front: list[tuple[float, float]] = []
    for cost, gain in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or gain > front[-1][1]:
            front.append((cost, gain))
    return front
