"""The groups of parameters, by the modules they belong to, and the learning rate at every step."""

import itertools

import pytest
import torch
from torch import nn

from resofire.models import ClassifierConfig, FeedforwardConfig, RetrievalConfig, build
from resofire.nn import LIF, PRF, SDTCM, BatchNorm, LIFConfig, Neuron, PRFConfig, SpatialNeuron
from resofire.train import RunConfig
from resofire.train.optimiser import BETAS, adamw, lr_factor, parameter_groups, set_lr

TRAINED = PRFConfig(train_tau=True)
MODELS = {
    "values": ClassifierConfig(inputs=1, classes=3, features=4, depth=2),
    "one input, one class": ClassifierConfig(inputs=1, classes=1, features=1, depth=1),
    "tokens, both ways, trained tau": ClassifierConfig(
        vocabulary=5, classes=3, features=4, depth=1, neuron=TRAINED, bidirectional=True, amplitude="both"
    ),
    "post-norm, amplitude of the temporal neuron": ClassifierConfig(
        vocabulary=5, classes=3, features=4, depth=1, prenorm=False, amplitude="tn"
    ),
    "LIF": ClassifierConfig(inputs=2, classes=3, features=4, depth=1, neuron=LIFConfig(), norm="none"),
    "PLIF": ClassifierConfig(inputs=2, classes=3, features=4, depth=1, neuron=LIFConfig(train_tau=True)),
    "pairs": RetrievalConfig(vocabulary=5, features=4, depth=1),
    "feedforward, PRF": FeedforwardConfig(sizes=(1, 4, 4, 3), neuron=TRAINED),
    "feedforward, PLIF": FeedforwardConfig(sizes=(1, 4, 3), neuron=LIFConfig(train_tau=True)),
    "no neuron is trained": FeedforwardConfig(sizes=(1, 4, 3), neuron=LIFConfig()),
}


def run(**settings) -> RunConfig:
    return RunConfig(**{"name": "test", "task": "test", "model": MODELS["values"], **settings})


def expected(model: nn.Module) -> dict[str, str]:
    """The group of each parameter, from the module that holds it."""
    group = {}
    for place, module in model.named_modules():
        for name, _ in module.named_parameters(prefix=place, recurse=False):
            if isinstance(module, PRF | LIF | SpatialNeuron | SDTCM):
                group[name] = "neurons"
            elif isinstance(module, BatchNorm | nn.Embedding) or name.endswith(".bias"):
                group[name] = "plain"
            else:
                assert isinstance(module, nn.Linear)
                assert name.endswith(".weight")
                group[name] = "weights"
    return group


def test_every_parameter_is_in_the_one_group_it_belongs_to(subtests):
    for name in MODELS:
        with subtests.test(name):
            model = build(MODELS[name])
            names = {id(parameter): name for name, parameter in model.named_parameters()}
            made = parameter_groups(model, run())
            placed = [(names[id(parameter)], group["name"]) for group in made for parameter in group["params"]]
            assert len(placed) == len(names)
            assert dict(placed) == expected(model)
            assert all(group["params"] for group in made)


def test_neurons_have_their_own_rate_and_only_weights_decay():
    config = run(lr=0.1, neuron_lr=0.02, weight_decay=0.3)
    made = adamw(build(MODELS["tokens, both ways, trained tau"]), config)
    settings = {group["name"]: (group["highest"], group["weight_decay"]) for group in made.param_groups}
    assert settings == {"weights": (0.1, 0.3), "plain": (0.1, 0.0), "neurons": (0.02, 0.0)}
    assert all(group["betas"] == BETAS == (0.9, 0.999) for group in made.param_groups)
    set_lr(made, 0.5)
    assert {group["name"]: group["lr"] for group in made.param_groups} == {
        "weights": 0.05,
        "plain": 0.05,
        "neurons": 0.01,
    }


def test_a_step_without_gradient_shrinks_weights_and_nothing_else():
    model = build(MODELS["tokens, both ways, trained tau"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    made = adamw(model, run(lr=0.1, weight_decay=0.3))
    set_lr(made, 1.0)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    made.step()
    for name, group in expected(model).items():
        share = 1 - 0.1 * 0.3 if group == "weights" else 1.0
        torch.testing.assert_close(model.get_parameter(name).detach(), share * before[name])


class Gated(Neuron):
    """A neuron of the user's own, with a vector, a matrix, and a Linear inside."""

    def __init__(self, features):
        super().__init__(features)
        self.gate = nn.Parameter(torch.zeros(features))
        self.feedback_matrix = nn.Parameter(torch.zeros(features, features))
        self.mix = nn.Linear(features, features)


def test_groups_go_by_module_and_not_by_name():
    model = nn.ModuleDict({"own": Gated(3), "linear": nn.Linear(3, 2)})
    model.linear.register_parameter("log_tau", nn.Parameter(torch.zeros(3)))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    placed = {group["name"]: [names[id(each)] for each in group["params"]] for group in parameter_groups(model, run())}
    assert placed == {
        "weights": ["own.feedback_matrix", "own.mix.weight", "linear.weight"],
        "plain": ["own.mix.bias", "linear.bias", "linear.log_tau"],
        "neurons": ["own.gate"],
    }


def test_an_optimiser_without_highest_rates_keeps_its_own():
    made = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    for factor in (0.1, 0.2):
        set_lr(made, factor)
        assert made.param_groups[0]["lr"] == 0.5 * factor


@pytest.mark.parametrize("warmup", [0.0, 0.005, 0.5, 1.0])
def test_the_rate_rises_linearly_to_one_and_falls_along_a_cosine(warmup):
    for steps, final in itertools.product((1, 2, 7, 1999), (0.0, 0.1, 1.0)):
        rates = [lr_factor(step, steps, run(warmup=warmup, final_lr=final)) for step in range(steps)]
        rising = round(warmup * steps)
        assert max(rates) == 1.0
        assert min(rates) > 0
        assert rates[:rising] == sorted(rates[:rising])
        falling = rates[rising:]
        assert falling == sorted(falling, reverse=True)
        # Half way down a cosine is half way between its ends.
        if falling and len(falling) % 2 == 0:
            assert falling[len(falling) // 2] == pytest.approx((1 + final) / 2)


def test_the_rate_at_some_steps():
    assert lr_factor(0, 1000, run(warmup=0.0)) == 1.0 > lr_factor(1, 1000, run(warmup=0.0))
    assert [lr_factor(step, 10, run(warmup=1.0)) for step in range(10)] == pytest.approx(
        [0.1 * n for n in range(1, 11)]
    )
    assert lr_factor(9_999, 10_000, run(warmup=0.05, final_lr=0.1)) == pytest.approx(0.1, abs=1e-6)
    assert lr_factor(10_000, 10_000, run(warmup=0.05, final_lr=0.1)) == pytest.approx(0.1, abs=1e-12)
