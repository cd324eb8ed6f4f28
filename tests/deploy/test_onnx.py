"""ONNX: the graphs, run by onnxruntime, fire as the folded network does, whole or step by step."""

import numpy as np
import pytest
import torch
from deploy_cases import CASES, make_input, network

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")

from resofire.deploy import Stream, fold  # noqa: E402
from resofire.deploy.formats.agreement import run_each_step  # noqa: E402
from resofire.deploy.formats.onnx import sequence, step  # noqa: E402
from resofire.deploy.formats.onnxruntime import SequenceSession, StepSession  # noqa: E402
from resofire.deploy.reference import run  # noqa: E402

TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def sequences(folded):
    return SequenceSession(sequence(folded).SerializeToString())


def steps(folded, **options):
    return StepSession(step(folded).SerializeToString(), **options)


def same_spikes(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", CASES)
def test_whole_sequences(case):
    for dtype, tolerance in TOLERANCE.items():
        folded = fold(network(CASES[case]), dtype)
        session = sequences(folded)
        for length in (1, 63, 200):
            x = make_input(CASES[case], length).numpy()
            expected, result = run(folded, x), session.walk(x)
            same_spikes(expected.spikes, result.spikes)
            np.testing.assert_allclose(result.scores, expected.scores, rtol=tolerance, atol=tolerance)
            assert result.scores.dtype == dtype
        assert any(fired.any() for fired in expected.spikes)


@pytest.mark.parametrize("case", ["prenorm", "bidirectional", "tokens", "pool none"])
def test_a_batch_is_its_sequences(case):
    folded = fold(network(CASES[case]))
    x = np.stack([make_input(CASES[case], 30, seed).numpy() for seed in range(3)])
    for row, scores in zip(x, sequences(folded).run(x), strict=True):
        np.testing.assert_allclose(scores, run(folded, row).scores, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if "bidirectional" not in case])
def test_steps(case):
    for dtype, tolerance in TOLERANCE.items():
        folded = fold(network(CASES[case]), dtype)
        session, x = steps(folded), make_input(CASES[case], 63).numpy()
        expected, result = run_each_step(folded, x), session.walk(x)
        same_spikes(expected.spikes, result.spikes)
        stepped = np.stack([session.step(now[None])[0] for now in x])
        for scores in (result.scores, stepped):
            np.testing.assert_allclose(scores, expected.scores, rtol=tolerance, atol=tolerance)
        session.reset()
        assert not any(array.any() for array in session.state.values())
        np.testing.assert_array_equal(np.stack([session.step(now[None])[0] for now in x]), stepped)


def test_steps_of_many_streams_are_those_of_a_stream():
    folded = fold(network(CASES["soft prf"]))
    x = np.stack([make_input(CASES["soft prf"], 40, seed).numpy() for seed in range(3)])
    session, stream = steps(folded, batch=3), Stream(folded, 3)
    for t in range(40):
        np.testing.assert_allclose(session.step(x[:, t]), stream.step(x[:, t]), rtol=1e-12, atol=1e-12)
    assert (session.state["steps"] == 40).all()


def test_a_step_needs_a_causal_network_and_a_batch():
    with pytest.raises(ValueError, match="bidirectional: it needs whole sequences and cannot be run step by step"):
        step(fold(network(CASES["bidirectional"])))
    for batch in (0, True, 1.5):
        with pytest.raises(ValueError, match="batch must be a positive integer"):
            StepSession("nowhere", batch=batch)


def test_graphs_are_of_their_kind(tmp_path):
    folded = fold(network(CASES["prenorm"], torch.float32))
    file = tmp_path / "sequence.onnx"
    file.write_bytes(sequence(folded).SerializeToString())
    with pytest.raises(ValueError, match="model must be a step graph of resofire, got 'sequence'"):
        StepSession(file)
    with pytest.raises(ValueError, match="model must be a sequence graph of resofire, got 'step'"):
        SequenceSession(step(folded).SerializeToString())
    assert [each.op_type for each in sequence(folded).graph.node].count("Scan") == 3
    assert "Scan" not in [each.op_type for each in step(folded).graph.node]
