"""Recipes: registered, of the paper's sizes and with its hyperparameters, and fitting their data sets."""

import inspect
import math
from dataclasses import replace

import pytest
import torch

from resofire import data, paper, recipes
from resofire.models import RetrievalConfig, build, shipped
from resofire.nn import PRFConfig, fire_rates
from resofire.paper.recipes import decay
from resofire.recipes import RECIPES, recipe
from resofire.train import RunConfig

SIZES = {
    "listops": 271_890, "text": 830_984, "retrieval": 1_084_168, "pathfinder": 1_258_504, "image": 4_749_328,
    "smnist": 68_876, "psmnist": 68_876, "psmnist-random": 68_876, "fashion": 68_876, "ablation-prf": 86_858,
    "ablation-lif": 85_130, "ablation-lif-no-reset": 85_130, "ablation-plif": 85_130 + 576, "decay": 85_130,
}  # fmt: skip
# The paper's table: depth, channels, pre-norm, dropout, rate, neuron rate, batch, epochs, weight decay, range of Δ.
TABLE = {
    "listops": (8, 128, False, 0.0, 0.005, 0.001, 50, 40, 0.05, (0.001, 0.1)),
    "text": (6, 256, True, 0.0, 0.005, 0.001, 16, 32, 0.05, (0.001, 0.1)),
    "retrieval": (6, 256, True, 0.0, 0.005, 0.001, 32, 20, 0.05, (0.001, 0.1)),
    "image": (6, 512, False, 0.1, 0.005, 0.001, 50, 200, 0.05, (0.001, 0.1)),
    "pathfinder": (6, 256, True, 0.05, 0.005, 0.001, 64, 200, 0.03, (0.001, 0.1)),
}
# The release: the divisor of 2π in the range of θ, τ, and the share of steps to warm up (None: ours).
RELEASE = {
    "listops": (12, 2, 1 / 80), "text": (16, 2, 5 / 50), "retrieval": (14, 2, 5 / 100),
    "image": (0.25, 2, 7.03 / 140.6), "pathfinder": (0.6, 2, 2.5 / 500), "pathx": (10, 100, None),
    "scifar": (None, 4, None), "smnist": (None, 20, 0.05),
}  # fmt: skip
# Classes, channels of values or size of the vocabulary, pairs; by data set.
PIXELS = (10, 1, None, False)
FACTS = {
    **dict.fromkeys(("digits", "smnist", "psmnist-bitrev", "psmnist-random", "fashion", "speech", "image"), PIXELS),
    "listops": (10, None, 18, False), "text": (2, None, 134, False), "retrieval": (2, None, 98, True),
    "films": (2, None, 134, True), "scifar": (10, 3, None, False), "pathfinder": (2, None, 256, False),
    "pathx": (2, None, 256, False),
}  # fmt: skip


def parameters(name):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(RECIPES[name]().model).parameters())


def work(name):
    """Weights times sequences, for a data set of 10,000."""
    config = RECIPES[name]()
    return parameters(name) * (config.epochs * 10_000 if config.steps is None else config.steps * config.batch)


def test_every_recipe_is_a_constant_config_that_fits_its_data_set():
    assert {function().task for function in RECIPES.values()} - {"films"} <= {*data.NAMES}
    for name, function in RECIPES.items():
        config = function()
        assert config.name == name
        assert config == function() == RunConfig.from_json(config.to_json())
        assert config.select == "validation"
        classes, inputs, vocabulary, pairs = FACTS[config.task]
        model = config.model
        if name == "decay" or name.startswith("ablation"):
            assert (model.sizes[-1], model.sizes[0]) == (classes, inputs)
        else:
            assert (model.classes, model.inputs, model.vocabulary) == (classes, inputs, vocabulary), name
        assert isinstance(model, RetrievalConfig) == pairs
        assert inspect.getdoc(function), name


def test_smaller_recipes_are_smaller():
    small = [name for name in RECIPES if name.endswith(("-small", "-medium"))]
    assert len(small) == 17
    for name in small:
        whole = name.rpartition("-")[0]
        one, other = RECIPES[name](), RECIPES[whole]()
        assert one.task == other.task
        assert one.task_settings == ({"shift": 4.0, "mirror": True} if name == "image-medium" else other.task_settings)
        assert work(name) < work(whole)
    for name, depth, epochs in (("image-medium", 6, 20), ("pathfinder-medium", 4, 3)):
        model = RECIPES[name]().model
        assert (model.depth, model.features, model.bidirectional, RECIPES[name]().epochs) == (depth, 128, True, epochs)
        assert parameters(name) <= 400_000
    assert parameters("text-medium") <= 250_000
    assert [RECIPES[name]().model.features for name in ("films", "films-small")] == [128, 64]


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("-sparse")])
def test_sparse_recipes_train_the_shipped_network_on(name):
    whole = name.removesuffix("-sparse")
    config = RECIPES[name]()
    assert config.init == whole
    assert whole in shipped()
    assert 0.03 < config.model.rate_limit < 0.06
    assert replace(config.model, rate_limit=None) == RECIPES[whole]().model
    assert (config.task, config.task_settings) == (RECIPES[whole]().task, RECIPES[whole]().task_settings)


def test_networks_have_the_papers_size():
    assert {name: parameters(name) for name in SIZES} == SIZES


@pytest.mark.parametrize("name", TABLE)
def test_hyperparameters_are_those_of_the_papers_table(name):
    config = RECIPES[f"{name}-paper"]()
    model = config.model
    assert isinstance(model.neuron, PRFConfig)
    settings = (
        model.depth, model.features, model.prenorm, model.dropout, config.lr, config.neuron_lr, config.batch,
        config.epochs, config.weight_decay, model.neuron.delta,
    )  # fmt: skip
    assert settings == TABLE[name]
    assert model.norm == "batch"
    assert model.bidirectional == (name in ("image", "pathfinder"))
    assert (model.neuron.train_delta, model.neuron.train_theta, model.neuron.train_tau) == (True, True, False)
    assert (model.neuron.threshold, model.spatial_threshold, model.amplitude) == (1.0, 0.5, "sn")
    assert config.steps is None


@pytest.mark.parametrize("name", RELEASE)
def test_frequencies_time_constants_and_warm_up_of_the_release(name):
    divisor, tau, warmup = RELEASE[name]
    # The ranges of listops, listops-small and pathfinder-small are our own.
    paper = f"{name}-paper" if name == "listops" else name
    for each in (paper,) if name in ("listops", "pathfinder") else (name, f"{name}-small"):
        neuron = RECIPES[each]().model.neuron
        assert neuron.tau == tau
        if divisor is not None:
            assert neuron.theta == (0.0, pytest.approx(2 * math.pi / divisor))
    if warmup is not None:
        assert RECIPES[paper]().warmup == pytest.approx(warmup, rel=1e-3)


def test_mnist_has_the_wider_range_of_time_steps():
    assert {RECIPES[name]().model.neuron.delta for name in ("smnist", "psmnist", "psmnist-random")} == {(0.01, 1.0)}


def test_a_recipe_of_ones_own(monkeypatch):
    monkeypatch.setattr("resofire.recipes.registry.RECIPES", {**RECIPES})
    registered = recipes.registry.RECIPES

    def digits_long():
        return replace(recipes.digits(), name="digits-long", epochs=600)

    assert recipe(digits_long) is digits_long
    assert registered["digits-long"]().epochs == 600
    recipe(digits_long)

    def digits():
        raise AssertionError

    with pytest.raises(ValueError, match=r"recipe: 'digits' is already registered by resofire.recipes.other.digits"):
        recipe(digits)


def test_the_ablations_are_registered_by_the_paper():
    assert {name for name, function in RECIPES.items() if function.__module__ == paper.recipes.__name__} == {
        "ablation-lif", "ablation-lif-no-reset", "ablation-plif", "ablation-prf", "decay"
    }  # fmt: skip


@pytest.mark.parametrize("beta", [0.1, 0.9, 0.999])
def test_a_decay_is_what_is_left_after_a_step(beta):
    neuron = build(decay(beta, theta=0.0).model).neurons[0]
    re, im, *_ = neuron.coefficients().values()
    torch.testing.assert_close(re, torch.full_like(re, beta))
    assert not im.any()
    assert not list(neuron.parameters())


@pytest.mark.parametrize(("beta", "theta"), [(0.5, 0.0), (0.97, math.pi / 2), (0.99, 0.3)])
def test_initial_weights_of_the_sweep_are_scaled_by_the_norm_of_the_kernel(beta, theta):
    k = torch.arange(5000, dtype=torch.float64)
    norm = torch.linalg.vector_norm(beta**k * torch.cos(k * theta))
    assert decay(beta, theta).model.gain == pytest.approx(3 / float(norm), rel=1e-9)


@pytest.mark.parametrize("beta", [0.0, 1.0, math.nan])
def test_a_decay_out_of_range(beta):
    with pytest.raises(ValueError, match=f"decay: beta must be above 0 and below 1, got {beta}"):
        decay(beta)


@pytest.mark.parametrize("name", [name for name in SIZES if name.startswith("ablation")])
def test_every_layer_of_an_ablation_fires_initially(name):
    torch.manual_seed(0)
    model = build(RECIPES[name]().model)
    with fire_rates(model) as rates, torch.no_grad():
        model((torch.rand(4, 784, 1) < 0.2).float())
    assert all(0.02 < rate < 0.5 for rate in rates.as_dict().values()), rates.as_dict()


def test_data_sets_have_the_facts_above(tmp_path, monkeypatch):
    """Those that need no files."""
    settings = {"listops": {"sizes": (3, 2, 2)}, "pathfinder": {"counts": (3, 2, 2)}}
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path))
    monkeypatch.delenv("RESOFIRE_DATA", raising=False)
    for name in ("digits", *settings):
        task = data.load(name, **settings.get(name, {}))
        assert (task.classes, task.inputs, task.vocabulary) == FACTS[name][:3]
