"""Networks to fold, with every number away from its initial value, and the spikes they fire."""

from dataclasses import replace

import torch

from resofire.models import ClassifierConfig, FeedforwardConfig, build
from resofire.nn import SDTCM, BatchNorm, LIFConfig, PRFConfig
from resofire.nn.neuron import Neuron

PRF = PRFConfig(delta=(0.1, 0.5), threshold=0.3)
BASE = ClassifierConfig(inputs=2, classes=3, features=6, depth=3, neuron=PRF, norm="batch")
CASES = {
    "prenorm": BASE,
    "postnorm": replace(BASE, prenorm=False),
    "postnorm and last": replace(BASE, prenorm=False, last_norm=True),
    "no norm": replace(BASE, norm="none"),
    "tokens": replace(BASE, inputs=None, vocabulary=11),
    "no amplitude": replace(BASE, amplitude="none"),
    "both amplitudes": replace(BASE, amplitude="both"),
    "bidirectional": replace(BASE, bidirectional=True),
    "bidirectional postnorm": replace(BASE, bidirectional=True, prenorm=False, amplitude="both"),
    "soft prf": replace(BASE, neuron=replace(PRF, reset="soft")),
    "unit gain": replace(BASE, neuron=PRFConfig(delta=(0.1, 0.5), tau=(2.0, 50.0), train_tau=True, gain="unit")),
    "lif": replace(BASE, neuron=LIFConfig(threshold=0.3)),
    "lif no reset": replace(BASE, neuron=LIFConfig(threshold=0.3, reset="none")),
    "lif hard": replace(BASE, neuron=LIFConfig(threshold=0.3, reset="hard"), prenorm=False),
    "pool last": replace(BASE, pool="last"),
    "pool none": replace(BASE, pool="none", prenorm=False),
    "feedforward": FeedforwardConfig(sizes=(2, 6, 5, 3), neuron=PRF),
    "feedforward lif": FeedforwardConfig(sizes=(2, 6, 5, 3), neuron=LIFConfig(threshold=0.3), pool="none"),
    "pool leaky": replace(BASE, pool="leaky", pool_steps=7),
}


def network(config, dtype=torch.float64, seed=0):
    """A network whose gains have both signs and whose norms silence one channel each."""
    torch.manual_seed(seed)
    model = build(config).to(dtype).eval()
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, BatchNorm):
                part.weight.copy_(torch.randn_like(part.weight))
                part.weight[1] = 0
                part.bias.copy_(torch.randn_like(part.bias))
                part.running_mean.copy_(torch.randn_like(part.bias))
                part.running_var.copy_(torch.rand_like(part.bias) + 0.5)
        for name, parameter in model.named_parameters():
            if "amplitude" in name:
                parameter.fill_(0.4)
            elif "linear" in name and name.endswith("weight"):
                parameter.mul_(3)
    return model


def make_input(config, steps, seed=0):
    """One sequence, values [T, inputs] or tokens [T]."""
    generator = torch.Generator().manual_seed(seed)
    if getattr(config, "vocabulary", None):
        return torch.randint(config.vocabulary, (steps,), generator=generator)
    inputs = config.sizes[0] if isinstance(config, FeedforwardConfig) else config.inputs
    return 2 * torch.randn(steps, inputs, generator=generator, dtype=torch.float64)


def spikes_of(model, x):
    """The logits, and the spikes of each layer of neurons in the order they run, two directions side by side."""
    seen, handles = [], []
    for part in model.modules():
        if isinstance(part, Neuron) or type(part).__name__ == "SpatialNeuron":
            fired = part._report_spikes

            def keep(spikes, fired=fired, part=part):
                seen.append((part, spikes[0] != 0))
                return fired(spikes)

            handles.append((part, fired))
            part._report_spikes = keep
    with torch.no_grad():
        logits = model(x[None])[0]
    for part, fired in handles:
        part._report_spikes = fired
    merged = []
    behind = {id(block.token_neuron_reverse) for block in model.modules() if isinstance(block, SDTCM)}
    for part, spikes in seen:
        if id(part) in behind:
            merged[-1] = torch.cat((merged[-1], spikes), 1)
        else:
            merged.append(spikes)
    return logits, [spikes.numpy() for spikes in merged]
