"""SD-TCM without a spatial neuron, and settings that came after networks had been saved."""

import copy

import numpy as np
import pytest
import torch

from resofire.deploy import fold
from resofire.deploy.reference import run
from resofire.measure import count_ops
from resofire.models import ClassifierConfig, load, save
from resofire.models.storage import to_json
from resofire.nn import DRF, PRF, SDTCM, PRFConfig, fire_rates

QUICK = PRFConfig(delta=(0.1, 0.5), threshold=0.5)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_block_with_identity_is_its_equation(order):
    torch.manual_seed(0)
    block = SDTCM(6, neuron=QUICK, prenorm=order == "pre", amplitude="tn", spatial="identity").double()
    u = 2 * torch.randn(2, 30, 6, dtype=torch.float64)
    out = block(u)
    spikes = block.token_neuron(block.norm(u) if order == "pre" else u)
    assert 0.01 < spikes.mean() < 0.6
    r = u + spikes @ block.token_linear.weight.T + block.token_linear.bias
    torch.testing.assert_close(out, r if order == "pre" else block.norm(r))
    assert block.why_not_fused(u) == "it has no spatial neuron"
    assert not [name for name in block.state_dict() if name.startswith("channel")]


@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_network_of_them_saves_streams_folds_and_counts(order, tmp_path):
    torch.manual_seed(1)
    config = ClassifierConfig(
        inputs=2, classes=3, features=8, depth=2, neuron=QUICK, prenorm=order == "pre", spatial="identity"
    )
    model, x = config.build().double(), torch.randn(1, 40, 2, dtype=torch.float64)
    with fire_rates(model) as rates:
        model(x).sum().backward()
    assert set(rates.as_dict()) == {f"encoder.blocks.{i}.token_neuron" for i in range(2)}
    assert all(value.grad is not None for value in model.parameters())
    save(model.eval(), tmp_path)
    again = load(tmp_path)
    assert again.config == config
    expected = again(x)
    state = None
    for t in range(40):
        logits, state = again.step(x[:, t], state)
    torch.testing.assert_close(logits, expected)
    folded = fold(again)
    assert len(folded.layers) == 2
    np.testing.assert_allclose(run(folded, x[0].numpy()).scores, expected[0].detach().numpy(), rtol=1e-9)
    components = count_ops(model, (40, 2), rates.as_dict()).components()
    assert "token linear" in components
    assert "spatial neuron" not in components
    assert "channel linear" not in components


class Tuned(PRF):
    pass


def test_several_resonators_from_the_prf_and_its_config(subtests):
    config = PRFConfig(resonators=3, history=2, gain="unit", evenly_spaced=True, train_delta=False)
    neuron = config.build(4)
    assert isinstance(neuron, DRF)
    assert neuron.states == ("u1", "r1", "u2", "r2", "u3", "r3", "o1", "o2")
    assert {name for name, _ in neuron.named_parameters()} == {"log_theta", "mix", "adaptation"}
    assert type(PRFConfig().build(4)) is type(PRF(4)) is type(copy.deepcopy(PRF(4))) is PRF
    torch.manual_seed(0)
    first = PRF(4, resonators=3, history=2)
    torch.manual_seed(0)
    second = PRFConfig(resonators=3, history=2).build(4)
    assert repr(first) == repr(second)
    assert all(torch.equal(*pair) for pair in zip(first.parameters(), second.parameters(), strict=True))
    for call, message in (
        (
            lambda: PRFConfig(resonators=2, reset="soft").build(3),
            "PRF: reset must be 'none' with resonators or history",
        ),
        (lambda: PRF(3, resonators=2, reset="soft"), "PRF: reset must be 'none' with resonators or history"),
        (lambda: PRF(3, resonators=0), "DRF: resonators must be a positive integer, got 0"),
        (lambda: PRF(3, history=-1), "DRF: history must be an integer of at least 0, got -1"),
        (lambda: Tuned(3, resonators=2), "Tuned: resonators must be 1 in a subclass of PRF, got 2; see nn.DRF"),
        (lambda: SDTCM(3, spatial="none"), "SDTCM: spatial must be one of 'neuron', 'identity'"),
    ):
        with subtests.test(message), pytest.raises(ValueError, match=message):
            call()


def test_settings_added_later_are_written_only_where_they_differ():
    saved = to_json(ClassifierConfig(inputs=1, classes=2, features=3, depth=1))
    assert not {"spatial"} & set(saved)
    assert not {"resonators", "history"} & set(saved["neuron"])
    neuron = PRFConfig(resonators=2)
    saved = to_json(ClassifierConfig(inputs=1, classes=2, features=3, depth=1, spatial="identity", neuron=neuron))
    assert (saved["spatial"], saved["neuron"]["resonators"]) == ("identity", 2)
