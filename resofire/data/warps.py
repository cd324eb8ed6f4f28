"""Augmentation of images: each is moved, turned, stretched and bent a little, anew in each epoch. Off unless told so.

How an image is warped is a function of seed, epoch and its number, so it does not depend on batches or processes.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

# Bends are drawn at so many places along each side, from edge to edge.
NODES = 5


@dataclass(frozen=True)
class Warps:
    """Warps images of side × side pixels; zeros come in at the edges.

    shift      by up to how many pixels the place of a pixel is looked up further down or up, and right or left
    turn       by up to how many degrees turned about the middle
    stretch    by up to which share of its distance from the middle farther or nearer, and aside
    bend       by up to how many pixels further still, at each of 5 x 5 places for itself, in proportion between them
    """

    side: int
    shift: float = 0.0
    turn: float = 0.0
    stretch: float = 0.0
    bend: float = 0.0

    def draw(self, count: int, seed: int, epoch: int) -> np.ndarray:
        """For each of `count` images, where in it a pixel of the warped one is looked up: [count, 2, 3], or
        [count, 2, 3 + 25] with bends.

        place = matrix @ (down, right, 1) + bend there, in pixels from the middle. Draws are even within their limits.
        """
        # A third number, so that warps are no function of the order in which the images are shown.
        generator = np.random.RandomState([seed % 2**32, epoch % 2**32, 1])
        shift, turn, stretch = np.split(generator.uniform(-1, 1, (count, 7)), (2, 3), axis=1)
        angle = math.radians(self.turn) * turn[:, 0]
        turned = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(-1, 2, 2)
        matrix = turned @ (np.eye(2) + self.stretch * stretch.reshape(-1, 2, 2))
        drawn = [matrix, self.shift * shift[:, :, None]]
        if self.bend:
            drawn.append(self.bend * generator.uniform(-1, 1, (count, 2, NODES * NODES)))
        return np.concatenate(drawn, 2)

    def warp(self, images: np.ndarray, by: np.ndarray) -> np.ndarray:
        """uint8 [B, side², C], each looked up at the places of `by`; between pixels by cubics, which blur it little."""
        side = self.side
        middle = (side - 1) / 2
        places = np.arange(side) - middle
        down, right = np.meshgrid(places, places, indexing="ij")
        grid = np.einsum("bij,jyx->byxi", by[:, :, :3], np.stack([down, right, np.ones_like(down)]))
        if by.shape[2] > 3:
            nodes = by[:, :, 3:].reshape(-1, 2, NODES, NODES)
            # What each node counts for at each row or column: all at its own, nothing from its neighbours' on.
            between = np.linspace(0, NODES - 1, side)[:, None] - np.arange(NODES)
            share = np.maximum(0, 1 - np.abs(between))
            grid += np.einsum("biyx,Yy,Xx->bYXi", nodes, share, share, optimize=True)
        # torch counts (right, down) from -1 to 1 between the outermost pixels' middles.
        grid = torch.from_numpy(grid[..., ::-1] / middle)
        x = torch.from_numpy(images.reshape(-1, side, side, images.shape[-1])).permute(0, 3, 1, 2)
        warped = torch.nn.functional.grid_sample(x.double(), grid, mode="bicubic", align_corners=True)
        return warped.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).reshape(images.shape).numpy()


def require_warps(task: str, side: int, shift: float, turn: float, stretch: float, bend: float) -> Warps | None:
    """What a data set's settings of these names mean; None if all are 0."""
    limits = {"shift": side - 1, "turn": 180, "stretch": 0.5, "bend": side - 1}
    for (name, most), value in zip(limits.items(), (shift, turn, stretch, bend), strict=True):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
            raise ValueError(f"{task}: {name} must be a number from 0 to {most}, got {value!r}")
    return Warps(side, shift, turn, stretch, bend) if shift or turn or stretch or bend else None
