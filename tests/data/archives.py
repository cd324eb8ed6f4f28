"""Folders and archives that the tests of data sets write themselves."""

import io
import tarfile
import zipfile


def pack(place, files, mode):
    if mode == "folder":
        for name, raw in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(raw)
    elif mode == "zip":
        with zipfile.ZipFile(place, "w") as archive:
            for name, raw in files.items():
                archive.writestr(name, raw)
    else:
        with tarfile.open(place, f"w:{mode}") as archive:
            for name, raw in reversed(files.items()):
                entry = tarfile.TarInfo(f"./{name}")
                entry.size = len(raw)
                archive.addfile(entry, io.BytesIO(raw))
