"""Numba's cache for kernels that have no file: they are kept under the hash of their source, which `FILE` carries."""

import os
from contextlib import suppress
from typing import Any, ClassVar

from numba.core import caching, config
from numba.misc.appdirs import AppDirs


def keep_on_disk(kernel: Any) -> None:
    """Let Numba keep what it compiles of a kernel, if there is a folder that it can write."""
    with suppress(RuntimeError):
        kernel._cache = _Cache(kernel.py_func)


class _Locator(caching._CacheLocator):
    """Where Numba keeps kernels that have no file: in its own cache folder, under the hash of their source."""

    def __init__(self, file: str) -> None:
        self._stamp = file.split()[-1].rstrip(">")

    def get_cache_path(self) -> str:
        base = config.CACHE_DIR or AppDirs(appname="numba", appauthor=False).user_cache_dir
        return os.path.join(base, "resofire-equation")

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return self._stamp

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> "_Locator | None":
        self = cls(py_file)
        try:
            self.ensure_cache_path()
        except OSError:
            # No folder that can be written: compile in every process.
            return None
        return self


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes: ClassVar[list[Any]] = [_Locator]


class _Cache(caching.FunctionCache):
    _impl_class = _Implementation
