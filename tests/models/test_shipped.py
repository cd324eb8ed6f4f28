"""The networks that come with the package: they load, and are as good as their records say."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import resofire
from resofire import cli, data, models, train
from resofire.data import pathfinder
from resofire.recipes import RECIPES

NAMES = models.shipped()
REAL = os.environ.get("RESOFIRE_DATA")
# The folder of each network's data (None: generated), and the right answers to the first 1,000 test sequences.
SUBSET = {
    "psmnist-bitrev": ("mnist", 973), "psmnist-random": ("mnist", 962), "psmnist-random-clock": ("mnist", 964),
    "smnist": ("mnist", 989), "text-small": ("imdb", 861), "text-small-sparse": ("imdb", 873),
    "text-medium": ("imdb", 877),
    "text-medium-sparse": ("imdb", 864),
    "image-small": ("cifar10", 598), "listops-small": (None, 396), "pathfinder-small": (None, 893),
    "listops": (None, 564), "pathfinder-medium": (None, 940),
}  # fmt: skip


def test_there_are_some():
    assert "digits" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_network_has_the_record_of_its_run(name):
    model, folder = resofire.pretrained(name), models.find(name)
    config = train.RunConfig.from_json(train.read(folder)["config"])
    recorded = train.recorded(folder)
    assert model.config == config.model
    assert config.select == recorded["selected_on"] == "validation"
    assert sum(parameter.numel() for parameter in model.parameters()) == recorded["parameters"]
    assert sorted(file.name for file in folder.iterdir()) == [
        "config.json", "metrics.csv", "model.safetensors", "model.safetensors.sha256", "result.json", "run.json",
        "samples.npz",
    ]  # fmt: skip
    assert "+" not in train.read(folder)["commit"]
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert (folder / "model.safetensors.sha256").read_text() == f"{digest}  model.safetensors\n"


def _biased() -> train.RunConfig:
    """--model.neuron.evenly-spaced --model.positional-bias 2 --epochs 36"""
    recipe = RECIPES["psmnist-random"]()
    model = replace(recipe.model, neuron=replace(recipe.model.neuron, evenly_spaced=True), positional_bias=2.0)
    return replace(recipe, model=model, epochs=36)


def _text() -> train.RunConfig:
    """text-small --model.bidirectional --model.features 152 --model.dropout 0.2 --label-smoothing 0.1
    --gradient-dtype auto: what text-medium is now."""
    return replace(RECIPES["text-medium"](), name="text-small")


def _sparse(name: str) -> Callable[[], train.RunConfig]:
    """NAME --init NAME --model.rate-limit 0.05 …: what NAME-sparse is now."""
    return lambda: replace(RECIPES[f"{name}-sparse"](), name=name)


def _after_curriculum(name: str, stage: str) -> Callable[[], train.RunConfig]:
    """examples/curriculum.py: from the weights of its last stage."""
    return lambda: replace(RECIPES[name](), init=stage)


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("digits", RECIPES["digits"]),
        ("psmnist-bitrev", RECIPES["psmnist"]),
        ("psmnist-random", RECIPES["psmnist-random"]),
        ("psmnist-random-clock", _biased),
        ("image-small", RECIPES["image-small"]),
        ("listops-small", RECIPES["listops-small"]),
        ("listops", _after_curriculum("listops", "runs/listops/stage-4")),
        ("pathfinder-small", _after_curriculum("pathfinder-small", "runs/pathfinder/stage-5")),
        ("pathfinder-medium", _after_curriculum("pathfinder-medium", "runs/pathfinder/stage-5")),
        ("text-small", RECIPES["text-small"]),
        ("text-small-sparse", _sparse("text-small")),
        ("text-medium-sparse", _sparse("text-medium")),
        ("text-medium", _text),
    ],
)
def test_it_was_trained_by_the_recipe(name, recipe):
    config = train.RunConfig.from_json(train.read(models.find(name))["config"])
    assert config == replace(recipe(), checkpoint_minutes=config.checkpoint_minutes)


def test_digits_are_as_good_as_recorded(tmp_path, monkeypatch, capsys):
    """On another machine a spike may fall the other way: one or two answers of 300."""
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path))
    found = train.evaluate(resofire.pretrained("digits"), data.load("digits"), 32)
    recorded = train.recorded(models.find("digits"))
    for split, (correct, count) in recorded["correct"].items():
        assert abs(found["correct"][split][0] - correct) <= 2
        assert found["correct"][split][1] == count
    assert found["accuracy"]["test"] > 0.985
    assert cli.main(["evaluate", "digits", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["correct"] == found["correct"]


def _first_thousand(config: train.RunConfig) -> data.Batch:
    """The first 1,000 test sequences. Of Pathfinder's 200,000 images only these are generated."""
    if config.task != "pathfinder":
        return data.load(config.task, REAL, **config.task_settings)["test"].batch(np.arange(1000))
    images, labels = pathfinder.generate(1000, first=sum(pathfinder.COUNTS[:2]))
    return data.Batch(torch.from_numpy(images.reshape(1000, -1)).long(), torch.from_numpy(labels).long(), None)


@pytest.mark.parametrize("name", SUBSET)
def test_networks_are_as_good_as_measured_on_the_first_thousand(name, tmp_path, monkeypatch):
    """On another machine a spike may fall the other way: two answers of 1,000."""
    folder, correct = SUBSET[name]
    if folder is not None and (REAL is None or not (Path(REAL) / folder).is_dir()):
        pytest.skip(f"RESOFIRE_DATA names no folder with {folder}")
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path))
    config = train.RunConfig.from_json(train.read(models.find(name))["config"])
    batch = _first_thousand(config)
    with torch.no_grad():
        answers = resofire.pretrained(name)(batch.x, cu_seqlens=batch.cu_seqlens).argmax(-1)
    assert abs(int((answers == batch.labels).sum()) - correct) <= 2


def test_every_network_but_the_embedded_one_is_measured():
    assert set(SUBSET) == {*NAMES} - {"digits"}


def test_a_name_that_is_not_there(capsys):
    with pytest.raises(ValueError, match=r"pretrained: name must be one of digits.*, got 'digit'"):
        resofire.pretrained("digit")
    assert cli.main(["evaluate", "digit"]) == 2
    message = "or one of digits (did you mean 'digits'?), got 'digit'"
    assert message.replace("digits (", f"{', '.join(NAMES)} (") in capsys.readouterr().err
