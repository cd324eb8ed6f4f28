"""The core needs torch, numpy, numba and safetensors; everything else is an extra, named when it is missing."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from resofire import extras

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The names of distributions whose modules are called otherwise.
MODULES = {"lightning-fabric": "lightning_fabric", "pillow": "PIL", "scikit-learn": "sklearn"}
HIDE = """
import importlib.util, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {hidden}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.split(".")[0] in {hidden} else find_spec(name, *rest)
"""


def without(hidden, code):
    """Run code in a process in which some packages are not installed."""
    text = HIDE.format(hidden=set(hidden)) + code
    return subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=120)


def optional():
    return {package for packages in extras.EXTRAS.values() for package in packages}


def test_the_table_is_that_of_the_distribution():
    for extra, requirements in PROJECT["optional-dependencies"].items():
        names = {re.match(r"[\w-]+", each)[0] for each in requirements} - {"resofire"}
        assert extra == "all" or {MODULES.get(name, name) for name in names} <= {*extras.EXTRAS[extra]}, extra
    assert [re.match(r"\w+", each)[0] for each in PROJECT["dependencies"]] == ["torch", "numpy", "numba", "safetensors"]


def test_the_core_needs_no_extra():
    code = """
import torch, resofire.nn, resofire.models
model = resofire.pretrained("digits")
print(model(torch.zeros(1, 64, 1)).shape, resofire.nn.PRF(8)(torch.ones(1, 5, 8)).shape)
"""
    done = without(optional(), code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torch.Size([1, 10]) torch.Size([1, 5, 8])\n"


@pytest.mark.parametrize(
    ("hidden", "arguments", "sentence"),
    [
        (["tyro"], ["doctor"], "tyro is not installed: pip install 'resofire[train]'"),
        (["lightning_fabric"], ["train", "digits"], "resofire.train needs lightning_fabric: pip install 'resofire[train]'"),
        (["matplotlib"], ["paper", "list"], "matplotlib is not installed: pip install 'resofire[report]'"),
    ],
)  # fmt: skip
def test_a_command_without_its_extra_is_one_sentence(hidden, arguments, sentence):
    done = without(hidden, f"from resofire.cli import main; sys.exit(main({arguments}))")
    assert (done.returncode, done.stderr) == (2, f"resofire: {sentence}\n")


def test_the_version_needs_no_extra():
    assert without(optional(), "from resofire.cli import main; main(['--version'])").returncode == 0


def test_without_fcntl(tmp_path):
    """As on Windows."""
    code = f"""
from resofire.cli import main
sys.exit(main(["train", "digits", "--steps", "2", "--model.features", "8", "--model.depth", "1", "--out", {str(tmp_path / "run")!r}]))
"""
    done = without(["fcntl"], f"import os; os.environ['RESOFIRE_CACHE'] = {str(tmp_path / 'cache')!r}\n{code}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").exists()
