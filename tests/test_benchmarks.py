"""The benchmarks against peers: the peers are what they are said to be, and results become tables and figures."""

import copy
import importlib
import itertools
import json
import math
import os
import re

import matplotlib.image
import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import baselines, events, films, peer_layers, peers, ucr
from benchmarks.clock import Table
from benchmarks.figures import draw_events, draw_peers, page
from resofire.commands.bench import Bench
from resofire.commands.usage import UsageError
from resofire.compare import NETWORKS
from resofire.data import Task, from_arrays
from resofire.data.task import make_splits, pack
from resofire.nn import fire_rates
from resofire.ops import lif
from resofire.plot import save


def installed(name):
    """One of the peers, or a skip if its package is not there."""
    found, missing = peer_layers.installed()
    if name not in found:
        pytest.skip(" ".join(missing))
    return found[name].build(6)


def steps(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def test_spikingjelly_fires_like_ours_and_learns_alike():
    theirs, x, grad = installed("SpikingJelly LIFNode"), steps(2, 300, 6), torch.randn(2, 300, 6).double()
    ours, _ = lif(x, peer_layers.BETA)
    spikes = theirs(x)
    assert torch.equal(spikes, ours)
    assert 0.05 < float(ours.detach().mean()) < 0.5
    expected, found = (torch.autograd.grad(each, x, grad)[0] for each in (ours, spikes))
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_the_classics_of_films(capsys, monkeypatch):
    """Reviews name an actor among words that all share; pairs of one actor are the same film."""
    random, symbols = np.random.RandomState(0), ("<pad>", "<end>", *" abcdefghijklmnopqrstuvwxyz")
    actors = ["".join(random.choice([*"klmnopqrst"], 9)) for _ in range(12)]
    arrays, texts = {}, {}
    for split, count in (("train", 200), ("validation", 60), ("test", 60)):
        labels = random.randint(0, 2, count)
        ones = random.randint(0, 12, count)
        pairs = [(one, one if same else (one + 1) % 12) for one, same in zip(ones, labels, strict=True)]
        words = [
            " ".join(random.choice(["good", "bad", "long", "film"], random.randint(3, 9))) for _ in range(2 * count)
        ]
        texts[split] = [f"{word} {actors[each]}" for word, each in zip(words, itertools.chain(*pairs), strict=True)]
        tokens = [np.array([*map(symbols.index, text), 1], np.uint8) for text in texts[split]]
        arrays |= {f"{split}_labels": labels}
        arrays[f"{split}_x"], arrays[f"{split}_bounds"] = pack(tokens)
    splits = make_splits(arrays, "tokens", pairs=True)
    task = Task("films", "tokens", 2, splits, vocabulary=len(symbols), pairs=True, symbols=symbols)
    assert films.documents(task["test"], symbols) == texts["test"]
    monkeypatch.setattr(films.data, "load", lambda name, folder: task)
    monkeypatch.setattr("sys.argv", ["films"])
    assert films.main() == 0
    table = [line.split("|") for line in capsys.readouterr().out.splitlines() if "cosine" in line or "regress" in line]
    assert len(table) == 4
    assert all(float(line[-2].strip(" %")) > 85 for line in table)
    scores = np.array([0.1, 0.4, 0.35, 0.8])
    assert films.best_threshold(scores, np.array([0, 0, 1, 1])) in (0.1, 0.4)
    assert films.best_threshold(scores, np.array([1, 1, 1, 1])) == -np.inf


def test_the_classics_of_the_ucr_table():
    """Shifted waves: Euclid fails where warping and kernels do not; lengths differ."""
    random = np.random.RandomState(0)
    rows = [np.sin(np.arange(40 + n % 3) * (0.4 + 0.2 * (n % 2)) + 6 * random.rand()) for n in range(60)]
    task = from_arrays(rows, np.arange(60) % 2, test=0.5, validation=0)
    assert [ucr.CLASSICS[name](task)[1] for name in ("euclid", "dtw")] == [30, 30]
    assert ucr.dtw(task)[0] > 20
    assert ucr.kernels(task, count=100)[0] > 25
    a, b = random.randn(2, 9)
    table = np.full((10, 10), np.inf)
    table[0, 0] = 0
    for i, j in itertools.product(range(9), range(9)):
        table[i + 1, j + 1] = (a[i] - b[j]) ** 2 + min(table[i, j], table[i, j + 1], table[i + 1, j])
    distance = table[9, 9]
    assert [ucr._warped(a, b, limit) for limit in (np.inf, 1.01 * distance)] == pytest.approx([distance] * 2)
    assert ucr._warped(a, b, 0.99 * distance) == np.inf
    # As they are, stretched, and both standardised; for Euclid only those of one length.
    known = ucr.forms([5 * a, b[:7]], [b])
    assert [[len(row) for row in x] for x, _ in known] == [[9, 7], [9, 9]] * 2
    assert [x[0].std() for x, _ in known] == pytest.approx([5 * a.std()] * 2 + [1] * 2)
    assert len(ucr.forms([5 * a, b[:7]], [b], equal=True)) == 2
    result = {name: {"correct": 9, "count": 10} for name in ucr.METHODS}
    text = ucr.table({"Fish": {"classes": 7, "train": 175, "test": 175, "steps": 463, **result}})
    assert "| Fish | 7 | 175 / 175 | 463 | 90.0 | 90.0 | 90.0 | 90.0 |" in text
    assert text.endswith("ahead of 1-NN DTW on 0 of 1 sets.")


def test_snntorch_leaky_is_ours_but_for_its_reset():
    x = steps(2, 300, 6)
    theirs = installed("snnTorch Leaky")
    plain = peer_layers.snntorch_leaky(6, reset="none")
    assert torch.equal(plain(x), lif(x, peer_layers.BETA, reset="none")[0])
    assert not torch.equal(theirs(x), lif(x, peer_layers.BETA)[0])
    # u_t = β u_{t-1} + c_t - V s_{t-1}: the reset is subtracted after the decay.
    u, s = torch.zeros(2, 6).double(), torch.zeros(2, 6).double()
    for t, spikes in enumerate(theirs(x).unbind(1)):
        u = peer_layers.BETA * u + x[:, t] - s
        s = (u > 1).double()
        assert torch.equal(spikes, s)


def test_snntorch_stateleaky_is_a_lif_without_reset_and_with_another_decay():
    x, theirs = torch.randn(2, 300, 6), installed("snnTorch StateLeaky")
    ours, _ = lif(x, math.exp(-1 / peer_layers.TAU), reset="none")
    # A convolution and a walk round differently: a spike at a tie may go either way.
    assert float((theirs(x) != ours).float().mean()) < 1e-3
    assert float((theirs(x) != lif(x, peer_layers.BETA, reset="none")[0]).float().mean()) > 1e-2


def test_s4d_is_the_recurrence_it_says():
    layer, x = peer_layers.S4D(4, states=8).double(), steps(2, 50, 4)
    scaled, weight = layer.poles()
    normed = layer.norm(x)
    state, out = torch.zeros(2, 4, 4, dtype=torch.complex128), []
    for c in normed.unbind(1):
        state = scaled.exp() * state + c[..., None]
        out.append(2 * (weight * state).sum(-1).real + layer.skip * c)
    expected = x + layer.linear(nn.functional.gelu(torch.stack(out, 1)))
    assert torch.allclose(layer(x), expected, atol=1e-9)


def test_transformer_is_torchs_own_with_a_causal_mask():
    ours = peer_layers.Transformer(8, heads=2).double()
    theirs = nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True).double()
    renamed = {"into.weight": "self_attn.in_proj_weight", "into.bias": "self_attn.in_proj_bias",
               "out.weight": "self_attn.out_proj.weight", "out.bias": "self_attn.out_proj.bias"}  # fmt: skip
    theirs.load_state_dict({renamed.get(name, name): value for name, value in ours.state_dict().items()})
    x, mask = steps(2, 20, 8), nn.Transformer.generate_square_subsequent_mask(20, dtype=torch.float64)
    assert torch.allclose(ours(x), theirs(x, src_mask=mask), atol=1e-9)


@pytest.mark.parametrize("neuron", [peer_layers.LoopLIF(), peer_layers.FourierLIF()], ids=["loop", "fourier"])
def test_what_is_profiled_is_the_lif(neuron):
    x, grad = steps(2, 200, 5), torch.randn(2, 200, 5).double()
    expected, _ = lif(x, peer_layers.BETA)
    found = neuron(x)
    assert torch.equal(found, expected)
    slopes = [torch.autograd.grad(each, x, grad)[0] for each in (found, expected)]
    assert torch.allclose(*slopes, atol=1e-9)


def test_the_block_fires_as_told():
    block = peer_layers.block(32)
    with torch.no_grad(), fire_rates(block) as found:
        block(torch.randn(4, 512, 32))
    assert list(found.as_dict().values()) == pytest.approx(peer_layers.RATES, rel=0.2)


def test_a_missing_package_is_one_sentence_and_its_rows_are_left_out(monkeypatch):
    real = importlib.import_module

    def without(name, *rest):
        if name.split(".")[0] in ("snntorch", "spikingjelly"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    found, missing = peer_layers.installed()
    assert len(missing) == 2
    assert all("is not installed" in sentence for sentence in missing)
    assert list(found) == [name for name in peer_layers.PEERS if name.split()[0] not in ("snnTorch", "SpikingJelly")]


def test_extrapolation_follows_a_line_and_a_square():
    points = [{"length": n, "forward": 3e-6 * n, "backward": 1e-6 * n + 2e-9 * n**2} for n in (4, 1024, 4096)]
    found = peers.extrapolated(points, 32768)
    assert found == pytest.approx({"forward": 3e-6 * 32768, "backward": 1e-6 * 32768 + 2e-9 * 32768**2})
    # Noise must not bend it below a line or above a square.
    noisy = [{"length": 10, "forward": 20.0, "backward": 1.0}, {"length": 20, "forward": 30.0, "backward": 8.0}]
    assert peers.extrapolated(noisy, 40) == pytest.approx({"forward": 60.0, "backward": 32.0})


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="peak memory is read from /proc")
def test_peak_memory_counts_what_a_step_keeps():
    """As `memory` reads it, in a process of its own: here, room that other tests have left would be taken again."""
    shape = peers.BATCH * 2048 * peers.FEATURES * 4 / 1e6
    # Attention, MLP and norms keep more than ten times the stream.
    assert peers.memory(Table(), ["Transformer"], 2048)["Transformer"] > 5 * shape


def test_no_peak_memory_where_the_kernel_forbids_it(tmp_path, monkeypatch, capsys):
    # A folder can be written by nobody, not even by root.
    monkeypatch.setattr(peers, "CLEAR_REFS", str(tmp_path))
    assert peers.memory(Table(), ["Transformer"], 2048) == {}
    assert f"not measured: {tmp_path} cannot be written" in capsys.readouterr().out


@pytest.mark.deep
def test_baselines_are_timed_at_equal_size(capsys):
    result = baselines.run(quick=True)
    assert result["command"] == "resofire bench baselines --quick"
    rows = {row["name"].rpartition(": ")[2]: row for row in result["figures"]}
    assert set(rows) == {each.title for each in NETWORKS.values() if not each.fixed}
    assert rows["SD-TCM"]["value"] == 1
    own = float(re.match(r"(\d+) ms", rows["SD-TCM"]["note"])[1]) / 118_277
    for row in rows.values():
        words = re.match(r"(\d+) ms, ([\d,]+) parameters, width \d+", row["note"]).groups()
        milliseconds, parameters = (float(word.replace(",", "")) for word in words)
        assert parameters == pytest.approx(118_277, rel=0.05)
        # The note is rounded to a millisecond.
        assert row["value"] == pytest.approx(milliseconds / parameters / own, rel=0.05)
        assert row["met"] == (row["value"] <= 2)


@pytest.fixture(scope="module")
def compared():
    """A quick run of `peers`, as it comes back from its JSON."""
    torch.manual_seed(0)
    return json.loads(json.dumps(peers.run(quick=True)))


def with_guesses(result):
    """The same result as if the loop had been measured at the first two lengths only."""
    result = copy.deepcopy(result)
    for each in (*result["peers"]["LIF loop"]["points"], *result["speedups"]):
        each["extrapolated"] = each["length"] > 64
    result["memory"]["megabytes"] = {"LIF": 12.3}
    return result


def test_peers_measures_every_peer_at_every_length(compared):
    assert compared["command"] == "resofire bench peers --quick"
    found, missing = peer_layers.installed()
    assert list(compared["peers"]) == list(found)
    assert compared["missing"] == missing
    for peer in compared["peers"].values():
        assert [point["length"] for point in peer["points"]] == [4, 64, 256]
        assert all(point["forward"] > 0 and point["backward"] > 0 for point in peer["points"])
        assert not any(point["extrapolated"] for point in peer["points"])
    loop, fused = (compared["peers"][name]["points"][-1] for name in ("LIF loop", "LIF"))
    ratio = (loop["forward"] + loop["backward"]) / (fused["forward"] + fused["backward"])
    assert compared["speedups"][-1]["fused"] == pytest.approx(ratio)


def test_the_profile_has_the_papers_rows(compared):
    profiles = compared["paper"]["case"]["profile"]
    length = compared["paper"]["case"]["shape"][1]
    calls = {kind: {part["name"]: part["calls"] for part in parts} for kind, parts in profiles.items()}
    for name in ("Charge", "Fire", "Reset", "AtanBackward", "SelectBackward"):
        assert calls["sequential"][name] == length
    for name in ("Scan Kernel", "FFT Conv Op.", "Scan Dynamic Thr.", "Fire", "AtanBackward", "MmBackward"):
        assert calls["parallel"][name] == 1
    assert calls["fused"] == {"Scan": 1, "ScanBackward": 1, "MmBackward": 1, "Other": 0}
    assert all(part["seconds"] > 0 for parts in profiles.values() for part in parts)
    # The paper's own sums, in seconds.
    sums = {kind: sum(part["paper"] or 0 for part in parts) for kind, parts in profiles.items()}
    assert sums == pytest.approx({"sequential": 1.20125, "parallel": 0.33765, "fused": 0})


def test_peers_as_tables(compared):
    result = with_guesses(compared)
    ours = next(row for row in peers.peer_table(result).splitlines() if row.startswith("| LIF:"))
    loop = next(row for row in peers.peer_table(result).splitlines() if row.startswith("| LIF loop:"))
    assert "12.3 MB" in ours
    ratio = result["speedups"][-1]["fused"]
    assert f"| {peers.times(ratio, True)} |" in loop
    assert "132.55x" in peers.paper_table(result)
    assert "146.7 ms" in peers.profile_table(result)
    parts = peers.table(result).split("\n\n")
    assert parts == [peers.peer_table(result), peers.paper_table(result), peers.profile_table(result)]
    for part in parts:
        assert len({line.count("|") for line in part.splitlines()}) == 1


def test_peers_as_figure(compared, tmp_path):
    result = with_guesses(compared)
    drawn = draw_peers(result)
    neurons, layers, speedups, halves = drawn.axes
    assert [text.get_text() for text in neurons.get_legend().get_texts()] == [
        name for name, peer in result["peers"].items() if peer["group"] == "neuron"
    ]
    assert len(layers.lines) == 3
    assert len(neurons.lines) == len(neurons.get_legend().get_texts()) + 1  # the loop's second line, extrapolated
    assert [list(line.get_xdata()) for line in speedups.lines[:2]] == [[4, 64], [64, 256]]
    assert len(halves.patches) == 3 + 2 + 3 + 2
    (file,) = save(drawn, tmp_path / "peers", ("png",))
    assert matplotlib.image.imread(file)[..., :3].std() > 0.05


@pytest.fixture(scope="module")
def measured():
    """A small run of `events`, as it comes back from its JSON."""
    torch.manual_seed(0)
    return json.loads(json.dumps(events.run(quick=True)))


def test_events_fires_as_told(measured):
    assert measured["command"] == "resofire bench events --quick"
    network, synapse = measured["cases"]
    for case in (network, synapse):
        for point in case["points"]:
            assert point["rate"] == pytest.approx(point["target"], rel=0.1)
            assert set(point["seconds"]) == {"events", "dense"} | ({"fused", "stream"} if case is network else set())
        assert case["fits"].keys() == case["points"][0]["seconds"].keys() - {"dense"}
    for point in network["points"]:
        assert list(point["layers"].values()) == pytest.approx([point["target"]] * 4, rel=0.15)
        # Four Linears of 128 inputs at 4 x 784 time steps.
        assert point["operations"] == pytest.approx(point["rate"] * 4 * 128 * 4 * 784)


def test_the_three_ways_of_running_give_the_same_logits():
    model, case = events.network(32, 4, 200)
    events.set_rates(model, case, [(0.1, 0.2)] * 2)
    model, x = model.double(), case.x.double()
    logits = [events.variant(model, kind)(x) for kind in events.KINDS]
    for one, other in itertools.pairwise(logits):
        assert torch.allclose(one, other, atol=1e-9)
    backends = [events.variant(model, kind).encoder.blocks[0].token_linear.backend for kind in events.KINDS]
    assert backends == ["events", "reference", "auto"]
    assert events.variant(model, "fused").encoder.blocks[0].why_not_fused(torch.zeros(1, 600, 32).double()) is None


def points(*rows):
    return [{"target": r, "rate": r, "operations": 1e6 * r, "seconds": {"events": e, "dense": d}} for r, e, d in rows]


def test_the_fit_finds_base_slope_and_break_even():
    found = events.follow(points((0.1, 0.003, 0.006), (0.3, 0.005, 0.006), (0.5, 0.007, 0.006)), "events")
    assert found["correlation"] == pytest.approx(1)
    assert found["base_seconds"] == pytest.approx(0.002)
    assert found["nanoseconds_per_row"] == pytest.approx(10)
    assert found["base_share_at_5"] == pytest.approx(0.002 / 0.0025)
    assert found["break_even"] == pytest.approx(0.4)


@pytest.mark.parametrize(("dense", "message"), [(0.009, "> 50 %"), (0.001, "never faster"), (0.006, "40 %")])
def test_where_dense_catches_up_in_words(dense, message):
    given = points((0.1, 0.003, dense), (0.3, 0.005, dense), (0.5, 0.007, dense))
    assert events.crossing(given, "events", events.break_even(given, "events")) == message


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (
            (0.001, 0.002, 0.0051),
            "Yes: from 10 % to 50 % the operations grow 5 times, the time 5.1 to 5.1 times (events)",
        ),
        ((0.006, 0.007, 0.008), "Only above a base: .* the time 1.3 to 1.3 times"),
        ((0.008, 0.006, 0.008), "No: .* the time 1 to 1 times"),
    ],
    ids=["yes", "base", "no"],
)
def test_the_answer_follows_from_the_numbers(times, words):
    given = points(*((rate, time, 0.006) for rate, time in zip((0.1, 0.3, 0.5), times, strict=True)))
    fits = {"events": events.follow(given, "events")}
    message = events.answer({"cases": [{"points": given, "fits": fits}]})
    assert re.match(words.replace("(events)", r"\(events\)"), message), message
    assert f"r = {fits['events']['correlation']:.3f} to" in message


def test_the_page_answers_above_its_table(measured):
    text = page("events", measured, "events.png")
    assert text.index("(events.png)") < text.index(events.answer(measured)) < text.index(events.table(measured))


def test_a_page_that_cannot_be_finished_leaves_the_old_one(measured, tmp_path, monkeypatch):
    """So with --json."""
    monkeypatch.setattr(events, "run", lambda quick: measured)
    command = Bench("events", json=tmp_path / "a.json", figure=tmp_path / "a")
    assert command.run() == 0
    assert json.loads((tmp_path / "a.json").read_text()) == measured
    before = {file: file.read_bytes() for file in sorted(tmp_path.iterdir())}
    assert [file.name for file in before] == ["a.json", "a.md", "a.png", "a.svg"]
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"--json .*a\.json cannot be written: disk is full"):
        command.run()
    assert {file: file.read_bytes() for file in sorted(tmp_path.iterdir())} == before


def full(file):
    raise OSError("disk is full")


def test_events_as_table_and_figure(measured, tmp_path):
    text = events.table(measured)
    # The network by events, fused and as a stream; the synapse by events.
    assert len(text.splitlines()) == 2 + 4
    assert len({line.count("|") for line in text.splitlines()}) == 1
    ratio = measured["cases"][0]["points"][0]["seconds"]
    assert f"| {ratio['dense'] / ratio['events']:.2g}x |" in text
    drawn = draw_events(measured)
    by_rate, by_work = drawn.axes
    assert len(by_rate.lines) == 4
    assert len(by_work.lines) == 4 + 3
    # The fitted line of the events goes through its base.
    assert by_work.lines[1].get_ydata()[0] == pytest.approx(
        1e3 * measured["cases"][0]["fits"]["events"]["base_seconds"]
    )
    (file,) = save(drawn, tmp_path / "events", ("png",))
    assert matplotlib.image.imread(file)[..., :3].std() > 0.05
