"""Writing files so that a reader sees the old content or the new one, never a part. Imports nothing of the library."""

import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path


def write_atomic(file: Path, data: bytes) -> None:
    """Replace `file` by one that holds `data`; the data are on the disk before the file gets its name.

    Args:
        file: The target. Its folder must exist. If the target exists, it must be a regular file.
        data: The whole content.

    Raises:
        OSError: The target is not a regular file, or the content cannot be written. The old file is unchanged.
    """
    require_regular(file)
    partial = _partial(file)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(file.parent)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder. A new folder gets its name when all of them are on the disk.

    In a folder that exists, each file is replaced by `write_atomic`, and other files stay.

    Args:
        folder: The target. Its parent must exist.
        files: The whole content of each file by name.

    Raises:
        OSError: The target is not a folder, or the content cannot be written. No new folder is left.
    """
    require_folder(folder)
    if folder.exists():
        for name, data in files.items():
            write_atomic(folder / name, data)
        return
    partial = _partial(folder)
    partial.mkdir()
    try:
        for name, data in files.items():
            write_atomic(partial / name, data)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def _partial(target: Path) -> Path:
    """An unpredictable name beside the target: in a shared folder nobody can place a link there first."""
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.part")


def require_folder(folder: Path) -> None:
    """Refuse a target that exists and is not a folder."""
    if (folder.exists() or folder.is_symlink()) and not folder.is_dir():
        raise OSError(20, "it exists and is not a folder", str(folder))


def require_regular(file: Path) -> None:
    """Refuse a target that exists and is not a regular file, such as a device, a pipe or a folder."""
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(22, "it exists and is not a regular file", str(file))


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut. Windows cannot open folders and does not need it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
