"""The networks that come with the package: they load, and are as good as their records say."""

import json

import pytest

import resofire
from resofire import cli, data, models, train

NAMES = models.shipped()


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
        "config.json", "metrics.csv", "model.safetensors", "result.json", "run.json"
    ]  # fmt: skip
    assert "+" not in train.read(folder)["commit"]


def test_digits_are_as_good_as_recorded(tmp_path, monkeypatch, capsys):
    """On another machine a spike may fall the other way: one or two answers of 300."""
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path))
    found = train.weigh(resofire.pretrained("digits"), data.load("digits"), 32)
    recorded = train.recorded(models.find("digits"))
    for split, (correct, count) in recorded["correct"].items():
        assert abs(found["correct"][split][0] - correct) <= 2
        assert found["correct"][split][1] == count
    assert found["accuracy"]["test"] > 0.985
    assert cli.main(["evaluate", "digits", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["correct"] == found["correct"]


def test_a_name_that_is_not_there(capsys):
    with pytest.raises(ValueError, match=r"pretrained: name must be one of digits.*, got 'digit'"):
        resofire.pretrained("digit")
    assert cli.main(["evaluate", "digit"]) == 2
    told = "or one of digits (did you mean 'digits'?), got 'digit'"
    assert told.replace("digits (", f"{', '.join(NAMES)} (") in capsys.readouterr().err
