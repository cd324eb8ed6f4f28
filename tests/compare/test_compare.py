"""resofire compare: widths for a number of parameters, equal budgets, resuming, and the table."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from resofire import data, measure
from resofire.cli import main
from resofire.compare import NETWORKS, Budget, own
from resofire.compare.memory import peak_memory
from resofire.compare.networks import at_size
from resofire.models import ClassifierConfig, FeedforwardConfig, load
from resofire.models.baselines import S4DConfig
from resofire.nn import ALIF
from resofire.paper.published import as_published
from resofire.plot.compare import pareto
from resofire.recipes import digits_small, listops_small, text_small
from resofire.train import RunError
from resofire.train.memory import network_size

SMALL = ("--steps", "3", "--parameters", "1500")


def compare(*arguments, out):
    return main(["compare", "digits-small", *arguments, "--out", str(out)])


@pytest.mark.parametrize("name", NETWORKS)
def test_widths_are_solved_for(name):
    """No width next to the chosen one comes nearer; that of a Transformer is a multiple of 4."""
    contender, recipe = NETWORKS[name], digits_small()
    for parameters in (6_000, 60_000):
        config = contender.sized(recipe, 64.0, parameters)
        widths = range(-contender.multiple, contender.multiple + 1, contender.multiple)
        if isinstance(config, FeedforwardConfig):
            others = [replace(config, sizes=tuple(n + d if 1 < n != 10 else n for n in config.sizes)) for d in widths]
        else:
            others = [replace(config, features=config.features + d) for d in widths]
        errors = [abs(network_size(each).weights - parameters) for each in others]
        assert min(errors) == errors[1] < 0.15 * parameters


def test_a_size_out_of_reach_is_refused():
    with pytest.raises(RunError, match="parameters must fit a width of at most 16,384, got 1,000,000,000,000"):
        at_size(digits_small().model, 10**12)


def test_blocks_take_direction_and_dropout_from_the_recipe():
    recipe = replace(listops_small(), model=replace(listops_small().model, bidirectional=True, dropout=0.2))
    made = NETWORKS["s4d"].make(recipe.model, 900.0)
    assert (made.block.bidirectional, made.block.dropout, made.has_last_norm) == (True, 0.2, True)
    assert NETWORKS["spiking-lmu"].make(recipe.model, 957.6).block.window == 958


def test_a_plain_network_on_tokens_is_refused():
    with pytest.raises(RunError, match="LIF does not fit text-small: its input must be single sequences of values"):
        NETWORKS["lif"].sized(text_small(), 1000.0, None)


def test_networks_of_the_user_s_own():
    base = digits_small().model
    assert own("mine", ALIF.config()).make(base, 64.0).neuron == ALIF.config()
    assert own("mine", S4DConfig(states=4)).make(base, 64.0).block == S4DConfig(states=4)
    whole = FeedforwardConfig(sizes=(1, 8, 10))
    assert own("mine", whole).sized(digits_small(), 64.0, None) == whole
    assert own("mine", digits_small()).sized(digits_small(), 64.0, None) == base
    with pytest.raises(RunError, match="mine must return the config of a network, a block or a neuron, got int"):
        own("mine", 3)


def test_a_comparison_is_extended_and_its_table_follows_from_the_runs(tmp_path, capsys):
    out = tmp_path / "comparison"
    assert compare("sdtcm", *SMALL, out=out) == 0
    first = (out / "sdtcm-0" / "result.json").stat().st_mtime_ns
    assert compare("sdtcm", "binary-s4d", "--seeds", "2", *SMALL, out=out) == 0
    assert (out / "sdtcm-0" / "result.json").stat().st_mtime_ns == first
    table = json.loads((out / "compare.json").read_text())
    assert [row["network"] for row in table["rows"]] == ["sdtcm", "binary-s4d"]
    assert table["budget"] == {"minutes": None, "epochs": None, "steps": 3}
    task = data.load("digits")
    for row in table["rows"]:
        results = [json.loads((out / f"{row['network']}-{seed}" / "result.json").read_text()) for seed in range(2)]
        tests = [result["accuracy"]["test"] for result in results]
        assert (row["accuracies"], row["seeds"], row["steps"]) == (tests, [0, 1], 3)
        assert row["accuracy"] == pytest.approx(sum(tests) / 2)
        assert row["spread"] == pytest.approx(abs(tests[0] - tests[1]) / 2**0.5)
        assert row["parameters"] == pytest.approx(1500, rel=0.06)
        measured = [
            measure.measure(load(out / f"{row['network']}-{seed}"), task["test"].batches(32), against=())
            for seed in range(2)
        ]
        spent = sum(each["energy"]["mJ_per_inference"] for each in measured) / 2
        assert row["energy"]["audited"] == pytest.approx(spent, rel=1e-6)
        assert row["fire_rate"] == pytest.approx(sum(each["rates"]["mean"] for each in measured) / 2, rel=1e-6)
        assert (row["no_nonlinear"], row["no_mac"]) == ((True, True) if row["network"] == "sdtcm" else (False, False))
        if row["network"] == "sdtcm":
            formula = sum(as_published(each)["mJ_per_inference"] for each in measured) / 2
            assert row["energy"]["published"] == pytest.approx(formula, rel=1e-6)
    page = (out / "compare.md").read_text()
    assert "each network for 3 steps" in page
    assert "| Binary S4D |" in page
    assert (out / "compare.png").exists()
    capsys.readouterr()
    assert compare("sdtcm", "--steps", "4", out=out) == 2
    assert f"compare: {out} holds another comparison; choose another --out" in capsys.readouterr().err


def test_a_budget_in_minutes_becomes_steps_once(tmp_path):
    out = tmp_path / "comparison"
    arguments = ("sdtcm", "--minutes", "0.02", "--parameters", "1500")
    assert compare(*arguments, out=out) == 0
    steps = json.loads((out / "compare.json").read_text())["networks"]["sdtcm"]["config"]["steps"]
    assert json.loads((out / "sdtcm-0" / "run.json").read_text())["config"]["steps"] == steps >= 1
    assert compare(*arguments, out=out) == 0
    assert json.loads((out / "compare.json").read_text())["networks"]["sdtcm"]["config"]["steps"] == steps


def test_memory_grows_with_the_batch():
    model = ClassifierConfig(inputs=1, classes=10, features=32, depth=2, block=S4DConfig(states=4))
    recipe, task = digits_small(), data.load("digits")
    few, many = (peak_memory(replace(recipe, model=model, batch=batch), task) for batch in (32, 256))
    # One number of each channel, step and sequence that the state space saves.
    assert few is None or (4 * 32 * 64 * 32 < few < many / 2)


def test_the_front_is_what_no_other_beats():
    points = [(1.0, 50.0), (2.0, 40.0), (3.0, 70.0), (3.0, 60.0), (0.5, 10.0), (9.0, 70.0)]
    assert pareto(points) == [(0.5, 10.0), (1.0, 50.0), (3.0, 70.0)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["digits-small", "s4"], "compare: NETWORK must be one of sdtcm, .* got 's4' (did you mean 's4d'?)"),
        (["digit", "s4d"], "compare: TASK must be one of .* got 'digit' (did you mean 'digits'?)"),
        (
            ["digits-small", "s4d", "--epochs", "1", "--steps", "2"],
            "compare: give one of --minutes, --epochs and --steps, got epochs and steps",
        ),
        (["digits-small", "s4d", "--minutes", "0"], "compare: --minutes must be a positive number, got 0"),
        (["digits-small", "s4d", "--seeds", "0"], "compare: --seeds must be a positive integer, got 0"),
        (["text-small", "lif", "--steps", "1"], "LIF does not fit text-small: its input must be single sequences"),
    ],
)
def test_bad_arguments_get_one_sentence(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if arguments[0] == "text-small":
        monkeypatch.setattr("resofire.commands.compare.load_task", lambda recipe, folder: data.load("digits"))
    assert main(["compare", *arguments]) == 2
    pattern = ".*".join(re.escape(part) for part in sentence.split(" .* "))
    assert re.search(pattern, capsys.readouterr().err, re.DOTALL)


def test_a_copied_table_continues_a_comparison_on_another_machine(tmp_path, monkeypatch, capsys):
    """Finished runs are not trained again though their folders are gone; the table keeps networks of other calls."""
    here, there = tmp_path / "here", tmp_path / "there"
    assert compare("sdtcm", "s4d", *SMALL, out=here) == 0
    there.mkdir()
    shutil.copy(here / "compare.json", there)
    assert compare("sdtcm", "s4d", *SMALL, out=there) == 0
    assert sorted(file.name for file in there.iterdir()) == ["compare.json", "compare.md", "compare.png", "compare.svg"]
    assert (there / "compare.md").read_text() == (here / "compare.md").read_text()
    capsys.readouterr()
    assert compare("sdtcm", *SMALL, "--html", out=there) == 2
    assert f"compare: --html needs the folders of the runs, got none in {there}" in capsys.readouterr().err
    assert compare("binary-s4d", "sdtcm", "--html", *SMALL, out=there) == 0
    assert f"page in {there / 'compare.html'}, without 1 run of another machine" in capsys.readouterr().out
    html = (there / "compare.html").read_text()
    assert '"name":"binary-s4d"' in html
    assert '"name":"sdtcm"' not in html
    assert sorted(each.name for each in there.glob("*-0")) == ["binary-s4d-0"]
    first, second = (json.loads((folder / "compare.json").read_text()) for folder in (here, there))
    assert second["rows"][:2] == first["rows"]
    assert [row["network"] for row in second["rows"]] == ["sdtcm", "s4d", "binary-s4d"]


def test_a_table_that_cannot_be_read_is_refused(tmp_path, capsys):
    (tmp_path / "compare.json").write_text('{"settings": {}}')
    assert compare("sdtcm", *SMALL, out=tmp_path) == 2
    file = tmp_path / "compare.json"
    assert f"compare: {file} cannot be read: KeyError: 'budget'; choose another --out" in capsys.readouterr().err


def test_list_names_the_networks(capsys):
    assert main(["compare", "digits", "list"]) == 0
    assert "spiking-ssm" in capsys.readouterr().out


def test_exactly_one_budget():
    assert str(Budget(minutes=1.5)) == "1.5 minutes"
    with pytest.raises(ValueError, match="exactly one of minutes, epochs, steps must be given and positive"):
        Budget()
