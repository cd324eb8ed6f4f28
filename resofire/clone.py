"""The repository around the package: its folder `benchmarks` is not installed with the package."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


class NotACloneError(Exception):
    """The package was installed without the repository around it. Its text is the sentence that is shown."""


def benchmark(name: str) -> ModuleType:
    """Import a module of the folder `benchmarks`; raises NotACloneError where there is no such folder."""
    if not (ROOT / "benchmarks" / "clock.py").is_file():
        raise NotACloneError(f"benchmarks need a clone of the repository; {ROOT / 'resofire'} is installed without one")
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return importlib.import_module(f"benchmarks.{name}")
