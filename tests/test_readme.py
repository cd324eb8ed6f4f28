"""The README's examples run as they stand."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *(page for page in ROOT.glob("docs/**/*.md") if page.parent.name != "paper")]


def test_the_examples_run(capsys, tmp_path, monkeypatch):
    """All blocks in one namespace: a later one may use the names of an earlier one."""
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(code, names)
    assert 0.1 < names["spikes"].mean() < 0.2
    assert names["one"].shape == (16, 128)
    assert names["outcome"].result["accuracy"]["train"] > 0.9
    assert "encoder.blocks.1.channel_neuron" in capsys.readouterr().out
    assert names["model"](names["task"]["test"].batch([0, 1]).x).shape == (2, 10)


@pytest.mark.parametrize("command", ["make run", "make test"])
def test_both_commands_are_on_the_first_screen(command):
    assert command in "\n".join(README.read_text().splitlines()[:25])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_point_to_files(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link
