"""Recipes: all are there, of the paper's sizes and with its hyperparameters, and each fits its data set."""

import inspect
import math

import pytest
import torch

from resofire import data, recipes
from resofire.data import cifar, idx, speech
from resofire.models import FeedforwardConfig, RetrievalConfig, build
from resofire.nn import PRFConfig, fire_rates
from resofire.recipes import RECIPES
from resofire.train import RunConfig

NAMES = (
    "digits", "smnist", "psmnist", "fashion", "speech", "listops", "text", "retrieval", "image", "scifar",
    "pathfinder", "pathx",
)  # fmt: skip
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
# What the release divides 2π by for the end of θ's range, its τ, and its share of steps to warm up.
THETA = {"listops": 12, "text": 16, "retrieval": 14, "image": 0.25, "pathfinder": 0.6, "pathx": 10}
TAU = {"listops": 2, "text": 2, "retrieval": 2, "image": 2, "pathfinder": 2, "pathx": 100, "scifar": 4}
WARMUP = {"listops": 1 / 80, "text": 5 / 50, "retrieval": 5 / 100, "image": 7.03 / 140.6, "pathfinder": 2.5 / 500,
          "smnist": 8.43 / 168.6}  # fmt: skip
# Classes, channels of values or size of the vocabulary, pairs; by data set.
FACTS = {
    "digits": (10, 1, None, False), "smnist": (10, 1, None, False), "psmnist-bitrev": (10, 1, None, False),
    "psmnist-random": (10, 1, None, False), "fashion": (10, 1, None, False), "speech": (10, 1, None, False),
    "listops": (10, None, 18, False), "text": (2, None, 134, False), "retrieval": (2, None, 98, True),
    "image": (10, 1, None, False), "scifar": (10, 3, None, False), "pathfinder": (2, None, 256, False),
    "pathx": (2, None, 256, False),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_task_has_a_recipe_and_a_smaller_one(name):
    large, small = RECIPES[name](), RECIPES[f"{name}-small"]()
    assert small.task == large.task
    assert small.task_settings == large.task_settings
    assert _work(small) < _work(large)


def _work(config: RunConfig) -> float:
    """Weights times sequences, for a data set of 10,000."""
    with torch.device("meta"):
        weights = sum(parameter.numel() for parameter in build(config.model).parameters())
    return weights * (config.epochs * 10_000 if config.steps is None else config.steps * config.batch)


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("-small")])
def test_a_smaller_recipe_says_what_is_smaller(name):
    assert inspect.getdoc(RECIPES[name])
    assert name.removesuffix("-small") in RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_its_name_and_is_the_same_each_time(name):
    function = RECIPES[name]
    assert getattr(recipes, function.__name__) is function
    assert function.__name__ in recipes.__all__
    config = function()
    assert config.name == name
    assert config == function()
    assert config.select == "validation"
    assert RunConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("name", SIZES)
def test_networks_have_the_papers_size(name):
    with torch.device("meta"):
        model = build(RECIPES[name]().model)
    assert sum(parameter.numel() for parameter in model.parameters()) == SIZES[name]


@pytest.mark.parametrize("name", TABLE)
def test_hyperparameters_are_those_of_the_papers_table(name):
    config = RECIPES[name]()
    model = config.model
    assert isinstance(model.neuron, PRFConfig)
    found = (
        model.depth, model.features, model.prenorm, model.dropout, config.lr, config.neuron_lr, config.batch,
        config.epochs, config.weight_decay, model.neuron.delta,
    )  # fmt: skip
    assert found == TABLE[name]
    assert model.norm == "batch"
    assert model.bidirectional == (name in ("image", "pathfinder"))
    assert (model.neuron.train_delta, model.neuron.train_theta, model.neuron.train_tau) == (True, True, False)
    assert (model.neuron.threshold, model.spatial_threshold, model.amplitude) == (1.0, 0.5, "sn")
    assert config.steps is None


@pytest.mark.parametrize("name", THETA)
def test_frequencies_are_those_of_the_release(name):
    for each in (name, f"{name}-small"):
        assert RECIPES[each]().model.neuron.theta == (0.0, pytest.approx(2 * math.pi / THETA[name]))


@pytest.mark.parametrize("name", TAU)
def test_time_constants_are_those_of_the_release(name):
    for each in (name, f"{name}-small"):
        assert RECIPES[each]().model.neuron.tau == TAU[name]


@pytest.mark.parametrize("name", WARMUP)
def test_warm_up_is_that_of_the_release(name):
    assert RECIPES[name]().warmup == pytest.approx(WARMUP[name], rel=1e-3)


@pytest.mark.parametrize("name", ["smnist", "psmnist", "psmnist-random"])
def test_mnist_has_the_wider_range_of_time_steps(name):
    assert RECIPES[name]().model.neuron.delta == (0.01, 1.0)


@pytest.mark.parametrize("name", RECIPES)
def test_a_network_fits_its_data_set(name):
    config = RECIPES[name]()
    assert config.task in data.NAMES
    classes, inputs, vocabulary, pairs = FACTS[config.task]
    model = config.model
    if isinstance(model, FeedforwardConfig):
        assert (model.sizes[-1], model.sizes[0], None, False) == FACTS[config.task]
        return
    assert (model.classes, model.inputs, model.vocabulary) == (classes, inputs, vocabulary)
    assert isinstance(model, RetrievalConfig) == pairs


@pytest.mark.parametrize("beta", [0.1, 0.9, 0.999])
def test_a_decay_is_what_is_left_after_a_step(beta):
    neuron = build(recipes.decay(beta, theta=0.0).model).neurons[0]
    re, im, *_ = neuron.coefficients().values()
    torch.testing.assert_close(re, torch.full_like(re, beta))
    assert not im.any()
    assert not list(neuron.parameters())


@pytest.mark.parametrize(("beta", "theta"), [(0.5, 0.0), (0.97, math.pi / 2), (0.99, 0.3)])
def test_first_weights_of_the_sweep_go_by_the_norm_of_the_kernel(beta, theta):
    k = torch.arange(5000, dtype=torch.float64)
    norm = torch.linalg.vector_norm(beta**k * torch.cos(k * theta))
    assert recipes.decay(beta, theta).model.gain == pytest.approx(3 / float(norm), rel=1e-9)


@pytest.mark.parametrize("beta", [0.0, 1.0, -0.5, math.nan])
def test_a_decay_that_is_none(beta):
    with pytest.raises(ValueError, match=f"decay: beta must be above 0 and below 1, got {beta}"):
        recipes.decay(beta)


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("ablation")])
def test_every_layer_of_an_ablation_fires_at_first(name):
    torch.manual_seed(0)
    model = build(RECIPES[name]().model)
    with fire_rates(model) as rates, torch.no_grad():
        model((torch.rand(4, 784, 1) < 0.2).float())
    assert all(0.02 < rate < 0.5 for rate in rates.as_dict().values()), rates.as_dict()


def test_the_files_of_data_sets_say_the_same():
    for module, names in ((idx, ("smnist", "fashion")), (cifar, ("image", "scifar")), (speech, ("speech",))):
        assert {FACTS[name][0] for name in names} == {module.CLASSES}


def test_sets_that_need_no_files_fit_their_recipes(tmp_path, monkeypatch):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path))
    monkeypatch.delenv("RESOFIRE_DATA", raising=False)
    made = {
        "digits": data.load("digits"),
        "listops": data.load("listops", sizes=(3, 2, 2)),
        "pathfinder": data.load("pathfinder", counts=(3, 2, 2)),
    }
    for name, task in made.items():
        model = RECIPES[name]().model
        assert (task.classes, task.inputs, task.vocabulary) == (model.classes, model.inputs, model.vocabulary)
