"""The baselines: against NumPy step by step, packed and padded, gradients, files, fire rates, operation counts."""

import copy
import subprocess
import sys

import numpy as np
import numpy_blocks
import pytest
import torch

from resofire.data import Batch
from resofire.measure import count_ops, measure
from resofire.models import ClassifierConfig, load, save
from resofire.models.baselines import (
    BinaryS4DConfig,
    ELMConfig,
    GSUConfig,
    S4DConfig,
    SpikingLMUConfig,
    SpikingSSMConfig,
    StochasticS4Config,
    TransformerConfig,
)
from resofire.models.baselines.s4d import dropped
from resofire.models.baselines.spiking_ssm import SDN, carried
from resofire.models.baselines.state_space import StateSpace, legs_frequencies
from resofire.nn import BatchNorm, fire_rates

SMALL = {"states": 6}
# A config of every block and its definition in NumPy.
BLOCKS = {
    "s4d": (S4DConfig(**SMALL), numpy_blocks.s4d),
    "s4d, both ways": (S4DConfig(**SMALL, init="lin", bidirectional=True), numpy_blocks.s4d),
    "binary-s4d": (BinaryS4DConfig(**SMALL), numpy_blocks.binary_s4d),
    "gsu": (GSUConfig(**SMALL), numpy_blocks.gsu),
    "stochastic-s4": (StochasticS4Config(**SMALL), None),
    "spiking-ssm": (SpikingSSMConfig(**SMALL), numpy_blocks.spiking_ssm),
    "spiking-lmu": (SpikingLMUConfig(memory=3, window=12.0), numpy_blocks.spiking_lmu),
    "elm": (ELMConfig(longest=50.0), numpy_blocks.elm),
    "transformer": (TransformerConfig(heads=2), numpy_blocks.transformer),
    "transformer, both ways": (TransformerConfig(heads=2, bidirectional=True), numpy_blocks.transformer),
}
SPIKING = ("binary-s4d", "gsu", "stochastic-s4", "spiking-ssm", "spiking-lmu")
FEATURES = 4


def built(name, features=FEATURES):
    """A block in float64 with norms and parameters that are not at their initial values."""
    torch.manual_seed(1)
    block = BLOCKS[name][0].build(features).double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        for module in block.modules():
            if isinstance(module, BatchNorm):
                # Potentials around the threshold.
                module.bias += 0.5
        for _ in range(20):
            block(2 * torch.randn(2, 30, features, dtype=torch.float64) - 1)
    return block.eval()


def network(name, **settings):
    torch.manual_seed(2)
    return ClassifierConfig(inputs=1, classes=3, features=8, depth=2, block=BLOCKS[name][0], **settings).build()


def every(names):
    return pytest.mark.parametrize("name", names, ids=lambda name: name.replace(", ", "-").replace(" ", "-"))


@pytest.mark.parametrize("length", [1, 2, 37])
@every([name for name, (_, definition) in BLOCKS.items() if definition])
def test_a_block_equals_its_equations(name, length):
    block, u = built(name), torch.randn(2, length, FEATURES, dtype=torch.float64)
    expected = np.stack([BLOCKS[name][1](block, row.numpy()) for row in u])
    with torch.no_grad(), fire_rates(block) as rates:
        out = block(u)
    np.testing.assert_allclose(out.numpy(), expected, rtol=0, atol=1e-9)
    if name in SPIKING and length > 2:
        # Otherwise silent or saturated neurons are all that was compared.
        assert all(0.02 < rate < 0.98 for rate in rates.as_dict().values())


def test_stochastic_spikes_have_their_probabilities_and_evaluation_is_reproducible():
    block, u = built("stochastic-s4"), torch.rand(2, 20, FEATURES, dtype=torch.float64)
    table = torch.rand(20, FEATURES, generator=torch.Generator().manual_seed(int(block.neuron.seed)))
    expected = [numpy_blocks.stochastic_s4(block, row.numpy(), table.double().numpy()) for row in u]
    with torch.no_grad():
        np.testing.assert_allclose(block(u).numpy(), np.stack(expected), rtol=0, atol=1e-9)
    probability = torch.tensor([-0.5, 0.0, 0.2, 0.7, 1.0, 1.5])
    y = probability.repeat(1, 20_000, 1).requires_grad_()
    spikes = block.neuron.train()(y)
    spikes.sum().backward()
    expected = probability.clamp(0, 1)
    # Five standard errors.
    assert ((spikes.mean((0, 1)) - expected).abs() <= 5 * (expected * (1 - expected) / 20_000).sqrt()).all()
    assert y.grad[0, 0].tolist() == [0, 0, 1, 1, 0, 0]


def test_the_surrogate_dynamic_network_follows_a_hard_reset():
    """The shipped weights: on noise of other sizes too, most spikes are those of the LIF."""
    for size in (0.5, 1.0, 2.0):
        x = size * torch.randn(16, 300, 3, generator=torch.Generator().manual_seed(5))
        exact, predicted = carried(x), SDN()(x)
        spikes = numpy_blocks.hard_lif(x[0].double().numpy(), 0.125)
        assert ((x + exact >= 1)[0].numpy() == spikes).mean() > 0.9999
        assert (exact - predicted).pow(2).mean() < 0.3 * exact.var()
        assert ((x + exact >= 1) == (x + predicted >= 1)).float().mean() > 0.985


def test_spiking_ssm_trains_through_the_sdn_and_is_evaluated_with_the_lif():
    block = built("spiking-ssm").train()
    y = torch.randn(1, 50, FEATURES, dtype=torch.float64, requires_grad=True)
    x = y * torch.exp(-block.log_threshold)
    spikes = block.activate(y, None)
    assert torch.equal(spikes, (x + block.sdn(x) >= 1).double())
    spikes[0, 20].sum().backward()
    # Gradients flow through the present input only.
    assert y.grad[0].abs().sum(-1).nonzero().tolist() == [[20]]
    exact = copy.deepcopy(block).eval().activate(y, None)
    np.testing.assert_array_equal(exact[0].detach(), numpy_blocks.hard_lif(x[0].detach().numpy(), 0.125))


def test_initial_poles_are_those_of_the_legs_matrix():
    n = np.arange(8)
    legs = -np.tril(np.sqrt(np.outer(2 * n + 1, 2 * n + 1)), -1) - np.diag(n + 1.0)
    values = np.linalg.eigvals(legs + np.outer(np.sqrt(n + 0.5), np.sqrt(n + 0.5)))
    np.testing.assert_allclose(values.real, -0.5)
    np.testing.assert_allclose(legs_frequencies(8), np.sort(values.imag)[4:])
    space = StateSpace(3, states=8, init="lin")
    np.testing.assert_allclose(space.frequency.detach()[1], np.pi * np.arange(4), rtol=1e-6)


def test_the_kernel_is_exact_at_late_steps_in_float32():
    torch.manual_seed(0)
    space = StateSpace(4, states=64, delta=(0.05, 0.1))
    single, double = space.kernels(5000)[0], space.double().kernels(5000)[0]
    assert (single - double).abs().max() < 2e-5 * double.abs().max()


@every(BLOCKS)
def test_packed_equals_padded_and_one_by_one(name):
    model, lengths = network(name).eval(), torch.tensor([20, 0, 7, 13, 19])
    x = torch.randn(5, 20, 1)
    with torch.no_grad():
        padded = model(x, lengths=lengths)
        alone = torch.cat([model(row[None, :length]) for row, length in zip(x, lengths, strict=True)])
        noisy = x + 100 * (torch.arange(20)[:, None] >= lengths[:, None, None])
        torch.testing.assert_close(padded, alone, rtol=0, atol=1e-5)
        torch.testing.assert_close(model(noisy, lengths=lengths), padded, rtol=0, atol=0)


@every(BLOCKS)
def test_a_batch_without_steps_or_sequences_passes_through(name):
    model = network(name).eval()
    with torch.no_grad():
        assert model(torch.zeros(2, 0, 1)).shape == (2, 3)
        assert model(torch.zeros(1, 0, 1), cu_seqlens=torch.zeros(1, dtype=torch.int32)).shape == (0, 3)


@every(BLOCKS)
def test_every_parameter_gets_a_gradient(name):
    model = network(name)
    logits = model(torch.randn(4, 30, 1), lengths=torch.tensor([30, 11, 24, 30]))
    torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0])).backward()
    # The norm behind each linear layer of a spiking LMU takes its bias away: the gradient is rounding, perhaps 0.
    trained = [(each, p) for each, p in model.named_parameters() if name != "spiking-lmu" or "query.bias" not in each]
    silent = [each for each, p in trained if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == []


@every(BLOCKS)
def test_saved_and_loaded_it_is_the_same_network(name, tmp_path):
    model, x = network(name).eval(), torch.randn(2, 15, 1)
    save(model, tmp_path)
    again = load(tmp_path).eval()
    assert again.config == model.config
    with torch.no_grad():
        assert torch.equal(again(x), model(x))


def test_a_new_process_loads_it_without_importing_anything_else(tmp_path):
    save(network("s4d"), tmp_path)
    code = "import sys, resofire; print(type(resofire.load(sys.argv[1]).encoder.blocks[1]).__name__)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "S4D\n"


@every(BLOCKS)
def test_measure_counts_it_and_reports_the_spiking_layers(name):
    model = network(name)
    measured = measure(model, [Batch(torch.randn(3, 25, 1), torch.zeros(3, dtype=torch.long), None)], against=("s4",))
    assert measured["energy"]["mJ_per_inference"] > 0
    assert bool(measured["rates"]["layers"]) == (name in SPIKING)
    assert measured["network"]["bidirectional"] == ("both ways" in name)
    if name not in SPIKING:
        with pytest.raises(ValueError, match="against must not be gsu: the Classifier has no fire rate"):
            measure(model, [Batch(torch.randn(3, 25, 1), torch.zeros(3), None)], against=("gsu",))


# Operations of one block per time step, by hand: 4 channels, 3 complex states (12 in all), 10 steps, every rate 1/2.
# mac, ac, multiply, add, compare, nonlinear
BY_HAND = {
    # Recurrence 12·5, D x 4, Linear 4·8; 12 of the recurrence, norm 4, GLU 4; norm 4, shortcut 4; GELU 4, sigmoid 4.
    "s4d": (96, 0, 20, 8, 0, 8),
    "s4d, both ways": (156, 0, 32, 8, 0, 8),
    # 2 spikes · 8 outputs instead of the Linear; 4 thresholds instead of GELU.
    "binary-s4d": (64, 16, 20, 8, 4, 4),
    # 2 spikes · 4 outputs and 16 ternary weights; a threshold from the maximum of 4, two comparisons each.
    "gsu": (64, 24, 21, 8, 12, 4),
    # As binary-s4d, and 2 comparisons to clamp.
    "stochastic-s4": (64, 16, 20, 8, 12, 4),
    # As binary-s4d; a division by the threshold, and a LIF with 1 product and 1 addition.
    "spiking-ssm": (64, 16, 28, 12, 4, 4),
    # 24 LIF of 1 product and 2 additions, norms of 24 + 8; spikes (2·1 + 3.5·4 + 2·4 + 2·8 + 4·4) and 1/2·3; Ā m 9.
    "spiking-lmu": (9, 57.5, 56, 88, 24, 0),
    # Synapses 4 + 4, MLP 8·8 + 8·4, memory 4 + 4, read-out 4·4; 8 relu, 4 tanh.
    "elm": (120, 0, 12, 8, 8, 4),
    # Context 5.5: norms 8, projections 48 + 16, attention 2·5.5·4, MLP 128.
    "transformer": (244, 0, 36, 62, 11, 31),
    "transformer, both ways": (280, 0, 36, 80, 20, 40),
}  # fmt: skip


@every(BLOCKS)
def test_operations_equal_a_count_by_hand(name):
    block = built(name)
    if name == "gsu":
        torch.nn.init.ones_(block.gate.weight)
    model = ClassifierConfig(inputs=1, classes=3, features=4, depth=1, last_norm=False, block=BLOCKS[name][0]).build()
    model.encoder.blocks[0] = block.float()
    with fire_rates(model) as rates:
        model.eval()(torch.randn(1, 10, 1))
    counts = count_ops(model, (10, 1), dict.fromkeys(rates.as_dict(), 0.5)).blocks
    operations = ("mac", "ac", "multiply", "add", "compare", "nonlinear")
    assert tuple(counts.per_step(kind) for kind in operations) == BY_HAND[name]
    # The paper's column: of these only the spiking LMU has no nonlinear function, and none is free of MACs.
    assert (counts.no_nonlinear, counts.no_mac) == (name == "spiking-lmu", False)
    folded = count_ops(model, (10, 1), dict.fromkeys(rates.as_dict(), 0.5), fold_norm=True).blocks
    assert (folded.per_step("add") < counts.per_step("add")) == (not name.startswith("transformer"))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: S4DConfig(states=5).build(4), "StateSpace: states must be even, half as many are complex, got 5"),
        (lambda: S4DConfig(init="inv").build(4), "StateSpace: init must be one of 'legs', 'lin' .* got 'inv'"),
        (lambda: S4DConfig(dropout=1.0).build(4), "S4D: dropout must be from 0 up to, but not, 1, got 1.0"),
        (lambda: TransformerConfig().build(12), "Transformer: features must be a multiple of 8, .* got 12"),
        (lambda: SpikingLMUConfig(window=0.5).build(4), "LegendreMemory: window must be at least 1, got 0.5"),
        (lambda: ELMConfig(longest=1.0).build(4), "ELM: longest must be above 1, got 1.0"),
    ],
)
def test_bad_settings_are_refused_with_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_network_without_step_says_so_when_it_is_streamed():
    with pytest.raises(RuntimeError, match=r"blocks\.0 cannot be streamed, S4D has no `step`"):
        network("s4d").eval().init_state(1)


def test_dropout_drops_its_share_and_keeps_the_mean():
    x = torch.ones(1, 1000, 301, dtype=torch.float64, requires_grad=True)
    y = dropped(x, 0.1, True)
    kept = y != 0
    # Five standard errors of 301,000 draws; no row or column is dropped as a whole.
    assert abs(float(kept.double().mean()) - 0.9) < 5 * (0.09 / x.numel()) ** 0.5
    assert 0.8 < float(kept.double().mean(1).min()) <= float(kept.double().mean(1).max()) < 1
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / 0.9), rtol=1e-4, atol=0)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], y)
    assert not torch.equal(dropped(x, 0.1, True), y)
    torch.manual_seed(5)
    first = dropped(x, 0.5, True)
    torch.manual_seed(5)
    assert torch.equal(dropped(x, 0.5, True), first)
    assert torch.equal(dropped(x, 0.1, False), x)
    assert torch.equal(dropped(x, 0.0, True), x)
    assert dropped(x[:, :0], 0.1, True).shape == (1, 0, 301)
