"""Imports point one way, optional packages stay in the file named after them, and no room has a vague name."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "resofire"
FILES = sorted(PACKAGE.rglob("*.py"))

# What each part may import of the others, itself aside.
ALLOWED = {
    "atomic": set(),
    "ops": set(),
    "nn": {"ops"},
    "models": {"ops", "nn"},
    "data": set(),
    "plot": set(),
    "train": {"ops", "nn", "models", "data"},
    "measure": {"ops", "nn", "models", "data"},
    "deploy": {"ops", "nn", "models"},
    "recipes": {"ops", "nn", "models", "data", "train", "measure", "deploy"},
    "paper": {"ops", "nn", "models", "data", "plot", "train", "measure", "deploy", "recipes",
              "clone"},
    "clone": set(),
    "extras": set(),
    "doctor": {"ops"},
    "commands": {"ops", "nn", "models", "data", "plot", "train", "measure", "deploy", "recipes", "paper", "doctor",
                 "clone"},
    "cli": {"commands", "extras"},
}  # fmt: skip
OPTIONAL = {"triton", "nir", "onnx", "onnxruntime"}


def imports(file: Path) -> list[str]:
    """Absolute names of all that a file imports, wherever in the file."""
    package = ("resofire", *file.relative_to(PACKAGE).parts[:-1])
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            found += [f"{module}.{alias.name}" for alias in node.names]
    return found


def part(name: str) -> str | None:
    """The part of resofire that a name belongs to."""
    pieces = name.split(".")
    return pieces[1] if pieces[0] == "resofire" and len(pieces) > 1 else None


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_one_way(file):
    own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for name in imports(file):
        other = part(name)
        if other in (None, own, "atomic", "extras") or not (
            (PACKAGE / other).exists() or (PACKAGE / f"{other}.py").exists()
        ):
            continue
        allowed = {"ops", "nn", "models"} if own == "__init__" else ALLOWED[own]
        assert other in allowed, f"{own} must not import {name}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_optional_packages_are_imported_in_the_file_named_after_them(file):
    for name in imports(file):
        top = name.split(".")[0]
        assert top not in OPTIONAL or file.stem == top, f"{file.name} imports {top}"


def test_the_walk_sees_an_upward_import(tmp_path, monkeypatch):
    """The test above can fail: a file in ops that reaches for nn, relatively, deep inside a function."""
    bad = tmp_path / "ops" / "bad.py"
    bad.parent.mkdir()
    bad.write_text("def f():\n    from ..nn import PRF\n")
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    assert [part(name) for name in imports(bad)] == ["nn"]


def test_no_vague_rooms():
    assert not [file for file in FILES if file.stem in ("utils", "util", "common", "helpers", "misc")]
