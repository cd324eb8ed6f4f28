"""The README's examples run as they stand."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run(capsys, tmp_path, monkeypatch):
    """In one go: a later one may use what an earlier one made."""
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(code, names)
    printed = capsys.readouterr().out
    assert "auto takes 'scan'" in printed
    assert "encoder.blocks.1.channel_neuron" in printed
    assert names["packed"].shape == (1, 160_000, 128)
    assert names["outcome"].result["accuracy"]["train"] > 0.9
    assert names["logits"].shape == (17, 10)  # what was left for the last batch: 1,297 is 20 times 64 and 17
    assert names["x"].shape[1:] == (64, 1)


@pytest.mark.parametrize("command", ["make run", "make test"])
def test_the_two_commands_are_on_the_first_screen(command):
    assert command in "\n".join(README.read_text().splitlines()[:25])
