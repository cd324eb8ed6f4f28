"""Scores, averages, configs, records and logs of a run."""

import copy
import csv
import json
import math
import struct
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c

import resofire
from resofire import nn
from resofire.data.task import IGNORED, Form, Split, Task
from resofire.models import ClassifierConfig, FeedforwardConfig, build
from resofire.nn import LIFConfig, PRFConfig
from resofire.recipes import RECIPES
from resofire.train import RunConfig, logs, score
from resofire.train.batches import Plan
from resofire.train.evaluation import Score, losses
from resofire.train.logs import COLUMNS, Logs
from resofire.train.optimiser import Average
from resofire.train.record import PACKAGES, backends, commit, manifest

NEURON = PRFConfig(delta=(0.2, 0.8), threshold=0.1)
MODEL = ClassifierConfig(inputs=2, classes=3, features=6, depth=2, neuron=NEURON)
COUNT, STEPS = 11, 9


def network(**settings):
    """With running statistics as after some training."""
    model = build(replace(MODEL, **settings))
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    return model


def split(*, packed: bool, per_step: bool = False) -> Split:
    """Sequences of 9 time steps, or packed of 0 to 9; a third of the labels of time steps say nothing."""
    draw = np.random.RandomState(0)
    if not packed:
        labels = draw.randint(0, 3, (COUNT, STEPS) if per_step else COUNT)
        if per_step:
            labels[draw.rand(*labels.shape) < 0.3] = IGNORED
        return Split(draw.randn(COUNT, STEPS, 2).astype(np.float32), labels, kind="values", form=Form())
    bounds = np.cumsum([0, *draw.randint(0, STEPS + 1, COUNT)])
    labels = draw.randint(0, 3, bounds[-1] if per_step else COUNT)
    if per_step:
        labels[draw.rand(*labels.shape) < 0.3] = IGNORED
    stored = draw.randn(bounds[-1], 2).astype(np.float32)
    return Split(stored, labels, kind="values", form=Form(), bounds=bounds, per_step=per_step)


def by_hand(model, part: Split) -> tuple[int, int, float]:
    """Correct answers, labels and the sum of losses, one sequence at a time and without any packing."""
    correct, count, loss = 0, 0, 0.0
    for number in range(len(part)):
        batch = part.batch(np.array([number]))
        if batch.x.shape[1] == 0 and batch.labels.numel() == 0:
            continue
        logits = model(batch.x) if batch.x.shape[1] else model(batch.x, cu_seqlens=batch.cu_seqlens)
        for row, label in zip(logits.reshape(-1, 3), batch.labels.flatten().tolist(), strict=True):
            if label != IGNORED:
                count += 1
                correct += int(row.argmax()) == label
                loss -= float(row.log_softmax(-1)[label])
    return correct, count, loss


@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize("per_step", [False, True], ids=["a label each", "labels for each step"])
@pytest.mark.parametrize("packed", [False, True], ids=["fixed", "packed"])
@torch.no_grad()
def test_answers_are_counted_one_by_one(packed, per_step, size):
    model = network(pool="none" if per_step else "mean")
    part = split(packed=packed, per_step=per_step)
    result = score(model.train(), part.batches(size))
    correct, count, loss = by_hand(model, part)
    assert (result.correct, result.count) == (correct, count)
    assert 0 < correct < count
    assert result.loss == pytest.approx(loss, rel=1e-4)
    assert (result.accuracy, result.mean_loss) == (correct / count, result.loss / count)
    assert result.as_dict() == {
        "accuracy": correct / count,
        "correct": correct,
        "count": count,
        "loss": result.mean_loss,
    }
    assert not model.training


def test_labels_that_say_nothing_count_in_nothing():
    logits = torch.tensor([[[5.0, 0.0], [0.0, 5.0]], [[5.0, 0.0], [5.0, 0.0]]])
    labels = torch.tensor([[0, 0], [IGNORED, 0]])
    loss, correct, count = losses(logits, labels)
    assert (int(correct), int(count)) == (2, 3)
    assert float(loss) == pytest.approx(2 * math.log1p(math.exp(-5)) + math.log1p(math.exp(5)))
    loss, correct, count = losses(logits, torch.full((2, 2), IGNORED))
    assert (float(loss), int(correct), int(count)) == (0.0, 0, 0)
    own, _, _ = losses(logits, torch.full((2, 2), IGNORED), lambda logits, labels: logits[labels != IGNORED].mean())
    assert float(own) == 0.0


def test_smoothing_spreads_a_share_of_the_target():
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, IGNORED, 1])
    target = 0.7 * F.one_hot(labels.clamp(min=0), 3) + 0.3 / 3
    expected = -(target * logits.log_softmax(-1)).sum(-1)[labels != IGNORED].sum()
    torch.testing.assert_close(losses(logits, labels, smoothing=0.3)[0], expected)


def test_weights_of_classes_scale_their_losses():
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, IGNORED])
    weights = torch.tensor([1.0, 0.5, 4.0])
    each = torch.nn.functional.cross_entropy(logits[:5], labels[:5], reduction="none")
    total, _, count = losses(logits, labels, weights=weights)
    torch.testing.assert_close(total, (each * weights[labels[:5]]).sum())
    assert count == 5


def test_a_score_of_nothing_is_zero():
    assert score(network(), []).as_dict() == {"accuracy": 0.0, "correct": 0, "count": 0, "loss": 0.0}
    assert Score().mean_loss == 0.0


@pytest.mark.parametrize("packed", [False, True], ids=["fixed", "packed"])
@torch.no_grad()
def test_fire_rates_are_spikes_per_neuron_and_step_of_the_whole_split(packed):
    model = build(FeedforwardConfig(sizes=(2, 5, 4, 3), neuron=NEURON)).eval()
    part = split(packed=packed)
    fired, seen = [0, 0], 0
    for number in range(COUNT):
        x = part.batch(np.array([number])).x
        seen += x.shape[1]
        for layer in range(2):
            x = model.neurons[layer](model.linears[layer](x))
            fired[layer] += int(x.sum())
    rates = score(model, part.batches(4)).rates
    assert rates == {
        "neurons.0": pytest.approx(fired[0] / (5 * seen)),
        "neurons.1": pytest.approx(fired[1] / (4 * seen)),
    }
    assert 0 < fired[0] < 5 * seen


@torch.no_grad()
def test_fire_rates_of_blocks_are_those_that_nn_watches():
    model, part = network().eval(), split(packed=True)
    with nn.fire_rates(model) as rates:
        for batch in part.batches(4):
            model(batch.x, cu_seqlens=batch.cu_seqlens)
    measured = score(model, part.batches(4)).rates
    assert measured == rates.as_dict()
    assert len(measured) == 4
    assert all(0 < rate < 1 for rate in measured.values())


@torch.no_grad()
def test_an_average_follows_its_formula():
    model = network()
    average = Average(model.train(), 0.4)
    kept = {name: value.double() for name, value in copy.deepcopy(model.state_dict()).items()}
    assert not average.model.training
    assert not any(parameter.requires_grad for parameter in average.model.parameters())
    for step in range(1, 12):
        for value in model.state_dict().values():
            value.copy_(torch.randn_like(value) if value.is_floating_point() else value + step)
        average.update(model, step)
        decay = min(0.4, (1 + step) / (10 + step))
        for name, value in model.state_dict().items():
            whole = not value.is_floating_point()
            kept[name] = value.double() if whole else decay * kept[name] + (1 - decay) * value.double()
    for name, value in average.model.state_dict().items():
        torch.testing.assert_close(value.double(), kept[name], rtol=1e-5, atol=1e-6)


def test_an_average_with_decay_0_is_the_network():
    model = network()
    average = Average(build(MODEL), 0.0)
    average.update(model, 1)
    assert all(torch.equal(value, average.model.state_dict()[name]) for name, value in model.state_dict().items())


BAD = {
    "name": ("", 3, None), "task": ("", 3, None), "model": (None, "digits", PRFConfig()), "task_settings": (None, [1]),
    "seed": (-1, 1.0, True, "0", None), "batch": (0, -1, 2.0, True, "64", None), "epochs": (0, 1.5, None),
    "steps": (0, 2.0, "9"), "validate_every": (0, -3, 1.5), "lr": (-1e-3, math.nan, math.inf, "1e-3", None, True),
    "neuron_lr": (-1, math.nan, "x"), "weight_decay": (-0.1, math.inf, 10**400), "warmup": (-0.1, 1.1, math.nan),
    "final_lr": (-0.1, 1.1, None), "label_smoothing": (-0.1, 1.5, "0"), "checkpoint_minutes": (-1, math.nan, None),
    "clip": (0, -1.0, math.nan, "1", True), "ema": (1, 1.0, -0.1, math.nan, "0.9", True),
    "select": ("train", "", None, 1), "class_weights": ([1.0], (1.0, -1.0), (0.0, 0.0), ("1",), ()),
}  # fmt: skip


def test_a_bad_setting_gets_one_sentence_with_its_name_and_value(subtests):
    for setting, values in BAD.items():
        with subtests.test(setting):
            for value in values:
                with pytest.raises(ValueError, match=f"^RunConfig: {setting} must be ") as caught:
                    RunConfig(**{"name": "test", "task": "digits", "model": MODEL, setting: value})
                assert str(caught.value).endswith(f"got {value!r}")
                assert "\n" not in str(caught.value)


GOOD = {
    "seed": (0, 2**70), "steps": (None, 1), "validate_every": (None, 1), "lr": (0, 1, 1e-9), "warmup": (0, 1),
    "clip": (None, 1e-9, 5), "ema": (None, 0, 0.999), "select": ("validation", "test"), "checkpoint_minutes": (0, 1e9),
    "task_settings": ({}, {"kind": "values", "counts": (3, 2, 1)}),
}  # fmt: skip


def test_a_config_comes_back_from_json_with_any_setting(subtests):
    for setting, values in GOOD.items():
        with subtests.test(setting):
            for value in values:
                config = RunConfig(**{"name": "test", "task": "digits", "model": MODEL, setting: value})
                assert getattr(config, setting) == value
                assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_the_config_of_every_recipe_comes_back_from_json():
    for name, recipe in RECIPES.items():
        assert RunConfig.from_json(json.loads(json.dumps(recipe().to_json()))) == recipe(), name


TAMPERED = [
    ({"kind": "ClassifierConfig"}, "ClassifierConfig has no setting"),
    ({"colour": 1}, "no setting 'colour'"),
    ({"batch": "64"}, "batch must be"),
    ({"task_settings": [1]}, "task_settings must be a dict"),
    ({"task_settings": {"a": {"kind": "X"}}}, "'X' is not a class of this version of resofire"),
    ({"model": None}, "model must be"),
    ({"model": {"kind": "PRFConfig"}}, "model must be the config of a network"),
]


def test_a_config_that_was_tampered_with_is_refused(subtests):
    for change, words in TAMPERED:
        with subtests.test(words), pytest.raises(ValueError, match=words):
            RunConfig.from_json({**RECIPES["digits"]().to_json(), **change})


def test_what_is_no_config_of_a_run_is_refused(subtests):
    for described in [None, 3, "x", [], {}, MODEL]:
        with subtests.test(described=described), pytest.raises((ValueError, TypeError)):
            RunConfig.from_json(described)


@pytest.mark.parametrize("neuron", [NEURON, LIFConfig()], ids=["PRF", "LIF"])
def test_a_record_names_everything_a_run_came_from(neuron):
    model = network(neuron=neuron)
    config = RunConfig(name="test", task="digits", model=model.config, seed=7)
    task = Task("digits", "values", 3, {"train": split(packed=False)}, inputs=2)
    record = json.loads(json.dumps(manifest(config, model, task, 3)))
    assert RunConfig.from_json(record["config"]) == config
    assert (record["seed"], record["devices"], record["threads"]) == (7, 3, torch.get_num_threads())
    assert set(record["versions"]) == {"resofire", "python", "torch", *PACKAGES}
    assert record["versions"]["resofire"] == resofire.__version__
    assert record["versions"]["torch"] == torch.__version__
    assert record["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert record["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert record["cores"] >= 1
    assert record["machine"]
    assert "sdtcm" in record["backends"]
    assert all(names for names in record["backends"].values())
    assert record["commit"] is None or len(record["commit"].rstrip("+")) == 40


def test_backends_are_those_of_the_device_that_trains():
    devices = []

    class Plain(torch.nn.Linear):
        def forward(self, x):
            devices.append(x.device.type)
            return super().forward(x)

    sample = next(iter(split(packed=False).batches(2)))
    assert backends(Plain(2, 3), sample, torch.device("meta")) == {}
    assert devices == ["meta"]


def test_without_git_there_is_no_commit(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() is None


def run(step: int, plan: Plan = Plan(epoch=10, steps=100, between=10)) -> SimpleNamespace:  # noqa: B008 - frozen
    return SimpleNamespace(step=step, plan=plan, config=SimpleNamespace(select="validation"))


def figures(step: int) -> SimpleNamespace:
    return SimpleNamespace(loss=float(step), accuracy=0.5, fire_rate=0.25, tokens=64, lr=1e-3, gradient=2.0)


def events(folder) -> list[event_pb2.Event]:
    """All events in the folder's files, their checksums verified."""
    parsed = []
    for file in sorted((folder / "tensorboard").iterdir()):
        assert "tfevents" in file.name
        data = file.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            body = data[12 : 12 + length]
            assert struct.unpack("<I", data[8:12])[0] == masked_crc32c(data[:8])
            assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked_crc32c(body)
            parsed.append(event_pb2.Event.FromString(body))
            data = data[16 + length :]
    return parsed


def rows(folder) -> list[dict[str, str]]:
    with (folder / logs.FILE).open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def logged(tmp_path):
    """The logs of 30 steps, a row every 4, a validation every 10."""
    log = Logs(tmp_path, every=4)
    for step in range(1, 31):
        log.on_step(run(step), figures(step))
        if step % 10 == 0:
            log.on_validation(run(step), Score(3, 4, 2.0))
    log.close()
    return tmp_path


def test_rows_are_means_of_the_steps_since_the_last(logged):
    table = rows(logged)
    assert tuple(table[0]) == COLUMNS
    trained = [(int(row["step"]), float(row["loss"]), int(row["tokens"])) for row in table if row["split"] == "train"]
    assert trained == [(4, 2.5, 256), (8, 6.5, 256), (10, 9.5, 128), (12, 11.5, 128), (16, 14.5, 256), (20, 18.5, 256),
                       (24, 22.5, 256), (28, 26.5, 256), (30, 29.5, 128)]  # fmt: skip
    watched = [row for row in table if row["split"] == "validation"]
    assert [(row["step"], row["epoch"], row["loss"], row["accuracy"]) for row in watched] == [
        ("10", "1", "0.5", "0.75"), ("20", "2", "0.5", "0.75"), ("30", "3", "0.5", "0.75")
    ]  # fmt: skip


def test_tensorboard_can_read_the_same_figures(logged):
    starts = [event for event in events(logged) if event.HasField("session_log")]
    assert [(each.step, each.session_log.status) for each in starts] == [(0, event_pb2.SessionLog.START)]
    written = [event for event in events(logged) if event.HasField("summary")]
    values = {(event.step, each.tag): each.simple_value for event in written for each in event.summary.value}
    assert values[4, "train/loss"] == 2.5
    assert values[8, "train/lr"] == pytest.approx(1e-3)
    assert values[10, "validation/accuracy"] == 0.75
    assert {tag for _, tag in values} == {
        *(f"train/{name}" for name in (*logs.MEANS, "tokens")), "validation/loss", "validation/accuracy"
    }  # fmt: skip
    assert {event.step for event in written} == {int(row["step"]) for row in rows(logged)}


def test_a_run_that_goes_on_drops_later_rows_and_keeps_earlier_events(logged):
    before = rows(logged)
    log = Logs(logged, 17, {"seconds": 100.0, "since": [[17.0, 0.5, 0.25, 1e-3, 2.0, 64]]}, every=4)
    assert rows(logged) == [row for row in before if int(row["step"]) <= 17]
    for step in (18, 19, 20):
        log.on_step(run(step), figures(step))
    log.close()
    *kept, last = rows(logged)
    assert kept == [row for row in before if int(row["step"]) <= 17]
    assert (last["step"], last["loss"], last["tokens"]) == ("20", "18.5", "256")
    assert float(last["seconds"]) >= 100
    starts = [event.step for event in events(logged) if event.HasField("session_log")]
    assert starts == [0, 17]


def test_a_row_cut_off_anywhere_is_dropped(logged):
    file = logged / logs.FILE
    data = file.read_bytes()
    last = data.rindex(b"\n", 0, len(data) - 1) + 1
    whole = rows(logged)
    for end in range(last, len(data)):
        file.write_bytes(data[:end])
        logs._drop_rows_after(file, 1000)
        assert rows(logged) == whole[:-1]
    file.write_bytes(data)
    logs._drop_rows_after(file, 1000)
    assert file.read_bytes() == data


def test_rubbish_in_the_table_is_dropped(logged):
    file = logged / logs.FILE
    data = file.read_bytes()
    for rubbish in (b"\0" * 100, b"\xff\xfe\r\n", b"1,2\r\n", b"\r\n" * 3, b"x" * len(COLUMNS)):
        file.write_bytes(data + rubbish)
        logs._drop_rows_after(file, 1000)
        assert file.read_bytes() == data


def test_a_new_table_has_a_head_only(tmp_path):
    logs._drop_rows_after(tmp_path / logs.FILE, 0)
    assert (tmp_path / logs.FILE).read_text().split() == [",".join(COLUMNS)]
