"""Raw files of data sets: located in the user's folder under any usual name and compression, or downloaded.

Nothing is unpacked to disk: members of an archive are read one by one, so that no archive can write anywhere.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .archives import BROKEN, PIECE, Bounds, TooLarge, archived, require_size, unpacked
from .store import Prepared, cache_dir, checksum, earlier, prepared
from .task import DataError

Folder = str | os.PathLike[str] | None
COMPRESSIONS = ("", ".gz", ".xz", ".bz2", ".zip")
ARCHIVES = ("", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".zip")


@dataclass(frozen=True)
class Remote:
    """A download with known contents. `checksum` is "md5:…" or "sha256:…"."""

    url: str
    size: int
    checksum: str

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class RawFile:
    """A file that a data set is made from.

    Attributes:
        names: Its usual names, without the suffix of a compression; a * matches versions.
        archive: Whether it is a collection of files: a folder or an archive.
        remote: Where to download it; None if its contents are not fixed or may not be redistributed.
        source: Without `remote`: where users get it, and why they must.
        inside: Paths that identify a folder of any name as the collection itself.
    """

    names: tuple[str, ...]
    archive: bool = False
    remote: Remote | None = None
    source: str = ""
    inside: tuple[str, ...] = ()


@dataclass(frozen=True)
class RawFiles:
    """All files of a data set, and the sub-folders where users keep them; the first is the name of the set."""

    folders: tuple[str, ...]
    files: dict[str, RawFile]

    @property
    def downloads(self) -> Path:
        return cache_dir() / "downloads" / self.folders[0]


def prepared_from(
    name: str, raw: RawFiles, folder: Folder, settings: dict[str, Any], make: Callable[[dict[str, Path]], Prepared]
) -> Prepared:
    """Open a prepared data set, or make it, as `store.prepared`; it is remade when its raw files change.

    If no raw file is present but the set was prepared before, the prepared set is opened and nothing is downloaded.
    `make` is called with the paths of the raw files. The returned facts include their checksums.
    """
    present = {key: find(raw, key, folder) for key in raw.files}
    cached = None if any(present.values()) else earlier(name, settings)
    if cached is not None:
        return cached
    places = {key: place or obtain(raw, key, folder) for key, place in present.items()}

    def make_with_sources() -> Prepared:
        sources: dict[str, str] = {}
        for key, place in places.items():
            sources |= provenance(place, raw.files[key].remote)
        arrays, facts = make(places)
        return arrays, {"sources": sources, **facts}

    sources = {key: identity(place) for key, place in places.items()}
    return prepared(name, {**settings, "sources": sources}, make_with_sources)


def data_dir(folder: Folder) -> Path | None:
    """The user's data folder: the argument, else RESOFIRE_DATA, else None.

    Raises:
        DataError: If it is not a readable folder.
    """
    chosen = folder or os.environ.get("RESOFIRE_DATA")
    if not chosen:
        return None
    origin = "--data-dir" if folder else "RESOFIRE_DATA"
    try:
        path = Path(chosen).expanduser()
        exists = path.is_dir()
    except (OSError, RuntimeError) as error:  # a name that is too long, an unknown user
        raise DataError(f"{origin} must be a folder, got {chosen}: {error}") from None
    if not exists:
        raise DataError(f"{origin} must be a folder, got {path}")
    if not os.access(path, os.R_OK | os.X_OK):
        raise DataError(f"{origin} {path} cannot be read: permission denied")
    return path


def find(raw: RawFiles, key: str, folder: Folder = None) -> Path | None:
    """The path of one of the files, in the user's folder or downloaded before; None if it is in neither."""
    file, base = raw.files[key], data_dir(folder)
    # Sub-folders first: MNIST and Fashion-MNIST share their file names.
    places = [] if base is None else [*(base / name for name in raw.folders), base]
    for place in [*places, raw.downloads]:
        for name in file.names:
            for ending in ARCHIVES if file.archive else COMPRESSIONS:
                candidates = sorted(place.glob(name + ending)) if "*" in name else [place / (name + ending)]
                for path in candidates:
                    if path.is_file() or (file.archive and ending == "" and path.is_dir()):
                        return path
        if any((place / path).exists() for path in file.inside):
            return place
    return None


def obtain(raw: RawFiles, key: str, folder: Folder = None) -> Path:
    """Download a missing file, or raise a DataError that says where to get it and where to put it."""
    file = raw.files[key]
    if file.remote is None:
        base = data_dir(folder)
        place = raw.downloads if base is None else base / raw.folders[0]
        form = "a folder, .tar.gz or .zip" if file.archive else "plain or compressed"
        raise DataError(
            f"{raw.folders[0]}: {file.names[0].rstrip('*')} ({form}) is missing: get it from {file.source}, put it "
            f"into {place} or name its folder with --data-dir"
        )
    from .download import fetch

    return fetch(file.remote, raw.downloads, raw.folders[0])


def identity(place: Path) -> list[str | int]:
    """Identify a file or folder without reading it: path, size and time of change."""
    state = place.stat()
    if not place.is_dir():
        return [str(place.resolve()), state.st_size, state.st_mtime_ns]
    count = size = latest = 0
    for folder, _, names in os.walk(place):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.exists(path):  # a dangling link
                continue
            state = os.stat(path)
            count, size, latest = count + 1, size + state.st_size, max(latest, state.st_mtime_ns)
    return [str(place.resolve()), count, size, latest]


def provenance(place: Path, remote: Remote | None = None) -> dict[str, str]:
    """The checksum of a raw file, for the manifest, and whether it is the official one.

    A file with an official name and another checksum is accepted: it may be repacked, and its contents are checked.
    """
    if place.is_dir():
        return {place.name: "a folder"}
    official = ""
    if remote is not None and place.stat().st_size == remote.size:
        kind, expected = remote.checksum.split(":")
        official = ", official" if checksum(place, kind) == expected else ""
    return {place.name: f"sha256:{checksum(place)}{official}"}


def read(file: Path, limit: int, remote: Remote | None = None) -> bytes:
    """Read a file, decompressed; its first bytes decide how, not its name.

    Args:
        file: The file.
        limit: The most bytes it may have, unpacked.
        remote: The official file, for the error message.

    Raises:
        DataError: If it cannot be read, is damaged or too large.
    """
    raw = bytearray()
    with _read_errors(file, remote, "it is truncated or corrupt"), unpacked(file) as stream:
        # In pieces: Python reserves memory for all that is asked for.
        while len(raw) <= limit and (piece := stream.read(min(PIECE, limit + 1 - len(raw)))):
            raw += piece
    if len(raw) > limit:
        raise DataError(f"{file} must have at most {limit} bytes (unpacked), got more: it is corrupt or another file")
    return bytes(raw)


def read_lines(file: Path, longest: int) -> Iterator[bytes]:
    """Iterate over the lines of a file, decompressed, without their ends; DataError above `longest` bytes."""
    with _read_errors(file, None, "it is truncated or corrupt"), unpacked(file) as stream:
        number = 0
        while line := stream.readline(longest + 3):
            number += 1
            line = line.rstrip(b"\r\n")
            if len(line) > longest:
                raise DataError(f"{file}, line {number}, must have at most {longest} bytes, got more")
            yield line


def members(
    place: Path, limits: Mapping[str, int], *, kept: int, total: int | None = None, remote: Remote | None = None
) -> Iterator[tuple[str, bytes]]:
    """Iterate over some files in a folder or an archive as (path with /, contents), an archive in its own order.

    Args:
        place: The folder or archive.
        limits: Which files, regular expressions to search their paths for, and the most bytes of each such file.
        kept: The most bytes of all these files together.
        total: The most bytes of the whole archive, unpacked; None is four times `kept`.
        remote: The official file, for the error message.

    Raises:
        DataError: If it cannot be read, is damaged or too large.
    """

    def limit(path: str) -> int | None:
        return next((size for pattern, size in limits.items() if re.search(pattern, path)), None)

    bounds = Bounds(limit, kept, 4 * kept if total is None else total)
    with _read_errors(place, remote, "it is truncated or corrupt, or not a tar or zip archive"):
        yield from _folder(place, bounds) if place.is_dir() else archived(place, bounds)


def _folder(place: Path, bounds: Bounds) -> Iterator[tuple[str, bytes]]:
    left = bounds.kept
    for file in sorted(place.rglob("*")):
        path = file.relative_to(place).as_posix()
        limit = bounds.limit(path) if file.is_file() else None
        if limit is not None:
            require_size(path, file.stat().st_size, limit, left)
            contents = read_plain(file)
            left -= len(contents)
            yield path, contents


def read_plain(file: Path) -> bytes:
    """Read a file as it is."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from None


@contextlib.contextmanager
def _read_errors(file: Path, remote: Remote | None, why: str) -> Iterator[None]:
    """Turn what reading a damaged file raises into one sentence."""
    try:
        yield
    except TooLarge as error:
        raise DataError(f"{file}: {error}: it is corrupt or another file") from None
    except DataError:
        raise
    except MemoryError:
        raise DataError(f"{file} cannot be read, it needs more memory than there is") from None
    except BROKEN as error:
        official = ""
        if remote is not None and file.name == remote.name:
            official = f" (the official file has {remote.size} bytes, this one {file.stat().st_size})"
        reason, *_ = [*str(error).splitlines(), type(error).__name__]
        raise DataError(f"{file} cannot be read, {why}{official}: {reason.rstrip(':')}") from None
