"""AdamW's groups, by what each parameter is in its module, and the learning rate at every step."""

import math

import pytest
import torch
from torch import nn

from resofire.models import ClassifierConfig, FeedforwardConfig, RetrievalConfig, build
from resofire.nn import LIF, PRF, SDTCM, BatchNorm, LIFConfig, PRFConfig, SpatialNeuron
from resofire.train import RunConfig
from resofire.train.optimiser import BETAS, groups, optimiser, rate, set_rate

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


def wanted(model: nn.Module) -> dict[str, str]:
    """The group of each parameter, from the module that holds it."""
    found = {}
    for place, module in model.named_modules():
        for name, _ in module.named_parameters(prefix=place, recurse=False):
            if isinstance(module, PRF | LIF | SpatialNeuron | SDTCM):
                found[name] = "neurons"
            elif isinstance(module, BatchNorm | nn.Embedding) or name.endswith(".bias"):
                found[name] = "plain"
            else:
                assert isinstance(module, nn.Linear)
                assert name.endswith(".weight")
                found[name] = "weights"
    return found


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_is_in_the_one_group_it_belongs_to(name):
    model = build(MODELS[name])
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    made = groups(model, run())
    placed = [(names[id(parameter)], group["name"]) for group in made for parameter in group["params"]]
    assert len(placed) == len(names)
    assert dict(placed) == wanted(model)
    assert all(group["params"] for group in made)


def test_neurons_have_their_own_rate_and_only_weights_decay():
    config = run(lr=0.1, neuron_lr=0.02, weight_decay=0.3)
    made = optimiser(build(MODELS["tokens, both ways, trained tau"]), config)
    told = {group["name"]: (group["highest"], group["weight_decay"]) for group in made.param_groups}
    assert told == {"weights": (0.1, 0.3), "plain": (0.1, 0.0), "neurons": (0.02, 0.0)}
    assert all(group["betas"] == BETAS == (0.9, 0.999) for group in made.param_groups)
    set_rate(made, 0.5)
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
    made = optimiser(model, run(lr=0.1, weight_decay=0.3))
    set_rate(made, 1.0)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    made.step()
    for name, group in wanted(model).items():
        share = 1 - 0.1 * 0.3 if group == "weights" else 1.0
        torch.testing.assert_close(model.get_parameter(name).detach(), share * before[name])


@pytest.mark.parametrize("steps", [1, 2, 7, 100, 1999])
@pytest.mark.parametrize("warmup", [0.0, 0.005, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("final", [0.0, 0.1, 1.0])
def test_the_rate_rises_along_a_line_to_one_and_falls_along_a_cosine(steps, warmup, final):
    config = run(warmup=warmup, final_lr=final)
    rates = [rate(step, steps, config) for step in range(steps)]
    rising = round(warmup * steps)
    assert rates[:rising] == pytest.approx([(step + 1) / rising for step in range(rising)])
    falling = rates[rising:]
    for place, found in enumerate(falling):
        cosine = math.cos(math.pi * place / len(falling))
        assert found == pytest.approx(final + (1 - final) * (1 + cosine) / 2)
    assert max(rates) == 1.0
    assert falling == sorted(falling, reverse=True)
    assert min(rates) > 0


def test_without_warm_up_the_first_step_is_the_highest():
    assert rate(0, 1000, run(warmup=0.0)) == 1.0
    assert rate(1, 1000, run(warmup=0.0)) < 1.0


def test_warm_up_to_the_end_reaches_the_highest_in_the_last_step():
    rates = [rate(step, 10, run(warmup=1.0)) for step in range(10)]
    assert rates == pytest.approx([0.1 * step for step in range(1, 11)])


def test_the_last_step_comes_close_to_the_final_rate():
    assert rate(9_999, 10_000, run(warmup=0.05, final_lr=0.1)) == pytest.approx(0.1, abs=1e-6)
    assert rate(10_000, 10_000, run(warmup=0.05, final_lr=0.1)) == pytest.approx(0.1, abs=1e-12)
