# mypy: ignore-errors
# Compiled by Numba, which infers the types.
"""Pathfinder kernels: grow paths and draw images. All geometry comes from tables (`pathfinder.Tables`), in integers.

The mask of a path is what it must not touch: the frame and all paddles but its own last one, each widened by the
margin. Nor may it cross itself or a target in a gap. A path is called snake, as in the published generator.
"""

import numpy as np
from numba import njit

from .pathfinder import TOUCH
from .splitmix import STEP, below, mixed, stream

FREE = 76  # 0.3 of 255
DEGREES = 360
TRIES = 100_000
GUESSES = 64


@njit(nogil=True, inline="always")
def number(state, limit):
    state[0] += STEP
    return below(mixed(state[0]), limit)


@njit(nogil=True)
def stamp(canvas, picture, y, x):
    """Merge a small picture, centred at y, x, into a canvas by maximum."""
    size, half = canvas.shape[0], picture.shape[0] // 2
    for a in range(picture.shape[0]):
        row = y - half + a
        if row < 0 or row >= size:
            continue
        for b in range(picture.shape[1]):
            column = x - half + b
            if 0 <= column < size and picture[a, b] > canvas[row, column]:
                canvas[row, column] = picture[a, b]


@njit(nogil=True)
def touches(mask, tables, orientation, y, x):
    size = mask.shape[0]
    for k in range(tables.firm[orientation, 1]):
        row, column = y + tables.cells[orientation, k, 0], x + tables.cells[orientation, k, 1]
        if 0 <= row < size and 0 <= column < size and mask[row, column] + tables.cells[orientation, k, 2] >= TOUCH:
            return True
    return False


@njit(nogil=True)
def occupied(mask, tables, orientation, y, x):
    """Whether the full cells of a paddle's widened shape, placed here, meet the mask or leave the window."""
    size = mask.shape[0]
    for k in range(tables.firm[orientation, 0]):
        row, column = y + tables.cells[orientation, k, 0], x + tables.cells[orientation, k, 1]
        if row < 0 or row >= size or column < 0 or column >= size or mask[row, column] > FREE:
            return True
    return False


@njit(nogil=True, inline="always")
def side(ay, ax, by, bx, cy, cx):
    return np.sign((bx - ax) * (cy - ay) - (by - ay) * (cx - ax))


@njit(nogil=True)
def crosses(snake, count, ay, ax, by, bx):
    """Whether the segment from a to b meets the line through a snake's first paddles, gaps included."""
    cy, cx = snake[0, 3], snake[0, 4]
    for k in range(count):
        dy, dx = snake[k, 5], snake[k, 6]
        if (
            side(ay, ax, by, bx, cy, cx) * side(ay, ax, by, bx, dy, dx) <= 0
            and side(cy, cx, dy, dx, ay, ax) * side(cy, cx, dy, dx, by, bx) <= 0
            and max(min(ay, by), min(cy, dy)) <= min(max(ay, by), max(cy, dy))
            and max(min(ax, bx), min(cx, dx)) <= min(max(ax, bx), max(cx, dx))
        ):
            return True
        cy, cx = dy, dx
    return False


@njit(nogil=True, inline="always")
def inside(size, y, x):
    return 0 <= y < size and 0 <= x < size


@njit(nogil=True)
def near(cy, cx, dy, dx, y, x, clear):
    """Whether a place is nearer than √clear to the segment from c to d."""
    dy, dx, py, px = dy - cy, dx - cx, y - cy, x - cx
    square, along, across = dy * dy + dx * dx, py * dy + px * dx, py * dx - px * dy
    if along <= 0:
        return py * py + px * px < clear
    if along >= square:
        return (py - dy) ** 2 + (px - dx) ** 2 < clear
    return across * across < clear * square


@njit(nogil=True)
def close(snake, k, y, x, clear):
    """Whether a place is nearer than √clear to paddle k of a snake, including the gap before it."""
    if k == 0:
        return near(snake[0, 3], snake[0, 4], snake[0, 5], snake[0, 6], y, x, clear)
    return near(snake[k - 1, 5], snake[k - 1, 6], snake[k, 5], snake[k, 6], y, x, clear)


@njit(nogil=True)
def placed(snake, k, tables, orientation, y, x):
    """Record a seed, paddle k = 0 of a snake, as pivot, orientation, place of the stamp, far end. False if it leaves
    the window."""
    size = tables.size
    head_y, head_x = y + tables.heads[orientation, 0], x + tables.heads[orientation, 1]
    pivot_y, pivot_x = head_y + tables.pivots[orientation, 0], head_x + tables.pivots[orientation, 1]
    if not (inside(size, y, x) and inside(size, head_y, head_x) and inside(size, pivot_y, pivot_x)):
        return False
    snake[k, 0], snake[k, 1], snake[k, 2] = pivot_y, pivot_x, orientation
    snake[k, 3], snake[k, 4] = y, x
    snake[k, 5], snake[k, 6] = head_y, head_x
    return True


@njit(nogil=True)
def extended(state, snake, k, mask, tables, weights, targets, drawn):
    """Record paddle k, grown from paddle k - 1. False if there is no room.

    targets, drawn    the snakes that it must not cross, and how many paddles each has (0 for itself)
    """
    size = tables.size
    last = snake[k - 1, 2]
    pivot_y, pivot_x = snake[k - 1, 0] + tables.steps[last, 0], snake[k - 1, 1] + tables.steps[last, 1]
    total = 0
    for c in range(len(tables.circle)):
        y, x = pivot_y + tables.circle[c, 0], pivot_x + tables.circle[c, 1]
        weights[c] = 0
        if not inside(size, y, x) or tables.bends[last, c] == 0:
            continue
        taken = 0
        for d in range(len(tables.near)):
            row, column = y + tables.near[d, 0], x + tables.near[d, 1]
            if inside(size, row, column) and mask[row, column] > taken:
                taken = mask[row, column]
        weights[c] = (255 - taken) * tables.bends[last, c]
        total += weights[c]
    if total < tables.least:
        return False
    for _ in range(tables.paddle_retries + 1):
        left = number(state, total)
        c = 0
        while left >= weights[c]:
            left -= weights[c]
            c += 1
        y, x = pivot_y + tables.circle[c, 0], pivot_x + tables.circle[c, 1]
        orientation = DEGREES + c
        from_y, from_x = snake[k - 1, 5], snake[k - 1, 6]
        if not (
            touches(mask, tables, orientation, y, x)
            or crosses(snake, k - 1, from_y, from_x, y, x)
            or crosses(targets[0], drawn[0], from_y, from_x, y, x)
            or crosses(targets[1], drawn[1], from_y, from_x, y, x)
        ):
            snake[k, 0], snake[k, 1], snake[k, 2] = pivot_y, pivot_x, orientation
            snake[k, 3], snake[k, 4], snake[k, 5], snake[k, 6] = y, x, y, x
            return True
    return False


@njit(nogil=True)
def framed(mask, padding):
    size = mask.shape[0]
    mask[:] = 0
    mask[:padding, :] = 255
    mask[size - padding :, :] = 255
    mask[:, :padding] = 255
    mask[:, size - padding :] = 255


@njit(nogil=True)
def two_snakes(state, tables, masks, snakes, weights):
    """Both targets, growing in turn. False if one is stuck."""
    size, distance = tables.size, tables.distance
    border = 2 * distance
    framed(masks[0], tables.padding)
    framed(masks[1], tables.padding)
    orientation = number(state, DEGREES)
    y = border + number(state, size - 2 * border)
    x = border + number(state, size - 2 * border)
    if not placed(snakes[0], 0, tables, orientation, y, x):
        return False
    for trial in range(tables.paddle_retries + 1):
        orientation, angle = number(state, DEGREES), number(state, DEGREES)
        if placed(snakes[1], 0, tables, orientation, y + tables.ring[angle, 0], x + tables.ring[angle, 1]):
            break
        if trial == tables.paddle_retries:
            return False
    # A disc on a tip must not reach the other snake. All four tips are checked, so that the label has no influence; the
    # first ones while the snakes grow, to give up early.
    clear = tables.clear
    for s in range(2):
        first, other = snakes[s, 0], snakes[1 - s]
        if close(other, 0, first[3], first[4], clear):
            return False
        stamp(masks[1 - s], tables.masks[first[2]], first[3], first[4])
    for k in range(1, snakes.shape[1]):
        for s in range(2):
            drawn = (0, k) if s == 0 else (k + 1, 0)
            tip = snakes[1 - s, 0]
            if not extended(state, snakes[s], k, masks[s], tables, weights, snakes, drawn):
                return False
            if close(snakes[s], k, tip[3], tip[4], clear):
                return False
            last, new = snakes[s, k - 1], snakes[s, k]
            stamp(masks[s], tables.masks[last[2]], last[3], last[4])
            stamp(masks[1 - s], tables.masks[new[2]], new[3], new[4])
    for s in range(2):
        far = snakes[s, snakes.shape[1] - 1]
        for k in range(snakes.shape[1]):
            if close(snakes[1 - s], k, far[5], far[6], clear):
                return False
    return True


@njit(nogil=True)
def distractor(state, tables, mask, snake, weights, cells, targets):
    """Grow one more snake. False if it failed; the mask is then invalid."""
    size, drawn = tables.size, (targets.shape[1], targets.shape[1])
    for trial in range(tables.paddle_retries + 1):
        orientation = number(state, DEGREES)
        cell = -1
        # Uniform over the free cells: guess, and list them all only if no guess is free.
        for _ in range(GUESSES):
            guess = number(state, size * size)
            if not occupied(mask, tables, orientation, guess // size, guess % size):
                cell = guess
                break
        if cell < 0:
            free = 0
            for guess in range(size * size):
                if not occupied(mask, tables, orientation, guess // size, guess % size):
                    cells[free] = guess
                    free += 1
            if free == 0:
                return False
            cell = cells[number(state, free)]
        if placed(snake, 0, tables, orientation, cell // size, cell % size):
            break
        if trial == tables.paddle_retries:
            return False
    for k in range(1, snake.shape[0]):
        if not extended(state, snake, k, mask, tables, weights, targets, drawn):
            return False
        last = snake[k - 1]
        stamp(mask, tables.masks[last[2]], last[3], last[4])
    last = snake[snake.shape[0] - 1]
    stamp(mask, tables.masks[last[2]], last[3], last[4])
    return True


@njit(nogil=True, cache=True)
def draw(seed, first, choices, images, labels, traces):
    """Draw images first .. of a seed, their labels, and the target paddles: traces [n, 2, paddles, 7], see `placed`.

    choices    the tables of each margin
    """
    count, size = images.shape[0], choices[0].size
    state = np.empty(1, np.uint64)
    masks = np.empty((2, size, size), np.uint8)
    spare = np.empty((size, size), np.uint8)
    cells = np.empty(size * size, np.int64)
    weights = np.empty(1024, np.int64)
    short = np.empty((choices[0].distractor_length, 7), np.int64)
    for n in range(count):
        state[0] = stream(seed, first + n)
        label = number(state, 2)
        tables = choices[number(state, len(choices))]
        image, snakes = images[n], traces[n]
        tries = 0
        while not two_snakes(state, tables, masks, snakes, weights):
            tries += 1
            if tries == TRIES:
                return n
        image[:] = 0
        for s in range(2):
            for k in range(snakes.shape[1]):
                paddle = snakes[s, k]
                stamp(image, tables.targets[paddle[2]], paddle[3], paddle[4])
        mask = masks[0]
        last = snakes[0, snakes.shape[1] - 1]
        stamp(mask, tables.masks[last[2]], last[3], last[4])
        for _ in range(tables.distractors):
            for _ in range(tables.distractor_retries + 1):
                spare[:] = mask
                if distractor(state, tables, spare, short, weights, cells, snakes):
                    mask[:] = spare
                    for k in range(short.shape[0]):
                        stamp(image, tables.others[short[k, 2]], short[k, 3], short[k, 4])
                    break
        origin = number(state, 2)
        end = origin if label == 1 else 1 - origin
        tip, far = snakes[origin, 0], snakes[end, snakes.shape[1] - 1]
        stamp(image, tables.disc, tip[3], tip[4])
        stamp(image, tables.disc, far[5], far[6])
        labels[n] = label
    return count
