"""Augmentation of images: each is shifted, turned, stretched, bent or mirrored, differently in each epoch.

How an image is warped is a function of seed, epoch and its number, so it depends on neither batches nor processes.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

# Nodes along each side, from edge to edge, at which bends are sampled.
NODES = 5


@dataclass(frozen=True)
class Warps:
    """Warps images of side × side pixels; outside pixels are zero.

    Attributes:
        side: Pixels along a side.
        shift: Largest shift down or up, and right or left, in pixels.
        turn: Largest rotation about the centre, in degrees.
        stretch: Largest scaling and shear, as a share of the distance from the centre.
        bend: Largest local shift in pixels, sampled at each of 5 × 5 nodes and interpolated linearly.
        mirror: Whether half of the images are mirrored left to right.
    """

    side: int
    shift: float = 0.0
    turn: float = 0.0
    stretch: float = 0.0
    bend: float = 0.0
    mirror: bool = False

    def draw(self, count: int, seed: int, epoch: int) -> np.ndarray:
        """Sample where each pixel of `count` warped images is looked up in the original, uniformly within the limits.

        Returns:
            [count, 2, 3], or [count, 2, 3 + 25] with bends: place = matrix @ (down, right, 1) + bend there, in pixels
            from the centre.
        """
        # The third number makes warps independent of the order of the images.
        generator = np.random.RandomState([seed % 2**32, epoch % 2**32, 1])
        shift, turn, stretch = np.split(generator.uniform(-1, 1, (count, 7)), (2, 3), axis=1)
        angle = math.radians(self.turn) * turn[:, 0]
        turned = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(-1, 2, 2)
        matrix = turned @ (np.eye(2) + self.stretch * stretch.reshape(-1, 2, 2))
        parts = [matrix, self.shift * shift[:, :, None]]
        if self.bend:
            parts.append(self.bend * generator.uniform(-1, 1, (count, 2, NODES * NODES)))
        if self.mirror:
            # Sampled last, so that the other warps do not depend on it.
            matrix[:, :, 1] *= generator.choice((-1.0, 1.0), (count, 1))
        return np.concatenate(parts, 2)

    def warp(self, images: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Warp images [B, side², C] uint8 as `draw` sampled it, with bicubic interpolation, which blurs little."""
        side = self.side
        centre = (side - 1) / 2
        places = np.arange(side) - centre
        down, right = np.meshgrid(places, places, indexing="ij")
        grid = np.einsum("bij,jyx->byxi", by[:, :, :3], np.stack([down, right, np.ones_like(down)]))
        if by.shape[2] > 3:
            nodes = by[:, :, 3:].reshape(-1, 2, NODES, NODES)
            # Weight of each node at each row or column: 1 at its own, 0 from its neighbours' on.
            between = np.linspace(0, NODES - 1, side)[:, None] - np.arange(NODES)
            share = np.maximum(0, 1 - np.abs(between))
            grid += np.einsum("biyx,Yy,Xx->bYXi", nodes, share, share, optimize=True)
        # torch counts (right, down) from -1 to 1 between the centres of the outermost pixels.
        grid = torch.from_numpy(grid[..., ::-1] / centre)
        x = torch.from_numpy(images.reshape(-1, side, side, images.shape[-1])).permute(0, 3, 1, 2)
        warped = torch.nn.functional.grid_sample(x.double(), grid, mode="bicubic", align_corners=True)
        return warped.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).reshape(images.shape).numpy()


def require_warps(
    task: str, side: int, *, shift: float = 0.0, turn: float = 0.0, stretch: float = 0.0, bend: float = 0.0,
    mirror: bool = False,
) -> Warps | None:  # fmt: skip
    """Make the warps of a data set's settings; None if there are none.

    Raises:
        ValueError: If one is out of range.
    """
    limits = {"shift": side - 1, "turn": 180, "stretch": 0.5, "bend": side - 1}
    for (name, most), value in zip(limits.items(), (shift, turn, stretch, bend), strict=True):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
            raise ValueError(f"{task}: {name} must be a number from 0 to {most}, got {value!r}")
    if not isinstance(mirror, bool):
        raise ValueError(f"{task}: mirror must be True or False, got {mirror!r}")
    if not (shift or turn or stretch or bend or mirror):
        return None
    return Warps(side, shift=shift, turn=turn, stretch=stretch, bend=bend, mirror=mirror)
