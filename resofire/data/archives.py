"""Compressed files and archives, read forward once and within bounds: nothing unpacks to more than its reader expects.

Python's tarfile loops forever on a negative size and loads names of any length, so headers are parsed
here. Sparse members, which claim more than they hold, are refused.
"""

import bz2
import contextlib
import gzip
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from .task import DataError

# What reading a damaged file may raise; an encrypted zip raises RuntimeError.
BROKEN = (
    OSError, EOFError, ValueError, RuntimeError, MemoryError, OverflowError, struct.error, zlib.error, lzma.LZMAError,
    tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip
# How compressed files begin.
OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"BZh": bz2.open,
}
ZIP = b"PK\x03\x04"
BLOCK, PIECE = 512, 1 << 20
# Bytes of a long name, or of all records about one member.
LONGEST_NAME = 1 << 16
REGULAR, WITHOUT_DATA = b"0\x007", b"123456"


class TooLarge(DataError):
    """A file that unpacks to more than it can hold if it is what it claims to be."""


class Bounds(NamedTuple):
    """Limits on what is read from an archive.

    Attributes:
        limit: From the path of a member to the most bytes it may have; None for a member that is not needed.
        kept: The most bytes of all needed members together.
        total: The most bytes of the whole archive, unpacked.
    """

    limit: Callable[[str], int | None]
    kept: int
    total: int


@contextlib.contextmanager
def unpacked(file: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressed; its first bytes decide how, not its name. A zip must hold one file."""
    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(file.open("rb"))
        start = raw.read(6)
        raw.seek(0)
        if start.startswith(ZIP):
            archive = stack.enter_context(zipfile.ZipFile(raw))
            names = [name for name in archive.namelist() if not name.endswith("/")]
            if len(names) != 1:
                raise DataError(f"{file} must hold one file, got {len(names)}")
            yield stack.enter_context(archive.open(names[0]))
            return
        for magic, opener in OPENERS.items():
            if start.startswith(magic):
                yield stack.enter_context(opener(raw))
                return
        yield raw


def archived(file: Path, bounds: Bounds) -> Iterator[tuple[str, bytes]]:
    """Iterate over the needed files in a tar or zip archive, in its own order, as (path, contents)."""
    with file.open("rb") as raw:
        if raw.read(4) != ZIP:
            raw.close()
            with unpacked(file) as stream:
                yield from _tar(stream, bounds)
            return
        left = bounds.kept
        with zipfile.ZipFile(raw) as archive:
            for info in archive.infolist():
                limit = None if info.filename.endswith("/") else bounds.limit(info.filename)
                if limit is not None:
                    with archive.open(info) as stream:
                        contents = stream.read(min(limit, left) + 1)
                    require_size(info.filename, len(contents), limit, left)
                    left -= len(contents)
                    yield info.filename, contents


def require_size(path: str, size: int, limit: int, left: int) -> None:
    """Refuse a member above its own limit, or above what is left for all.

    Raises:
        TooLarge: It is larger.
    """
    if size > limit:
        raise TooLarge(f"{path} must have at most {limit} bytes, got more")
    if size > left:
        raise TooLarge(f"its files must have fewer bytes together, the limit is exceeded at {path}")


def _tar(stream: IO[bytes], bounds: Bounds) -> Iterator[tuple[str, bytes]]:
    left, kept, first = bounds.total, bounds.kept, True
    long_name: str | None = None
    records: dict[str, bytes] = {}
    while True:
        block = stream.read(BLOCK)
        if not block and not first:  # some programs leave the end mark out
            break
        header = _header(block)
        if header is None:
            break
        first = False
        path, size, kind = header
        if kind in b"LKxXg":
            if size > LONGEST_NAME:
                raise ValueError(f"a header has {size} bytes")
            data = _exactly(stream, _padded(size))[:size]
            if kind == b"L":
                long_name = _text(data.partition(b"\0")[0])
            elif kind in b"xX":
                records = _records(data)
            left -= BLOCK + _padded(size)
        else:
            path = _text(records["path"]) if "path" in records else long_name or path
            if "size" in records:
                size = _decimal(records["size"])
            if kind == b"S" or any(key.startswith("GNU.sparse") for key in records):
                raise ValueError(f"{path} is a sparse file, which such an archive does not need")
            long_name, records = None, {}
            data_size = 0 if kind in WITHOUT_DATA else _padded(size)
            left -= BLOCK + data_size
            path = path.removeprefix("./")
            limit = bounds.limit(path) if kind in REGULAR and not path.endswith("/") else None
            if limit is not None:
                require_size(path, size, limit, kept)
            _require_left(left)
            if limit is not None:
                kept -= size
                yield path, _exactly(stream, data_size)[:size]
            elif data_size:
                stream.seek(data_size - 1, 1)
                _exactly(stream, 1)
        _require_left(left)
    # The checksum of a compression comes last, behind the end of the archive.
    while piece := stream.read(PIECE):
        left -= len(piece)
        _require_left(left)


def _require_left(left: int) -> None:
    if left < 0:
        raise TooLarge("it unpacks to more than such an archive has")


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("unexpected end of data")
    return data


def _header(block: bytes) -> tuple[str, int, bytes] | None:
    """Path, size and kind of a member; None at the end mark."""
    if len(block) != BLOCK:
        raise EOFError("unexpected end of data")
    if not any(block):
        return None
    expected = _number(block[148:156])
    rest = block[:148] + b" " * 8 + block[156:]
    # Old programs added the bytes up as signed ones.
    if expected not in (sum(rest), sum(rest) - 256 * sum(byte > 127 for byte in rest)):
        raise ValueError("a header does not match its checksum")
    path = _text(block[:100].partition(b"\0")[0])
    prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return f"{_text(prefix)}/{path}" if prefix else path, _number(block[124:136]), block[156:157]


def _number(field: bytes) -> int:
    if field[0] == 0x80:  # base 256, for sizes from 8 GB
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip(b" ")
    if not re.fullmatch(rb"[0-7]*", digits):
        raise ValueError("a header has a number that is negative or none")
    return int(digits or b"0", 8)


def _decimal(digits: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,20}", digits):
        raise ValueError("a header has a size that is negative or no number")
    return int(digits)


def _records(data: bytes) -> dict[str, bytes]:
    """The records of a pax header, each `LENGTH KEY=VALUE` and a line feed."""
    records = {}
    while data.strip(b"\0"):
        match = re.match(rb"([0-9]{1,9}) ([^=]*)=", data)
        if match is None or not match.end() < int(match[1]) <= len(data):
            raise ValueError("a header has a record of another form")
        records[_text(match[2])] = data[match.end() : int(match[1]) - 1]
        data = data[int(match[1]) :]
    return records


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
