"""Why a folded norm is counted as nothing: the network without it, its constants changed, fires the same spikes.

The stream U is carried as Ũ with U = g Ũ + o, g and o constants of each channel. A norm only changes g and o; the
neurons take them up in Δ, in their thresholds and in the state that they start from, the Linears in their weights.
"""

import numpy as np
import pytest
import torch

from resofire.measure import count_ops, energy
from resofire.models import ClassifierConfig, build
from resofire.nn import PRFConfig, fire_rates
from resofire.ops import lif

CONFIG = {
    "inputs": 2, "classes": 3, "features": 6, "depth": 3,
    "neuron": PRFConfig(delta=(0.2, 0.8), theta=(0.1, 3.0), threshold=0.05),
}  # fmt: skip


def network(**settings):
    model = build(ClassifierConfig(**CONFIG, **settings)).double().eval().requires_grad_(False)
    for name, value in [*model.named_buffers(), *model.named_parameters()]:
        if "running" in name or "norm.weight" in name:
            value.uniform_(0.5, 1.5)
        elif "norm.bias" in name:
            value.normal_()
    return model


def folded(model, x):
    """Logits of a sequence [T, inputs] and spikes of each block, without one operation of a norm on the way."""
    spikes_of = []
    g, o = np.ones(model.config.features), np.zeros(model.config.features)
    stream = model.encoder.input(x).numpy()
    for block in model.encoder.blocks:
        scale, shift = (each.numpy() for each in block.norm.affine())
        a, b = (scale * g, scale * o + shift) if block.prenorm else (g, o)
        phi_re, phi_im, delta, threshold = block.token_neuron.rows().numpy()
        # A constant input b only moves the rest point of the dynamics, which are linear: it is taken as the origin.
        rest = delta * b / (1 - (phi_re + 1j * phi_im))
        z, fired = -rest, []
        for u in stream:
            z = (phi_re + 1j * phi_im) * z + delta * a * u
            fired.append(z.real >= threshold - rest.real)
        fired = np.array(fired, float)
        token, channel = block.token_linear, block.channel_linear
        alpha = float(block.channel_neuron.log_amplitude.exp())
        r = stream + fired @ (token.weight.numpy() / g[:, None]).T + token.bias.numpy() / g
        seen = np.array(r >= (block.channel_neuron.threshold - o) / g, float)
        stream = r + seen @ (alpha * channel.weight.numpy() / g[:, None]).T + channel.bias.numpy() / g
        if not block.prenorm:
            g, o = scale * g, scale * o + shift
        spikes_of += [fired.sum(), seen.sum()]
    if model.encoder.norm is not None:
        scale, shift = (each.numpy() for each in model.encoder.norm.affine())
        g, o = scale * g, scale * o + shift
    weight, bias = model.head.weight.numpy(), model.head.bias.numpy()
    return stream.mean(0) @ (weight * g).T + (weight @ o + bias), spikes_of


@pytest.mark.parametrize("prenorm", [True, False])
@pytest.mark.parametrize("last_norm", [True, False])
def test_a_folded_network_fires_the_same_spikes(prenorm, last_norm):
    model = network(prenorm=prenorm, last_norm=last_norm)
    x = 2 * torch.randn(50, 2, dtype=torch.float64)
    with fire_rates(model) as rates:
        expected = model(x[None])[0]
    logits, spikes = folded(model, x)
    np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-9)
    assert spikes == pytest.approx([rate * 50 * 6 for rate in rates.as_dict().values()])
    assert 0 < min(spikes) < 50 * 6


@pytest.mark.parametrize("scale", [0.7, -1.3])
def test_a_lif_takes_up_scale_and_shift(scale):
    """Its potential in other units, u = scale v + rest; where the scale is negative, it fires from below."""
    beta, threshold, shift = 0.9, 1.0, 0.2
    x = torch.randn(200, dtype=torch.float64)
    expected, _ = lif((scale * x + shift)[None, :, None], beta, threshold=threshold)
    rest = shift / (1 - beta)
    v, spikes = -rest / scale, []
    for value in x.tolist():
        v = beta * v + value
        bound = (threshold - rest) / scale
        spikes.append(v >= bound if scale > 0 else v <= bound)
        v -= spikes[-1] * threshold / scale
    assert spikes == expected[0, :, 0].bool().tolist()
    assert 0 < sum(spikes) < 200


def test_folding_takes_the_norms_away_and_nothing_else():
    model = network()
    rates = dict.fromkeys((f"encoder.blocks.{i}.{kind}_neuron" for i in range(3) for kind in ("token", "channel")), 0.1)
    counted, without = (energy(count_ops(model, (50, 2), rates, fold_norm=fold)).components for fold in (False, True))
    assert counted.pop("norm") > 0
    assert without == counted
