"""NIR: a network that is written, read back and run step by step fires as the folded one does."""

import io

import numpy as np
import pytest
import torch
from deploy_cases import CASES, make_input, network

nir = pytest.importorskip("nir", reason="the package nir is not installed")

from resofire.deploy import Folded, Layer, Neurons, fold  # noqa: E402
from resofire.deploy.formats.nir import DT, _run_steps, graph, replay, run, write  # noqa: E402
from resofire.deploy.reference import run as reference  # noqa: E402
from resofire.models import FeedforwardConfig  # noqa: E402
from resofire.nn import LIFConfig  # noqa: E402

CAUSAL = [case for case in CASES if "bidirectional" not in case]


@pytest.mark.parametrize("case", CAUSAL)
def test_a_network_comes_back_spike_for_spike(case):
    """Sequences of different lengths together; through a file in float32, as a graph in float64."""
    x = [make_input(CASES[case], steps).numpy() for steps in (1, 63, 200)]
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
        folded = fold(network(CASES[case]), dtype)
        results = run(graph(folded), x) if dtype == "float64" else replay(write(folded), x)
        for sample, result in zip(x, results, strict=True):
            expected = reference(folded, sample)
            assert len(result.spikes) == len(expected.spikes)
            for ours, theirs in zip(result.spikes, expected.spikes, strict=True):
                np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_allclose(result.scores, expected.scores, rtol=tolerance, atol=tolerance)
        assert any(fired.any() for fired in expected.spikes)


def test_nirs_own_reader_takes_the_file():
    """With its check of shapes: other readers of NIR get the nodes, the edges and the metadata."""
    made = graph(fold(network(CASES["soft prf"])))
    back = nir.read(io.BytesIO(write(fold(network(CASES["soft prf"])))))
    assert back.edges == made.edges
    assert set(back.nodes) == set(made.nodes)
    kinds = {type(node).__name__ for node in back.nodes.values()}
    assert kinds == {"Input", "Output", "Linear", "Affine", "Scale", "Threshold", "Delay"}
    assert (back.metadata["dt"], back.metadata["pool"]) == (DT, "mean")
    for name, node in made.nodes.items():
        for key, value in vars(node).items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(getattr(back.nodes[name], key), value)


def test_a_tie_fires():
    """NIR's Threshold and LIF fire on >, these neurons on ≥."""
    one = np.ones(1)
    for reset in ("none", "soft", "hard"):
        neurons = Neurons("lif", np.ones(1, np.int8), one, 0 * one, one / 2, 0 * one, reset)
        folded = Folded(np.eye(1), False, (Layer((neurons,), np.eye(1), fresh=True),), "none", np.eye(1), 0 * one)
        x = np.array([[1.0], [0.5], [0.75], [1 - 2**-53]])
        expected, (result,) = reference(folded, x), run(graph(folded), [x])
        np.testing.assert_array_equal(expected.spikes[0], result.spikes[0])
        assert expected.spikes[0][0, 0]


def test_a_hard_reset_is_nirs_own_neuron():
    kinds = [type(node).__name__ for node in graph(fold(network(CASES["lif hard"]))).nodes.values()]
    assert kinds.count("LIF") == 3
    assert "Delay" not in kinds


def test_a_bidirectional_network_is_refused():
    with pytest.raises(ValueError, match="bidirectional, and NIR cannot run over a sequence in reverse"):
        graph(fold(network(CASES["bidirectional"])))


@pytest.mark.filterwarnings("ignore")
def test_snntorch_runs_a_network_with_hard_reset(tmp_path):
    """Its importer builds a network of its own neurons from our file; float32, as it computes."""
    snntorch = pytest.importorskip("snntorch", reason="the package snntorch is not installed")
    pytest.importorskip("nirtorch", reason="the package nirtorch, which snntorch's importer needs, is not installed")
    from snntorch.import_nir import import_from_nir

    neuron = LIFConfig(threshold=0.3, reset="hard")
    config = FeedforwardConfig(sizes=(2, 32, 24, 5), neuron=neuron, pool="none")
    folded = fold(network(config, torch.float32))
    theirs = import_from_nir(nir.read(io.BytesIO(write(folded))))
    fired = []
    for part in theirs.modules():
        if isinstance(part, snntorch.Leaky):
            fired.append([])
            part.register_forward_hook(lambda _, __, out, spikes=fired[-1]: spikes.append(out[0].numpy() > 0))
    x = make_input(config, 200).float()
    scores, state = [], None
    with torch.no_grad():
        for now in x:
            out, state = theirs(now[None], state)
            scores.append(out[0].numpy())
    ours = reference(folded, x.numpy())
    assert 0.2 < ours.spikes[0].mean() < 0.6
    assert not sum(int((a != np.stack(b)).sum()) for a, b in zip(ours.spikes, fired, strict=True))
    np.testing.assert_allclose(np.stack(scores), ours.scores, rtol=1e-6, atol=1e-6)


def played(nodes, edges, x):
    ends = {"in": nir.Input({"input": np.array([1])}), "out": nir.Output({"output": np.array([1])})}
    made = nir.NIRGraph({**ends, **nodes}, edges, metadata={"dt": DT})
    return _run_steps(made, np.asarray(x, np.float64)[:, None, None], ["out"])[0][:, 0, 0]


def test_a_delay_is_one_step_late_and_all_else_acts_at_once():
    late = {"late": nir.Delay(np.full(1, DT)), "twice": nir.Scale(np.full(1, 2.0))}
    edges = [("in", "late"), ("late", "twice"), ("twice", "out")]
    np.testing.assert_array_equal(played(late, edges, [1, 2, 3, 4]), [0, 2, 4, 6])
    # A sum over time: the input, and the node's own output a step ago.
    loop = {"sum": nir.Scale(np.ones(1)), "late": nir.Delay(np.full(1, DT))}
    edges = [("in", "sum"), ("sum", "late"), ("late", "sum"), ("sum", "out")]
    np.testing.assert_array_equal(played(loop, edges, [1, 2, 3, 4]), [1, 3, 6, 10])


def test_a_lif_takes_a_step_of_forward_euler():
    one = np.ones(1)
    fires = {"v": nir.LIF(4 * DT * one, 2 * one, 0 * one, v_threshold=one, v_reset=-one)}
    # v: 0.5, 0.375, 0.28125 + 1.5 fires and becomes -1, then -0.75 + 0.875 and 0.09375 + 0.9375 fires
    x = [1, 0, 3, 1.75, 1.875]
    np.testing.assert_array_equal(played(fires, [("in", "v"), ("v", "out")], x), [0, 0, 1, 0, 1])
    with pytest.raises(TypeError, match="node must be one that `graph` writes, got I"):
        played({"a": nir.I(one)}, [("in", "a"), ("a", "out")], x)
