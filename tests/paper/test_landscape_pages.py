"""Loss landscapes and the gradient as an inner product: each number computed in another way."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from resofire import data, paper
from resofire.models import FeedforwardConfig, build
from resofire.paper import kernel_gradient, loss_landscape
from resofire.paper.recipes import decay

THETAS = pytest.mark.parametrize("theta", [0.0, math.pi / 2, 0.3], ids=["plain", "quarter", "slow turn"])
AT = np.linspace(-1, 1, 9)


def small(beta, theta):
    config = decay(beta, theta)
    assert isinstance(config.model, FeedforwardConfig)
    return replace(config, model=replace(config.model, sizes=(1, 6, 8, 7, 10)))


def network(theta=math.pi / 2, beta=0.97):
    torch.manual_seed(0)
    return build(small(beta, theta).model)


def some(count=12, **how):
    batch = next(data.load("digits")["train"].batches(count))
    return data.Batch(batch.x.to(**how), batch.labels, None)


def test_a_direction_has_the_rows_norms_of_the_weights_and_one_draw_for_all():
    first, second = network(), network()
    for linear in second.linears:
        linear.weight.data *= torch.rand(len(linear.weight), 1) + 0.5
    found = [loss_landscape.direction(model, seed=3) for model in (first, second)]
    for model, along in zip((first, second), found, strict=True):
        for linear, drawn in zip(model.linears, along, strict=True):
            for weights, row in zip(linear.weight, drawn, strict=True):
                assert math.isclose(math.hypot(*row.tolist()), math.hypot(*weights.tolist()), rel_tol=1e-5)
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a / a.norm(dim=1, keepdim=True), b / b.norm(dim=1, keepdim=True))
    assert not torch.equal(found[0][1], loss_landscape.direction(first, seed=4)[1])


def test_a_surface_holds_the_losses_of_moved_weights():
    model, batch = network(), some()
    along = [loss_landscape.direction(model, seed) for seed in (0, 1)]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    losses = loss_landscape.surface(model, [data.Batch(batch.x[:5], batch.labels[:5], None),
                                            data.Batch(batch.x[5:], batch.labels[5:], None)], along, 5)  # fmt: skip
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for row, column in ((2, 2), (0, 3), (4, 1)):
        other = network()
        for linear, first, second in zip(other.linears, *along, strict=True):
            linear.weight.data += (column / 2 - 1) * first + (row / 2 - 1) * second
        target = cross_entropy(other(batch.x), batch.labels).item()
        assert losses[row][column] == pytest.approx(target, rel=1e-5)
    assert len({loss for row in losses for loss in row}) > 10


def test_smoothness_of_surfaces_with_known_numbers():
    x, y = np.meshgrid(AT, AT)
    step = AT[1] - AT[0]
    plane = loss_landscape.smoothness(3 * x - 4 * y, step)
    assert plane == pytest.approx({"range": 14, "slope": 5, "roughness": 0, "not_quadratic": 0, "minima": 0})
    bowl = loss_landscape.smoothness(x * x + y * y, step)
    # Second differences of x² are 2 h², and the bowl is 2 high.
    assert bowl["roughness"] == pytest.approx(step**2)
    assert bowl["not_quadratic"] == pytest.approx(0, abs=1e-12)
    assert bowl["minima"] == 1
    wells = loss_landscape.smoothness((x * x - 0.25) ** 2 + y * y, step)
    assert wells["minima"] == 2
    assert wells["not_quadratic"] > 0.01
    noisy = loss_landscape.smoothness(x * x + y * y + np.random.RandomState(0).normal(0, 0.1, x.shape), step)
    assert noisy["roughness"] > 1.5 * bowl["roughness"]
    assert set(loss_landscape.smoothness(np.ones((5, 5)), 0.5).values()) == {0}


def test_the_landscape_page_says_what_its_numbers_say():
    def surface(slope, rough, left, minima=1):
        return {"range": 1.0, "slope": slope, "roughness": rough, "not_quadratic": left, "minima": minima}

    as_claimed = {
        "fast": surface(0.1, 0.3, 0.3), "moderate": surface(1, 0.2, 0.2, 3), "slow": surface(2, 0.4, 0.4),
        "resonate": surface(1, 0.1, 0.1),
    }  # fmt: skip
    against = {
        "fast": surface(3, 0.1, 0.1), "moderate": surface(1, 0.5, 0.2), "slow": surface(2, 0.4, 0.4),
        "resonate": surface(1, 0.3, 0.3),
    }  # fmt: skip

    def page(*planes, resonate=0.9):
        shares = {**dict.fromkeys(loss_landscape.CASES, 0.9), "resonate": resonate}
        cases = {
            label: {
                "beta": 0.5, "theta": 0.0, "accuracy": {"test": shares[label]}, "tested": 10, "trained_loss": 1.0,
                "numbers": [plane[label] for plane in planes],
            }
            for label in loss_landscape.CASES
        }  # fmt: skip
        return loss_landscape.page({
            "steps": 5, "epochs": 0.1, "batch": 64, "planes": len(planes), "side": 5, "images": 16, "radius": 1.0,
            "weights": 9, "cases": cases,
        })  # fmt: skip

    assert page(as_claimed).count("| yes |") == len(loss_landscape.CLAIMS)
    assert page(against).count("| no |") == len(loss_landscape.CLAIMS)
    assert page(as_claimed, against).count("| in 1 of 2 planes |") == len(loss_landscape.CLAIMS)
    assert "Below 50 %" not in page(as_claimed)
    assert "Below 50 % at this budget: resonate." in page(as_claimed, resonate=0.2)
    assert "none are confirmed in every plane and none are confirmed in none" in page(as_claimed, against)


@THETAS
def test_the_kernel_is_the_answer_to_one_spike(theta):
    neuron = network(theta).neurons[1].double()
    one = torch.zeros(1, 50, 8, dtype=torch.float64)
    one[:, 0] = 1.0
    torch.testing.assert_close(kernel_gradient.response(neuron, 50), neuron.trace(one).u[0, :, 3])


@THETAS
def test_the_inner_product_is_the_slope_of_the_last_potential(theta):
    """Against a difference quotient, exact as the potential is linear in the weights; and against autograd."""
    model, batch = network(theta).double(), some(dtype=torch.float64)
    spikes = model.neurons[0](model.linears[0](batch.x)).detach()
    linear, neuron = model.linears[1], model.neurons[1]
    expected = kernel_gradient.past(kernel_gradient.response(neuron, spikes.shape[1]))[-1] @ spikes
    before = neuron.trace(linear(spikes)).u[:, -1, 5]
    with torch.no_grad():
        linear.weight[5, 2] += 1.0
    torch.testing.assert_close(neuron.trace(linear(spikes)).u[:, -1, 5] - before, expected[:, 2])
    found = kernel_gradient.agreement(model, batch)
    assert found["last_potential"] < 1e-12
    assert found["loss"] < 1e-12
    assert found["as_printed"] > 0.01
    assert found["last_step_only"] < 0.999


def test_the_gradient_of_the_loss_is_that_of_the_whole_network():
    model, batch = network().double(), some(dtype=torch.float64)
    spikes = model.neurons[1](model.linears[1](model.neurons[0](model.linears[0](batch.x))))
    torch.testing.assert_close(kernel_gradient._above(model, spikes), model(batch.x))


@THETAS
def test_moved_trains_against_a_roll(theta):
    kernel = kernel_gradient.response(network(theta).neurons[1], 30).numpy()
    trains = np.random.RandomState(0).rand(4, 30) < 0.2
    found = kernel_gradient.moved(torch.from_numpy(kernel), torch.from_numpy(trains).double()).numpy()
    for row, train in enumerate(trains):
        for by in range(30):
            assert found[row, by] == pytest.approx(np.roll(train, -by)[::-1] @ kernel, abs=1e-12)


def test_trains_without_a_spike_are_left_out():
    kernel, trains = 0.5 ** torch.arange(12).double(), torch.zeros(4, 12).double()
    trains[0, 11], trains[1, 8] = 1.0, 1.0
    found = kernel_gradient._inner_products(kernel, trains)
    assert found["silent"] == 0.5
    assert found["vanished"] == 0.0
    assert found["sizes"][0] == 0.125
    assert found["sizes"][-1] == 1.0
    silent = kernel_gradient._inner_products(kernel, torch.zeros(4, 12).double())
    assert set(silent) == set(found)


def test_surfaces_are_kept_and_the_trainings_shared(digits, tmp_path, monkeypatch):
    def made(name):
        page = paper.reproduce(name, tmp_path / "out", 1e-4, runs=tmp_path / "runs")
        return json.loads(page.with_suffix(".json").read_text())

    monkeypatch.setattr("resofire.paper.decay.decay", small)
    first = made("loss-landscape")
    monkeypatch.setattr("resofire.train.completion.train", None)
    monkeypatch.setattr(loss_landscape, "surface", None)
    assert made("loss-landscape") == first
    assert made("kernel-gradient")["steps"] == first["steps"]
    assert first["side"] ** 2 == np.size(first["cases"]["slow"]["surfaces"][0])
