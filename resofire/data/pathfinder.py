"""Pathfinder (32 × 32) and Path-X (128 × 128): do two discs lie on the same dashed path? Pixels in a row.

The released folder of PNGs if the user has it, else our generator, after the procedure of Linsley et al. (2018) that
LRA used: two paths of 14 paddles grow in turn from nearby seeds; then come short distractors; one disc marks the first
tip of a path, another the far tip of the same path (label 1) or of the other one (label 0).

Image i is a function of the seed and i, in integers alone: orientations, stamps and weights are tables, computed once
and rounded. So the bytes are the same on any machine with any number of workers.

Deliberately different from the publication: there, a paddle is not checked against the latest paddle of the other path,
so that two paths may cross where both grow at once, and any path may pass through a gap of another. The label is then
ambiguous. Here a path keeps off all paddles but its own last one and crosses neither itself nor a target, gaps
included, and no tip of a target is so close to the other target that its disc would lie on both.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from . import pathfinder_release as release
from .files import Folder
from .registry import dataset
from .store import Prepared, empty_bytes, prepared
from .task import SPLITS, Form, Task, make_splits, require_counts, require_setting

VERSION = 2
COUNTS = (160_000, 20_000, 20_000)
# Images per call of the compiled code.
BLOCK = 64
# A cell of a paddle's shape can touch the mask if both together reach this: 1.8 of 255.
TOUCH = 459


@dataclass(frozen=True)
class Settings:
    """Properties of the images; lengths in pixels. Each image has one of `margins`, half the gap between paddles."""

    size: int
    margins: tuple[int, ...]
    length: int
    thickness: float
    radius: float
    distance: int
    continuity: float
    distractors: int
    contour_length: int = 14
    distractor_length: int = 4
    padding: int = 1
    scale: int = 2
    paddle_retries: int = 2
    distractor_retries: int = 4
    target: int = 191
    distractor: int = 255
    marker: int = 128


# Of 128: what LRA states for its Pathfinder128, and otherwise the defaults of the published generator.
SETTINGS = {
    32: Settings(
        size=32, margins=(1,), length=2, thickness=0.5, radius=1.5, distance=7, continuity=1.0, distractors=5
    ),
    128: Settings(
        size=128, margins=(2, 3), length=5, thickness=1.5, radius=3.0, distance=20, continuity=1.8, distractors=8
    ),
}  # fmt: skip


class Tables(NamedTuple):
    """All geometry for one margin. Orientations 0 … 359 are degrees, for seeds; then one per place on `circle`.

    masks             [orientations, n, n]: a paddle's widened shape, 255 at most
    targets, others   [orientations, n, n]: a paddle's picture, in a target and in a distractor
    cells, firm       [orientations, m, 3], [orientations, 2]: the shape as a list of y, x, value; the numbers of its
                      full cells, which come first, and of those that can touch, which come next
    heads, pivots     [360, 2]: from a seed's tail to its head, from there to its pivot
    steps             [orientations, 2]: from a pivot to the next one
    circle            [places, 2]: from a pivot to the far ends a paddle may have
    bends             [orientations, places]: weight of a turn, of 2¹⁶
    ring              [360, 2]: from the first seed's tail to the second's
    near              [m, 2]: the margin around a place
    disc              [n, n]: the marker
    least             the sum of weights below which there is no room
    clear             least distance of a tip from the other target, squared
    """

    masks: np.ndarray
    targets: np.ndarray
    others: np.ndarray
    cells: np.ndarray
    firm: np.ndarray
    heads: np.ndarray
    pivots: np.ndarray
    steps: np.ndarray
    circle: np.ndarray
    bends: np.ndarray
    ring: np.ndarray
    near: np.ndarray
    disc: np.ndarray
    least: int
    clear: int
    size: int
    distance: int
    padding: int
    distractors: int
    distractor_length: int
    paddle_retries: int
    distractor_retries: int


@dataset("pathx", about="the same, 128 x 128", size=128)
@dataset("pathfinder", about="are two dots on one path? 32 x 32 (Long Range Arena)", size=32)
def pathfinder(
    data_dir: Folder = None, *, size: int = 32, kind: str = "tokens", seed: int = 0,
    counts: tuple[int, int, int] = COUNTS, lengths: tuple[int, int] | None = None, workers: int | None = None,
) -> Task:  # fmt: skip
    """Load Pathfinder: the released images if they are in the user's folder (80/10/10 %, in order), else generated.

    Args:
        data_dir: Folder with the release.
        size: Pixels along a side, 32 or 128.
        kind: "tokens", grey levels 0 … 255, or "values", the same from -1 to 1.
        seed: Seed of the generator.
        counts: How many to generate for train, validation and test.
        lengths: Shortest and longest path in the training images, in paddles, for a curriculum: equal numbers of each
            length, with fewer distractors on short ones. Validation and test stay as they are, with paths of 14.
        workers: Threads that generate; the result does not depend on it.

    Returns:
        The task.
    """
    require_setting("pathfinder", "size", size, tuple(SETTINGS))
    require_setting("pathfinder", "kind", kind, ("tokens", "values"))
    require_counts("pathfinder", "counts", counts)
    if lengths is not None:
        _require_lengths(lengths, SETTINGS[size].contour_length)
    name = "pathfinder" if size == 32 else "pathx"
    released = release.find(data_dir, size) if lengths is None else None
    settings: dict[str, Any] = {"version": VERSION, "size": size}
    if released is None:
        settings |= {"seed": seed, "counts": list(counts), "generator": repr(SETTINGS[size])}
        if lengths is not None:
            settings |= {"lengths": list(lengths)}
    else:
        settings |= {"files": release.identity(released)}

    def make() -> Prepared:
        if released is None:
            images, labels = generate(sum(counts), seed, size=size, workers=workers)
            parts = list(counts)
            if lengths is not None:
                images[: counts[0]], labels[: counts[0]] = easier(counts[0], seed, size, lengths, workers)
        else:
            images, labels = release.read(released, size)
            tenth = len(images) // 10
            parts = [len(images) - 2 * tenth, tenth, tenth]
        ends = np.cumsum([0, *parts]).tolist()
        arrays = {}
        for split, first, end in zip(SPLITS, ends[:-1], ends[1:], strict=True):
            arrays[f"{split}-images"], arrays[f"{split}-labels"] = images[first:end], labels[first:end]
        return arrays, {"origin": "generated" if released is None else "files"}

    stored, _ = prepared(name, settings, make)
    arrays = {name.replace("-images", "_x").replace("-", "_"): array for name, array in stored.items()}
    class_names = ("different paths", "same path")
    if kind == "tokens":
        return Task(name, kind, 2, make_splits(arrays, kind), vocabulary=256, class_names=class_names)
    arrays |= {f"{split}_x": arrays[f"{split}_x"][..., None] for split in SPLITS}
    splits = make_splits(arrays, kind, Form(scale=2 / 255, shift=-1.0))
    return Task(name, kind, 2, splits, inputs=1, class_names=class_names)


def generate(
    count: int, seed: int = 0, *, size: int = 32, first: int = 0, workers: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Generate images first … first + count - 1 of a seed, [count, size²] uint8, and their labels [count] uint8."""
    images, labels, _ = traced(count, seed, SETTINGS[size], first=first, workers=workers, keep=False)
    return images, labels


def easier(
    count: int, seed: int, size: int, lengths: tuple[int, int], workers: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """As `generate`, with equal numbers of images for each length of their paths from the first to the last."""
    settings = SETTINGS[size]
    parts = []
    bounds = np.linspace(0, count, lengths[1] - lengths[0] + 2).astype(int).tolist()
    for length, first, end in zip(range(lengths[0], lengths[1] + 1), bounds[:-1], bounds[1:], strict=True):
        easy = replace(settings, contour_length=length, distractors=min(settings.distractors, length - 2))
        parts.append(traced(end - first, seed, easy, first=first, workers=workers, keep=False))
    return np.concatenate([images for images, _, _ in parts]), np.concatenate([labels for _, labels, _ in parts])


def _require_lengths(lengths: object, longest: int) -> None:
    fits = isinstance(lengths, tuple | list) and len(lengths) == 2 and all(type(each) is int for each in lengths)
    if not fits or not 2 <= lengths[0] <= lengths[1] <= longest:  # type: ignore[index]
        raise ValueError(f"pathfinder: lengths must be two integers from 2 to {longest}, in order, got {lengths!r}")


def traced(
    count: int, seed: int, settings: Settings, *, first: int = 0, workers: int | None = None, keep: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `generate`, with the target paddles [count, 2, 14, 7] if `keep`: pivot, orientation, place of the stamp and
    far end, places as y, x."""
    from . import pathfinder_kernels as kernels

    size = settings.size
    choices = tuple(tables(settings, margin) for margin in settings.margins)
    images = empty_bytes((count, size * size))
    labels = np.empty(count, np.uint8)
    shape = (2, settings.contour_length, 7)
    traces = np.empty((count if keep else 0, *shape), np.int64)

    def block(start: int) -> None:
        end = min(start + BLOCK, count)
        trace = np.empty((end - start, *shape), np.int64)
        picture = np.empty((end - start, size, size), np.uint8)
        done = kernels.draw(np.uint64(seed % 2**64), first + start, choices, picture, labels[start:end], trace)
        if done != end - start:
            raise RuntimeError(f"pathfinder: image {first + start + done} of seed {seed} has no room for its paths")
        images[start:end] = picture.reshape(end - start, -1)
        if keep:
            traces[start:end] = trace

    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for _ in pool.map(block, range(0, count, BLOCK)):
            pass
    return images, labels, traces


@lru_cache
def tables(settings: Settings, margin: int) -> Tables:
    """Compute the tables of a margin."""
    length = settings.length
    degrees = [math.radians(angle) for angle in range(-180, 180)]
    reach = length + margin
    arc = 1 / reach  # of one pixel
    around = np.arange(0, 2 * math.pi, arc)
    places = sorted({(_floor(reach * math.sin(a)), _floor(reach * math.cos(a))) for a in around})
    turns = [math.atan2(y, x) for y, x in places]
    pictures = [_paddle(settings, margin, angle) for angle in degrees]
    pictures += [_paddle(settings, margin, angle + math.pi) for angle in turns]
    # A line thinner than a pixel is dim: its brightest pixel gets the level of the settings.
    lines = np.stack([line for line, _ in pictures])
    masks = np.stack([mask for _, mask in pictures])
    cells, firm = _listed(masks)
    bends = [[_bend(settings.continuity, angle, turn) for turn in turns] for angle in (*degrees, *turns)]
    near = [
        (y, x) for y in range(-margin, margin + 1) for x in range(-margin, margin + 1) if y * y + x * x <= margin**2
    ]
    return Tables(
        masks=masks,
        targets=_dimmed(lines, settings.target),
        others=_dimmed(lines, settings.distractor),
        cells=cells,
        firm=firm,
        heads=np.array([_moved(angle, length) for angle in degrees]),
        pivots=np.array([_moved(angle + math.pi, reach) for angle in degrees]),
        steps=np.array([_moved(angle, length + 2 * margin) for angle in (*degrees, *turns)]),
        circle=np.array(places),
        bends=np.array(bends),
        ring=np.array(
            [[_floor(settings.distance * f(a) + 0.5) for f in (math.sin, math.cos)] for a in degrees]
        ),
        near=np.array(near),
        disc=_dimmed(_disc(settings), settings.marker),
        least=int(1e-4 * 255 * 65536),
        clear=math.ceil((settings.radius + 1.5) ** 2),
        size=settings.size, distance=settings.distance, padding=settings.padding,
        distractors=settings.distractors, distractor_length=settings.distractor_length,
        paddle_retries=settings.paddle_retries, distractor_retries=settings.distractor_retries,
    )  # fmt: skip


# Rounding ignores the last digits, in which the sines of two machines may differ.
def _floor(value: float) -> int:
    return math.floor(value + 1e-9)


def _moved(angle: float, distance: float) -> tuple[int, int]:
    return math.ceil(distance * math.sin(angle) - 1e-9), math.ceil(distance * math.cos(angle) - 1e-9)


def _bend(continuity: float, last: float, turn: float) -> int:
    delta = abs(turn - last)
    delta = min(continuity * min(delta, 2 * math.pi - delta), math.pi / 2)
    return _floor(65536 * math.cos(delta) ** 2 + 0.5)


def _paddle(settings: Settings, margin: int, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """A paddle from the centre of a small square, and its shape widened by the margin, both reduced by Lanczos."""
    scale = settings.scale
    half = settings.length + math.ceil(settings.thickness) + margin
    width = round(settings.thickness * scale)
    y, x = np.mgrid[-half * scale : half * scale + 1, -half * scale : half * scale + 1]
    to_y, to_x = _moved(angle, settings.length * scale)
    if width == 1:
        steps = max(abs(to_y), abs(to_x))
        line = np.zeros(y.shape, bool)
        for step in range(steps + 1):
            row, column = (math.floor((2 * to * step + steps) / (2 * steps)) for to in (to_y, to_x))
            line[half * scale + row, half * scale + column] = True
    else:
        square = to_y**2 + to_x**2
        along, across = y * to_y + x * to_x, y * to_x - x * to_y
        line = (along >= 0) & (along <= square) & (4 * across**2 <= width**2 * square)
    wide = np.zeros_like(line)
    reach = margin * scale
    for row, column in np.argwhere(line) - half * scale:
        wide |= (y - row) ** 2 + (x - column) ** 2 <= reach**2
    return _scaled(line, 2 * half + 1), _scaled(wide, 2 * half + 1)


def _disc(settings: Settings) -> np.ndarray:
    scale, half = settings.scale, math.ceil(settings.radius) + 2
    y, x = np.mgrid[-half * scale : half * scale, -half * scale : half * scale]
    small = _scaled(y**2 + x**2 <= (settings.radius * scale) ** 2, 2 * half)
    # Its centre is at [half, half]; one more row and column make that the centre of the square.
    return np.pad(small, ((0, 1), (0, 1)))


def _dimmed(pictures: np.ndarray, level: int) -> np.ndarray:
    brightest = int(pictures.max())
    return ((pictures.astype(np.int64) * level + brightest // 2) // brightest).astype(np.uint8)


def _listed(masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    half = masks.shape[1] // 2
    # Full cells before those that can touch before the rest.
    order = np.argsort(-masks.reshape(len(masks), -1).astype(np.int64), axis=1, kind="stable")
    values = np.take_along_axis(masks.reshape(len(masks), -1), order, 1).astype(np.int64)
    cells = np.stack([order // masks.shape[2] - half, order % masks.shape[2] - half, values], 2)
    firm = np.stack([(values == 255).sum(1), (values >= TOUCH - 255).sum(1)], 1)
    return cells[:, : firm.max()].copy(), firm


def _scaled(shape: np.ndarray, size: int) -> np.ndarray:
    from PIL import Image

    # For bytes, Pillow computes with integers.
    image = Image.fromarray(shape.astype(np.uint8) * 255)
    return np.asarray(image.resize((size, size), Image.Resampling.LANCZOS))
