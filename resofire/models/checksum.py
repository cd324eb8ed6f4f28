"""Checksums of safetensors files: without one, a flipped bit of a weight passes for another weight.

The header has the entry `sha256`, over everything else in the file. A file of an earlier version has none; beside the
shipped ones lies NAME.sha256 instead, over the whole file, as `sha256sum` writes it.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

ENTRY = "sha256"


def seal(content: bytes) -> bytes:
    """The content of a safetensors file with its checksum added. Equal contents stay equal."""
    header, tensors = _split(content)
    metadata = {**header.get("__metadata__", {}), ENTRY: _digest(header, tensors)}
    text = json.dumps({**header, "__metadata__": metadata}, separators=(",", ":")).encode()
    # Tensors begin at a multiple of 8 bytes.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + tensors


def fault(file: Path) -> str | None:
    """Why a safetensors file is corrupt; None if it is intact, or has no checksum.

    Args:
        file: One that safetensors can read.

    Raises:
        OSError: It cannot be read.
    """
    content = file.read_bytes()
    header, tensors = _split(content)
    recorded = header.get("__metadata__", {}).get(ENTRY)
    if recorded is not None and recorded != _digest(header, tensors):
        return "it is corrupt: its checksum does not match"
    beside = sidecar(file)
    if beside.is_file() and beside.read_text("ascii", "replace").split()[:1] != [hashlib.sha256(content).hexdigest()]:
        return f"it is corrupt: it does not match {beside.name}"
    return None


def sidecar(file: Path) -> Path:
    """The path of a separate checksum file."""
    return file.with_name(f"{file.name}.{ENTRY}")


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def _digest(header: dict[str, Any], tensors: bytes) -> str:
    metadata = {name: text for name, text in header.get("__metadata__", {}).items() if name != ENTRY}
    rest = json.dumps({**header, "__metadata__": metadata}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(rest.encode() + tensors).hexdigest()
