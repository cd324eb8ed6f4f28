"""Downloads: resumed where they stopped, checked against what is known of the file, renamed when they are right."""

import http.client
import urllib.error
import urllib.request
from pathlib import Path

from .files import DataError, Remote, require_checksum
from .store import locked, writing

PIECE = 1 << 18
TIMEOUT = 30.0


def fetch(remote: Remote, folder: Path, name: str) -> Path:
    """The file, in this folder under its own name. `name` is the data set's, for people."""
    file, rough = folder / remote.name, folder / f"{remote.name}.part"
    with locked(folder.with_suffix(".lock")):
        if file.exists():  # another process was first
            return file
        with writing(folder):
            folder.mkdir(exist_ok=True)
            have = rough.stat().st_size if rough.exists() else 0
            if have > remote.size:
                rough.unlink()
        try:
            _receive(remote, rough, name)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == 416:  # there is no such rest
                rough.unlink(missing_ok=True)
            raise _failed(remote, name, getattr(error, "reason", "") or error) from None
        have = rough.stat().st_size
        if have < remote.size:
            raise _failed(remote, name, f"it stopped after {have} of {remote.size} bytes, a second try goes on there")
        try:
            require_checksum(rough, remote)
        except DataError:
            rough.unlink()
            raise
        rough.rename(file)
    return file


def _failed(remote: Remote, name: str, reason: object) -> DataError:
    return DataError(
        f"{name}: {remote.url} cannot be downloaded ({reason}); get it elsewhere and put it into a folder that "
        f"--data-dir or RESOFIRE_DATA names, as {remote.name}"
    )


def _receive(remote: Remote, rough: Path, name: str) -> None:
    from tqdm import tqdm

    have = rough.stat().st_size if rough.exists() else 0
    if have == remote.size:
        return
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
        if have and reply.status != 206:  # it begins from the start: so do we
            have = 0
        length = reply.headers.get("Content-Length")
        if length is not None and have + int(length) != remote.size:
            raise _failed(remote, name, f"it must have {remote.size} bytes, got {have + int(length)}: another file")
        with (
            rough.open("ab" if have else "wb") as out,
            tqdm(total=remote.size, initial=have, unit="B", unit_scale=True, desc=f"{name}: {remote.name}") as bar,
        ):
            while have <= remote.size and (piece := reply.read(PIECE)):
                out.write(piece)
                bar.update(len(piece))
                have += len(piece)
