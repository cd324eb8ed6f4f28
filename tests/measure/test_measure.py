"""A network measured end to end: the numbers, the tables, the figure, and what is refused."""

import json
from dataclasses import replace

import pytest
import torch

from resofire.data.task import Batch
from resofire.measure import COSTS, PEERS, Costs, count_ops, energy, fire_rates, measure, peer, report
from resofire.measure.costs import FLOAT32, INT8
from resofire.models import ClassifierConfig, FeedforwardConfig, RetrievalConfig, build
from resofire.nn import LIFConfig, PRFConfig
from resofire.plot.measure import draw

NEURON = PRFConfig(delta=(0.2, 0.8), threshold=0.1)
CONFIGS = {
    "classifier": ClassifierConfig(inputs=2, classes=3, features=16, depth=3, neuron=NEURON),
    "bidirectional": ClassifierConfig(inputs=2, classes=3, features=16, depth=2, neuron=NEURON, bidirectional=True),
    "lif": ClassifierConfig(inputs=2, classes=3, features=16, depth=2, neuron=LIFConfig(threshold=0.2)),
    "per-step": ClassifierConfig(inputs=2, classes=3, features=16, depth=1, neuron=NEURON, pool="none"),
    "retrieval": RetrievalConfig(inputs=2, features=16, depth=1, neuron=NEURON),
    "feedforward": FeedforwardConfig(sizes=(2, 12, 16, 3), neuron=NEURON, gain=4.0),
}
MODEL = CONFIGS["classifier"]


def batches(config, count=4, steps=20):
    x = torch.randn(count, 2, steps, 2) if isinstance(config, RetrievalConfig) else torch.randn(count, steps, 2)
    return [Batch(x, torch.zeros(count), None), Batch(x[:1], torch.zeros(1), None)]


@pytest.fixture(params=CONFIGS, scope="module")
def measured(request):
    config = CONFIGS[request.param]
    return measure(build(config), batches(config), against=tuple(PEERS))


def test_a_measured_network_is_json_adds_up_and_is_reported(measured):
    assert json.loads(json.dumps(measured)) == measured
    audited = measured["energy"]
    parts = audited["components"].values()
    assert sum(each["pJ_per_step"] for each in parts) == pytest.approx(audited["pJ_per_step"])
    assert audited["pJ_per_step"] * measured["length"]["value"] * 1e-9 == pytest.approx(audited["mJ_per_inference"])
    counted = measured["counts"]
    for kind, per_step in counted["per_step"].items():
        over_layers = sum(layer[kind] * layer["times"] for layer in counted["layers"])
        assert over_layers / measured["length"]["value"] == pytest.approx(per_step)
    by_cost = sum(counted["per_step"][kind] * measured["costs"][kind] for kind in ("mac", "ac", "multiply", "add"))
    by_cost += sum(counted["per_step"][kind] * measured["costs"][kind] for kind in ("compare", "nonlinear"))
    assert by_cost == pytest.approx(audited["pJ_per_step"])
    for each in measured["peers"].values():
        assert each["energy"]["times_ours"] * audited["mJ_per_inference"] == pytest.approx(
            each["energy"]["mJ_per_inference"]
        )
    assert measured["block"]["no_mac"]
    assert measured["block"]["no_nonlinear"]
    neuron, ways = measured["network"]["neuron"], 1 + measured["network"]["bidirectional"]
    assert measured["block"]["dynamics"] == {("PRF", 1): "5D", ("PRF", 2): "10D", ("LIF", 1): "D"}[neuron, ways]
    text = report(measured)
    assert max(map(len, text.splitlines())) <= 100
    for name in (*measured["rates"]["layers"], *measured["energy"]["components"]):
        assert name in text
    for each in measured["peers"].values():
        assert each["title"] in text
        assert f"{each['energy']['times_ours']:,.1f}x" in text


def test_figure(measured):
    """Three panels; a bar for each part and each peer; no text on another."""
    drawn = draw(json.loads(json.dumps(measured)))
    drawn.draw_without_rendering()
    rates, components, peers = drawn.axes
    shown = sum(len(line.get_xdata()) for line in rates.lines[:-1])
    assert shown == len(measured["rates"]["layers"])
    assert [label.get_text() for label in components.get_yticklabels()] == list(measured["energy"]["components"])
    assert len(peers.patches) == 1 + len(measured["peers"])
    for panel in drawn.axes:
        boxes = [text.get_window_extent() for text in [*panel.texts, *panel.get_yticklabels()]]
        legend = panel.get_legend()
        boxes += [] if legend is None else [text.get_window_extent() for text in legend.get_texts()]
        boxes = [box for box in boxes if box.width > 0]
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:i])


def test_figure_without_peers_has_no_panel_for_them():
    drawn = draw(measure(build(MODEL), batches(MODEL), against=()))
    assert [panel.get_title() for panel in drawn.axes] == ["Fire rate", "Energy by part"]


def test_length_is_measured_or_given():
    model, data = build(MODEL), batches(MODEL)
    assert measure(model, data)["length"]["value"] == 20
    twice = measure(model, data, 40)
    assert twice["length"]["value"] == 40
    pair = CONFIGS["retrieval"]
    assert measure(build(pair), batches(pair))["length"]["value"] == 40
    packed = Batch(torch.randn(1, 30, 2), torch.zeros(3), torch.tensor([0, 5, 20, 30], dtype=torch.int32))
    assert measure(model, [packed])["length"]["value"] == 10


def test_a_peer_has_the_networks_own_frame():
    """The same input layer, pool and head: what differs is the blocks."""
    config = CONFIGS["classifier"]
    measured = measure(build(config), batches(config))
    ours, theirs = measured["energy"]["components"], measured["peers"]["s4"]["energy"]["components"]
    for component in ("encoder", "norm", "pool", "head"):
        assert ours[component] == theirs[component]
    blocks = energy(peer("s4", (16,) * 3, 20, norm=False)).pj_per_step
    frame = sum(ours[component]["pJ_per_step"] for component in ("encoder", "norm", "pool", "head"))
    assert measured["peers"]["s4"]["energy"]["pJ_per_step"] == pytest.approx(blocks + frame)


def test_nothing_of_the_callers_is_changed():
    """Neither the mode of each layer, nor the running statistics, nor the random numbers."""
    model = build(MODEL)
    model.encoder.blocks[1].eval()
    modes = [module.training for module in model.modules()]
    statistics = model.encoder.norm.running_mean.clone()
    data, state = batches(MODEL), torch.get_rng_state()
    measure(model, data)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model.encoder.norm.running_mean, statistics)
    assert torch.equal(torch.get_rng_state(), state)


def test_tables_of_costs():
    assert FLOAT32.mac == pytest.approx(FLOAT32.multiply + FLOAT32.add) == 4.6
    assert INT8.mac == pytest.approx(0.2 + 0.1)
    model = build(MODEL)
    counts = count_ops(model, (20, 2), fire_rates(model, batches(MODEL)))
    plain, sram, dram = (energy(counts, name).pj_per_step for name in ("float32", "sram", "dram"))
    moved = {kind: counts.per_step(kind) for kind in ("weights_read", "state_read", "state_written")}
    activations = counts.per_step("activations_read") + counts.per_step("activations_written")
    near = (moved["state_read"] + moved["state_written"] + activations) * 20 / 8
    assert sram - plain == pytest.approx(moved["weights_read"] * 100 / 8 + near)
    assert dram - plain == pytest.approx(moved["weights_read"] * 1300 / 8 + near)
    assert all("Horowitz" in table.source for table in COSTS.values())


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((0,), {}, "measure: length must be a positive number, got 0"),
        (("long",), {}, "measure: length must be a positive number, got 'long'"),
        (
            (),
            {"against": ("transfomer",)},
            r"measure: against must be among .*did you mean 'transformer'.*, got 'transfomer'",
        ),
        ((), {"against": "s4"}, "measure: against must be a tuple of names, got 's4'"),
        ((), {"state_size": -1}, "measure: state_size must be a positive integer, got -1"),
        ((), {"state_size": 7, "against": ("s4", "s4d")}, "measure: state_size must be even for s4d, .*, got 7"),
        ((), {"costs": "7nm"}, r"measure: costs must be a Costs or one of .*'float32'.*, got '7nm'"),
    ],
)
def test_bad_input(arguments, settings, message):
    with pytest.raises(ValueError, match=message):
        measure(build(MODEL), batches(MODEL), *arguments, **settings)


def test_more_bad_input():
    with pytest.raises(ValueError, match="batches must hold at least one time step, got 0 sequences"):
        measure(build(MODEL), [])
    for value in (float("nan"), float("inf")):
        first, last = batches(MODEL)
        last.x[0, 3, 1] = value
        with pytest.raises(ValueError, match="fire_rates: batches must hold finite numbers, got NaN or infinity in"):
            fire_rates(build(MODEL), [first, last])
    with pytest.raises(ValueError, match="count_ops: the Linear has no `count`"):
        measure(torch.nn.Linear(1, 1), [])
    with pytest.raises(ValueError, match="Costs: mac must be a number of at least 0, got -1"):
        replace(FLOAT32, mac=-1)
    assert Costs(name="mine", source="me", mac=1, ac=1, multiply=1, add=1, compare=1, nonlinear=1).of("state_read") == 0
