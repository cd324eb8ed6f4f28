"""The training step of whole networks: event-driven and fused against FFT + dense layers, and its own matrix products.

All times are a whole step in float32 (forward, loss, backward), medians of rounds in which the contenders take turns.
The fire rate of each layer is set beforehand, by its threshold: to 5 % everywhere, and to those of trained networks.
"""

import copy
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resofire.data.task import Form, Split
from resofire.models import Classifier, ClassifierConfig
from resofire.nn import BatchNorm, PRFConfig, fire_rates
from resofire.ops import spike_linear

from .clock import Table, in_fresh_process, medians

SMNIST = ClassifierConfig(inputs=1, features=128, depth=2, classes=10, neuron=PRFConfig(tau=5.0, delta=(0.01, 1.0)))
TEXT = ClassifierConfig(
    vocabulary=134, features=256, depth=6, classes=2, neuron=PRFConfig(theta=(0.0, 2 * math.pi / 16))
)
# Characters in 16 IMDB reviews, cut at 4,095 and one end mark: the middles of the sixteenths of the training set.
TEXT_LENGTHS = [301, 491, 634, 679, 728, 784, 851, 934, 1028, 1146, 1302, 1495, 1757, 2110, 2700, 4022]
TEXT_PADDED = 4096

# Fire rates (temporal, spatial) of each block. sMNIST: those of a first trained network; Text: the paper's table.
FIVE_PER_CENT = (0.05, 0.05)
SMNIST_TRAINED = [(0.07, 0.22)] * 2
TEXT_TRAINED = [
    (0.0211, 0.0920), (0.0430, 0.0990), (0.0279, 0.1011), (0.0166, 0.0718), (0.0102, 0.0555), (0.0148, 0.0525),
]  # fmt: skip


class Case(NamedTuple):
    """A network with a batch to train it on."""

    name: str
    config: ClassifierConfig
    x: Tensor
    labels: Tensor
    options: dict[str, Tensor]
    steps: int  # time steps that are computed

    def loss(self, model: nn.Module) -> Tensor:
        return F.cross_entropy(model(self.x, **self.options), self.labels)


def smnist() -> Case:
    return Case("sMNIST", SMNIST, torch.rand(64, 784, 1), torch.randint(10, (64,)), {}, 64 * 784)


def text(packed: bool = True) -> Case:
    batch, labels = len(TEXT_LENGTHS), torch.randint(2, (len(TEXT_LENGTHS),))
    if not packed:
        x = torch.randint(134, (batch, TEXT_PADDED))
        return Case("Text, padded", TEXT, x, labels, {}, batch * TEXT_PADDED)
    steps = sum(TEXT_LENGTHS)
    bounds = torch.tensor([0, *TEXT_LENGTHS]).cumsum(0).int()
    return Case("Text", TEXT, torch.randint(134, (1, steps)), labels, {"cu_seqlens": bounds}, steps)


def blocks(model: Classifier) -> list[Any]:
    return list(model.encoder.blocks)


def set_rates(model: Classifier, case: Case, rates: list[tuple[float, float]]) -> None:
    """Moves the threshold of each neuron, one after the other, until it fires at its rate on this batch."""
    for block, targets in zip(blocks(model), rates, strict=True):
        for neuron, rate in zip((block.token_neuron, block.channel_neuron), targets, strict=True):
            low, high = -20.0, 20.0
            for _ in range(16):
                neuron.threshold = (low + high) / 2
                with torch.no_grad(), fire_rates(neuron) as measured:
                    model(case.x, **case.options)
                low, high = (neuron.threshold, high) if measured[""] > rate else (low, neuron.threshold)


def evaluated(case: Case) -> Classifier:
    """A network of a case in evaluation, its norms at the statistics of the batch."""
    model = Classifier(case.config)
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.momentum = 1.0
    with torch.no_grad():
        model.train()(case.x, **case.options)
    return model.eval()


def on_fft(model: Classifier) -> Classifier:
    """The same network, weights and thresholds, with FFT neurons, dense Linears and torch's norm in the blocks."""
    other = copy.deepcopy(model)
    if isinstance(other.encoder.input, nn.Linear):
        plain = nn.Linear(other.encoder.input.in_features, other.encoder.input.out_features)
        plain.load_state_dict(other.encoder.input.state_dict())
        other.encoder.input = plain  # type: ignore[assignment]
    for block in blocks(other):
        block.backend = "reference"
        block.token_neuron.backend = "fft"
        block.token_linear.backend = block.channel_linear.backend = "reference"
    return other


def training_step(model: nn.Module, case: Case) -> Callable[[], object]:
    def step() -> None:
        model.zero_grad()
        case.loss(model).backward()

    return step


def products(case: Case) -> Callable[[], object]:
    """All dense matrix products of a step, as plain `torch.mm`: forward, and the gradients of input and weight."""
    config, batch = case.config, len(case.labels)
    shapes = [(case.steps, config.features, config.features)] * (2 * config.depth)
    shapes.append((batch, config.features, config.classes))
    if config.inputs is not None:
        shapes.append((case.steps, config.inputs, config.features))
    sides = [(torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)) for m, k, n in sorted(set(shapes))]
    room = {shape: (torch.empty_like(y), torch.empty_like(x), torch.empty_like(w))
            for shape, (x, w, y) in zip(sorted(set(shapes)), sides, strict=True)}  # fmt: skip
    operands = dict(zip(sorted(set(shapes)), sides, strict=True))

    def run() -> None:
        for shape in shapes:
            (x, w, grad), (out, grad_x, grad_w) = operands[shape], room[shape]
            torch.mm(x, w, out=out)
            if shape[1] != config.inputs:  # the input itself needs no gradient
                torch.mm(grad, w.t(), out=grad_x)
            torch.mm(x.t(), grad, out=grad_w)

    return run


def gradient(model: nn.Module, case: Case) -> Tensor:
    model.zero_grad()
    case.loss(model).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def distance(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def compare(table: Table, case: Case, rates: list[tuple[float, float]], label: str, rounds: int) -> None:
    """One network at given fire rates: speed against FFT + dense and against its own products, and equal gradients."""
    model = Classifier(case.config)
    set_rates(model, case, rates)
    with torch.no_grad(), fire_rates(model) as measured:
        model(case.x, **case.options)
    seen = measured.as_dict().values()
    where = f"{case.name}, {label}"
    other = on_fft(model)
    times = medians(
        {
            "fused": training_step(model, case),
            "fft": training_step(other, case),
            "products": products(case),
        },
        rounds,
    )
    note = f"fire rates {100 * min(seen):.1f}–{100 * max(seen):.1f} %"
    table.add(f"step over fft + dense: {where}", times["fft"] / times["fused"], "x", least=4, note=note)
    table.add(f"step against its matrix products: {where}", times["fused"] / times["products"], "x", most=1.2)
    table.add(f"step, time steps per second: {where}", case.steps / times["fused"] / 1e6, "M/s")
    double = case._replace(x=case.x.double() if case.x.is_floating_point() else case.x)
    ours, theirs = (gradient(copy.deepcopy(each).double(), double) for each in (model, other))
    table.add(f"gradient, distance to fft + dense in float64: {where}", distance(ours, theirs), "", most=1e-9)
    # In float32 a spike near its threshold may fall either way, and takes the gradient along: who is nearer the truth?
    near, far = (distance(gradient(each, case).double(), theirs) for each in (model, other))
    note = f"fft + dense: {far:.3g}"
    table.add(f"gradient in float32, distance to that in float64: {where}", near, "", note=note)


def padding(table: Table, rounds: int) -> None:
    """What a packed batch costs beside a padded one."""
    packed, padded = text(), text(packed=False)
    model = Classifier(TEXT)
    set_rates(model, packed, [FIVE_PER_CENT] * TEXT.depth)
    times = medians({"packed": training_step(model, packed), "padded": training_step(model, padded)}, rounds)
    share = packed.steps / padded.steps
    table.add("Text packed over padded, of its share of true steps", times["packed"] / times["padded"] / share, "x",
              most=1.15, note=f"{100 * share:.0f} % of the steps are true")  # fmt: skip


def synapse_step(backend: str, spikes: Tensor, weight: Tensor, bias: Tensor, grad: Tensor) -> None:
    inputs = [each for each in (spikes, weight, bias) if each.requires_grad]
    torch.autograd.grad(spike_linear(spikes, weight, bias, backend=backend), inputs, grad)


def synapses(table: Table, rounds: int) -> None:
    """`spike_linear` forward and backward by fire rate: events against the dense product.

    The gradient of the spikes is dense in both; "without it" leaves it out."""
    for steps, features in ((64 * 784, 128), (sum(TEXT_LENGTHS), 256), (16 * 1024, 512)):
        weight, bias = torch.randn(features, features, requires_grad=True), torch.randn(features, requires_grad=True)
        grad = torch.randn(steps, features)
        for rate in (0.02, 0.05, 0.1, 0.2, 0.35, 0.5):
            spikes = (torch.rand(steps, features) < rate).float()
            where = f"at {100 * rate:.0f} %, {steps}x{features}x{features}"
            for part, source in (("without it", spikes), ("whole", spikes.clone().requires_grad_())):
                contenders: dict[str, Callable[[], object]] = {
                    backend: functools.partial(synapse_step, backend, source, weight, bias, grad)
                    for backend in ("events", "reference")
                }
                seconds = medians(contenders, rounds)
                table.add(f"spike_linear, {part}, over dense {where}", seconds["reference"] / seconds["events"], "x")


def loading(table: Table, rounds: int) -> None:
    """What making a batch costs beside the step it is for: stored sets of the true sizes, in a shuffled order."""
    bounds = np.cumsum([0, *np.resize(TEXT_LENGTHS, 25_000)])
    stored = {
        "sMNIST": Split(np.zeros((60_000, 784, 1), np.uint8), np.zeros(60_000, np.uint8), kind="values",
                        form=Form(scale=1 / 255)),
        "Text": Split(np.zeros(bounds[-1], np.uint8), np.zeros(25_000, np.uint8), kind="tokens", form=Form(),
                      bounds=bounds),
    }  # fmt: skip
    for case in (smnist(), text()):
        step = training_step(Classifier(case.config), case)
        batches = stored[case.name].batches(len(case.labels), seed=0)
        seconds = medians({"load": lambda batches=batches: next(batches), "step": step}, rounds)  # type: ignore[misc]
        table.add(f"loading, share of the step: {case.name}", 100 * seconds["load"] / seconds["step"], "%", most=3)


PEAK = """
import torch
from resofire.ops import retain_buffers
from benchmarks import networks
retain_buffers()
def peak():
    return int(next(x for x in open("/proc/self/status") if x.startswith("VmHWM")).split()[1]) * 1024
torch.manual_seed(0)
case = networks.{case}()
model = networks.Classifier(case.config)
if {fft}:
    model = networks.on_fft(model)
small = case._replace(x=case.x[:, :64], options={{}} , labels=case.labels[:case.x.shape[0]])
small.loss(model).backward()
model.zero_grad()
open("/proc/self/clear_refs", "w").write("5")
before = peak()
case.loss(model).backward()
print((peak() - before) / 1e6)
"""


def memory(table: Table) -> None:
    for case in ("smnist", "text"):
        megabytes = {fft: float(in_fresh_process(PEAK.format(case=case, fft=fft))) for fft in (False, True)}
        note = f"{megabytes[False]:.0f} MB against {megabytes[True]:.0f} MB"
        table.add(f"peak memory of a step, share of fft + dense: {case}", megabytes[False] / megabytes[True], "",
                  most=1 / 3, note=note)  # fmt: skip


def run(quick: bool = False) -> dict[str, Any]:
    """Measures and prints; returns all figures with the machine they come from."""
    from resofire import doctor

    torch.manual_seed(0)
    table, rounds = Table(), 3 if quick else 7
    print("whole training steps, float32, medians; goals are the project's own\n")
    for case, trained in ((smnist(), SMNIST_TRAINED), (text(), TEXT_TRAINED)):
        compare(table, case, [FIVE_PER_CENT] * case.config.depth, "5 %", rounds)
        compare(table, case, trained, "trained rates", rounds)
        if quick:
            break
    if not quick:
        synapses(table, rounds)
        padding(table, rounds)
        loading(table, rounds)
        memory(table)
    command = "resofire bench networks" + (" --quick" if quick else "")
    return {"command": command, "machine": doctor.examine(), "figures": table.rows}
