"""Moved images: where pixels go, that every way is as likely, and that only training in a seed's order sees it."""

import numpy as np
import pytest

from resofire.data.shifts import Shifts, require_shift
from resofire.data.task import Form, Split


def test_pixels_go_down_and_right_and_zeros_come_in():
    image = np.arange(1, 10, dtype=np.uint8).reshape(1, 9, 1)
    shifts = Shifts(2, 3)
    assert shifts.move(image, np.array([[0, 0]])).reshape(3, 3).tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert shifts.move(image, np.array([[1, 0]])).reshape(3, 3).tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    assert shifts.move(image, np.array([[-1, 2]])).reshape(3, 3).tolist() == [[0, 0, 4], [0, 0, 7], [0, 0, 0]]
    assert shifts.move(image[:0], np.zeros((0, 2), int)).shape == (0, 9, 1)


def test_every_move_is_as_likely():
    moves = Shifts(1, 28).draw(90_000, seed=0, epoch=0)
    ways, counts = np.unique(moves, axis=0, return_counts=True)
    assert len(ways) == 9
    # Five standard deviations of a binomial draw.
    assert (np.abs(counts - 10_000) < 5 * np.sqrt(90_000 / 9 * 8 / 9)).all()


def split(shifts):
    stored = np.random.RandomState(0).randint(1, 256, (12, 784, 1)).astype(np.uint8)
    return Split(stored, np.arange(12), kind="values", form=Form(), shifts=shifts)


def test_a_move_is_a_function_of_seed_epoch_and_number():
    moved = split(Shifts(1, 28))

    def images(size, **order):
        found = {}
        for batch in moved.batches(size, **order):
            found |= {int(label): x.numpy() for x, label in zip(batch.x, batch.labels, strict=True)}
        return found

    one, other = images(3, seed=1, epoch=0), images(5, seed=1, epoch=0)
    assert all(np.array_equal(one[n], other[n]) for n in range(12))
    shares = images(6, seed=1, epoch=0, rank=0, world=2) | images(6, seed=1, epoch=0, rank=1, world=2)
    assert all(np.array_equal(one[n], shares[n]) for n in range(12))
    later = images(3, seed=1, epoch=1)
    assert any(not np.array_equal(one[n], later[n]) for n in range(12))
    plain = images(3)
    assert all(np.array_equal(plain[n][:, 0], moved.stored[n][:, 0]) for n in range(12))
    assert any(not np.array_equal(plain[n], one[n]) for n in range(12))


def test_without_shifts_nothing_moves():
    for batch in split(None).batches(4, seed=1):
        for x, label in zip(batch.x, batch.labels, strict=True):
            assert np.array_equal(x[:, 0].numpy(), split(None).stored[int(label)][:, 0])


@pytest.mark.parametrize("shift", [-1, 28, 1.0, True, "1"])
def test_a_shift_that_is_none(shift):
    with pytest.raises(ValueError, match="smnist: shift must be a whole number from 0 to 27, got"):
        require_shift("smnist", shift, 28)


def test_no_shift():
    assert require_shift("smnist", 0, 28) is None
