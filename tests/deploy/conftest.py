"""What the tests of loaders share."""

import time

import pytest
import torch
from deploy_cases import CASES, network
from hostile import tried

from resofire.deploy import fold


@pytest.fixture
def watched():
    """Memory and time of what is done between two calls."""
    resource = pytest.importorskip("resource", reason="this system does not tell how much memory is in use")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    longest = [0.0]

    def timed(load, named=None):
        start = time.process_time()
        found = tried(load, named)
        longest[0] = max(longest[0], time.process_time() - start)
        return found

    yield timed
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 400, f"{grown:.0f} MB more memory"
    assert longest[0] < 5, f"{longest[0]:.1f} s for one file"


@pytest.fixture(scope="module")
def folded():
    return fold(network(CASES["soft prf"], torch.float32))
