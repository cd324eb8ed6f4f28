"""The experiments on training the LIF: three ways against a fourth one in NumPy, and a sweep of lengths by a clock."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from resofire import data, paper
from resofire.nn import fire_rates
from resofire.paper import run_time, training_equivalence
from resofire.paper.workplace import Workplace


def logits_in_numpy(model, x):
    """The network by its equations: u = β (u - s) + W x + b, s = [u ≥ 1], β = 1/2; the last Linear reads the mean."""
    layers = [(each.weight.detach().numpy(), each.bias.detach().numpy()) for each in model.linears]
    signal = x.astype(np.float64)
    for weight, bias in layers[:-1]:
        current = signal @ weight.T + bias
        u, s = np.zeros_like(current[:, 0]), np.zeros_like(current[:, 0])
        fired = []
        for t in range(current.shape[1]):
            u = 0.5 * (u - s) + current[:, t]
            s = (u >= 1).astype(np.float64)
            fired.append(s)
        signal = np.stack(fired, 1)
    weight, bias = layers[-1]
    return signal.mean(1) @ weight.T + bias


def test_three_ways_give_the_loss_that_numpy_gives(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(training_equivalence, "MOST", 3)
    result = training_equivalence.run(Workplace("x", 10.0, tmp_path))
    batch = next(digits["train"].batches(training_equivalence.BATCH, seed=0, epoch=0))
    logits = logits_in_numpy(training_equivalence._way("scan").model, batch.x.numpy())
    labels = batch.labels.numpy()
    loss = np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels])
    for backend, losses in result["losses"].items():
        assert losses[0] == pytest.approx(loss, rel=1e-12), backend
    assert result["steps"] == 3
    assert result["losses"]["reference"][2] != result["losses"]["reference"][0]
    assert result["parts_at"] == {"fft": None, "scan": None}
    assert len(result["weights_apart"]["fft"]) == 3
    assert 0 < result["weights_apart"]["fft"][-1] < 1e-9
    assert result["other_answers"] == {"fft": 0, "scan": 0}
    assert "the curves coincide" in training_equivalence.page(result)


def test_every_layer_fires_and_is_tested_as_numpy_does():
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.randn(64, 100, 1, generator=generator), torch.randint(10, (64,), generator=generator)
    way = training_equivalence._way("fft")
    with torch.no_grad():
        # Else the bias alone would decide.
        way.model.linears[-1].weight.mul_(100)
    with fire_rates(way.model) as rates:
        way.test(data.Batch(x, labels, None))
    answers = logits_in_numpy(way.model, x.numpy()).argmax(1)
    assert len(set(answers)) > 3
    assert way.answers == answers.tolist()
    assert way.accuracy == [np.mean(answers == labels.numpy())]
    assert min(rates.as_dict().values()) > 0.01


def test_the_page_says_where_they_part(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(training_equivalence, "MOST", 2)
    monkeypatch.setattr(training_equivalence, "EVERY", 1)
    result = training_equivalence.run(Workplace("x", 10.0, tmp_path))
    assert result["tested"]["steps"] == [1, 2]
    expected = [2.0, 2.0, 2.0, 2.0]
    assert training_equivalence._parts_at([2.0, 2.0 + 1e-14, 2.001, 2.0], expected) == 3
    parted = {**result, "parts_at": {"fft": 3, "scan": None}, "other_answers": {"fft": 4, "scan": 0}}
    text = training_equivalence.page(parted)
    assert "decoupled, FFT: at step 3, decoupled, fused scan: never" in text
    assert "decoupled, FFT: 4, decoupled, fused scan: 0" in text
    assert "the curves coincide" not in text


class Bench:
    """Stands in for the benchmark: its clock goes by what each way takes by law, T² for the loop, else T."""

    def __init__(self):
        self.now, self.measured = 0.0, []

    def seconds(self, backend, length):
        return {"reference": 1e-3 * length * (1 + length / 1024), "fft": 2e-3 * length + 0.01, "scan": 1e-4 * length}[
            backend
        ]

    def halves(self, layers, x, grad, rounds):
        assert grad.shape == x.shape
        found = {}
        for backend in layers:
            taken = self.seconds(backend, x.shape[1])
            self.now += (rounds + 1) * taken
            self.measured.append((backend, x.shape[1]))
            found[backend] = {"forward": 0.25 * taken, "backward": 0.75 * taken}
        return found


@pytest.fixture
def bench(monkeypatch):
    made = Bench()
    monkeypatch.setattr(run_time, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.mark.parametrize("budget", [1.0, 60.0, 3600.0, 1e9])
def test_a_way_is_measured_from_the_first_length_on_for_as_long_as_there_is_time(bench, budget):
    found = run_time._sweep(bench, budget)
    for backend, halves in found.items():
        lengths = [length for name, length in bench.measured if name == backend]
        assert lengths == list(run_time.LENGTHS[: len(lengths)])
        assert halves["backward"] == pytest.approx([0.75 * bench.seconds(backend, length) for length in lengths])
    # Each fits what is left; that all three do is not asked.
    assert bench.now < 3 * budget
    assert len(found["scan"]["forward"]) >= len(found["fft"]["forward"]) >= 1
    if budget == 1e9:
        assert {len(halves["forward"]) for halves in found.values()} == {len(run_time.LENGTHS)}
    if budget == 60.0:
        assert 1 < len(found["reference"]["forward"]) < len(run_time.LENGTHS)


def test_words_follow_the_numbers():
    lengths = [4, 8, 16]
    fft = {"forward": [2.0, 1.0, 1.0], "backward": [2.0, 2.0, 1.0]}
    result = {
        "lengths": lengths,
        "seconds": {"reference": {"forward": [1.0, 3.0, 9.0], "backward": [2.0, 3.0, 9.0]}, "fft": fft},
    }
    assert run_time._speedups(result, "fft") == [0.75, 2.0, 9.0]
    assert "faster at all measured lengths from T = 8 on" in run_time._growth(result)
    assert "From T = 8 to 16 the loop's time grows 3.0 times" in run_time._growth(result)
    fft["forward"][2] = 99.0
    assert "not yet faster at T = 16" in run_time._growth(result)


def test_the_profile_counts_the_loops_steps_and_the_paper_adds_up(tmp_path, monkeypatch):
    monkeypatch.setattr(run_time, "CASE", (4, 50))
    paper.reproduce("run-time", tmp_path, 1e-4)
    result = json.loads((tmp_path / "run-time.json").read_text())
    parts = {part["name"]: part for part in result["case"]["profile"]["reference"]}
    assert [parts[name]["calls"] for name in ("Charge", "Fire", "Reset")] == [50, 50, 50]
    assert parts["StackBackward"]["calls"] == 1
    for each in result["case"]["profile"].values():
        assert all(part["seconds"] >= 0 for part in each)
    text = (tmp_path / "run-time.md").read_text()
    # Sums of the paper's two tables, in microseconds, by hand.
    assert f"1.77x | {388_243 / 219_494:.2f}x" in text
    assert f"132.55x | {568_649 / 4_293:.2f}x" in text
    assert "1,201.2 ms (100 %)" in text
    assert "](../peers.md)" in text
