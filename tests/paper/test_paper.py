"""The paper reproduced: an experiment runs at a budget of seconds, is resumed, and is rendered from its JSON."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from resofire import cli, data, paper, train
from resofire.paper import ablation, decay
from resofire.paper.workplace import Workplace, by_chance
from resofire.recipes import digits_small

PAPER = Path(__file__).parents[2] / "docs" / "paper"
COMMITTED = [name for name in paper.NAMES if (PAPER / f"{name}.json").exists()]


# Those with many trainings. Except for amplitude, other tests here run them with fewer or smaller ones.
LONG = ("decay", "loss-landscape", "kernel-gradient", "theta-ranges", "amplitude")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep) if name in LONG else name for name in paper.NAMES]
)
def test_an_experiment_runs_at_a_small_budget(name, digits, tmp_path, monkeypatch):
    monkeypatch.setattr("resofire.paper.initialisation.DELTAS", (0.1,))
    monkeypatch.setattr("resofire.paper.initialisation.THETAS", (0.0,))
    monkeypatch.setattr("resofire.paper.training_equivalence.MOST", 2)
    monkeypatch.setattr("resofire.paper.run_time.CASE", (8, 64))
    page = paper.reproduce(name, tmp_path / "out", 1e-4, runs=tmp_path / "runs")
    assert page == tmp_path / "out" / f"{name}.md"
    assert {file.name for file in page.parent.iterdir()} == {
        "README.md", f"{name}.json", f"{name}.md", f"{name}.png", f"{name}.svg"
    }  # fmt: skip
    result = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    assert result["budget_minutes"] == 1e-4
    assert f"resofire paper {name} --budget 0.0001" in page.read_text()
    assert f"[{name}]({name}.md)" in (page.parent / "README.md").read_text()


def test_trainings_are_kept_and_read_again(digits, tmp_path, monkeypatch):
    def again():
        return paper.reproduce("ablation", tmp_path / "out", 1e-4, runs=tmp_path / "runs")

    first = again().with_suffix(".json").read_bytes()
    monkeypatch.setattr("resofire.train.completion.train", None)
    assert again().with_suffix(".json").read_bytes() == first
    (tmp_path / "runs" / "ablation-0.0001min" / "lif" / "result.json").unlink()
    assert set(json.loads(again().with_suffix(".json").read_text())["networks"]) == set(json.loads(first)["networks"])


def test_steps_are_the_same_for_all_and_within_the_recipe(digits, tmp_path):
    config = replace(digits_small(), epochs=1)
    trained = Workplace("x", 100.0, tmp_path).train({"a": config, "b": replace(config, seed=1)}, validations=2)
    most = -(-len(data.load("digits")["train"]) // config.batch)
    assert [done.config.steps for done in trained.values()] == [most, most]
    steps, shares = trained["a"].curve("validation")
    assert len(steps) >= 2
    assert steps[-1] == most
    assert all(0 <= share <= 1 for share in shares)


def test_committed_pages_and_index_are_rendered_from_the_committed_results():
    assert COMMITTED
    for name in COMMITTED:
        module, result = paper._module(name), json.loads((PAPER / f"{name}.json").read_text())
        assert paper._page(name, module.TITLE, module.page(result), result) == (PAPER / f"{name}.md").read_text(), name
        assert (PAPER / f"{name}.png").exists()
    assert (PAPER / "README.md").read_text() == paper._index(PAPER)


def test_a_run_of_other_settings_is_not_taken_for_this_one(digits, tmp_path):
    config = replace(digits_small(), epochs=1)
    place = Workplace("x", 100.0, tmp_path)
    place.train({"a": config}, validations=1)
    with pytest.raises(train.RunError, match="holds a run with other settings; move it away"):
        place.train({"a": replace(config, seed=1)}, validations=1)


def test_a_damaged_plan_is_named(digits, tmp_path):
    place = Workplace("x", 1.0, tmp_path)
    place.folder.mkdir(parents=True)
    (place.folder / "plan.json").write_text('{"steps": 1')
    with pytest.raises(train.RunError, match=r"reproduce: .*plan.json cannot be read: .*; move it away"):
        place.train({"a": digits_small()}, validations=1)


def test_an_interrupted_training_names_the_same_command_and_no_other(digits, tmp_path, monkeypatch):
    def stopped(config, task, folder):
        raise train.Stopped("stopped in step 3 of 9", 130, "resume with: resofire train --resume x")

    monkeypatch.setattr("resofire.train.completion.train", stopped)
    with pytest.raises(train.Stopped) as caught:
        Workplace("x", 1e-4, tmp_path).train({"a": digits_small()}, validations=1)
    assert str(caught.value) == f"{tmp_path / 'x-0.0001min' / 'a'}: stopped in step 3 of 9; the same command resumes it"
    assert caught.value.code == 130


def test_how_far_equals_come_apart_by_chance():
    """Counted: of 3 and of 5 networks that are right in 80 % of 500, how far apart the best and the worst are."""
    counted = np.random.RandomState(0).binomial(500, 0.8, (40_000, 5)) / 5
    for ways in (2, 3, 4, 5):
        apart = np.ptp(counted[:, :ways], axis=1)
        limit = by_chance([80.0] * ways, 500)
        assert 0.03 < (apart > limit).mean() < 0.06
    assert by_chance([100.0, 100.0], 16) > 1


def test_words_about_a_lead_follow_the_numbers():
    def lead(prf, lif):
        networks = {name: {"accuracy": {"test": share}} for name, share in (("prf", prf), ("lif", lif), ("plif", 0.1))}
        return ablation._lead({"networks": networks, "tested": 1000})

    assert lead(0.9, 0.4) == "The PRF is 50.0 points ahead of the best LIF."
    assert lead(0.4, 0.9) == "The PRF is 50.0 points behind the best LIF."
    assert "not significant" in lead(0.5, 0.51)


def test_words_about_a_fall_follow_the_numbers():
    def fall(*shares):
        each = [{"validation": share, "test": share} for share in shares]
        return decay._fall("plain", "θ = 0", {"accuracy": {"plain": each}, "betas": (0.5, 0.9, 0.99), "tested": 1000})

    assert (
        fall(0.3, 0.8, 0.5)
        == "with θ = 0 β = 0.9 is the best on validation (80.0 % on test), against 50.0 % at β = 0.99"
    )
    assert fall(0.3, 0.4, 0.5).endswith("the slowest decay tried")
    assert fall(0.5, 0.5, 0.5).endswith("not significantly above 50.0 % at β = 0.99")


def test_a_training_that_is_stopped_ends_in_one_sentence(tmp_path, monkeypatch, capsys):
    def stopped(*arguments):
        raise train.Stopped("stopped in step 3 of 9", 130)

    monkeypatch.setattr("resofire.paper.reproduce", stopped)
    assert cli.main(["reproduce", "ablation", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "resofire: stopped in step 3 of 9\n"


def test_all_leaves_out_what_has_no_data(tmp_path, monkeypatch, capsys):
    def done(name, *arguments):
        if name in ("decay", "ablation"):
            raise data.DataError("mnist: its files are not there")
        return tmp_path / f"{name}.md"

    monkeypatch.setattr("resofire.paper.reproduce", done)
    assert cli.main(["reproduce", "all"]) == 1
    out, err = capsys.readouterr()
    assert out.split() == [str(tmp_path / f"{name}.md") for name in paper.NAMES if name not in ("decay", "ablation")]
    assert err.splitlines() == [
        f"resofire: {name} is left out: mnist: its files are not there" for name in ("ablation", "decay")
    ]
    assert cli.main(["reproduce", "decay"]) == 2
    assert capsys.readouterr().err == "resofire: mnist: its files are not there\n"


def test_list_and_mistakes(capsys):
    assert cli.main(["reproduce", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(paper.NAMES)
    assert cli.main(["reproduce", "ablatoin"]) == 2
    assert "got 'ablatoin' (did you mean 'ablation'?)" in capsys.readouterr().err
    assert cli.main(["reproduce", "ablation", "--budget", "0"]) == 2
    assert "minutes must be positive and finite, got 0.0" in capsys.readouterr().err
