"""Whether an HDF5 file from anywhere can be read without harm: asked of another process before this one opens it.

libhdf5 trusts its files. Links may lead to other files, a few bytes may claim terabytes, and some damaged files make it
loop for ever or crash. So this file is run as a script of its own, with a limit on memory and time; it follows no link,
holds what an array claims against what the file stores for it, and reads every array once. If that ends well, the same
reading will end well here.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

# Deflate packs no better than this, so an array that claims more than its share of the file is a bomb.
PACKING = 1032
DEPTH = 6
OBJECTS = 100_000
# Others are loaded from libraries.
FILTERS = ("gzip", "shuffle", "fletcher32")
# What Python and its libraries take themselves.
ROOM = 4 << 30


def faults(files: list[Path], *, limit: int, seconds: int = 20) -> list[str | None]:
    """For each file None, or what is wrong with it in one line.

    limit       bytes that the arrays of a file may take in all
    seconds     how long one may take
    """
    found: list[str | None] = []
    while len(found) < len(files):
        left = [str(file.absolute()) for file in files[len(found) :]]
        # -P: the modules beside this one, among them one called nir, are not to be found as if they stood alone.
        done = subprocess.run(
            [sys.executable, "-P", __file__, str(limit), str(seconds)],
            input=json.dumps(left).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=60 + (seconds + 1) * len(left),
            check=False,
        )
        said = [json.loads(line) for line in done.stdout.splitlines()]
        found += said
        if len(said) < len(left):
            if not said and done.returncode > 0:
                raise RuntimeError(f"hdf5: the process that looks at files ended with {done.returncode}")
            found.append("reading it does not end, or crashes")
    return found


def look_through(file: str, limit: int) -> None:
    """ValueError, or whatever h5py says, if a file is not to be read."""
    import h5py

    with h5py.File(file, "r") as held:
        seen: set[int] = set()
        total, groups = 0, [(held, 0)]
        while groups:
            group, depth = groups.pop()
            address = h5py.h5o.get_info(group.id).addr
            if address in seen or depth > DEPTH or len(seen) > OBJECTS:
                raise ValueError("its groups are too many, nested too deep or in themselves")
            seen.add(address)
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise ValueError(f"{name!r} is a link to somewhere else")
                item = group[name]
                if isinstance(item, h5py.Group):
                    groups.append((item, depth + 1))
                    continue
                total += _bytes(name, item)
                if total > limit:
                    raise ValueError(f"its arrays take more than {limit} bytes")
                item[()]


def _bytes(name: str, item: Any) -> int:
    """What an array takes, after it was held against what the file stores for it."""
    import h5py

    if not isinstance(item, h5py.Dataset) or item.is_virtual or item.external or item.shape is None:
        raise ValueError(f"{name!r} is no array in this file")
    if item.dtype.kind not in "fiub" and h5py.check_string_dtype(item.dtype) is None:
        raise ValueError(f"{name!r} must hold numbers or text, got {item.dtype}")
    if any(each not in FILTERS for each in item._filters):
        raise ValueError(f"{name!r} is packed, and not by gzip")
    size, stored, chunk = int(item.nbytes), int(item.id.get_storage_size()), item.dtype.itemsize
    for length in item.chunks or ():
        chunk *= int(length)
    if size > stored * (PACKING if item.chunks else 1) or (item.chunks and chunk > max(4 * size, 1 << 20)):
        raise ValueError(f"{name!r} claims {size} bytes in chunks of {chunk}, and the file holds {stored} for it")
    return size


def _main(limit: int, seconds: int) -> None:
    try:
        import resource
        import signal

        resource.setrlimit(resource.RLIMIT_AS, (limit + ROOM, limit + ROOM))
        within = signal.alarm
    except ImportError:  # no such limits on this system: the other process waits for a time and gives up

        def within(seconds: int) -> int:
            return seconds

    for file in json.load(sys.stdin):
        within(seconds)
        try:
            look_through(file, limit)
            said = None
        except Exception as error:  # whatever a damaged file makes HDF5 say
            said = " ".join(str(error).split())[:300] or type(error).__name__
        within(0)
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
