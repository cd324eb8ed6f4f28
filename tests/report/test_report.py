"""Pages as files: what is in them, what is not, and the command that writes them."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hostile_run import CLASSES, FOLDER, TASK, config

from resofire import cli, report, train
from resofire import data as tasks
from resofire.commands.report import command_of
from resofire.commands.train import all_recipes, parse_train
from resofire.models.storage import SHIPPED
from resofire.report.page import LARGEST, embedded
from resofire.train.progress import silent

SECTIONS = ("summary", "curves", "answers", "rasters", "plane", "rates", "energy", "mistakes")


def embedded_data(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


@pytest.fixture(scope="module")
def data(run):
    return report.run_data(run)


def test_the_data_hold_every_section(data, run):
    result = train.recorded(run)
    assert data["finished"] is True
    assert (data["answers"]["correct"], data["answers"]["count"]) == tuple(result["correct"]["test"])
    assert data["curves"]["chosen"]["step"] == result["best"]["step"]
    assert data["data"]["split"] == "test"
    assert {*data["classes"]} == {*CLASSES}
    assert len(data["rasters"]) == 4
    assert [layer["title"] for layer in data["plane"]["layers"]] == ["block 1, temporal", "block 2, temporal"]
    assert data["plane"]["layers"][0]["before"]["memory"] != data["plane"]["layers"][0]["after"]["memory"]
    assert data["energy"]["peers"].keys() == {"s4", "transformer"}
    assert data["mistakes"][0]["drawing"]["kind"] == "wave"
    labels = {tile["label"]: tile["value"] for tile in data["tiles"]}
    assert labels["test accuracy"] == f"{100 * result['accuracy']['test']:.2f} %"
    assert labels.keys() >= {"parameters", "fire rate", "energy per inference", "training time"}


def test_a_page_is_one_file_that_needs_nothing_else(data):
    html = report.page(data)
    assert len(html.encode()) < LARGEST
    head = html[: html.index("<script")]
    assert "default-src 'none'" in head
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=[\"'](?!data:)", html[: html.index("<script>")])
    assert embedded_data(html) == json.loads(json.dumps(data))
    assert all(f'<section id="{name}"' in html for name in SECTIONS)


def test_long_sequences_of_many_channels_stay_within_the_size(tmp_path):
    """Six rasters, the most there can be, each with the most steps and channels that are drawn."""
    draw = np.random.RandomState(0)
    own = tasks.from_arrays(draw.randn(40, 5000, 8), draw.randint(0, 9, 40), test=0.5, validation=0.1)
    model = replace(config().model, inputs=8, classes=9, features=64, class_names=None)
    settings = config(steps=1, validate_every=1, task=own.name, model=model)
    with silent():
        train.train(settings, own, tmp_path / "run")
    data = report.run_data(tmp_path / "run", report.Request(samples=tuple(range(6))))
    assert len(data["rasters"]) == 6
    assert len(data["mistakes"]) == 12
    assert {sample["shown"] for sample in data["rasters"]} == {4096}
    assert len(report.page(data).encode()) < LARGEST


def test_hostile_names_are_text(data):
    html = report.page(data)
    for name in (*CLASSES, TASK, FOLDER):
        if "<" in name:
            assert name not in html
    assert "<title>&lt;b&gt;task&lt;/b&gt;" in html
    assert embedded_data(html)["task"] == TASK


def test_json_in_a_script_cannot_end_it():
    text = embedded({"a": "</script><!--<script>\u2028&", "b": float("nan"), "c": [float("inf"), 1.5]})
    assert not re.search("[<>&\u2028]", text)
    assert json.loads(text) == {"a": "</script><!--<script>\u2028&", "b": None, "c": [None, 1.5]}


def test_a_run_without_any_epoch(begun):
    data = report.run_data(begun)
    assert data["finished"] is False
    assert data["curves"]["splits"] == {}
    for name in ("answers", "rasters", "plane", "rates", "energy", "mistakes"):
        assert "has not saved a network yet" in data[name]["missing"]
    assert len(report.page(data)) > 1_000_000


def test_an_unfinished_run_is_read_on_the_split_that_selects(copied):
    (copied / "result.json").unlink()
    data = report.run_data(copied)
    assert data["data"]["split"] == "validation"
    assert data["tiles"][0]["label"] == "validation accuracy"
    assert "which selected the weights" in data["tiles"][0]["note"]


def test_without_its_data_a_run_says_so(copied):
    (copied / "data.npz").unlink()
    data = report.run_data(copied)
    assert "cannot be opened" in data["answers"]["missing"]
    assert data["tiles"][0]["label"] == "test accuracy"


def test_a_shipped_network_without_its_data_set_is_drawn_from_its_samples(monkeypatch, tmp_path):
    def absent(folder, data_dir=None):
        raise train.RunError("no data here")

    monkeypatch.setattr(train, "load_task", absent)
    data = report.run_data(SHIPPED / "smnist", report.Request(count=2))
    assert "no data here" in data["answers"]["missing"]
    assert data["tiles"][0]["value"] == "99.36 %"
    assert data["rasters"][0]["drawing"]["kind"] == "image"
    assert data["energy"]["length"]["value"] == 784


def test_samples_can_be_chosen(run):
    data = report.run_data(run, report.Request(samples=(2, 0), count=3))
    assert [sample["row"] for sample in data["rasters"]] == [2, 0]
    assert data["answers"]["count"] == 3
    with pytest.raises(ValueError, match="samples must be from 0 to 17, got 18"):
        report.run_data(run, report.Request(samples=(18,)))
    with pytest.raises(ValueError, match="samples must be at most 6, got 7"):
        report.run_data(run, report.Request(samples=tuple(range(7))))


def test_many_layers_and_steps_stay_within_the_size_of_a_raster(run, monkeypatch):
    monkeypatch.setattr("resofire.report.raster.CELLS", 40)
    sample = report.run_data(run, report.Request(samples=(0,)))["rasters"][0]
    # Four layers of two neurons each.
    assert (sample["shown"], [len(layer["kept"]) for layer in sample["layers"]]) == (5, [2] * 4)


def test_the_command_writes_into_the_run(copied, capsys):
    assert cli.main(["report", str(copied), "--count", "4"]) == 0
    assert capsys.readouterr().out == f"{copied / 'report.html'}\n"
    data = embedded_data((copied / "report.html").read_text("utf-8"))
    assert data["data"]["count"] == 4
    assert any(row["label"] == "reproduce with" for row in data["details"])


def test_several_runs_are_compared(run, copied, begun, tmp_path, capsys):
    out = tmp_path / "all.html"
    assert cli.main(["report", str(run), "digits", str(begun), "--out", str(out)]) == 0
    data = embedded_data(out.read_text("utf-8"))
    assert [each["name"] for each in data["runs"]] == [FOLDER, "digits", "run"]
    digits = data["runs"][1]
    assert digits["accuracy"]["correct"] == 298
    assert digits["accuracy"]["low"] < 298 / 300 < digits["accuracy"]["high"]
    assert digits["energy"] > 0
    assert (data["runs"][2]["accuracy"], data["runs"][2]["curve"]) == (None, None)
    assert "different tasks" in data["about"]
    assert len(out.read_bytes()) < LARGEST


def test_runs_of_one_name_are_told_apart(run, tmp_path):
    for parent in ("a", "b"):
        shutil.copytree(run, tmp_path / parent / "run")
    folders = [tmp_path / parent / "run" for parent in ("a", "b")]
    assert [each["name"] for each in report.comparison_data(folders)["runs"]] == [*map(str, folders)]
    assert [each["name"] for each in report.comparison_data(folders, names=("x", "y"))["runs"]] == ["x", "y"]
    with pytest.raises(ValueError, match="one name for each"):
        report.comparison_data(folders, names=("x",))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "report: RUN is missing: a run folder or a shipped network; see resofire report --help"),
        (["digits", "--count", "0"], "report: --count must be a positive integer, got 0"),
        (["digits", "smnist", "--count", "5"], "report: --count is for one run, got 2"),
        (["digits", "--out", "/dev/null/x"], "report: --out /dev/null/x cannot be written: Not a directory"),
    ],
)  # fmt: skip
def test_usage_errors_are_one_sentence(words, sentence, capsys):
    assert cli.main(["report", *words]) == 2
    assert capsys.readouterr().err == f"resofire: {sentence}\n"


def test_a_recipe_with_flags_is_reproduced_by_its_command(tmp_path):
    words = ["digits", "--steps", "3", "--model.depth", "1", "--model.neuron.tau", "5.0", "--seed", "7"]
    expected = parse_train(words).config
    command = command_of(tmp_path, {"config": expected.to_json()})
    assert command.startswith("resofire train digits ")
    assert parse_train(command.split()[2:]).config == expected
    assert command_of(tmp_path, {"config": all_recipes()["smnist-small"]().to_json()}) == "resofire train smnist-small"


def test_any_other_run_is_reproduced_in_python(run):
    command = command_of(run, train.read(run))
    assert command.startswith("python -c ")
    assert "train.load_task" in command
