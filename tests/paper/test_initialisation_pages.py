"""The pages on initial values and on the Long Range Arena: their numbers and sentences, computed independently."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from resofire import cli, data, paper
from resofire.data.task import Form
from resofire.models import ClassifierConfig, FeedforwardConfig, build
from resofire.nn import PRFConfig
from resofire.paper import amplitude, initialisation, long_range_arena, sequential_mnist, theta_ranges
from resofire.paper.workplace import Workplace, _thinned
from resofire.recipes import digits_small


def test_a_thinned_split_is_spread_over_classes_that_lie_together():
    bounds = np.arange(0, 3 * 1001, 3)
    labels = np.repeat([0, 1], 500)
    split = data.Split(np.arange(3000) % 7, labels, kind="tokens", form=Form(), bounds=bounds)
    task = _thinned(data.Task("x", "tokens", 2, {"train": split, "test": split}, vocabulary=7), 30)
    assert len(task["train"]) == 1000
    assert len(task["test"]) == 30
    batches = list(task["test"].batches(8))
    assert [len(batch.labels) for batch in batches] == [8, 8, 8, 6]
    seen = torch.cat([batch.labels for batch in batches])
    assert seen.bincount().tolist() == [15, 15]
    expected = [(3 * (number * 1000 // 30) + step) % 7 for number in range(30) for step in range(3)]
    assert torch.cat([batch.x[0] for batch in batches]).tolist() == expected


def test_parts_have_steps_of_their_own_and_a_thin_evaluation(digits, tmp_path):
    place, config = Workplace("x", 1e-4, tmp_path), replace(digits_small(), batch=4)
    thin = place.train({"a": config}, validations=1, part="one", share=0.5, thin=True)["a"]
    assert thin.result["correct"]["test"][1] == thin.result["correct"]["validation"][1] == 4
    assert (tmp_path / "x-0.0001min" / "one" / "a" / "result.json").exists()
    whole = Workplace("y", 1e-4, tmp_path).train({"a": config}, validations=1)["a"]
    assert whole.result["correct"]["test"][1] == 300


def _rates(gain, delta, theta, x):
    """The fire rate of each layer by the neuron's equation, one step after the other in double precision."""
    torch.manual_seed(0)
    neuron = PRFConfig(tau=2.0, delta=delta, theta=theta, train_delta=False, train_theta=False)
    model = build(FeedforwardConfig(sizes=initialisation.SIZES, neuron=neuron, gain=gain))
    turn = complex(math.exp(-delta / 2) * math.cos(delta * theta), math.exp(-delta / 2) * math.sin(delta * theta))
    found, spikes = [], x.double()
    for linear in list(model.linears)[:-1]:
        current = spikes @ linear.weight.double().T + linear.bias.double()
        potential, fired = torch.zeros_like(current[:, 0], dtype=torch.complex128), []
        for step in range(current.shape[1]):
            potential = turn * potential + delta * current[:, step]
            fired.append((potential.real >= 1).double())
        spikes = torch.stack(fired, 1)
        found.append(float(spikes.mean()))
    return found


@pytest.mark.parametrize(("delta", "theta"), [(0.1, 2.0), (1.0, 8.0)])
@torch.no_grad()
def test_the_gain_is_the_smallest_at_which_every_layer_fires(delta, theta):
    x = next(data.load("digits")["train"].batches(8, seed=0)).x
    neuron = PRFConfig(tau=2.0, delta=delta, theta=theta, train_delta=False, train_theta=False)
    gain = initialisation.first_gain(neuron, x)
    place = initialisation.GAINS.index(gain)
    assert place > 0
    assert min(_rates(gain, delta, theta, x)) >= initialisation.LEAST_RATE
    assert min(_rates(initialisation.GAINS[place - 1], delta, theta, x)) < initialisation.LEAST_RATE


def _map(smnist, psmnist, tested=1000):
    def cells(shares):
        return [
            [{"accuracy": {"test": share, "validation": share}, "gain": 3.0, "least_rate": 0.1} for share in row]
            for row in shares
        ]

    return {
        "tau": 2.0, "batch": 16, "lr": 0.01, "steps": 10, "epochs": 0.1, "tested": tested, "deltas": [0.01, 1.0],
        "thetas": [0.0, 4.0], "least_rate": 0.03, "cells": {"smnist": cells(smnist), "psmnist-bitrev": cells(psmnist)},
    }  # fmt: skip


def test_whether_the_best_cell_moves_is_read_off_the_numbers():
    here, there = [[0.9, 0.2], [0.3, 0.4]], [[0.5, 0.2], [0.3, 0.8]]
    assert "best cell is the same for both" in initialisation.page(_map(here, here))
    moved = initialisation.page(_map(here, there))
    assert "sMNIST's best cell has 50.0 % on psMNIST and the best one there 80.0 %, so it shifts here as well" in moved
    assert "On psMNIST the best cell is Δ = 1, θ = 4 with 80.0 % on test; 1 of 4 cells" in moved
    assert "not a significant shift" in initialisation.page(_map(here, there, tested=8))
    assert "for sMNIST Δ = 0.01 (60.0 % over all θ) and θ = 0 (55.0 % over all Δ)" in moved


def test_recipes_have_the_best_range_of_the_paper():
    for table in theta_ranges.TABLES.values():
        best = table.labels[table.accuracy.index(max(table.accuracy))]
        theta = theta_ranges._config(table, best).model.neuron.theta[1]
        assert theta == pytest.approx(table.recipe().model.neuron.theta[1], rel=1e-12)
        for label, top in zip(table.labels, table.tops, strict=True):
            above, _, below = label.partition("/")
            expected = {"π": math.pi, "2π": 2 * math.pi}[above] / float(below or 1)
            assert math.pi * top == pytest.approx(expected, rel=1e-12)


def test_theta_is_drawn_from_the_range():
    model = theta_ranges._config(theta_ranges.TABLES["text"], "π/16").model
    theta = torch.cat([block.token_neuron.log_theta.detach().exp() for block in build(model).encoder.blocks])
    assert float(theta.min()) >= 0
    assert 0.95 * math.pi / 16 < float(theta.max()) <= math.pi / 16


def test_what_is_absent_is_an_empty_cell(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(theta_ranges, "TABLES", {name: theta_ranges.TABLES[name] for name in ("listops", "retrieval")})
    page = paper.reproduce("theta-ranges", tmp_path / "out", 1e-4, runs=tmp_path / "runs").read_text()
    assert (
        "| Retrieval, θ up to | π/4 | π/5 | π/6 | π/7 | π/8 |\n|---|---|---|---|---|---|\n| here |  |  |  |  |  |"
        in page
    )
    assert "Left empty because the data is missing: Retrieval." in page
    result = json.loads((tmp_path / "out" / "theta-ranges.json").read_text())
    assert result["absent"] == ["retrieval"]
    assert [*result["tasks"]["listops"]["accuracy"]] == ["π/4", "π/6", "π/8"]


def test_without_any_data_there_is_one_sentence(digits, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(theta_ranges, "TABLES", {"retrieval": theta_ranges.TABLES["retrieval"]})
    assert cli.main(["reproduce", "theta-ranges", "--out", str(tmp_path / "out"), "--runs", str(tmp_path)]) == 2
    assert (
        "none of its data sets is available; the first: retrieval: its files are not there" in capsys.readouterr().err
    )


def test_each_block_has_one_amplitude_for_each_kind_of_neuron():
    models = {which: amplitude._config(which).model for which in amplitude.LABELS}
    sizes = {which: sum(value.numel() for value in build(model).parameters()) for which, model in models.items()}
    depth = models["none"].depth
    assert {which: size - sizes["none"] for which, size in sizes.items()} == {
        "none": 0, "both": 2 * depth, "tn": depth, "sn": depth
    }  # fmt: skip


@pytest.mark.parametrize(
    ("share", "words"), [(0.9, "points, a significant difference"), (0.61, "not a significant difference")]
)
def test_amplitudes_are_told_apart_only_beyond_chance(share, words):
    shares = {"none": 0.6, "both": 0.6, "tn": 0.6, "sn": share}
    networks = {
        which: {"parameters": 1, "accuracy": {"validation": each, "test": each}} for which, each in shares.items()
    }
    page = amplitude.page(
        {"batch": 16, "steps": 10, "epochs": 0.1, "tested": 500, "validated": 500, "networks": networks}
    )
    assert "The best on validation is α on SN, as in the paper." in page
    assert f"On test the four are within {100 * (share - 0.6):.1f} points" in page
    assert words in page


def _finished(folder, task, *, test, validation, tested, selected="validation", steps=None, **changed):
    model = ClassifierConfig(inputs=1, classes=10, features=4, depth=1)
    config = replace(digits_small(), task=task, model=model, steps=steps, **changed)
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"config": config.to_json()}))
    (folder / "result.json").write_text(
        json.dumps({
            "task": task, "accuracy": {"test": test, "validation": validation}, "correct": {"test": [1, tested]},
            "parameters": 99, "selected_on": selected, "loss": {}, "fire_rates": {}, "mean_fire_rate": 0.125,
        })
    )  # fmt: skip


def test_the_table_takes_the_run_that_was_tested_on_most_and_is_best_on_validation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(long_range_arena, "SHIPPED", tmp_path / "shipped")
    runs = tmp_path / "runs"
    _finished(runs / "few" / "a", "listops", test=0.9, validation=0.9, tested=50)
    _finished(runs / "short", "listops", test=0.9, validation=0.9, tested=2000, steps=7)
    _finished(tmp_path / "elsewhere" / "x", "text", test=0.8, validation=0.8, tested=25_000)
    _finished(runs / "b", "listops", test=0.30, validation=0.35, tested=2000)
    _finished(runs / "c", "listops", test=0.35, validation=0.30, tested=2000)
    _finished(runs / "d", "listops", test=0.99, validation=0.99, tested=2000, selected="test")
    _finished(runs / "e", "smnist", test=0.99, validation=0.99, tested=10_000)
    (runs / "broken").mkdir()
    (runs / "broken" / "result.json").write_text("{")
    page = paper.reproduce("long-range-arena", tmp_path / "out", 1.0, runs=tmp_path / "elsewhere").read_text()
    assert "| Resofire, trained here | 30.00 | 80.00 |  |  |  |  |  |" in page
    assert f"| ListOps | `digits-small` in `b` | 99 | {digits_small().epochs} epochs, batches of 32 | 2,000 |" in page
    assert "Ours minus the paper's, in points: ListOps -29.2, Text -6.3." in page


def test_an_empty_table_and_the_averages_of_the_paper(tmp_path):
    assert long_range_arena.collected(tmp_path / "nothing") == {}
    page = long_range_arena.page({"shipped": {}, "trained": {}})
    assert "| Resofire, shipped |  |  |  |  |  |  |  |" in page
    assert "no finished run was found" in page
    assert "the paper's differ for: ELM neuron 65.13, not 69.25." in page


def test_other_seeds_of_a_shipped_network_count_if_all_else_is_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sequential_mnist, "SHIPPED", tmp_path / "shipped")
    runs = tmp_path / "runs"
    _finished(tmp_path / "shipped" / "smnist", "smnist", test=0.990, validation=0.95, tested=100)
    _finished(runs / "the shipped one", "smnist", test=0.990, validation=0.95, tested=100)
    _finished(runs / "b", "smnist", test=0.980, validation=0.95, tested=100, seed=2)
    _finished(runs / "a" / "x", "smnist", test=0.970, validation=0.95, tested=100, seed=1)
    _finished(runs / "longer", "smnist", test=0.999, validation=0.95, tested=100, seed=3, epochs=99)
    _finished(runs / "other", "psmnist-random", test=0.999, validation=0.95, tested=100)
    for name, test, epochs in (("psmnist-random", 0.96, 5), ("psmnist-random-clock", 0.97, 7)):
        folder = tmp_path / "shipped" / name
        _finished(folder, "psmnist-random", test=test, validation=0.95, tested=100, epochs=epochs)
    _finished(runs / "seed", "psmnist-random", test=0.95, validation=0.95, tested=100, epochs=7, seed=1)
    result = sequential_mnist.run(Workplace("sequential-mnist", 1.0, tmp_path / "elsewhere"))
    assert [(row["seed"], row["run"]) for row in result["seeds"]["smnist"]] == [(0, "smnist"), (1, "a/x"), (2, "b")]
    page = sequential_mnist.page(result)
    assert "| Resofire, shipped | 0.1 | 99.00 |  | 96.00 | 97.00 |  |" in page
    assert "sMNIST 98.00 ± 1.00 (3 seeds), psMNIST, random, clock 96.00 ± 1.41 (2 seeds)." in page
    assert "in points: sMNIST -0.18, psMNIST, random -0.87, psMNIST, random, clock +0.13." in page
