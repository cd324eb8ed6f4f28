"""Settings for all tests. Triton runs in its interpreter here, which must be said before it is imported."""

import os
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")
if "PYTEST_XDIST_WORKER" in os.environ:
    # As many workers as cores: threads of their own would only wait for each other.
    os.environ["OMP_NUM_THREADS"] = "1"

import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("repeatable")

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
