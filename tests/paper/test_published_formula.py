"""The paper's formula for any network of SD-TCM blocks."""

import pytest
import torch

from resofire.data import Batch
from resofire.measure import measure
from resofire.models import ClassifierConfig, FeedforwardConfig
from resofire.paper.published import TASKS, as_published, compare_published, report_convention


@pytest.mark.parametrize("number", range(len(TASKS)), ids=[task.name for task in TASKS])
def test_the_papers_rates_give_the_papers_formula(number):
    task, compared = TASKS[number], compare_published()[number]
    layers = {f"encoder.blocks.{i}.token_neuron": float(rate) / 100 for i, rate in enumerate(task.temporal)}
    layers |= {f"encoder.blocks.{i}.channel_neuron": float(rate) / 100 for i, rate in enumerate(task.spatial)}
    measured = {
        "rates": {"layers": layers}, "network": {"widths": task.widths, "neuron": "PRF"},
        "length": {"value": task.length}, "peers": {"s4": {}, "transformer": {}},
    }  # fmt: skip
    result = as_published(measured)
    assert result["mJ_per_inference"] == pytest.approx(compared["energy"]["formula"], rel=1e-9)
    assert list(result["peers"]) == ["s4"]
    assert "S4-LegS" in report_convention(result)


def test_networks_without_a_formula_have_none():
    batch = Batch(torch.randn(2, 9, 2), torch.zeros(2), None)
    plain = FeedforwardConfig(sizes=(2, 4, 3)).build()
    assert as_published(measure(plain, [batch])) is None
    both = ClassifierConfig(inputs=2, classes=3, features=4, depth=2, bidirectional=True).build()
    assert as_published(measure(both, [batch]))["mJ_per_inference"] > 0
