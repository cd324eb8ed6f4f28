"""A comparison of networks as a figure: accuracy over energy, and the networks that no other beats in both."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from .style import figure, lines, styled


@styled
def draw(result: Mapping[str, Any]) -> Figure:
    """Draw the table of `resofire.compare.run`, directly or read back from JSON."""
    drawn, (panel,) = figure(width=7.0, height=4.6)
    points = [(row["energy"]["audited"], 100 * row["accuracy"], row) for row in result["rows"]]
    for (mj, accuracy, row), style in zip(points, lines(), strict=False):
        spread = None if row["spread"] is None else 100 * row["spread"]
        panel.errorbar(mj, accuracy, spread, **{**style, "linestyle": ""}, capsize=3, label=row["title"])
    front = pareto([(mj, accuracy) for mj, accuracy, _ in points])
    panel.plot(*zip(*front, strict=True), color="#6b6b6b", linewidth=1, drawstyle="steps-post", zorder=0)
    budget = next(f"{value:g} {name}" for name, value in result["budget"].items() if value is not None)
    panel.set_xscale("log")
    panel.set(title=f"{result['recipe']}, {budget} each", xlabel="mJ per inference, audited", ylabel="test accuracy, %")
    drawn.legend(loc="outside right upper")
    return drawn


def pareto(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points (cost, gain) that no other beats in both, by cost."""
    front: list[tuple[float, float]] = []
    for cost, gain in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or gain > front[-1][1]:
            front.append((cost, gain))
    return front
