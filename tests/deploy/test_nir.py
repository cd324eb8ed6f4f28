"""NIR: a network that went through a file and is run by the interpreter fires as the folded one does."""

import numpy as np
import pytest
import torch
from folds import CASES, given, network

nir = pytest.importorskip("nir", reason="the package nir is not installed")

from resofire.deploy import Folded, Layer, Neurons, fold  # noqa: E402
from resofire.deploy.interpreter import GraphError, prepare, run  # noqa: E402
from resofire.deploy.formats.nir import DT, Player, graph, read, replay, write  # noqa: E402
from resofire.deploy.reference import run  # noqa: E402
from resofire.models import FeedforwardConfig  # noqa: E402
from resofire.models.storage import StorageError  # noqa: E402
from resofire.nn import LIFConfig  # noqa: E402

CAUSAL = [case for case in CASES if "bidirectional" not in case]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", CAUSAL)
def test_a_network_comes_back_spike_for_spike(case, dtype):
    folded = fold(network(CASES[case]), dtype)
    player = Player(graph(folded))
    for steps in (1, 63, 200):
        x = given(CASES[case], steps).numpy()
        ours, theirs = walk(folded, x), player.play(x)
        assert len(ours.spikes) == len(theirs.spikes)
        for a, b in zip(ours.spikes, theirs.spikes, strict=True):
            np.testing.assert_array_equal(a, b)
        close = 1e-12 if dtype == "float64" else 1e-5
        np.testing.assert_allclose(theirs.scores, ours.scores, rtol=close, atol=close)
    assert any(each.any() for each in ours.spikes)


@pytest.mark.parametrize("case", ["prenorm", "soft prf", "lif hard", "tokens", "feedforward lif"])
def test_a_file_runs_as_the_graph_does(case, tmp_path):
    folded = fold(network(CASES[case], torch.float32))
    file = tmp_path / "network.nir"
    write(folded, file)
    x = given(CASES[case], 63).numpy()
    (found,) = replay(file, [x])
    direct = Player(graph(folded)).play(x)
    np.testing.assert_array_equal(found.scores, direct.scores)
    for a, b in zip(found.spikes, direct.spikes, strict=True):
        np.testing.assert_array_equal(a, b)


def test_nirs_own_reader_takes_the_file(tmp_path):
    """With its check of shapes; whoever reads NIR gets the nodes, the edges and what a step lasts."""
    file = tmp_path / "network.nir"
    made = graph(fold(network(CASES["soft prf"])))
    nir.write(file, made)
    found = nir.read(file)
    assert found.edges == made.edges
    assert set(found.nodes) == set(made.nodes)
    kinds = {type(node).__name__ for node in found.nodes.values()}
    assert kinds == {"Input", "Output", "Linear", "Affine", "Scale", "Threshold", "Delay"}
    assert found.metadata["dt"] == DT
    assert found.metadata["pool"] == "mean"
    for name, node in made.nodes.items():
        for key, value in vars(node).items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(getattr(found.nodes[name], key), value)


def test_a_tie_fires():
    """NIR's Threshold and LIF fire on >, these neurons on ≥."""
    one = np.ones(1)
    for reset in ("none", "soft", "hard"):
        neurons = Neurons("lif", np.ones(1, np.int8), one, 0 * one, one / 2, 0 * one, reset)
        folded = Folded(np.eye(1), False, (Layer((neurons,), np.eye(1), fresh=True),), "none", np.eye(1), 0 * one)
        x = np.array([[1.0], [0.5], [0.75], [1 - 2**-53]])
        ours, theirs = walk(folded, x), Player(graph(folded)).play(x)
        np.testing.assert_array_equal(ours.spikes[0], theirs.spikes[0])
        assert ours.spikes[0][0, 0]


def test_a_hard_reset_is_nirs_own_neuron():
    made = graph(fold(network(CASES["lif hard"])))
    kinds = [type(node).__name__ for node in made.nodes.values()]
    assert kinds.count("LIF") == 3
    assert "Delay" not in kinds


def test_what_nir_cannot_say_is_refused():
    with pytest.raises(ValueError, match="bidirectional, and NIR has no way to walk a sequence from its end"):
        graph(fold(network(CASES["bidirectional"])))


@pytest.mark.filterwarnings("ignore")
def test_snntorch_runs_a_network_with_hard_reset(tmp_path):
    """Its importer makes a network of its own neurons out of our file; float32, as it computes."""
    snntorch = pytest.importorskip("snntorch", reason="the package snntorch is not installed")
    pytest.importorskip("nirtorch", reason="the package nirtorch, which snntorch's importer needs, is not installed")
    from snntorch.import_nir import import_from_nir

    neuron = LIFConfig(threshold=0.3, reset="hard")
    config = FeedforwardConfig(sizes=(2, 32, 24, 5), neuron=neuron, pool="none")
    folded = fold(network(config, torch.float32))
    file = tmp_path / "network.nir"
    write(folded, file)
    theirs = import_from_nir(nir.read(file))
    fired = []
    for part in theirs.modules():
        if isinstance(part, snntorch.Leaky):
            fired.append([])
            part.register_forward_hook(lambda _, __, out, kept=fired[-1]: kept.append(out[0].numpy() > 0))
    x = given(config, 200).float()
    scores, state = [], None
    with torch.no_grad():
        for now in x:
            out, state = theirs(now[None], state)
            scores.append(out[0].numpy())
    ours = walk(folded, x.numpy())
    different = sum(int((a != np.stack(b)).sum()) for a, b in zip(ours.spikes, fired, strict=True))
    assert 0.2 < ours.spikes[0].mean() < 0.6
    assert different == 0
    np.testing.assert_allclose(np.stack(scores), ours.scores, rtol=1e-6, atol=1e-6)


def ends(size):
    return {"in": nir.Input({"input": np.array([size])}), "out": nir.Output({"output": np.array([size])})}


def played(nodes, edges, x):
    made = nir.NIRGraph({**ends(x.shape[1]), **nodes}, edges)
    return run(prepare(made, DT), x)[0]


def test_a_delay_is_one_step_late_and_all_else_acts_at_once():
    x = np.arange(1.0, 5)[:, None]
    late = {"late": nir.Delay(np.full(1, DT)), "twice": nir.Scale(np.full(1, 2.0))}
    edges = [("in", "late"), ("late", "twice"), ("twice", "out")]
    np.testing.assert_array_equal(played(late, edges, x)[:, 0], [0, 2, 4, 6])
    # A sum over time: what comes in, and what the node itself gave a step ago.
    loop = {"sum": nir.Scale(np.ones(1)), "late": nir.Delay(np.full(1, DT))}
    edges = [("in", "sum"), ("sum", "late"), ("late", "sum"), ("sum", "out")]
    np.testing.assert_array_equal(played(loop, edges, x)[:, 0], [1, 3, 6, 10])


def test_leaky_nodes_take_a_step_of_forward_euler():
    x = np.array([[1.0], [0.0], [3.0], [0.0]])
    one = np.ones(1)
    leaky = {"v": nir.LI(tau=4 * DT * one, r=2 * one, v_leak=one)}
    v, wanted = 0.0, []
    for now in x[:, 0]:
        v += (1 - v + 2 * now) / 4
        wanted.append(v)
    edges = [("in", "v"), ("v", "out")]
    np.testing.assert_allclose(played(leaky, edges, x)[:, 0], wanted, rtol=1e-12)
    fires = {"v": nir.LIF(4 * DT * one, 2 * one, 0 * one, v_threshold=one, v_reset=-one)}
    # v: 0.5, 0.375, 0.28125 + 1.5 fires and is -1, -0.75
    np.testing.assert_array_equal(played(fires, edges, x)[:, 0], [0, 0, 1, 0])


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        ({"a": nir.Scale(np.ones(1)), "b": nir.Scale(np.ones(1))},
         [("in", "a"), ("a", "b"), ("b", "a"), ("b", "out")], "has no Delay in it"),
        ({"a": nir.Delay(np.full(1, 3 * DT))}, [("in", "a"), ("a", "out")], "a delay of one step"),
        ({"a": nir.I(np.ones(1))}, [("in", "a"), ("a", "out")], "must be one of Input, Output, .*, got I"),
        ({"a": nir.LI(0 * np.ones(1), np.ones(1), np.ones(1))}, [("in", "a"), ("a", "out")], "positive tau"),
        ({"a": nir.Input({"input": np.array([1])})}, [("in", "out"), ("a", "out")], "must have one Input, got 2"),
    ],
)  # fmt: skip
def test_graphs_that_cannot_be_run(nodes, edges, words, tmp_path):
    with pytest.raises(GraphError, match=words):
        played(nodes, edges, np.ones((2, 1)))
    nir.write(tmp_path / "bad.nir", nir.NIRGraph({**ends(1), **nodes}, edges))
    with pytest.raises(StorageError, match=words):
        read(tmp_path / "bad.nir")


def test_a_sequence_of_another_width():
    with pytest.raises(GraphError, match=r"x must have shape \[3, 2\], got \[3, 1\]"):
        Player(graph(fold(network(CASES["prenorm"])))).play(np.zeros((3, 1)))
