"""The networks of the paper's table of neurons: their sizes, and that they run, are saved and are counted."""

import pytest
import torch

from resofire.deploy import FoldError, fold
from resofire.measure import count_ops
from resofire.models import load, save
from resofire.models.baselines.neuron_table import NEURON_TABLE, FeedbackConfig
from resofire.nn import LIF, fire_rates
from resofire.recipes import smnist

# Biases of the feedback on layers of 64 and 256, which the paper counts and ours leave out.
FEEDBACK_BIASES = 64 + 256
# Thousands of parameters in the paper's table, and what ours differ by.
PAPER = {
    "lif": (85.1, 0), "plif": (85.1, 0), "tclif": (85.1, 0), "lif-recurrent": (155.1, FEEDBACK_BIASES),
    "plif-recurrent": (155.1, FEEDBACK_BIASES), "tclif-recurrent": (155.1, FEEDBACK_BIASES),
    # Its read-out has two trained constants for each of ten neurons, ours none.
    "alif-recurrent": (156.3, FEEDBACK_BIASES + 20), "ahp-recurrent": (68.4, 0), "bhrf-recurrent": (68.9, 0),
}  # fmt: skip


def parameters(config):
    with torch.device("meta"):
        return sum(value.numel() for value in config.build().parameters())


@pytest.mark.parametrize("name", PAPER)
def test_the_sizes_are_the_paper_s(name):
    published, difference = PAPER[name]
    assert round((parameters(NEURON_TABLE[name]) + difference) / 1000, 1) == published


def test_glif_trains_eight_constants_of_each_neuron():
    """The paper's 87.5k and 157.5k have about four."""
    assert parameters(NEURON_TABLE["glif"]) == parameters(NEURON_TABLE["lif"]) + 8 * 576
    assert parameters(NEURON_TABLE["glif-recurrent"]) == parameters(NEURON_TABLE["lif-recurrent"]) + 8 * 576


def test_the_paper_s_own_network_is_the_recipe_and_the_plain_prf_has_87k():
    assert parameters(smnist().model) == 68_876
    assert parameters(NEURON_TABLE["prf"]) == 86_858


@pytest.mark.parametrize("name", NEURON_TABLE)
def test_every_network_runs_counts_and_is_saved(name, tmp_path):
    torch.manual_seed(0)
    model, x = NEURON_TABLE[name].build().eval(), torch.rand(2, 5, 1)
    with torch.no_grad(), fire_rates(model) as rates:
        logits = model(x, lengths=torch.tensor([5, 3]))
        torch.testing.assert_close(logits[1:], model(x[1:, :3]))
    feedback = sum(part.ac for part in count_ops(model, (5, 1), dict.fromkeys(rates.as_dict(), 0.25))
                   if part.layer.endswith(".feedback"))  # fmt: skip
    expected = {"ahp-recurrent": 64 * 256, "bhrf-recurrent": 64 * 256}
    assert feedback == expected.get(name, 16 * 64 + 64 * 256 if "recurrent" in name else 0)
    save(model, tmp_path)
    with torch.no_grad():
        assert torch.equal(load(tmp_path)(x, lengths=torch.tensor([5, 3])), logits)


def test_feedback_acts_on_the_chosen_layers_only():
    config = FeedbackConfig(sizes=(1, 4, 4, 2), neuron=LIF, gain=5.0, feedback=(False, True))
    model = config.build()
    assert [type(neuron).__name__ for neuron in model.neurons] == ["LIF", "Recurrent"]
    with pytest.raises(FoldError, match="Feedback cannot be folded: a network with feedback cannot be folded"):
        fold(model)
    with pytest.raises(ValueError, match="feedback must be 2 of True or False, one for each layer of neurons, got"):
        FeedbackConfig(sizes=(1, 4, 4, 2), feedback=(True,))
