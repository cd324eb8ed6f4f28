"""Every neuron as a user takes it through the commands: train, evaluate, measure, stream, export as C in floats."""

import json
import shutil
import subprocess

import pytest

from resofire import cli
from resofire.nn.config import neuron_names

# Neurons that cannot be streamed and exported, what else they need, and the sentence.
REFUSED = {
    "psn": (("--model.neuron.steps", "64"), "token_neuron (PSN) cannot be folded: it has no equation of one time step"),
    "recurrent": ((), "token_neuron (Recurrent) cannot be folded"),
}
NEURONS = [
    pytest.param(name, marks=() if name == "bhrf" else pytest.mark.deep)
    for name in sorted(neuron_names())
    if "." not in name
]


@pytest.mark.parametrize("name", NEURONS)
def test_from_training_to_c(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    more, refusal = REFUSED.get(name, ((), None))
    flags = ["--steps", "2", "--batch", "32", "--model.features", "8", "--model.depth", "1"]
    assert cli.main(["train", "digits", "--model.neuron", name, *more, *flags, "--out", "run"]) == 0
    assert f'"kind": "{name}' in (tmp_path / "run" / "config.json").read_text().lower()
    capsys.readouterr()
    assert cli.main(["evaluate", "run"]) == 0
    assert "the same as the run recorded" in capsys.readouterr().out
    assert cli.main(["measure", "run", "--batches", "1", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    (neuron,) = (each for each in measured["counts"]["layers"] if each["layer"].endswith("token_neuron"))
    assert neuron["compare"] >= 8
    assert neuron["multiply"] + neuron["mac"] > 0
    (tmp_path / "numbers.txt").write_text("\n".join(f"{(7 * t % 16) / 16}" for t in range(64)))
    export = ["export", "run", "--to", "c", "--numbers", "float", "--samples", "2", "--longest", "32", "--out", "c"]
    if refusal is not None:
        for command in (["stream", "run", "numbers.txt"], export):
            assert cli.main(command) == 2
            sentence = capsys.readouterr().err
            assert refusal in sentence
            assert sentence.count("\n") == 1
        return
    assert cli.main(["stream", "run", "numbers.txt", "--json"]) == 0
    streamed = json.loads(capsys.readouterr().out)
    assert streamed["steps"] == 64
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    assert cli.main(export) == 0
    assert "verified: scores and spikes of 2 sequences (64 steps)" in capsys.readouterr().out
    subprocess.run(["cc", "-std=c99", "c/c_test.c", "-o", "c_test", "-lm"], check=True)
    assert subprocess.run(["./c_test"], capture_output=True, text=True, check=True).stdout.endswith("differ\n")
