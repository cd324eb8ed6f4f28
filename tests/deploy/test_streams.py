"""Streams: the same spikes as whole sequences, in chunks of any size, many at once, from saved states, and for ever."""

import tracemalloc

import numpy as np
import pytest
from deploy_cases import CASES, make_input, network

from resofire.deploy import Stream, fold
from resofire.deploy.reference import run

CAUSAL = [name for name in CASES if "bidirectional" not in name]


def sequences(config, count, steps):
    return np.stack([make_input(config, steps, seed).numpy() for seed in range(count)])


def test_a_stream_fires_as_the_whole_sequence(subtests):
    for case in CAUSAL:
        with subtests.test(case):
            folded = fold(network(CASES[case]))
            x = sequences(CASES[case], 2, 40)
            stream = Stream(folded, 2)
            spikes = np.zeros((2, 40, sum(layer.neurons[0].count for layer in folded.layers)), np.uint8)
            scores = stream.feed(x, every=True, spikes=spikes)
            for b in range(2):
                expected = run(folded, x[b])
                np.testing.assert_array_equal(spikes[b], np.concatenate(expected.spikes, 1))
                np.testing.assert_allclose(
                    scores[b] if folded.pool == "none" else scores[b, -1], expected.scores, atol=1e-9
                )
            np.testing.assert_allclose(
                stream.fire_rates().mean(0) * [layer.neurons[0].count for layer in folded.layers],
                [spikes[..., a:b].sum() / 80 for a, b in _places(folded)],
            )


def _places(folded):
    ends = np.cumsum([layer.neurons[0].count for layer in folded.layers])
    return list(zip([0, *ends[:-1]], ends, strict=True))


@pytest.mark.parametrize("case", ["prenorm", "postnorm", "tokens", "lif hard", "feedforward"])
def test_chunks_and_streams_give_the_same_bits(subtests, case):
    for dtype in ["float32", "float64"]:
        with subtests.test(dtype):
            x = sequences(CASES[case], 3, 60)
            folded = fold(network(CASES[case]), dtype)
            together = Stream(folded, 3)
            expected = together.feed(x, every=True)
            for b in range(3):
                alone, at = Stream(folded), 0
                for size in (1, 7, 0, 30, 22):
                    scores = alone.feed(x[b : b + 1, at : at + size], every=True)
                    np.testing.assert_array_equal(scores[0], expected[b, at : at + size])
                    at += size
                steps = Stream(folded)
                for t in range(60):
                    np.testing.assert_array_equal(steps.step(x[b : b + 1, t])[0], expected[b, t])


@pytest.mark.parametrize("case", ["prenorm", "tokens", "lif"])
def test_a_stream_goes_on_from_bytes(case):
    x = sequences(CASES[case], 2, 50)
    folded = fold(network(CASES[case]))
    first, whole = Stream(folded, 2), Stream(folded, 2)
    first.feed(x[:, :20])
    saved = first.save()
    second = Stream(folded, 2)
    second.restore(saved)
    np.testing.assert_array_equal(second.feed(x[:, 20:]), whole.feed(x))
    np.testing.assert_array_equal(second.fire_rates(), whole.fire_rates())
    np.testing.assert_array_equal(second.steps, [50, 50])
    second.reset()
    np.testing.assert_array_equal(second.feed(x), whole_again(folded, x))
    assert len(saved) == len(second.save())


def whole_again(folded, x):
    return Stream(folded, len(x)).feed(x)


def test_states_that_are_not_its_own():
    folded = fold(network(CASES["prenorm"]))
    stream = Stream(folded, 2)
    stream.feed(sequences(CASES["prenorm"], 2, 5))
    saved = stream.save()
    for bad, words in (
        (b"", "must be what save returned, got 0 other bytes"),
        (saved[:-1], "must have .* bytes, got .*: it is cut or damaged"),
        (saved + b"x", "must have .* bytes, got .*: it is cut or damaged"),
        (b"x" * len(saved), "must be what save returned"),
        (Stream(folded).save(), "must be of 2 streams, got 1"),
        (Stream(fold(network(CASES["prenorm"], seed=1)), 2).save(), "belongs to another network or dtype"),
        (Stream(folded, 2, dtype="float32").save(), "belongs to another network or dtype"),
        (saved[:-1] + bytes([saved[-1] ^ 1]), "is damaged: its checksum does not match"),
    ):
        with pytest.raises(ValueError, match=f"Stream.restore: state {words}"):
            stream.restore(bad)
        assert stream.save() == saved
    with pytest.raises(TypeError, match="state must be bytes, got str"):
        stream.restore("x")


def test_states_with_impossible_numbers():
    """Their checksums are right."""
    folded = fold(network(CASES["prenorm"]))
    stream, other = Stream(folded), Stream(folded)
    stream.feed(sequences(CASES["prenorm"], 1, 5))
    saved = stream.save()
    for name, value in (("potentials", np.nan), ("totals", np.inf), ("steps", -1), ("counts", -1)):
        other.reset()
        getattr(other._state, name).flat[-1] = value
        with pytest.raises(ValueError, match=f"Stream.restore: state must have {name} that are"):
            stream.restore(other.save())
        assert stream.save() == saved


def test_spikes_must_be_writable():
    stream = Stream(network(CASES["prenorm"]))
    x, before = sequences(CASES["prenorm"], 1, 5), stream.save()
    spikes = np.zeros((1, 5, stream.folded.neurons), np.uint8)
    frozen = np.broadcast_to(spikes, spikes.shape)
    for bad, words in ((frozen, "writable .* got read-only uint8"), (spikes[:, 1:], "shape"), ([[0]], "NumPy array")):
        with pytest.raises(ValueError, match=f"Stream.feed: spikes must be .*{words}"):
            stream.feed(x, spikes=bad)
        assert stream.save() == before


BAD_CHUNKS = [
    ("prenorm", np.zeros((1, 3, 1)), r"numbers of shape \[1, steps, 2\], got float64 of shape \[1, 3, 1\]"),
    ("prenorm", np.zeros((2, 3, 2)), r"numbers of shape \[1, steps, 2\]"),
    ("prenorm", np.zeros((1, 0, 2)), "at least one step, got none"),
    ("prenorm", np.full((1, 3, 2), np.nan), "finite in float64, got nan"),
    ("prenorm", np.full((1, 3, 2), np.inf), "finite in float64, got inf"),
    ("tokens", np.zeros((1, 3)), "integers of shape"),
    ("tokens", np.array([[0, 11]]), "tokens from 0 to 10, got 11"),
    ("tokens", np.array([[-1, 3]]), "tokens from 0 to 10, got -1"),
]


def test_a_bad_chunk_is_refused(subtests):
    for case, x, message in BAD_CHUNKS:
        with subtests.test(message, case=case), pytest.raises(ValueError, match=f"Stream.feed: x must .*{message}"):
            Stream(network(CASES[case])).feed(x)
    with pytest.raises(ValueError, match=r"Stream\.step: x must have shape .*, got a scalar"):
        Stream(network(CASES["prenorm"])).step(0.5)


def test_networks_and_numbers_of_streams_that_cannot_be():
    with pytest.raises(ValueError, match="bidirectional: it needs whole sequences"):
        Stream(network(CASES["bidirectional"]))
    for streams in (0, True, 1.5):
        with pytest.raises(ValueError, match="streams must be a positive integer"):
            Stream(network(CASES["prenorm"]), streams)
    with pytest.raises(ValueError, match="dtype must be float32 or float64, got float16"):
        Stream(network(CASES["prenorm"]), dtype="float16")


def test_memory_does_not_grow_with_time():
    stream = Stream(network(CASES["prenorm"]))
    x = sequences(CASES["prenorm"], 1, 1000)
    stream.feed(x)
    size = len(stream.save())
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(200):
        stream.feed(x)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000
    assert len(stream.save()) == size
    assert stream.steps[0] == 201_000
