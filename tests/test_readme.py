"""The README's example runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert "auto takes 'scan'" in capsys.readouterr().out
    assert names["packed"].shape == (1, 160_000, 128)


@pytest.mark.parametrize("command", ["make run", "make test"])
def test_the_two_commands_are_on_the_first_screen(command):
    assert command in "\n".join(README.read_text().splitlines()[:25])
