"""Each test has an empty cache and no data folder; `real` gives real data where RESOFIRE_DATA names it."""

import os
from pathlib import Path

import pytest

REAL = os.environ.get("RESOFIRE_DATA")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RESOFIRE_DATA", raising=False)


@pytest.fixture(scope="session")
def real():
    """A function that returns the data folder if it has this sub-folder, and skips otherwise."""

    def folder(name):
        if REAL is None or not (Path(REAL) / name).is_dir():
            pytest.skip(f"RESOFIRE_DATA names no folder with {name}")
        return Path(REAL)

    return folder
