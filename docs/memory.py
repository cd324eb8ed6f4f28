"""Draws memory.svg: what three neurons know, at the second input, of when the first one came.

Run as `.venv/bin/python docs/memory.py`. Two cases differ only in the time of their first input. A fast LIF has
forgotten both, a slow LIF can hardly tell them apart, a PRF answers with another phase.
"""

import math
from pathlib import Path

import torch

from resofire.nn import LIF, PRF

STEPS, SECOND, FIRST = 240, 200, (40, 50)
WIDTH, HEIGHT, PANEL, MARGIN = 860, 230, 270, 20
COLOURS = ("#1b6ca8", "#d9730d")

NEURONS = {
    "LIF, fast decay": LIF(1, tau=8.0, reset="none", threshold=math.inf),
    "LIF, slow decay": LIF(1, tau=2000.0, reset="none", threshold=math.inf),
    "PRF": PRF(
        1, tau=600.0, delta=1.0, theta=2 * math.pi / 40, train_delta=False, train_theta=False, threshold=math.inf
    ),
}


def potentials(neuron: LIF | PRF) -> torch.Tensor:
    """[2, STEPS]: the potential in both cases."""
    current = torch.zeros(2, STEPS, 1)
    for case, first in enumerate(FIRST):
        current[case, first] = current[case, SECOND] = 1.0
    return neuron.trace(current).u[:, :, 0]


def panel(title: str, u: torch.Tensor, left: float) -> list[str]:
    top, bottom = 52, HEIGHT - 40
    scale = 2.15

    def point(t: int, value: float) -> str:
        x = left + t / STEPS * (PANEL - MARGIN)
        y = (top + bottom) / 2 - value / scale * (bottom - top) / 2
        return f"{x:.1f},{y:.1f}"

    lines = [f'<text x="{left}" y="22" fill="#111" font-weight="bold">{title}</text>']
    lines.append(f'<polyline points="{point(0, 0)} {point(STEPS, 0)}" stroke="#bbb"/>')
    lines.append(
        f'<polyline points="{point(SECOND, -scale)} {point(SECOND, scale)}" stroke="#bbb" stroke-dasharray="3 3"/>'
    )
    for case in (0, 1):
        points = " ".join(point(t, float(u[case, t])) for t in range(STEPS))
        dash = ' stroke-dasharray="6 3"' if case else ""
        lines.append(f'<polyline points="{points}" stroke="{COLOURS[case]}" stroke-width="1.8"{dash}/>')
    gap = abs(float(u[0, SECOND] - u[1, SECOND]))
    lines.append(f'<text x="{left}" y="40" fill="#555">difference at the second input: {gap:.2g}</text>')
    return lines


def draw() -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"',
        ' font-family="sans-serif" font-size="13" fill="none">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for i, (title, neuron) in enumerate(NEURONS.items()):
        lines += panel(title, potentials(neuron), MARGIN + i * (PANEL + 10))
    y = HEIGHT - 14
    for case, first in enumerate(FIRST):
        x = MARGIN + case * 300
        dash = ' stroke-dasharray="6 3"' if case else ""
        path = f'points="{x},{y - 4} {x + 30},{y - 4}"'
        lines.append(f'<polyline {path} stroke="{COLOURS[case]}" stroke-width="1.8"{dash}/>')
        lines.append(f'<text x="{x + 38}" y="{y}" fill="#111">inputs at steps {first} and {SECOND}</text>')
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw())
