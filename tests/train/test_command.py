"""The training command as a user meets it: mistakes, help, piped output, evaluation."""

# ruff: noqa: E501 - a table of cases reads best with one case a line, however long.

import errno
import json
import os
import re
import shutil
from dataclasses import replace

import pytest
import torch
from commands import STEPS, begin, last_line, weights

from resofire import cli, data, models, nn, train
from resofire.commands.train import parse_train
from resofire.train import folder, progress

USAGE_ERRORS = [
    ("train", "train: recipe must be one of "),
    ("train digit", "(did you mean 'digits'?)"),
    ("train --out new digits", "train: recipe must be the first word, one of "),
    ("train digits --epoch 3", "train: there is no flag --epoch (did you mean '--epochs'?); see resofire train digits --help"),
    ("train digits --epochs", "--epochs needs a value; see resofire train digits --help"),
    ("train digits --epochs x", "--epochs must be an integer, got 'x'; see resofire train digits --help"),
    ("train digits --lr x", "--lr must be a number, got 'x'; see resofire train digits --help"),
    ("train digits --clip x", "--clip must be None or a number, got 'x'; see resofire train digits --help"),
    ("train digits --epochs 0", "RunConfig: epochs must be a positive integer, got 0"),
    ("train digits --model.dropout 2", "ClassifierConfig: dropout must be from 0 up to, but not, 1, got 2.0; see resofire train digits --help"),
    ("train digits --model.features -1", "ClassifierConfig: features must be a positive integer, got -1; see resofire train digits --help"),
    ("train digits --model.norm bach", "ClassifierConfig: norm must be one of 'batch', 'none' (did you mean 'batch'?), got 'bach'"),
    ("train digits --model.neuron.reset sotf", "PRF: reset must be one of 'none', 'soft' (did you mean 'soft'?), got 'sotf'"),
    ("train digits --model.neuron bhfr", "train: --model.neuron must be one of ahp, alif, bhrf, brf, drf, glif, "),
    ("train digits --model.neuron --epochs 3", "train: --model.neuron needs a value"),
    ("train digits --model.neuron psn", "--model.neuron.steps is missing: Length T of every sequence; see resofire train digits --help"),
    ("train digits --model.neuron psn --model.neuron.steps 3", "PSN: every sequence must have steps=3 steps, got one of 64"),
    ("train digits --model.neuron lif --model.positional-bias 2", "ClassifierConfig: positional_bias must be 0 unless neuron is a PRF, got 2.0 and LIFConfig("),
    ("train digits --select tets", "RunConfig: select must be one of validation, test, last, got 'tets'"),
    ("train digits --batch 100000", "train: batch must not be above the 1297 training sequences of digits, got 100000"),
    ("train digits --devices 0", "train: --devices must be a positive integer, got 0"),
    ("train digits --task digts", "data: name must be one of "),
    ("train digits --model.classes 5", "train: model.classes must be 10, the classes of digits, got 5"),
    ("train digits --model.inputs 3", "train: model.inputs must be 1, the channels of digits, got 3"),
    ("train digits --model.neuron.backend fft --model.backend fused", "SDTCM: backend 'fused' cannot run this call"),
    ("train digits --model.pool none", "train: model.pool must be 'mean' or 'last', since the labels of digits are one per sequence, got 'none'"),
    ("train listops --task digits", "train: model.inputs must be 1, the channels of digits, got None"),
    ("train retrieval --task digits", "train: model must classify single sequences, as digits needs, got a RetrievalConfig"),
    ("train digits --out taken", "train: out must be a new or empty folder, got taken; to continue a run, resume it"),
    ("train digits --out taken/file", "train: out must be a new or empty folder, got taken/file; to continue a run, resume it"),
    ("train digits --out taken/file/run", "train: out taken/file/run cannot be written: Not a directory"),
    ("train smnist --data-dir empty", "mnist: "),
    ("train --resume", "--resume needs a value; see resofire train --help"),
    ("train --resume empty", "run: empty is not a run folder, it has no run.json"),
    ("train --resume nowhere", "run: nowhere is not a run folder, it has no run.json"),
    ("train --resume empty digits", "train: --resume takes the run's own settings: no recipe can be given with it"),
    ("train digits --resume empty", "train: --resume takes the run's own settings: no recipe can be given with it"),
    ("train --resume empty --epochs 3", "train: --resume takes the run's own settings: --epochs cannot be given with it"),
    ("train --resume=empty --devcies=3", "train: --resume takes the run's own settings: --devcies cannot be given with it (did you mean '--devices'?)"),
    ("evaluate", "evaluate: MODEL is missing: a shipped network or a run folder; see resofire evaluate --help"),
    ("evaluate empty", "run: empty is not a run folder, it has no run.json"),
]  # fmt: skip


def test_flags_choose_the_neuron():
    chosen = parse_train(
        ["digits", "--model.neuron.neuron", "alif", "--model.neuron=recurrent", "--model.neuron.neuron.beta", "2"]
    )
    assert chosen.config.model.neuron == nn.Recurrent.config(neuron=nn.ALIF.config(beta=2.0))
    recipe = parse_train(["digits"]).config.model.neuron
    # A neuron of the recipe's own class keeps the recipe's settings.
    kept = parse_train(
        ["digits", "--model.neuron", "prf", "--model.neuron.tau", "7", "--model.spatial", "identity"]
    ).config.model
    assert (kept.neuron, kept.spatial) == (replace(recipe, tau=7.0), "identity")


def test_a_usage_error_is_one_sentence_and_leaves_nothing(subtests, capsys, monkeypatch, tmp_path, tmp_path_factory):
    def no_network(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    for number, (line, sentence) in enumerate(USAGE_ERRORS):
        # A current folder of its own for each line, so that none hides what an earlier one left.
        current = tmp_path / str(number)
        (current / "empty").mkdir(parents=True)
        (current / "taken").mkdir()
        (current / "taken" / "file").touch()
        before = sorted(current.rglob("*"))
        monkeypatch.chdir(current)
        with subtests.test(line):
            code = cli.main(line.split())
            captured = capsys.readouterr()
            assert code == 2
            assert captured.out == ""
            assert captured.err.count("\n") == 1
            assert captured.err.startswith("resofire: ")
            assert sentence in captured.err
            assert sorted(current.rglob("*")) == before


UNFIT = [
    ({"vocabulary": 18, "inputs": None}, {}, "model.vocabulary must be at least 18, the number of tokens of digits, got None"),
    ({"pairs": True}, {}, "model must compare pairs, as digits needs, got a ClassifierConfig"),
    ({"per_step": True}, {}, "model.pool must be 'none', since the labels of digits are one per time step, got 'mean'"),
    ({}, {"sizes": (2, 8, 10)}, "model.inputs must be 1, the channels of digits, got 2"),
    ({}, {"sizes": (1, 8, 9)}, "model.classes must be 10, the classes of digits, got 9"),
    ({"vocabulary": 18, "inputs": None}, {"sizes": (1, 8, 10)}, "model.vocabulary must be at least 18, the number of tokens of digits, got None"),
]  # fmt: skip


def test_a_network_that_does_not_fit_is_refused(subtests, tmp_path):
    from resofire.recipes import digits

    for facts, settings, sentence in UNFIT:
        with subtests.test(sentence, settings=settings):
            config = replace(digits(), model=models.FeedforwardConfig(**settings)) if settings else digits()
            with pytest.raises(train.RunError) as refused:
                train.train(config, replace(data.load("digits"), **facts), tmp_path / "run")
            assert str(refused.value) == f"train: {sentence}"
            assert not (tmp_path / "run").exists()


def test_a_data_set_without_a_needed_split_is_refused(tmp_path):
    from resofire.recipes import digits

    task = data.load("digits")
    rest = {name: split for name, split in task.splits.items() if name != "train"}
    with pytest.raises(train.RunError) as refused:
        train.train(digits(), replace(task, splits=rest), tmp_path / "run")
    assert str(refused.value) == "train: digits must have a split train, got validation, test"
    assert not (tmp_path / "run").exists()


def test_an_out_that_cannot_be_written_does_not_stay(tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder, "write_atomic", full)
    assert begin(tmp_path / "run") == 2
    assert last_line(capsys) == f"resofire: train: out {tmp_path / 'run'} cannot be written: No space left on device"
    assert not (tmp_path / "run").exists()


def test_help_names_what_there_is(subtests, capsys):
    for line in ["--help", "train --help", "train digits --help", "train -h", "evaluate --help"]:
        with subtests.test(line):
            with pytest.raises(SystemExit) as end:
                cli.main(line.split())
            assert not end.value.code
            captured = capsys.readouterr()
            assert captured.err == ""
            assert {"--help": "train ", "train digits --help": "--epochs INT"}.get(line, "resofire ") in captured.out
            assert line not in ("train --help", "train -h") or "psmnist-random-small" in captured.out


def test_ctrl_c_outside_of_training_is_one_word(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "load", interrupted)
    assert begin("never") == 130
    assert last_line(capsys) == "resofire: stopped"


def test_piped_output_is_plain_lines(whole, tmp_path, capsys, monkeypatch):
    assert begin(tmp_path / "run") == 0
    captured = capsys.readouterr()
    assert not {"\r", "\x1b"} & {*captured.out, *captured.err}
    first, *validations = captured.err.splitlines()
    assert first == f"digits: {STEPS} steps, in {tmp_path / 'run'}"
    assert [line.split(", training loss")[0].split("validation")[0] for line in validations] == [
        "digits step 4/8, epoch 0.16: ",
        "digits step 8/8, epoch 0.32: ",
    ]
    summary = captured.out.splitlines()
    assert summary[0] == f"evaluate it with: resofire evaluate {tmp_path / 'run'}"
    assert summary[1] == f"see it with: resofire report {tmp_path / 'run'}"
    assert summary[2].startswith(f"{tmp_path / 'run'}: digits, ")
    assert re.fullmatch(r"  test  [\d.]+ %  \d+ of 300", summary[-1])
    assert weights(tmp_path / "run") == weights(whole)
    # Between validations there is a line now and then.
    monkeypatch.setattr(progress, "PLAIN_INTERVAL", 0.0)
    assert begin(tmp_path / "more") == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 + STEPS + 2
    assert all(part in lines[3] for part in ("loss ", "accuracy ", "fire rate ", " tokens/s", " left"))


def test_evaluate_finds_what_was_recorded(whole, capsys):
    assert cli.main(["evaluate", str(whole)]) == 0
    out = capsys.readouterr().out
    recorded = train.recorded(whole)
    assert out.startswith("the same as the run recorded\n")
    correct, count = recorded["correct"]["test"]
    assert out.splitlines()[-1] == f"  test  {100 * correct / count:.2f} %  {correct:,} of {count:,}"
    assert cli.main(["evaluate", str(whole), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["same as recorded"] is True
    assert printed["accuracy"] == recorded["accuracy"]


@pytest.fixture
def copy(whole, tmp_path):
    """A run folder to spoil."""
    for name in ("run.json", "result.json", "config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((whole / name).read_bytes())
    return tmp_path


def test_evaluate_tells_other_weights(copy, capsys):
    model = models.load(copy)
    with torch.no_grad():
        model.head.weight.neg_()
    models.save(model, copy)
    assert cli.main(["evaluate", str(copy)]) == 1
    assert "not as recorded: {'train': [" in capsys.readouterr().out
    assert cli.main(["evaluate", str(copy), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["same as recorded"] is False


def test_evaluate_tells_another_network(copy, capsys):
    models.save(models.build(replace(models.load(copy).config, classes=7)), copy)
    assert cli.main(["evaluate", str(copy)]) == 1
    assert last_line(capsys) == f"resofire: {copy} holds another network than the run trained"


def test_evaluate_of_damaged_weights_and_of_none(copy, capsys):
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-50])
    assert cli.main(["evaluate", str(copy)]) == 2
    assert last_line(capsys).startswith(f"resofire: {file} cannot be read, it is truncated or corrupt: ")
    file.unlink()
    assert cli.main(["evaluate", str(copy)]) == 2
    assert last_line(capsys) == (
        f"resofire: evaluate: {copy} has lost its network; resume it with: resofire train --resume {copy}"
    )


@pytest.mark.parametrize("left", [None, "{}", "[]", "{", "[" * 100_000], ids=["none", "empty", "list", "cut", "nested"])
def test_evaluate_of_a_run_without_result(left, copy, capsys):
    (copy / "result.json").unlink()
    if left is not None:
        (copy / "result.json").write_text(left)
    assert cli.main(["evaluate", str(copy), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["same as recorded"] is None
    assert cli.main(["evaluate", str(copy)]) == 0
    damaged = f"{copy / 'result.json'} is damaged; write it again with: resofire train --resume {copy}"
    unfinished = "the run is not finished, this is its best network so far"
    assert capsys.readouterr().out.splitlines()[0] == (unfinished if left is None else damaged)


def test_a_damaged_result_is_written_again(whole, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "result.json").write_text("{")
    weights = (run / "model.safetensors").read_bytes()
    assert cli.main(["train", "--resume", str(run)]) == 0
    assert train.recorded(run)["correct"] == train.recorded(whole)["correct"]
    assert (run / "model.safetensors").read_bytes() == weights
    capsys.readouterr()
    assert cli.main(["evaluate", str(run)]) == 0
    assert capsys.readouterr().out.startswith("the same as the run recorded\n")


@pytest.mark.parametrize(
    ("entry", "value", "expected"),
    [
        ("devices", "two", "a positive integer"),
        ("devices", None, "a positive integer"),
        ("devices", 0, "a positive integer"),
        ("data", None, "a fingerprint for each split"),
        ("data", ["train"], "a fingerprint for each split"),
        ("own", 7, "the names of the user's own parts"),
        ("source", 7, "a data set and its settings"),
        ("source", {"name": 7, "settings": {}}, "a data set and its settings"),
        ("gradient_dtype", 127, "float32 or bfloat16"),
        ("resumed", {}, "a list"),
    ],
)
def test_a_damaged_record_is_refused(entry, value, expected, copy, capsys):
    (copy / "result.json").unlink()
    described = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**described, entry: value}))
    assert cli.main(["train", "--resume", str(copy)]) == 2
    assert last_line(capsys) == (
        f"resofire: run: {copy / 'run.json'} cannot be used: {entry} must be {expected}, got {value!r}"
    )
