"""The registry: built-in data sets and a user's own are found in the same way."""

import subprocess
import sys

import numpy as np
import pytest

from resofire import data
from resofire.data import registry
from resofire.data.registry import dataset, load, register


@pytest.fixture
def entries(monkeypatch):
    """What a test registers is gone after it."""
    before = dict(registry._ENTRIES)
    yield
    registry._ENTRIES.clear()
    registry._ENTRIES.update(before)


def waves(data_dir=None, *, count=8, loud=False):
    x = np.random.RandomState(0).randn(count, 12, 2) * (9 if loud else 1)
    return data.from_arrays(x, [0, 1] * (count // 2), validation=0)


@pytest.mark.usefixtures("entries")
def test_a_users_data_set(tmp_path):
    with pytest.raises(data.DataError, match=r"name must be one of .*, got 'waves'"):
        load("waves")
    assert dataset("waves", about="two kinds of waves")(waves) is waves
    register("loud-waves", waves, "the same, loud", loud=True)
    assert {"waves", "loud-waves"} <= data.NAMES
    assert data.about("waves") == "two kinds of waves"
    task = load("waves", count=4)
    assert (task.name, len(task["train"])) == ("waves", 4)
    assert task.source == {"name": "waves", "settings": {"count": 4}, "data_dir": None}
    loud = load("loud-waves", tmp_path, count=4)
    assert loud["train"].stored[0, 0, 0] == pytest.approx(9 * task["train"].stored[0, 0, 0])
    assert loud.source == {"name": "loud-waves", "settings": {"count": 4}, "data_dir": str(tmp_path.resolve())}


@pytest.mark.usefixtures("entries")
def test_data_dir_is_passed_only_if_given(tmp_path):
    register("simple", lambda: waves())
    assert load("simple").name == "simple"
    with pytest.raises(TypeError, match="data_dir"):
        load("simple", tmp_path)


@pytest.mark.usefixtures("entries")
def test_wrong_registrations():
    with pytest.raises(ValueError, match=r"name must be new, got 'digits', which resofire\.data\.digits\.digits has"):
        register("digits", waves)
    register("digits", data.digits.digits)  # a reloaded module
    for name in ("", " a", "package.module:function", None):
        with pytest.raises(ValueError, match="name must be a word without a colon, got"):
            register(name, waves)
    register("nothing", lambda: None)
    with pytest.raises(data.DataError, match=r"nothing: .* must return a Task, got NoneType"):
        load("nothing")


def test_names():
    with pytest.raises(data.DataError, match=r"smnist: there is no setting 'shfit'; settings are "):
        data.load("smnist", shfit=1)
    with pytest.raises(data.DataError, match=r"name must be one of .* \(did you mean 'smnist'\?\), got 'smnis'"):
        load("smnis")
    with pytest.raises(ValueError, match="psmnist-bitrev: permutation must be 'bitrev', got 'random'"):
        load("psmnist-bitrev", permutation="random")
    assert load("listops-lra", sizes=(2, 1, 1), pipeline="lra").name == "listops-lra"
    assert all(data.about(name) for name in data.NAMES)


def test_heavy_packages_are_imported_when_needed():
    code = "import sys, resofire.data; print({'scipy', 'sklearn', 'PIL', 'numba', 'rich'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
