"""The figures of a report against independent computations."""

import base64
import math

import numpy as np
import pytest
import torch
from hostile_run import config, task
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from resofire import models, nn, train
from resofire.data.task import IGNORED
from resofire.models import ClassifierConfig, FeedforwardConfig, build
from resofire.report import curves
from resofire.report.plane import initial_network, neuron_rates, oscillator
from resofire.report.raster import raster, running_logits
from resofire.report.recording import recorded
from resofire.report.tally import Tally, wilson
from resofire.train.logs import COLUMNS
from resofire.train.progress import silent

NEURON = nn.PRFConfig(delta=(0.05, 0.5), threshold=0.2)


@pytest.mark.parametrize(("correct", "count"), [(0, 7), (298, 300), (5, 10), (10, 10), (21_630, 25_000)])
def test_the_ends_of_the_interval_are_the_shares_that_are_just_rejected(correct, count):
    """Wilson: the score test of either end against the observed share has |z| = 1.96."""
    for end in wilson(correct, count):
        variance = end * (1 - end) / count
        assert (correct / count - end) ** 2 == pytest.approx(1.959964**2 * variance, rel=1e-6, abs=1e-15)
    low, high = wilson(correct, count)
    assert low <= correct / count <= high


@pytest.mark.parametrize(("correct", "count"), [(1, 0), (3, 2), (-1, 2)])
def test_an_impossible_share_is_refused(correct, count):
    with pytest.raises(ValueError, match=f"got {correct} of {count}"):
        wilson(correct, count)


def test_answers_agree_with_scikit_learn():
    torch.manual_seed(1)
    logits, labels = 3 * torch.randn(500, 5), torch.randint(0, 4, (500,))  # class 4 never occurs
    labels[::50] = IGNORED
    tally = Tally(5)
    for part in range(0, 500, 100):
        rows = np.arange(part, part + 100)
        tally.add(logits[part : part + 100], labels[part : part + 100], rows, np.zeros(100, int))
    known = labels != IGNORED
    truth, answers = labels[known].numpy(), logits[known].argmax(-1).numpy()
    assert (tally.confusion == confusion_matrix(truth, answers, labels=range(5))).all()
    precision, recall, f1, count = precision_recall_fscore_support(truth, answers, labels=range(5), zero_division=0)
    for number, row in enumerate(tally.by_class()):
        assert row["count"] == count[number]
        assert row["precision"] == pytest.approx(precision[number])
        assert (row["recall"] or 0) == pytest.approx(recall[number])
        assert row["f1"] == pytest.approx(f1[number])
    assert tally.by_class()[4]["recall"] is None
    confidence = torch.softmax(logits[known].double(), -1).amax(-1).numpy()
    gap = 0.0
    for low in np.arange(10) / 10:
        inside = (confidence >= low) & (confidence < low + 0.1)
        if inside.any():
            gap += inside.mean() * abs((truth == answers)[inside].mean() - confidence[inside].mean())
    assert tally.calibration()["error"] == pytest.approx(gap)
    wrong = np.flatnonzero(known.numpy())[truth != answers]
    order = wrong[np.argsort(-confidence[truth != answers])][:12]
    assert [mistake.row for mistake in tally.worst()] == order.tolist()


def test_damaged_rows_are_left_out_and_the_best_step_is_that_of_the_training(tmp_path):
    rows = [(4, 1, "validation", 0.5, 0.6), (8, 2, "validation", 0.4, 0.7), (12, 3, "validation", 0.3, 0.7),
            (16, 4, "validation", 0.9, 0.2)]  # fmt: skip
    lines = [",".join(COLUMNS), *(",".join(map(str, (*row, "", "", "", "", 10 * row[0]))) for row in rows)]
    lines.insert(2, "6,1.5,train,nan,\0,,,,,")
    lines.insert(2, "6,1.5,train,nan,0.5,0.1,,,100,7")
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n20,5,validation,0.1,0.9", "utf-8")
    found = curves.read(tmp_path)
    assert found["validation"]["step"] == [4, 8, 12, 16]
    assert found["train"]["loss"] == [None]
    assert curves.best(found, "validation") == 12  # equal accuracy, lower loss
    assert curves.best(found, "test") is None
    assert curves.read(tmp_path / "nowhere") == {}


def test_a_long_curve_is_averaged():
    curve = {"step": list(range(10)), "loss": [None, 1.0, *[2.0] * 8]}
    assert curves.thinned(curve, 5) == {"step": [0.5, 2.5, 4.5, 6.5, 8.5], "loss": [1.0, 2.0, 2.0, 2.0, 2.0]}
    assert curves.thinned(curve, 10) is curve


@pytest.mark.parametrize("pool", ["mean", "last", "leaky", "none"])
@pytest.mark.parametrize("kind", ["classifier", "feedforward"])
def test_the_running_answer_is_that_of_the_sequence_so_far(kind, pool):
    steps = 9 if pool == "leaky" else None
    made = {
        "classifier": ClassifierConfig(
            inputs=1, classes=3, features=6, depth=2, neuron=NEURON, pool=pool, pool_steps=steps
        ),
        "feedforward": FeedforwardConfig(sizes=(1, 6, 5, 3), neuron=NEURON, pool=pool, pool_steps=steps),
    }[kind]  # fmt: skip
    model = build(made).eval()
    batch = task()["test"].batch(np.array([0]))
    running = running_logits(model, batch)
    with torch.no_grad():
        for end in (1, 7, batch.x.shape[1]):
            whole = model(batch.x[:, :end])[0]
            whole = whole[-1] if pool == "none" else whole
            assert torch.allclose(running[end - 1].float(), whole, atol=1e-5), end


def test_the_raster_has_every_spike_and_the_potentials():
    """Spikes as the fused network fires them, potentials as each neuron traces them."""
    model, data = build(config().model).eval(), task()
    with nn.fire_rates(model) as fused, torch.no_grad():
        model(data["test"].batch(np.array([5])).x)
    drawn = raster(model, data, data["test"], 5)
    with recorded(model, potentials=True) as layers:
        model(data["test"].batch(np.array([5])).x)
    cells = np.frombuffer(base64.b64decode(drawn["cells"]), np.int8).reshape(-1, drawn["shown"])
    assert drawn["shown"] == 24
    assert len(layers) == 4
    at = 0
    for (name, layer), about in zip(layers.items(), drawn["layers"], strict=True):
        block = cells[at : at + len(about["kept"])]
        at += len(about["kept"])
        assert about["kept"] == list(range(8))
        assert (block >= 0).mean() == pytest.approx(fused[name])
        assert ((block >= 0) == layer.spikes[0].numpy().T).all()
        distance = np.where(block >= 0, block, block + 1.0) / 127 * about["scale"]
        exact = layer.above[0].numpy().T
        inside = np.abs(exact) <= about["scale"]
        assert np.abs(distance - exact)[inside].max() <= about["scale"] / 127
    assert at == len(cells)


@pytest.mark.parametrize("reverse", [False, True])
def test_recording_leaves_the_network_as_it_was(reverse):
    model = build(ClassifierConfig(inputs=1, classes=3, features=6, depth=1, neuron=NEURON, bidirectional=reverse))
    x, before = torch.randn(2, 11, 1), [module.training for module in model.modules()]
    plain = model.eval()(x)
    model.train()
    with recorded(model) as layers:
        composed = model(x)
    assert torch.allclose(plain, composed, atol=1e-6)
    assert len(layers) == 2 + reverse
    assert [module.training for module in model.modules()] == before
    assert all("scan" not in vars(module) for module in model.modules())
    assert model.encoder.blocks[0].why_not_fused(x.expand(2, 11, 6)) is None


def test_neurons_by_frequency_and_memory():
    prf = nn.PRF(5, delta=(0.1, 0.5), tau=3.0)
    frequency, memory = oscillator(prf)
    assert np.allclose(frequency, (prf.log_delta.exp() * prf.log_theta.exp()).detach())
    assert np.allclose(memory, 3.0 / prf.log_delta.exp().detach())
    # A LIF has one state: β = 1 - 1/τ.
    frequency, memory = oscillator(nn.LIF(2, tau=10.0))
    assert np.allclose(frequency, 0)
    assert np.allclose(memory, -1 / math.log(0.9))
    # Of several resonators, all.
    assert len(oscillator(nn.DRF(3, resonators=4))[0]) == 12
    assert oscillator(nn.PSN(2, steps=7)) is None


class Disguised(nn.Neuron):
    """The equation of a PRF under other names, so that only its linearisation can tell."""

    states = ("p", "q")

    def __init__(self, features, inner):
        super().__init__(features)
        self.inner = inner

    def coefficients(self):
        return self.inner.coefficients()

    @staticmethod
    def dynamics(current, state, c, spike):
        p = c.phi_re * state.p - c.phi_im * state.q + c.gain * current
        return spike(p - c.threshold), {"p": p, "q": c.phi_im * state.p + c.phi_re * state.q}


def test_any_equation_has_a_frequency_and_a_memory():
    inner = nn.PRF(6, delta=(0.05, 0.4))
    for found, exact in zip(oscillator(Disguised(6, inner)), oscillator(inner), strict=True):
        assert np.allclose(found, exact, rtol=1e-4)


def test_the_initial_network_is_that_of_the_first_step(tmp_path):
    class Keep(train.Callback):
        def on_start(self, run):
            self.state = {name: value.clone() for name, value in run.model.state_dict().items()}

    keep, settings = Keep(), config(steps=1, validate_every=1)
    with silent():
        train.train(settings, task(), tmp_path / "run", callbacks=[keep])
    before = torch.random.get_rng_state()
    again = initial_network(settings).state_dict()
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(again[name], value) for name, value in keep.state.items())


def test_rates_of_neurons_average_to_that_of_their_layer(run):
    model, split = models.load(run), train.load_task(run)["test"]
    rates = neuron_rates(model, split.batches(5))
    known = train.recorded(run)["fire_rates"]
    assert {*rates} == {*known}
    for name, each in rates.items():
        assert each.shape == (8,)
        assert each.mean() == pytest.approx(known[name], rel=1e-6)
