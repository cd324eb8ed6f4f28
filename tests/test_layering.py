"""Imports point one way, optional packages stay in the file named after them, and no module has a vague name."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "resofire"

# What each part may import of the others, itself aside.
ALLOWED = {
    "__init__": {"ops", "nn", "models", "estimator"},
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
    "report": {"ops", "nn", "models", "data", "train", "measure", "deploy"},
    "paper": {"ops", "nn", "models", "data", "plot", "train", "measure", "deploy", "recipes",
              "report", "clone"},
    "compare": {"ops", "nn", "models", "data", "plot", "train", "measure", "recipes", "paper", "report"},
    "automatic": {"ops", "nn", "models", "data", "train"},
    "estimator": {"ops", "nn", "models", "data", "train", "automatic"},
    "clone": set(),
    "extras": set(),
    "doctor": {"ops"},
    "commands": {"ops", "nn", "models", "data", "plot", "train", "measure", "deploy", "recipes", "paper", "doctor",
                 "report", "clone", "automatic", "compare"},
    "cli": {"commands", "extras"},
}  # fmt: skip
ANYWHERE = {"atomic", "extras"}
OPTIONAL = {"triton", "nir", "onnx", "onnxruntime"}


def imports(file: Path, package: Path) -> list[str]:
    """Absolute names of all that a file of a package imports, wherever in the file."""
    parents = ("resofire", *file.relative_to(package).parts[:-1])
    names = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names += [f"{module}.{alias.name}" for alias in node.names]
    return names


def violations(package: Path) -> list[str]:
    """All imports of a package that break the rules, each with its file."""
    parts = {path.stem for path in package.iterdir()}
    broken = []
    for file in sorted(package.rglob("*.py")):
        own = file.relative_to(package).parts[0].removesuffix(".py")
        for name in imports(file, package):
            top, *rest = name.split(".")
            if top in OPTIONAL and file.stem != top:
                broken.append(f"{file.relative_to(package)} imports {top}")
            if top == "resofire" and rest and rest[0] in parts - {own} and rest[0] not in ALLOWED[own] | ANYWHERE:
                broken.append(f"{file.relative_to(package)} imports {name}")
    return broken


def test_imports_point_one_way_and_optional_packages_stay_in_their_files():
    assert violations(PACKAGE) == []


def test_every_part_of_the_package_has_a_rule():
    assert {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")} <= set(ALLOWED)


def test_violations_are_reported_one_by_one(tmp_path):
    """The walk can fail: imports in a function, relative and absolute, and an optional package."""
    for part in ("ops", "nn", "train"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "__init__.py").touch()
    (tmp_path / "ops" / "upward.py").write_text("def f():\n    from ..nn import PRF\n")
    (tmp_path / "nn" / "absolute.py").write_text("import resofire.train.loop\nimport nir\n")
    (tmp_path / "nn" / "fine.py").write_text("from ..ops import prf\nfrom ..atomic import write\nfrom . import x\n")
    (tmp_path / "nn" / "nir.py").write_text("import nir\n")
    assert violations(tmp_path) == [
        "nn/absolute.py imports resofire.train.loop",
        "nn/absolute.py imports nir",
        "ops/upward.py imports resofire.nn.PRF",
    ]


def test_no_module_has_a_vague_name():
    vague = ("utils", "util", "common", "helpers", "misc")
    assert [file for file in PACKAGE.rglob("*.py") if file.stem in vague] == []
