"""Downloads: resumed where they stopped, checked against what is known of the file, renamed when they are right."""

import urllib.error
import urllib.request
from pathlib import Path

from .files import DataError, Remote, require_checksum

PIECE = 1 << 18
TIMEOUT = 30.0


def fetch(remote: Remote, folder: Path, name: str) -> Path:
    """The file, in this folder under its own name. `name` is the data set's, for people."""
    folder.mkdir(parents=True, exist_ok=True)
    file, rough = folder / remote.name, folder / f"{remote.name}.part"
    if rough.exists() and rough.stat().st_size > remote.size:
        rough.unlink()
    try:
        _receive(remote, rough, name)
    except (OSError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", error)
        raise DataError(
            f"{name}: {remote.url} cannot be downloaded ({reason}); get it elsewhere and put it into a folder that "
            f"--data-dir or RESOFIRE_DATA names, as {remote.name}"
        ) from None
    try:
        require_checksum(rough, remote)
    except DataError:
        rough.unlink()
        raise
    rough.rename(file)
    return file


def _receive(remote: Remote, rough: Path, name: str) -> None:
    from tqdm import tqdm

    have = rough.stat().st_size if rough.exists() else 0
    if have == remote.size:
        return
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
        if have and reply.status != 206:  # it begins from the start: so do we
            have = 0
        with (
            rough.open("ab" if have else "wb") as out,
            tqdm(total=remote.size, initial=have, unit="B", unit_scale=True, desc=f"{name}: {remote.name}") as bar,
        ):
            while piece := reply.read(PIECE):
                out.write(piece)
                bar.update(len(piece))
