"""Where the raw files of a data set come from: a folder of the user's, or a download that is checked.

A file is found under any of its usual names, as it is or compressed; a collection of files as a folder or an archive.
Nothing is unpacked to disk: members are read one by one, so that no archive can write anywhere.
"""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .store import Arrays, cache_dir, checksum, earlier, prepared
from .store import DataError as DataError

COMPRESSIONS = ("", ".gz", ".xz", ".bz2", ".zip")
ARCHIVES = ("", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".zip")


# What reading a damaged file may raise; an encrypted zip raises RuntimeError.
BROKEN = (
    OSError, EOFError, ValueError, RuntimeError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip


@dataclass(frozen=True)
class Remote:
    """A file on the net, known in advance."""

    url: str
    size: int
    checksum: str  # "md5:…" or "sha256:…"

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Wanted:
    """A file that a data set is made from.

    names      its usual names, without what a compression appends; may hold a * for versions
    archive    whether it is a collection of files (a folder or an archive)
    remote     where to download it; None if it is not known in advance, or may not be passed on
    source     of what we do not download: where people get it, and why they must
    inside     of a collection: paths that show that a folder, whatever its name, is the collection itself
    """

    names: tuple[str, ...]
    archive: bool = False
    remote: Remote | None = None
    source: str = ""
    inside: tuple[str, ...] = ()


def data_dir(given: str | os.PathLike[str] | None) -> Path | None:
    """The folder that was named, else RESOFIRE_DATA, else None."""
    chosen = given or os.environ.get("RESOFIRE_DATA")
    if not chosen:
        return None
    origin = "--data-dir" if given else "RESOFIRE_DATA"
    try:
        folder = Path(chosen).expanduser()
        there = folder.is_dir()
    except (OSError, RuntimeError) as error:  # a name that is too long, a user who is not known
        raise DataError(f"{origin} must be a folder, got {chosen}: {error}") from None
    if not there:
        raise DataError(f"{origin} must be a folder, got {folder}")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise DataError(f"{origin} {folder} cannot be read: permission denied")
    return folder


def prepared_from(
    name: str, folders: tuple[str, ...], wanted: dict[str, Wanted], given: str | os.PathLike[str] | None,
    settings: dict[str, Any], make: Callable[[dict[str, Path]], tuple[Arrays, dict[str, Any]]],
) -> tuple[Arrays, dict[str, Any]]:  # fmt: skip
    """What `make` gives of these files, as `store.prepared` does: made again when they have changed.

    If none of the files is there, but the set was prepared before, that is opened: nothing is downloaded for it.
    """
    found = {key: find(folders, file, given) for key, file in wanted.items()}
    before = None if any(found.values()) else earlier(name, settings)
    if before is not None:
        return before
    places = {key: place or obtain(folders, wanted[key], given) for key, place in found.items()}
    sources = {key: identity(place) for key, place in places.items()}
    return prepared(name, {**settings, "sources": sources}, lambda: make(places))


def find(folders: tuple[str, ...], wanted: Wanted, given: str | os.PathLike[str] | None = None) -> Path | None:
    """The file or folder that is wanted, if it is here: the user's, or one downloaded before.

    folders    how a sub-folder for this set may be called; the first is its name
    """
    base = data_dir(given)
    # A sub-folder of this set before the folder itself: MNIST and Fashion-MNIST share their file names.
    places = [] if base is None else [*(base / folder for folder in folders), base]
    for place in [*places, _downloads(folders)]:
        for name in wanted.names:
            for ending in ARCHIVES if wanted.archive else COMPRESSIONS:
                candidates = sorted(place.glob(name + ending)) if "*" in name else [place / (name + ending)]
                for found in candidates:
                    if found.is_file() or (wanted.archive and ending == "" and found.is_dir()):
                        return found
        if any((place / path).exists() for path in wanted.inside):
            return place
    return None


def obtain(folders: tuple[str, ...], wanted: Wanted, given: str | os.PathLike[str] | None = None) -> Path:
    """The download of what is not here, or a sentence on where to get it and where to put it."""
    if wanted.remote is None:
        base = data_dir(given)
        where = _downloads(folders) if base is None else base / folders[0]
        form = "a folder, .tar.gz or .zip" if wanted.archive else "as it is or compressed"
        raise DataError(
            f"{folders[0]}: {wanted.names[0].rstrip('*')} ({form}) is not there: get it from {wanted.source}, put it "
            f"into {where} or name its folder with --data-dir"
        )
    from .download import fetch

    return fetch(wanted.remote, _downloads(folders), folders[0])


def _downloads(folders: tuple[str, ...]) -> Path:
    return cache_dir() / "downloads" / folders[0]


def identity(place: Path) -> list[str | int]:
    """What tells a source from another one without reading it: where it is, its size and when it was written."""
    state = place.stat()
    if not place.is_dir():
        return [str(place.resolve()), state.st_size, state.st_mtime_ns]
    count = size = latest = 0
    for folder, _, names in os.walk(place):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.exists(path):  # a link to nowhere
                continue
            state = os.stat(path)
            count, size, latest = count + 1, size + state.st_size, max(latest, state.st_mtime_ns)
    return [str(place.resolve()), count, size, latest]


def origin(place: Path, remote: Remote | None = None) -> dict[str, str]:
    """The checksum of a source, for the manifest, and whether it is the official file.

    One that bears an official name but not its checksum may have been packed anew: its contents are what counts.
    """
    if place.is_dir():
        return {place.name: "a folder"}
    official = ""
    if remote is not None and place.stat().st_size == remote.size:
        kind, wanted = remote.checksum.split(":")
        official = ", official" if checksum(place, kind) == wanted else ""
    return {place.name: f"sha256:{checksum(place)}{official}"}


def require_checksum(file: Path, remote: Remote) -> None:
    """Refuses a download that is not the file that it should be."""
    kind, wanted = remote.checksum.split(":")
    size = file.stat().st_size
    if size != remote.size:
        raise DataError(f"{file} must have {remote.size} bytes, got {size}: it is truncated or another file")
    found = checksum(file, kind)
    if found != wanted:
        raise DataError(f"{file} must have {kind} {wanted}, got {found}: it is corrupt or another file")


def read(file: Path, remote: Remote | None = None) -> bytes:
    """The contents of a file, whatever it is compressed with; told by its first bytes, not by its name.

    remote    the official file, to say what was expected
    """
    try:
        raw = file.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            return gzip.decompress(raw)
        if raw[:6] == b"\xfd7zXZ\x00":
            return lzma.decompress(raw)
        if raw[:3] == b"BZh":
            return bz2.decompress(raw)
        if raw[:4] == b"PK\x03\x04":
            with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                names = [name for name in archive.namelist() if not name.endswith("/")]
                if len(names) != 1:
                    raise DataError(f"{file} must hold one file, got {len(names)}")
                return archive.read(names[0])
        return raw
    except BROKEN as error:
        raise _damaged(file, remote, "it is truncated or corrupt", error) from None


def members(place: Path, remote: Remote | None = None) -> Iterator[tuple[str, bytes]]:
    """The files in a folder or an archive of any kind, as (path with /, contents); an archive's in its own order.

    remote    the official file, to say what was expected
    """
    if place.is_dir():
        for file in sorted(place.rglob("*")):
            if file.is_file():
                yield file.relative_to(place).as_posix(), read_plain(file)
        return
    try:
        with place.open("rb") as stream:
            zipped = stream.read(4) == b"PK\x03\x04"
        if zipped:
            with zipfile.ZipFile(place) as archive:
                for name in archive.namelist():
                    if not name.endswith("/"):
                        yield name, archive.read(name)
            return
        with tarfile.open(place, "r:*") as archive:
            for member in archive:
                held = archive.extractfile(member) if member.isfile() else None
                if held is not None:
                    yield member.name.removeprefix("./"), held.read()
            # The checksum of a compression comes last, behind the end of the archive.
            while archive.fileobj is not None and archive.fileobj.read(1 << 20):
                pass
    except BROKEN as error:
        raise _damaged(place, remote, "it is truncated or corrupt, or not a tar or zip archive", error) from None


def read_plain(file: Path) -> bytes:
    """The contents of a file as they are."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from None


def _damaged(file: Path, remote: Remote | None, why: str, error: BaseException) -> DataError:
    official = ""
    if remote is not None and file.name == remote.name:
        official = f" (the official file has {remote.size} bytes, this one {file.stat().st_size})"
    said, *_ = [*str(error).splitlines(), type(error).__name__]
    return DataError(f"{file} cannot be read, {why}{official}: {said.rstrip(':')}")
