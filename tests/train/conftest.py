"""A small run that nothing stopped."""

import pytest
from commands import begin


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert begin(folder) == 0
    return folder
