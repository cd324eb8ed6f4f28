"""The examples of the README and the docs run as they stand, and links between pages work."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from resofire import deploy
from resofire.nn.config import neuron_names

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def run(page):
    """Run all Python blocks of a page in one namespace; ```py marks those that are only shown."""
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(code, names)
    return names


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def test_readme():
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        block: dict[str, object] = {}
        exec(code, block)
        names |= block
    assert 0.1 < names["spikes"].mean() < 0.2
    assert names["one"].shape == (16, 128)
    assert names["config"].build()(names["x"][:1, :5, :1]).shape == (1, 10)


def test_guide(capsys):
    names = run(ROOT / "docs" / "guide.md")
    assert "encoder.blocks.1.channel_neuron" in capsys.readouterr().out
    assert names["logits"].shape == (1, 2)
    assert names["x"].shape == (17, 64, 1)  # the last batch: 1,297 is 20 times 64 and 17
    assert names["outcome"].result["accuracy"]["train"] > 0.15  # two epochs; chance is 0.1
    assert names["scores"].shape == (1, 10)


def test_the_site_has_every_page_and_every_public_package():
    """`make docs` builds it, which this does without: mkdocs is installed there only."""
    docs = ROOT / "docs"
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {file.relative_to(docs).as_posix() for file in docs.rglob("*.md")}
    assert set(listed) <= pages
    apart = ("experiments/", "paper/")
    assert {page for page in pages if not page.startswith(apart)} <= {*listed, "README.md"}
    documented = "".join((docs / "reference").joinpath(name).read_text() for name in os.listdir(docs / "reference"))
    public = {"resofire", *(f"resofire.{file.parent.name}" for file in (ROOT / "resofire").glob("*/__init__.py")
                            if "__all__" in file.read_text())}  # fmt: skip
    missing = {name for name in public if f"::: {name}\n" not in documented}
    assert missing == {"resofire.commands", "resofire.paper", "resofire.plot"}


def test_own_data(capsys):
    names = run(ROOT / "docs" / "own-data.md")
    assert names["classifier"].classes_.tolist() == ["rest", "run", "walk"]
    assert "by class of test" in capsys.readouterr().out


def test_neurons():
    page = ROOT / "docs" / "neurons.md"
    assert run(page)["logits"].shape == (2, 10)
    rows = {name.lower() for name in re.findall(r"^\| `(\w+)[`(]", page.read_text(), re.MULTILINE)}
    assert rows == {name for name in neuron_names() if "." not in name}


def test_extend(tmp_path):
    """The blocks of docs/extend.md are one module; its recipe trains, and other commands find it by --import."""
    blocks = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(), re.DOTALL)
    (tmp_path / "mine.py").write_text("\n\n".join(blocks))
    (tmp_path / "own.py").write_text(OWN_PARTS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}

    def python(*arguments):
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    command = ("-m", "resofire.cli")
    trained = python(*command, "train", "mine:recipe", "--steps", "2", "--task-settings.count", "100", "--out", "run")
    assert "test" in trained
    assert "the same as the run recorded" in python(*command, "evaluate", "run", "--import", "mine")
    assert "waves" in python(*command, "data", "list", "--import", "mine")
    assert "step 2" in python("own.py")
    measured = json.loads(python(*command, "measure", "own", "--import", "mine", "--json"))
    (linear,) = (each for each in measured["counts"]["layers"] if each["layer"] == "encoder.blocks.1.linear")
    assert linear["ac"] == pytest.approx(measured["rates"]["layers"]["encoder.blocks.1.neuron"] * 32 * 32)
    assert linear["ac"] > 0
    python(*command, "export", "own", "--import", "mine", "--to", "safetensors", "--out", "own.safetensors")
    assert len(deploy.load("own.safetensors").layers) == 2


@pytest.mark.deep
def test_tutorial_own_neuron(tmp_path):
    """The page is a module and commands that run as they stand, up to the compiled C."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    text = (ROOT / "docs" / "tutorials" / "own-neuron.md").read_text()
    (tmp_path / "mine.py").write_text("\n\n".join(re.findall(r"```py\n(.*?)```", text, re.DOTALL)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    python = shlex.quote(sys.executable)
    printed = {}
    for command in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
        words = re.sub(r"^python ", f"{python} ", re.sub(r"^resofire ", f"{python} -m resofire.cli ", command))
        done = subprocess.run(words, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        printed[command] = done.stdout
    output = "\n".join(printed.values())
    assert "scan: compiled from `dynamics`" in output
    assert 0.02 < float(re.search(r"fire rate ([\d.]+)", output)[1]) < 0.5
    assert "the same as the run recorded" in output
    assert "verified: scores and spikes of 4 sequences" in output
    assert printed["./adex-test"] == "adex: 0 of 3 sequences differ\n"
    correct, count = re.search(r"  test  [\d.]+ %  (\d+) of (\d+)", output).groups()
    assert int(correct) > 0.2 * int(count)  # three epochs; chance is 0.1
    (shown,) = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
    (tmp_path / "adex-c" / "shown.c").write_text(shown)
    subprocess.run(["cc", "-std=c99", "-Wall", "-Werror", "-c", "shown.c"], cwd=tmp_path / "adex-c", check=True)


# The block, loss, optimiser and callback of docs/extend.md in one run; the folded block computes the same in float64.
OWN_PARTS = """
from dataclasses import replace
import mine
import resofire
from resofire.deploy import Stream, fold

config = mine.recipe()
model = replace(config.model, neuron=mine.nn.LIF, block=mine.ResidualBlockConfig(tau=8.0))
mine.run(replace(config, model=model, steps=2, task_settings={"count": 100}), "own")

trained = resofire.load("own").double().eval()
mine.torch.manual_seed(0)
x = mine.torch.randn(1, 200, 1, dtype=mine.torch.float64)
scores = Stream(fold(trained)).feed(x.numpy())
mine.torch.testing.assert_close(mine.torch.as_tensor(scores), trained(x))
"""


def test_both_commands_are_on_the_first_screen():
    first = "\n".join(README.read_text().splitlines()[:25])
    assert "make run" in first
    assert "make test" in first


def test_relative_links_point_to_files():
    pages = [README, ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    links = [
        (page.parent / link)
        for page in pages
        for link in re.findall(r"\]\(([^)#]+)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
        if not link.startswith("https://")
    ]
    assert len(links) > 50
    assert [str(link) for link in links if not link.exists()] == []
