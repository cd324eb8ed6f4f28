"""Two processes that share each batch train like one: outputs, gradients, running statistics, fire rates, losses."""

import copy
import pickle
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from resofire.data.task import Form, Split
from resofire.models import Classifier, ClassifierConfig
from resofire.nn import BatchNorm, LIFConfig, PRFConfig, summed, synchronise

WORLD = 2
SMALL = ClassifierConfig(
    features=16, depth=2, inputs=3, classes=4, neuron=PRFConfig(delta=(0.1, 0.5), threshold=0.5), rate_weight=3.0
)
LENGTHS = (9, 30, 1, 0, 17, 4, 22)


@dataclass(frozen=True)
class Case:
    """A network, and the lengths of the sequences in its batch; None: seven of twelve steps."""

    config: ClassifierConfig
    lengths: tuple[int, ...] | None = LENGTHS


def case(lengths=LENGTHS, **settings):
    return Case(replace(SMALL, **settings), lengths)


CASES = {
    "pre, fused, fixed": case(None, backend="fused", rate_target=0.1),
    "pre, fused, packed": case(backend="fused"),
    "pre, fused, packed, both ways": case(backend="fused", bidirectional=True, rate_limit=0.02),
    "pre, fused, packed, lif, last": case(backend="fused", neuron=LIFConfig(threshold=0.5), pool="last"),
    "pre, reference, fixed": case(None, backend="reference"),
    "pre, reference, packed": case(backend="reference", rate_target=0.1),
    "post, fused, fixed": case(None, backend="fused", prenorm=False),
    "post, fused, packed": case(backend="fused", prenorm=False, rate_target=0.1),
    "post, reference, fixed": case(None, backend="reference", prenorm=False, rate_target=0.1),
    "post, reference, packed": case(backend="reference", prenorm=False, pool="last"),
    "pre, fused, one share empty": case((25,), backend="fused", rate_target=0.1),
    "pre, reference, one share empty": case((25,), backend="reference"),
}


def split_of(lengths):
    """Sequences whose statistics differ much from one to the next, so that those of shares do, too."""
    draw = np.random.RandomState(5)
    sizes = np.arange(1, 3 * len(lengths or LENGTHS), 3)
    stored = [size * (draw.randn(length, 3) + 1) for size, length in zip(sizes, lengths or (12,) * 7, strict=True)]
    labels = draw.randint(0, 4, len(stored))
    if lengths is None:
        return Split(np.stack(stored), labels, kind="values", form=Form(scale=0.2))
    bounds = np.cumsum([0, *lengths])
    return Split(np.concatenate(stored), labels, kind="values", form=Form(scale=0.2), bounds=bounds)


def model_of(config):
    torch.manual_seed(3)
    model = Classifier(config).double()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, BatchNorm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_()
    return model


def loss_of(logits, labels, penalty, count, world):
    """What a process contributes so that the mean over processes is the loss of the whole batch."""
    return F.cross_entropy(logits, labels, reduction="sum") * world / count + penalty


def step(model, batch, count, world=1):
    """One forward and backward pass: all that a process knows after it."""
    logits, penalty, rates = model.penalised(batch.x.double(), cu_seqlens=batch.cu_seqlens)
    loss_of(logits, batch.labels, penalty, count, world).backward()
    return {
        "logits": logits.detach(), "penalty": penalty.detach(), "rates": torch.stack(list(rates.values())),
        "gradients": [p.grad for p in model.parameters()],
        "buffers": torch.cat([b.double().flatten() for b in model.buffers()]),
    }  # fmt: skip


def off(got, expected, least=1e-30):
    """How far apart, relative to the largest; of a list the worst.

    Some gradients are zero but for rounding (a bias in front of a norm), so a share of the largest of all counts."""
    if isinstance(got, list):
        least = 1e-4 * max(float(each.abs().max()) for each in expected)
        return max(off(*pair, least) for pair in zip(got, expected, strict=True))
    return float((got - expected).abs().max()) / max(least, float(expected.abs().max())) if expected.numel() else 0.0


def compare(chosen, rank, synchronised):
    """The largest differences between this process and one that has the whole batch, by name."""
    split = split_of(chosen.lengths)
    whole, (own,) = next(split.batches(99)), split.batches(99, rank=rank, world=WORLD)
    mine = split._share(np.arange(len(split)), rank, WORLD)
    expected = step(model_of(chosen.config), whole, len(split))
    model = model_of(chosen.config)
    if synchronised:
        synchronise(model)
    got = step(model, own, len(split), WORLD)
    got["gradients"] = [summed(grad) / WORLD for grad in got["gradients"]]
    expected["logits"] = expected["logits"][mine]
    if chosen.config.rate_target is chosen.config.rate_limit is None:
        assert got.pop("penalty") == expected.pop("penalty") == 0
    found = {name: off(got[name], expected[name]) for name in got}
    # All processes must have the same, to the bit.
    first = got["buffers"].clone()
    dist.broadcast(first, 0)
    found["buffers of others"] = float((got["buffers"] != first).sum())
    return found


class Penalised(nn.Module):
    """As a trainer wraps it: data parallel training works on `forward`."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, cu_seqlens):
        return self.model.penalised(x, cu_seqlens=cu_seqlens)[:2]


def curve(rank, world, wrap):
    """The losses of some steps of training, over all processes."""
    split, losses = split_of(LENGTHS * 3), []
    model = Penalised(model_of(replace(SMALL, rate_target=0.1, backend="fused")))
    if wrap:
        synchronise(model)
        model = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = zip(split.batches(5, seed=1), split.batches(5, seed=1, rank=rank, world=world), strict=True)
    for whole, batch in batches:
        logits, penalty = model(batch.x.double(), batch.cu_seqlens)
        loss = loss_of(logits, batch.labels, penalty, len(whole.labels), world)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    return summed(losses) / world if wrap else losses


def no_collectives_in_evaluation(monkey):
    model = model_of(replace(SMALL, rate_target=0.1))
    batch = split_of(LENGTHS).batch(np.arange(7))
    expected = copy.deepcopy(model).eval().penalised(batch.x.double(), cu_seqlens=batch.cu_seqlens)
    synchronise(model)
    monkey.setattr(dist, "all_reduce", None)
    got = model.eval().penalised(batch.x.double(), cu_seqlens=batch.cu_seqlens)
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])


def groups_by_choice(rank):
    model, both, first = model_of(SMALL), dist.new_group([0, 1]), dist.new_group([0])
    synchronise(model, both)
    assert model.group == model.encoder.norm.group == both.group_name != dist.group.WORLD.group_name
    if rank == 1:
        with pytest.raises(ValueError, match="group must be None or a process group that this process is in"):
            synchronise(model, first)


def copies_keep_the_group():
    model = model_of(SMALL)
    names = list(model.state_dict())
    synchronise(model)
    group = model.group
    assert group
    assert list(model.state_dict()) == names
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert {each.group for each in made.modules() if isinstance(each, BatchNorm | Classifier)} == {group}


def compiled_is_eager(rank):
    config = replace(SMALL, backend="fused", depth=1)
    (own,) = split_of(None).batches(7, rank=rank, world=WORLD)
    results = []
    for compiled in (False, True):
        model = model_of(config)
        synchronise(model)
        run = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model
        out = run(own.x.double())
        out.square().sum().backward()
        results.append(torch.cat([out.detach().flatten(), *(p.grad.flatten() for p in model.parameters())]))
    assert off(*results) < 1e-12


def process(rank, folder):
    """What each of the two processes runs."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD, timeout=timedelta(seconds=60)
    )
    found = {name: compare(chosen, rank, synchronised=True) for name, chosen in CASES.items()}
    # A process that has all of a batch needs no other.
    shared = {name: chosen for name, chosen in CASES.items() if "empty" not in name}
    apart = {name: compare(chosen, rank, synchronised=False) for name, chosen in shared.items()}
    curves = {wrap: curve(rank if wrap else 0, WORLD if wrap else 1, wrap) for wrap in (False, True)}
    groups_by_choice(rank)
    copies_keep_the_group()
    compiled_is_eager(rank)
    with pytest.MonkeyPatch.context() as monkey:
        no_collectives_in_evaluation(monkey)
    torch.save({"found": found, "apart": apart, "curves": curves}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_are_one(tmp_path):
    torch.multiprocessing.spawn(process, (str(tmp_path),), nprocs=WORLD)
    for rank in range(WORLD):
        results = torch.load(tmp_path / f"{rank}.pt")
        worst = {f"{name}: {what}": x for name, all_ in results["found"].items() for what, x in all_.items()}
        assert {what: x for what, x in worst.items() if not x < 1e-9} == {}
        # The comparison can fail: alone, each process has statistics of its own.
        assert all(alone["gradients"] > 1e-3 for alone in results["apart"].values())
        torch.testing.assert_close(results["curves"][True], results["curves"][False], rtol=1e-9, atol=0)


def test_without_processes_there_is_nothing_to_synchronise():
    with pytest.raises(RuntimeError, match="synchronise: torch\\.distributed must be initialised first"):
        synchronise(BatchNorm(3))
    norm = BatchNorm(3)
    norm.group = "7"
    with pytest.raises(RuntimeError, match="process group '7', which is not there now"):
        norm(torch.randn(4, 3))
