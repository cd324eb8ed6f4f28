"""Settings for all tests. Triton runs in its interpreter here, which must be said before it is imported."""

import os
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("repeatable")

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
