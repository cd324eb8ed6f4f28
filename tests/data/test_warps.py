"""Warped images: where pixels go, that draws keep their limits, and that only training in a seed's order sees it."""

import numpy as np
import pytest

from resofire.data.task import Form, Split
from resofire.data.warps import Warps, require_warps


def warped(*rows, shape=(3, 3)):
    """The image 1 2 3 / 4 5 6 / 7 8 9, looked up at the places of this matrix."""
    image = np.arange(1, 10, dtype=np.uint8).reshape(1, 9, 1)
    return Warps(3).warp(image, np.array([rows], float)).reshape(shape).tolist()


def test_pixels_are_looked_up_and_zeros_come_in():
    assert warped((1, 0, 0), (0, 1, 0)) == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert warped((1, 0, -1), (0, 1, 0)) == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    assert warped((1, 0, 1), (0, 1, -2)) == [[0, 0, 4], [0, 0, 7], [0, 0, 0]]
    # A quarter turn, the other way round by its opposite, and half as large.
    assert warped((0, 1, 0), (-1, 0, 0)) == [[3, 6, 9], [2, 5, 8], [1, 4, 7]]
    assert warped((0, -1, 0), (1, 0, 0)) == [[7, 4, 1], [8, 5, 2], [9, 6, 3]]
    assert warped((2, 0, 0), (0, 2, 0)) == [[0, 0, 0], [0, 5, 0], [0, 0, 0]]


def test_between_pixels_they_share_by_cubics():
    image = np.array([0, 0, 0, 0, 200, 0, 0, 0, 0], np.uint8).reshape(1, 9, 1)
    moved = Warps(3).warp(image, np.array([[[1, 0, 0.25], [0, 1, 0]]]))
    # 1.25 d³ - 2.25 d² + 1 at a distance of d up to 1; beyond it they are negative, and no pixel is.
    near, far = (round(200 * (1.25 * d**3 - 2.25 * d**2 + 1)) for d in (0.25, 0.75))
    assert moved.reshape(3, 3).tolist() == [[0, far, 0], [0, near, 0], [0, 0, 0]]
    bright = Warps(3).warp(np.full((1, 9, 1), 255, np.uint8), np.array([[[0.5, 0, 0], [0, 0.5, 0]]]))
    assert bright.reshape(3, 3)[0, 1] == 255  # by cubics 279, which would begin again at 0


def bent(nodes, image):
    """Only bent: nodes [2, 5, 5] in pixels."""
    by = np.concatenate([np.eye(2, 3), np.reshape(nodes, (2, 25))], 1)[None]
    return Warps(9).warp(image.reshape(1, 81, 1), by).reshape(9, 9)


def test_bends_are_those_of_the_nodes_and_in_proportion_between_them():
    image = np.random.RandomState(0).randint(0, 256, (9, 9)).astype(np.uint8)
    nodes = np.zeros((2, 5, 5))
    nodes[0] = 1
    assert np.array_equal(bent(nodes, image)[:-1], image[1:])
    assert not bent(nodes, image)[-1].any()
    # Nodes lie at every second pixel. The third column's go 2 pixels down, so their neighbours go 1 and the rest stay.
    nodes[:] = 0
    nodes[0, :, 2] = 2
    moved = bent(nodes, image)
    still = [0, 1, 2, 6, 7, 8]
    assert np.array_equal(moved[:, still], image[:, still])
    assert np.array_equal(moved[:-1, [3, 5]], image[1:, [3, 5]])
    assert np.array_equal(moved[:-2, 4], image[2:, 4])
    # One node to the right: its own pixel and, by half, those around it.
    nodes[:] = 0
    nodes[1, 1, 3] = 2
    moved = bent(nodes, image)
    assert moved[2, 6] == image[2, 8]
    assert moved[1, 6] == image[1, 7]
    assert moved[2, 5] == image[2, 6]
    assert np.array_equal(moved[4:], image[4:])
    assert np.array_equal(moved[:, :5], image[:, :5])


def test_no_image_at_all():
    assert Warps(3).warp(np.zeros((0, 9, 1), np.uint8), np.zeros((0, 2, 3))).shape == (0, 9, 1)


def test_draws_keep_within_their_limits_and_fill_them():
    by = Warps(28, shift=1.5).draw(20_000, seed=0, epoch=0)
    assert np.array_equal(by[:, :, :2], np.broadcast_to(np.eye(2), (20_000, 2, 2)))
    assert 1.49 < by[:, :, 2].max() <= 1.5
    assert -1.5 <= by[:, :, 2].min() < -1.49
    # Five standard errors of an even draw.
    assert (np.abs(by[:, :, 2].mean(0)) < 5 * 1.5 / np.sqrt(3 * 20_000)).all()

    by = Warps(28, turn=30.0).draw(20_000, seed=0, epoch=0)
    angles = np.degrees(np.arctan2(by[:, 1, 0], by[:, 0, 0]))
    assert 29.9 < angles.max() <= 30
    assert -30 <= angles.min() < -29.9
    assert np.allclose(np.linalg.det(by[:, :, :2]), 1)
    assert not by[:, :, 2].any()

    by = Warps(28, stretch=0.2).draw(20_000, seed=0, epoch=0)
    off = by[:, :, :2] - np.eye(2)
    assert (np.abs(off).max(0) > 0.199).all()
    assert (np.abs(off) <= 0.2).all()
    assert not by[:, :, 2].any()

    by = Warps(28, bend=2.0).draw(20_000, seed=0, epoch=0)
    assert np.array_equal(by[:, :, :3], np.broadcast_to(np.eye(2, 3), (20_000, 2, 3)))
    assert (np.abs(by[:, :, 3:]).max(0) > 1.99).all()
    assert (np.abs(by[:, :, 3:]) <= 2).all()


def test_bends_leave_the_other_draws_as_they_are():
    settings = {"shift": 1.5, "turn": 10.0, "stretch": 0.1}
    plain, with_bends = (Warps(28, **settings, bend=bend).draw(9, 1, 2) for bend in (0, 1))
    assert np.array_equal(with_bends[:, :, :3], plain)


def test_half_of_the_images_are_mirrored():
    images = np.random.RandomState(0).randint(0, 256, (40, 64, 1)).astype(np.uint8)
    warps = Warps(8, mirror=True)
    mirrored = warps.warp(images, warps.draw(40, 1, 2)).reshape(40, 8, 8)
    plain = images.reshape(40, 8, 8)
    same = [np.array_equal(one, other) for one, other in zip(mirrored, plain, strict=True)]
    flipped = [np.array_equal(one, other[:, ::-1]) for one, other in zip(mirrored, plain, strict=True)]
    assert all(one != other for one, other in zip(same, flipped, strict=True))
    assert 10 <= sum(flipped) <= 30
    moved, moved_too = (Warps(8, shift=1.5, mirror=mirror).draw(9, 1, 2)[:, :, 2] for mirror in (False, True))
    assert np.array_equal(moved, moved_too)


def split(warps):
    stored = np.random.RandomState(0).randint(1, 256, (12, 784, 1)).astype(np.uint8)
    return Split(stored, np.arange(12), kind="values", form=Form(), warps=warps)


def test_a_warp_is_a_function_of_seed_epoch_and_number():
    moved = split(Warps(28, shift=1.5, turn=10.0, stretch=0.1, bend=1.0))

    def images(size, **order):
        by_label = {}
        for batch in moved.batches(size, **order):
            by_label |= {int(label): x.numpy() for x, label in zip(batch.x, batch.labels, strict=True)}
        return by_label

    one, other = images(3, seed=1, epoch=0), images(5, seed=1, epoch=0)
    assert all(np.array_equal(one[n], other[n]) for n in range(12))
    shares = images(6, seed=1, epoch=0, rank=0, world=2) | images(6, seed=1, epoch=0, rank=1, world=2)
    assert all(np.array_equal(one[n], shares[n]) for n in range(12))
    later = images(3, seed=1, epoch=1)
    assert any(not np.array_equal(one[n], later[n]) for n in range(12))
    plain = images(3)
    assert all(np.array_equal(plain[n][:, 0], moved.stored[n][:, 0]) for n in range(12))
    assert any(not np.array_equal(plain[n], one[n]) for n in range(12))


def test_without_warps_nothing_moves():
    for batch in split(None).batches(4, seed=1):
        for x, label in zip(batch.x, batch.labels, strict=True):
            assert np.array_equal(x[:, 0].numpy(), split(None).stored[int(label)][:, 0])


def test_settings():
    assert require_warps("smnist", 28, shift=0, turn=0.0) is None
    for name, value, most in (
        ("shift", -1, 27),
        ("shift", 27.5, 27),
        ("shift", "1", 27),
        ("turn", True, 180),
        ("turn", 181, 180),
        ("stretch", 0.6, 0.5),
        ("stretch", float("nan"), 0.5),
        ("bend", 28, 27),
    ):
        settings = {"shift": 0, "turn": 0, "stretch": 0, "bend": 0, name: value}
        with pytest.raises(ValueError, match=f"smnist: {name} must be a number from 0 to {most}, got"):
            require_warps("smnist", 28, **settings)
    with pytest.raises(ValueError, match="image: mirror must be True or False, got 1"):
        require_warps("image", 32, mirror=1)
