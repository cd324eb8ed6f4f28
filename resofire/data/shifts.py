"""A mild augmentation of images: each is moved by some pixels, anew in each epoch. Off unless a data set is told to.

How an image is moved is a function of seed, epoch and its number, so it does not depend on batches or processes.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shifts:
    """Moves images of side × side pixels by up to `most` pixels each way; zeros come in at the edges."""

    most: int
    side: int

    def draw(self, count: int, seed: int, epoch: int) -> np.ndarray:
        """How far each of `count` images goes down and right, [count, 2], each of the (2 most + 1)² ways alike."""
        # A third number, so that moves are no function of the order in which the images are shown.
        generator = np.random.RandomState([seed % 2**32, epoch % 2**32, 1])
        return generator.randint(-self.most, self.most + 1, (count, 2))

    def move(self, images: np.ndarray, by: np.ndarray) -> np.ndarray:
        """[B, side², C], moved."""
        side, most = self.side, self.most
        framed = np.pad(images.reshape(-1, side, side, images.shape[-1]), ((0, 0), (most, most), (most, most), (0, 0)))
        moved = [
            image[most - down : most - down + side, most - right : most - right + side]
            for image, (down, right) in zip(framed, by, strict=True)
        ]
        return np.stack(moved).reshape(images.shape) if moved else images


def require_shift(task: str, shift: int, side: int) -> Shifts | None:
    """What a data set's setting `shift` means; None for 0."""
    if isinstance(shift, bool) or not isinstance(shift, int) or not 0 <= shift < side:
        raise ValueError(f"{task}: shift must be a whole number from 0 to {side - 1}, got {shift!r}")
    return Shifts(shift, side) if shift else None
