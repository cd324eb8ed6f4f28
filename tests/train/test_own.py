"""The user's own model, loss, optimiser and callbacks; and runs that remember their data."""

import json
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from kinds import config, task

from resofire import cli, data, models, nn, train
from resofire.data.task import Split
from resofire.train import checkpoints, folder, source
from resofire.train.diverged import first_nonfinite_layer
from resofire.train.processes import Peers

CONFIG = replace(config("feedforward"), steps=4, validate_every=2)


@dataclass(frozen=True, kw_only=True)
class PlainConfig(models.FeedforwardConfig):
    """A network without spikes, norms or `penalised`."""

    def build(self):
        return Plain(self)


class Plain(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.linear, self.head = torch.nn.Linear(config.inputs, 4), torch.nn.Linear(4, config.classes)

    def forward(self, x):
        return self.head(self.linear(x).relu().mean(1))


def mean_square(logits, labels):
    return F.mse_loss(logits, F.one_hot(labels, 3).float())


def always_one(logits, labels):
    return 1 + 0 * logits.sum()


def sgd(groups):
    return torch.optim.SGD(groups, momentum=0.9)


class Recorder(train.Callback):
    def __init__(self):
        self.events = []

    def on_start(self, run):
        self.events.append(("start", run.step))

    def on_step(self, run, figures):
        assert figures.loss > 0
        self.events.append(("step", run.step))

    def on_validation(self, run, score):
        assert score.count == 19
        self.events.append(("validation", run.step))

    def on_end(self, run, result):
        self.events.append(("end", result["correct"]["test"][1]))


class OnlySteps:
    """No base class, one method."""

    stop_at = None

    def on_step(self, run, figures):
        if run.step == self.stop_at:
            raise OSError(5, "stopped by the test")


def test_a_network_without_neurons_trains_and_resumes_from_its_own_weights(tmp_path):
    plain = PlainConfig(sizes=(2, 1, 3))
    model = Plain(plain)
    initial = model.linear.weight.detach().clone()
    stop = OnlySteps()
    stop.stop_at = 1
    run = replace(CONFIG, model=plain, checkpoint_minutes=9.0)
    with pytest.raises(train.Stopped):
        train.train(run, task("feedforward"), tmp_path / "run", model=model, callbacks=[stop])
    # The seed could not reproduce them.
    assert torch.equal(checkpoints.newest(tmp_path / "run").state["model"]["linear.weight"], initial)
    resumed = train.resume(tmp_path / "run", task("feedforward"), callbacks=[OnlySteps()]).result
    model = Plain(plain)
    model.linear.weight.data.copy_(initial)
    with pytest.raises(train.RunError, match="model must have the config of the run"):
        train.train(CONFIG, task("feedforward"), tmp_path / "other", model=model)
    assert not (tmp_path / "other").exists()
    assert resumed["fire_rates"] == {}
    assert "  test  " in train.report(tmp_path, resumed)


def test_own_loss_optimiser_and_callbacks_resume_to_the_same_bits(tmp_path):
    parts = {"loss": mean_square, "optimizer": sgd}
    recorder, whole, run = Recorder(), tmp_path / "whole", tmp_path / "run"
    train.train(CONFIG, task("feedforward"), whole, **parts, callbacks=[recorder])
    assert recorder.events == [
        ("start", 0), ("step", 1), ("step", 2), ("validation", 2), ("step", 3), ("step", 4), ("validation", 4),
        ("end", 21),
    ]  # fmt: skip
    stop = OnlySteps()
    stop.stop_at = 4
    with pytest.raises(train.Stopped, match="stopped in step 4 of 4: stopped by the test"):
        train.train(CONFIG, task("feedforward"), run, **parts, callbacks=[stop])
    own = json.loads((run / "run.json").read_text())["own"]
    assert own["optimizer"].endswith(".sgd")
    for missing in ({**parts, "loss": None}, {**parts, "optimizer": None}):
        with pytest.raises(train.RunError, match=r"was begun with \w+=.*; pass it again"):
            train.resume(run, task("feedforward"), **missing, callbacks=[OnlySteps()])
    with pytest.raises(train.RunError, match="was begun with callbacks="):
        train.resume(run, task("feedforward"), **parts)
    train.resume(run, task("feedforward"), **parts, callbacks=[OnlySteps()])
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    builtin = train.train(CONFIG, task("feedforward"), tmp_path / "builtin").result
    assert builtin["loss"] != train.recorded(whole)["loss"]


def test_other_parts_than_before_are_refused(tmp_path):
    stop = OnlySteps()
    stop.stop_at = 1
    advice = "; resume with resofire.train.resume and the same loss, optimizer and callbacks"
    with pytest.raises(train.Stopped, match=advice):
        train.train(CONFIG, task("feedforward"), tmp_path, loss=mean_square, optimizer=sgd, callbacks=[stop])
    with pytest.raises(train.RunError, match=r"was begun with loss=.*mean_square, got loss=.*always_one"):
        train.resume(tmp_path, task("feedforward"), loss=always_one, optimizer=sgd, callbacks=[stop])
    with pytest.raises(train.RunError, match=r"was begun with optimizer=.*sgd, got optimizer=.*SGD"):
        train.resume(tmp_path, task("feedforward"), loss=mean_square, optimizer=torch.optim.SGD, callbacks=[stop])


def test_own_weights_without_a_checkpoint_are_needed_again(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "write", fail)
        with pytest.raises(train.Stopped, match="there is no checkpoint yet"):
            train.train(CONFIG, task("feedforward"), tmp_path, model=models.build(CONFIG.model))
    with pytest.raises(train.RunError, match=r"has no checkpoint and was begun with its own model; pass model= again"):
        train.resume(tmp_path, task("feedforward"))
    assert train.resume(tmp_path, task("feedforward"), model=models.build(CONFIG.model)).result is not None


def test_a_network_lost_after_the_last_step_is_replaced_by_the_last(tmp_path, capsys):
    train.train(CONFIG, task("feedforward"), tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(train.RunError, match=r"is finished, but .* is truncated or corrupt.*; delete that file to"):
        train.resume(tmp_path, task("feedforward"))
    weights.unlink()
    assert cli.main(["evaluate", str(tmp_path)]) == 2
    assert f"{tmp_path} has lost its network; resume it with: resofire train --resume" in capsys.readouterr().err
    assert train.resume(tmp_path, task("feedforward")).result["best"] is None
    assert "; the last one takes its place" in capsys.readouterr().err
    last = checkpoints.newest(tmp_path).state["model"]
    assert all(torch.equal(value, last[name]) for name, value in models.load(tmp_path).state_dict().items())


def test_negative_labels_count_with_a_loss_that_uses_them(tmp_path):
    losses = []

    class Losses(train.Callback):
        def on_step(self, run, figures):
            losses.append(figures.loss)

    def lower(split):
        return Split(split.stored, split.labels - 1, kind=split.kind, form=split.form)

    original = task("feedforward")
    lowered = replace(original, splits={name: lower(split) for name, split in original.splits.items()})
    # The final evaluation is cross entropy, which has no class -1.
    with pytest.raises(IndexError):
        train.train(CONFIG, lowered, tmp_path, loss=always_one, callbacks=[Losses()])
    assert losses == [1.0] * 4


def test_the_part_that_is_not_finite_is_named():
    class Square(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) ** 2

    class Outside(torch.nn.Sequential):
        def forward(self, x):
            return super().forward(x) * torch.inf

    batch = data.Batch(torch.full((2, 3), 1e30), torch.zeros(2, dtype=torch.long), None)
    assert first_nonfinite_layer(torch.nn.Sequential(Square(3, 2)), batch) == "the output of layer 0 is not finite"
    assert first_nonfinite_layer(Outside(torch.nn.Linear(3, 2)), batch) == "the output of the model is not finite"


class Keeps(nn.Neuron):
    """A neuron with a tensor outside its state dict; the subclass has it as a buffer."""

    states = ("u",)

    def __init__(self, features):
        super().__init__(features)
        self.keep(torch.tensor(0.9))

    def keep(self, beta):
        self.beta = beta

    def coefficients(self):
        return {"beta": self.beta}

    @staticmethod
    def dynamics(current, state, c, spike):
        u = c.beta * state.u + current
        return spike(u - 1), {"u": u}


class KeepsBuffer(Keeps):
    def keep(self, beta):
        self.register_buffer("beta", beta)


class Slips(KeepsBuffer):
    @staticmethod
    def dynamics(current, state, c, spike):
        return spike(c.bta * state.u + current), {"u": current}


class Crashes(Keeps):
    def keep(self, beta):
        self.beta = {}["beta"]


def with_neuron(neuron):
    return replace(CONFIG, model=replace(CONFIG.model, neuron=neuron.config()))


def test_a_tensor_that_would_not_be_saved_is_refused_before_the_first_step(tmp_path):
    sentence = r"Keeps.beta is a tensor that is not saved .* use self.register_buffer\('beta', ...\)"
    with pytest.raises(train.RunError, match=f"^train: {sentence}"):
        train.train(with_neuron(Keeps), task("feedforward"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    models.save(with_neuron(Keeps).model.build(), tmp_path / "own")
    with pytest.raises(models.StorageError, match=sentence):
        models.load(tmp_path / "own")
    train.train(with_neuron(KeepsBuffer), task("feedforward"), tmp_path / "run")


@pytest.mark.parametrize(
    ("neuron", "sentence"),
    [
        (Slips, r"^train: AttributeError: .* no attribute 'bta' \(test_own.py, line \d+\)$"),
        (Crashes, r"^train: model cannot be built: KeyError: 'beta' \(test_own.py, line \d+\)$"),
    ],
)
def test_a_slip_in_a_neuron_is_one_sentence_with_its_place(neuron, sentence, tmp_path):
    with pytest.raises(train.RunError, match=sentence):
        train.train(with_neuron(neuron), task("feedforward"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_class_is_no_loss(tmp_path):
    with pytest.raises(train.RunError, match=r"loss must be a function .*, got the class CrossEntropyLoss; call it"):
        train.train(CONFIG, task("feedforward"), tmp_path / "run", loss=torch.nn.CrossEntropyLoss)


MAIN = """
import torch
from resofire import models, train
import sys; sys.path.insert(0, {tests!r})
from kinds import config, task
class Mine(models.Feedforward): pass
model = Mine(config("feedforward").model)
try:
    train.train(config("feedforward"), task("feedforward"), {folder!r}, model=model)
except train.RunError as error:
    print(error)
"""


def test_what_cannot_be_saved_is_refused_before_the_first_step(tmp_path):
    program = MAIN.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "run"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("train: Mine is defined in __main__"), done.stderr
    assert not (tmp_path / "run").exists()
    with pytest.raises(train.RunError, match="must have a config to be saved with, got a Linear without one"):
        train.train(CONFIG, task("feedforward"), tmp_path / "run", model=torch.nn.Linear(1, 1))
    wider = models.build(CONFIG.model)
    wider.linears[0] = torch.nn.Linear(3, 12)
    with pytest.raises(train.RunError, match=r"linears.0.weight must have the shape \[12, 2\]"):
        train.train(CONFIG, task("feedforward"), tmp_path / "run", model=wider)


@pytest.mark.parametrize("kind", ["classifier", "retrieval", "feedforward", "per-step"])
def test_arrays_are_saved_with_the_run_and_reopened(kind, tmp_path):
    original = task(kind)
    train.train(replace(config(kind), steps=1), original, tmp_path / "run")
    reopened = train.load_task(tmp_path / "run")
    assert replace(reopened, splits={}) == replace(original, splits={})
    for name, split in original.splits.items():
        for one, other in zip(split.batches(5), reopened.splits[name].batches(5), strict=True):
            assert all(a is b is None or torch.equal(a, b) for a, b in zip(one, other, strict=True))
    result = train.evaluate(models.load(tmp_path / "run"), reopened, 8)
    assert result["correct"] == train.recorded(tmp_path / "run")["correct"]
    (tmp_path / "run" / source.DATA).write_bytes(b"PK rubbish")
    with pytest.raises(train.RunError, match=r"data\.npz cannot be read"):
        train.load_task(tmp_path / "run")


def test_what_is_too_large_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "LIMIT", 100)
    train.train(replace(CONFIG, steps=1), task("feedforward"), tmp_path / "run")
    assert not (tmp_path / "run" / source.DATA).exists()
    with pytest.raises(train.RunError, match="was trained on arrays too large to be saved with it; pass the task"):
        train.load_task(tmp_path / "run")


def test_pickled_arrays_are_not_loaded(tmp_path):
    train.train(replace(CONFIG, steps=1), task("feedforward"), tmp_path / "run")
    np.savez(tmp_path / "run" / source.DATA, about=np.array([{"a": 1}], dtype=object))
    with pytest.raises(train.RunError, match=r"data\.npz cannot be read"):
        train.load_task(tmp_path / "run")


def test_a_named_data_set_is_reopened_by_its_name(tmp_path):
    digits = data.load("digits")
    assert source.npz_to_save(digits) is None
    model = models.ClassifierConfig(inputs=1, classes=10, features=4, depth=1)
    run = train.RunConfig(name="test", task="digits", model=model, steps=1, batch=8)
    train.train(run, digits, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["source"] == {"name": "digits", "settings": {}, "data_dir": None}
    reopened = train.load_task(tmp_path / "run")
    assert np.array_equal(reopened["test"].stored, digits["test"].stored)
    # Runs of earlier versions recorded no source.
    (tmp_path / "run" / "run.json").write_text(json.dumps({**record, "source": None, "format": 1}))
    with pytest.raises(train.RunError, match="arrays too large to be saved with it"):
        train.load_task(tmp_path / "run")
    del record["source"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    assert len(train.load_task(tmp_path / "run")["test"]) == len(digits["test"])


def test_new_folders_are_never_shared(tmp_path):
    made, start = [], threading.Barrier(8)

    def make():
        start.wait()
        made.extend(train.new_folder(tmp_path / "runs" / "name") for _ in range(5))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*made}) == 40
    assert {path.name for path in made} == {"name", *(f"name-{number}" for number in range(2, 41))}
    (tmp_path / "file").touch()
    with pytest.raises(train.RunError, match="cannot be created: "):
        train.new_folder(tmp_path / "file" / "run")


def test_a_folder_in_use_is_refused_and_left_alone(tmp_path):
    run = tmp_path / "run"
    with folder.locked(run, create=True):
        with pytest.raises(train.RunError, match="is in use by another process"):
            train.train(CONFIG, task("feedforward"), run)
        assert run.exists()
    assert train.train(CONFIG, task("feedforward"), run).result is not None
    with pytest.raises(train.RunError, match="must be a new or empty folder"):
        train.train(CONFIG, task("feedforward"), run)


def test_a_lost_peer_is_known_by_its_process(monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setattr(dist, "get_world_size", lambda: 1)
    monkeypatch.setattr(dist, "all_gather_object", lambda everyone, mine: everyone.__setitem__(0, mine))
    peers = Peers([child])
    assert not peers.ended(0.1)
    child.communicate(b"\n")
    assert peers.ended(0.1)


def test_a_subclass_of_split_is_not_saved():
    class Mine(Split):
        pass

    digits = replace(data.load("digits"), source=None)
    part = digits["test"]
    mine = Mine(part.stored, part.labels, kind=part.kind, form=part.form)
    assert source.npz_to_save(replace(digits, splits={"test": mine})) is None
    assert source.npz_to_save(replace(digits, splits={"test": part})) is not None


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"loss": 3}, "loss must be a function of (logits, labels), got 3"),
        ({"loss": lambda logits, labels: 0.5}, "loss must return the mean over the batch, a scalar tensor, got 0.5"),
        ({"loss": lambda logits, labels: logits}, "a scalar tensor, got a tensor of shape [2, 3]"),
        ({"loss": lambda logits, labels: torch.ones(())}, "differentiable in the logits, got a tensor without"),
        ({"loss": lambda logits, labels: logits @ logits}, "(test_own.py, line "),
        ({"optimizer": "sgd"}, "a function that makes one from parameter groups"),
        ({"optimizer": lambda groups: None}, "optimizer must return a torch.optim.Optimizer, got None"),
        ({"callbacks": Recorder()}, "callbacks must be a list of objects, got a Recorder"),
        ({"callbacks": [Recorder]}, "callbacks must be objects, got the class Recorder; call it"),
        ({"callbacks": [3]}, "a callback must have one of on_start, on_step, on_validation, on_end, got 3"),
    ],
)
def test_parts_of_the_wrong_kind_are_refused_and_leave_nothing(parts, sentence, tmp_path):
    with pytest.raises(train.RunError) as error:
        train.train(CONFIG, task("feedforward"), tmp_path / "run", **parts)
    assert sentence in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_mistake_in_the_first_step_leaves_nothing_behind(tmp_path):
    class Broken(train.Callback):
        def on_step(self, run, figures):
            raise KeyError("a mistake")

    plain = PlainConfig(sizes=(2, 1, 3))
    with pytest.raises(KeyError):
        train.train(replace(CONFIG, model=plain), task("feedforward"), tmp_path / "run", model=Plain(plain),
                    callbacks=[Broken()])  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_labels_that_are_no_class_and_single_steps_are_refused(tmp_path):
    own = data.from_arrays(np.random.RandomState(0).randn(20, 1, 2), np.arange(20) % 3, test=0.2)
    own.splits["test"].labels[1] = 7
    with pytest.raises(
        train.RunError, match="labels of the test split of own must be from 0 to 2, got 7 of sequence 1"
    ):
        train.train(CONFIG, own, tmp_path / "run")
    own.splits["test"].labels[1] = 0
    model = models.ClassifierConfig(inputs=2, classes=3, features=4, depth=1)
    with pytest.raises(train.RunError, match="batch must be at least 2, since batch norm needs two time steps, got 1"):
        train.train(replace(CONFIG, model=model, batch=1), own, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_starts_from_the_weights_of_another(tmp_path):
    first, _ = train.train(CONFIG, task("feedforward"), tmp_path / "first")
    weights = models.load(first).state_dict()
    start = replace(CONFIG, seed=5, init=str(first))
    seen = {}

    class Look(train.Callback):
        def on_start(self, run):
            seen.update({name: value.clone() for name, value in run.model.state_dict().items()})

    second, _ = train.train(start, task("feedforward"), tmp_path / "second", callbacks=[Look()])
    assert seen.keys() == weights.keys()
    assert all(torch.equal(seen[name], weights[name]) for name in weights)
    assert json.loads((second / "run.json").read_text())["config"]["init"] == str(first)
    assert "init" not in json.loads((first / "run.json").read_text())["config"]
    for init, message in (
        (str(tmp_path / "none"), "train: init: model must be a run folder"),
        ("digits", "train: init must be a network of the run's own shape, got digits with"),
    ):
        with pytest.raises(train.RunError, match=message):
            train.train(replace(CONFIG, init=init), task("feedforward"), tmp_path / "third")
        assert not (tmp_path / "third").exists()
    with pytest.raises(ValueError, match="RunConfig: init must name a network or be None, got ''"):
        replace(CONFIG, init="")
