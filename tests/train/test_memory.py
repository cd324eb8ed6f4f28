"""What could not fit into memory is refused in one sentence, before it is built; what fits is not."""

from dataclasses import replace

import pytest
from commands import begin, last_line
from kinds import KINDS, MODELS, config, task

from resofire import models, train
from resofire.train import memory


@pytest.mark.parametrize("flags", [("--model.features", "1000000000"), ("--model.depth", "1000000000")], ids=" ".join)
def test_a_network_without_end_is_refused(flags, tmp_path, capsys):
    assert begin(tmp_path / "run", *flags) == 2
    assert last_line(capsys).startswith("resofire: train: memory must be at least ")
    assert not (tmp_path / "run").exists()


def test_a_size_that_no_integer_holds(tmp_path, capsys):
    assert begin(tmp_path / "run", "--model.features", "4" + "0" * 30) == 2
    assert last_line(capsys).startswith("resofire: train: model cannot be built: ")


def test_the_estimate_is_a_lower_bound(monkeypatch, tmp_path):
    """Weights, gradients, two moments and an average; the input of each block and the stream between its halves."""
    run, data = config("classifier"), task("classifier")
    model = models.build(run.model)
    weights = sum(value.numel() for value in model.parameters())
    steps = int(run.batch * data["train"].lengths.mean())
    needed = 4 * 5 * weights + 2 * memory.BLOCK + 4 * steps * 2 * 2 * run.model.features
    monkeypatch.setattr(memory, "available", lambda: needed - 1)
    for own in (None, model):
        with pytest.raises(train.RunError, match=f"for {weights:,} parameters and {steps} time steps in a batch, got "):
            train.train(run, data, tmp_path / "run", model=own)
    with pytest.raises(train.RunError, match="memory must be at least"):
        memory.require_memory(replace(run, batch=2 * run.batch), data, 1, 0.51)
    monkeypatch.setattr(memory, "available", lambda: needed)
    memory.require_memory(run, data, 1, 1.0)


def test_deep_networks_are_extrapolated(monkeypatch):
    for kind in KINDS:
        deep = replace(MODELS[kind], depth=5) if hasattr(MODELS[kind], "depth") else MODELS[kind]
        built = memory.network_size(deep)
        with monkeypatch.context() as patched:
            patched.setattr(memory, "DEPTH", 1)
            assert memory.network_size(deep) == built
        assert built.weights == sum(value.numel() for value in models.build(deep).parameters())
