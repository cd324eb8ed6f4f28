"""Fixed point: the kernel is the NumPy loop, that is plain arithmetic without limits, and close to float."""

from dataclasses import replace

import numpy as np
import pytest
from deploy_cases import CASES, make_input
from deploy_cases import network as trained

import resofire
from resofire import data
from resofire.deploy import fold, reference
from resofire.deploy.compare import compare, table, text
from resofire.deploy.quantize import quantize
from resofire.deploy.quantized import STATE_BITS, WEIGHT_BITS
from resofire.deploy.reference import run_integer
from resofire.deploy.simulate import Simulation

WIDTHS = [(weight, state) for weight in WEIGHT_BITS for state in STATE_BITS]


def sequences(case, count=4, steps=50):
    return [make_input(CASES[case], steps, seed).numpy() for seed in range(count)]


def quantized(case, weight_bits=8, state_bits=16, **settings):
    return quantize(
        fold(trained(CASES[case])), sequences(case), weight_bits=weight_bits, state_bits=state_bits, **settings
    )


def extreme(network, seed=0):
    """The same network with numbers as large as they may be: everything saturates sooner or later."""
    generator = np.random.default_rng(seed)
    top, one = network.top, 1 << network.phi_bits
    weight = (1 << (network.weight_bits - 1)) - 1

    def drawn(low, high, like, *, ends=0.5):
        ended = generator.random(like.shape) < ends
        return np.where(ended, generator.choice([low, high], like.shape), generator.integers(low, high + 1, like.shape))

    layers = []
    for layer in network.layers:
        groups = []
        for group in layer.neurons:
            angle = generator.uniform(0, 2 * np.pi, group.count)
            prf = group.kind == "prf"
            groups.append(replace(
                group, threshold=drawn(-top - 1, top, group.threshold, ends=0.3),
                current=drawn(-top, top, group.current) * (group.kind != "spatial"),
                phi_re=((one - 1) * np.cos(angle)).astype(np.int64) if prf else drawn(-one + 1, one - 1, angle),
                phi_im=((one - 1) * np.sin(angle)).astype(np.int64) * prf,
                lift=drawn(0, network.phi_bits, group.lift),
            ))  # fmt: skip
        layers.append(replace(
            layer, neurons=tuple(groups), rows=drawn(-weight, weight, layer.rows).astype(np.int8),
            lift=drawn(0, network.state_bits - network.weight_bits, layer.lift), drop=drawn(0, 3, layer.drop),
        ))  # fmt: skip
    return replace(network, layers=tuple(layers))


def plainly(network, x):
    """The equations in Python's unbounded integers; also how often one saturated, and the last states."""
    top, saturated = network.top, [0]

    def hold(value):
        saturated[0] += abs(value) > top
        return min(max(value, -top), top)

    def drop(value, shift):
        # Half up, said in another way.
        return (2 * value + (1 << shift)) // (2 << shift)

    codes = network.encode(x).tolist()
    shift, table = network.shift.tolist(), network.table.tolist()
    if network.tokens:
        z = [[hold(w * 2**s) for w, s in zip(table[token], shift, strict=True)] for token in codes]
    else:
        z = [
            [
                hold(drop(base + sum(v * row[i] for v, row in zip(values, table, strict=True)), shift[i]))
                for i, base in enumerate(network.base.tolist())
            ]
            for values in codes
        ]
    spikes, us, rs = [], [], []
    for layer in network.layers:
        (group,) = layer.neurons
        sign, eta, kappa = group.sign.tolist(), group.threshold.tolist(), group.current.tolist()
        re, im, lift = group.phi_re.tolist(), group.phi_im.tolist(), group.lift.tolist()
        rows, up, down = layer.rows.tolist(), layer.lift.tolist(), layer.drop.tolist()
        u, r = [0] * group.count, [0] * group.count
        fired = []
        for now in z:
            fires = []
            for i in range(group.count):
                if group.kind == "spatial":
                    fires.append(sign[i] * now[i] > eta[i])
                    continue
                drive = (sign[i] * now[i] + kappa[i]) * 2 ** lift[i]
                u[i], r[i] = (
                    hold(drop(re[i] * u[i] - im[i] * r[i] + drive, network.phi_bits)),
                    hold(drop(im[i] * u[i] + re[i] * r[i], network.phi_bits)),
                )
                fires.append(u[i] > eta[i])
                if fires[-1] and group.reset != "none":
                    u[i] = hold(u[i] - eta[i] - 1) if group.reset == "soft" else 0
            added = [sum(rows[i][j] for i in range(group.count) if fires[i]) for j in range(len(up))]
            before = [0] * len(up) if layer.fresh else [drop(value, d) for value, d in zip(now, down, strict=True)]
            now[:] = [hold(b + a * 2**s) for a, b, s in zip(added, before, up, strict=True)]
            if layer.clear is not None:
                now[:] = [0 if c else value for c, value in zip(layer.clear, now, strict=True)]
            fired.append(fires)
        spikes.append(np.array(fired))
        if group.kind != "spatial":
            us, rs = us + u, rs + r
    read = [[drop(value, network.head_drop) for value in now] for now in z]
    pooled = {"none": read, "last": read[-1:], "mean": [[sum(column) for column in zip(*read, strict=True)]]}
    times = len(read) if network.pool == "mean" else 1
    if network.pool == "leaky":
        factor, shift, fraction, drops = network.leak
        total = [0] * (1 + len(read[0]))
        for values in read:
            total = [
                t - drop(t * factor, shift) + value * 2**fraction for t, value in zip(total, [*values, 1], strict=True)
            ]
            assert max(map(abs, total)) * factor < 2**63
        *values, times = (drop(t, drops) for t in total)
        pooled["leaky"] = [values]
    head, bias = network.head.tolist(), network.bias.tolist()
    scores = [
        [times * b + sum(v * row[k] for v, row in zip(values, head, strict=True)) for k, b in enumerate(bias)]
        for values in pooled[network.pool]
    ]
    return (
        scores if network.pool == "none" else scores[0],
        spikes,
        saturated[0],
        us + rs * any(layer.neurons[0].kind == "prf" for layer in network.layers),
    )


def same(result, scores, spikes):
    np.testing.assert_array_equal(result.scores, scores)
    for ours, theirs in zip(result.spikes, spikes, strict=True):
        np.testing.assert_array_equal(ours, theirs)


CAUSAL = [name for name in CASES if "bidirectional" not in name]
# Each case with one width, and in depth with all.
BITS = [(8, 16), (6, 24), (4, 32)]
PAIRS = [(case, BITS[i % 3]) for i, case in enumerate(CAUSAL)]
DEEP = [
    pytest.param(case, bits, marks=pytest.mark.deep) for case in CAUSAL for bits in BITS if (case, bits) not in PAIRS
]


@pytest.mark.parametrize(("case", "bits"), [*PAIRS, *DEEP])
def test_numpy_and_kernel_are_plain_arithmetic(subtests, case, bits):
    for how in ["as quantized", "saturating"]:
        with subtests.test(how):
            network = quantized(case, *bits)
            x = sequences(case, steps=40)[0]
            if how == "saturating":
                network = extreme(network)
            scores, spikes, saturated, states = plainly(network, x)
            same(run_integer(network, x), scores, spikes)
            same(Simulation(network).run(x), scores, spikes)
            np.testing.assert_array_equal(Simulation(network).run_with_states(x)[1], states)
            assert how == "as quantized" or saturated > 50, saturated


def test_nothing_saturates_that_was_seen():
    for case in ("prenorm", "lif", "feedforward"):
        network = quantized(case)
        for x in sequences(case):
            assert plainly(network, x)[2] == 0


def test_what_was_not_seen_saturates_and_does_not_wrap_around():
    folded, x = fold(trained(CASES["lif no reset"])), sequences("lif no reset")
    small = quantize(folded, [each * 0.01 for each in x], state_bits=16)
    # The input is cut at what was seen, so more must come from the inside: all thresholds are passed at once.
    layers = tuple(
        replace(layer, neurons=tuple(replace(g, threshold=g.threshold * 0 - 9) for g in layer.neurons))
        for layer in small.layers
    )
    loud = replace(small, layers=layers)
    scores, spikes, saturated, _ = plainly(loud, x[0])
    assert saturated > 0
    same(Simulation(loud).run(x[0]), scores, spikes)


@pytest.mark.parametrize("case", ["bidirectional", "bidirectional postnorm"])
def test_two_directions_are_run_by_the_reference(case):
    folded, network, x = fold(trained(CASES[case])), quantized(case, 8, 32), sequences(case)[0]
    result = Simulation(network).run(x)
    same(result, *run_integer(network, x))
    with pytest.raises(ValueError, match="bidirectional: it has no last state"):
        Simulation(network).run_with_states(x)
    expected = reference.run(folded, x)
    apart = np.mean([np.mean(a != b) for a, b in zip(result.spikes, expected.spikes, strict=True)])
    assert apart < 0.03, apart


@pytest.mark.parametrize("case", ["prenorm", "postnorm", "soft prf", "lif", "lif hard", "tokens", "feedforward"])
def test_weights_that_fit_and_wide_states_fire_as_the_float_network(case):
    """Rows of at most 8 bits on a grid of powers of two, values of 16 bits: only rounding in the 32nd bit is left."""
    folded = fold(trained(CASES[case]))
    layers = tuple(replace(layer, rows=np.clip(np.round(layer.rows * 16), -127, 127) / 16) for layer in folded.layers)
    folded = replace(folded, layers=layers)
    if folded.tokens:
        folded = replace(folded, table=np.clip(np.round(folded.table * 16), -127, 127) / 16)
    x = sequences(case)
    network = quantize(folded, x, state_bits=32, input_bits=16)
    for each in x:
        # What the float network is given is what the other one sees.
        each = each if folded.tokens else network.encode(each) * network.pitch + network.origin
        expected, result = reference.run(folded, each), run_integer(network, each)
        differing = sum(np.count_nonzero(a != b) for a, b in zip(expected.spikes, result.spikes, strict=True))
        assert differing <= 1, differing
        scale = network.score_unit / (len(each) if folded.pool == "mean" else 1)
        np.testing.assert_allclose(result.scores * scale, expected.scores, atol=3e-3 * np.abs(expected.scores).max())


@pytest.fixture(scope="module")
def digits():
    task = data.load("digits")
    train = next(task.splits["train"].batches(32, seed=0)).x.numpy()
    test = next(task.splits["test"].batches(100))
    return fold(resofire.pretrained("digits")), list(train), list(test.x.numpy()), test.labels.numpy()


def test_digits_in_every_width(digits):
    folded, train, x, labels = digits
    rows = table(folded, train, x, labels)
    assert [(row.weight_bits, row.state_bits) for row in rows] == WIDTHS
    assert all(row.sequences == 100 and row.float_accuracy == rows[0].float_accuracy for row in rows)
    at = {(row.weight_bits, row.state_bits): row for row in rows}
    assert rows[0].float_accuracy > 0.9
    assert at[8, 16].accuracy >= rows[0].float_accuracy - 0.02
    assert at[8, 16].agreement >= 0.97
    for state in STATE_BITS:
        for layer in (1, 2, 3):
            assert at[8, state].divergence[layer] < at[6, state].divergence[layer] < at[4, state].divergence[layer]
    for weight in WEIGHT_BITS:
        assert at[weight, 24].divergence[0] <= at[weight, 16].divergence[0] < 0.01
    # The first layer hears no synapse: with wide states only its φ and thresholds are rounded.
    assert at[4, 32].divergence[0] < 1e-3
    assert at[8, 16].divergence[3] < 0.1
    lines = text(rows).splitlines()
    assert len(lines) == 3 + len(WIDTHS)
    assert lines[2].startswith(f"| float | float | {100 * rows[0].float_accuracy:.2f} % |")
    assert lines[3].startswith(f"| 8 bit | 16 bit | {100 * rows[0].accuracy:.2f} % |")


@pytest.mark.parametrize("case", ["bidirectional", "pool none", "tokens"])
def test_a_comparison_counts_what_differs(case):
    folded, network, x = fold(trained(CASES[case])), quantized(case, 4, 16), sequences(case)
    expected, result = [reference.run(folded, each) for each in x], [run_integer(network, each) for each in x]
    labels = np.array([each.scores.argmax(-1) for each in expected])
    (row,) = compare(folded, network, x, labels)
    agreed = np.mean([a == b.scores.argmax(-1) for a, b in zip(labels, result, strict=True)])
    assert (row.float_accuracy, row.accuracy, row.agreement) == (1.0, agreed, agreed)
    for layer, share in enumerate(row.divergence):
        a, b = (np.concatenate([each.spikes[layer] for each in walks]) for walks in (expected, result))
        assert share == np.count_nonzero(a != b) / np.count_nonzero(a | b)
    assert max(row.divergence) > 0


def test_pixels_are_taken_as_they_are(digits):
    folded, train, x, _ = digits
    network = quantize(folded, train)
    codes = network.encode(x[0])
    assert codes.max() <= 16
    np.testing.assert_allclose(codes * network.pitch + network.origin, x[0], atol=1e-6)
    assert network.encode(np.full((1, 1), 1e9)).item() == 255
    assert network.encode(np.full((1, 1), -1e9)).item() == 0
    pixels = [np.arange(256, dtype=np.float32)[:, None] / 255 - 0.5]
    np.testing.assert_array_equal(quantize(folded, pixels).encode(pixels[0])[:, 0], np.arange(256))


def test_values_between_go_to_the_next():
    network = quantize(
        fold(trained(CASES["prenorm"])), [np.array([[0.0, -1.0], [2.55, 1.0], [0.0133, 0.1234567], [0.5, 0.7]])]
    )
    np.testing.assert_allclose(network.pitch, [0.01, 2 / 255])
    np.testing.assert_array_equal(network.encode(np.array([[0.014, 0.0], [0.016, 1.0]])), [[1, 128], [2, 255]])


def test_everything_is_an_integer_within_its_bits():
    for weight_bits, state_bits in WIDTHS:
        network = quantized("postnorm", weight_bits, state_bits)
        top = (1 << (state_bits - 1)) - 1
        assert network.top == top
        for layer in network.layers:
            assert np.abs(layer.rows).max() <= (1 << (weight_bits - 1)) - 1
            assert np.abs(layer.rows).max() > (1 << (weight_bits - 2)) - 1
            for group in layer.neurons:
                for array in (group.threshold, group.current, group.phi_re, group.phi_im, group.lift):
                    assert array.dtype == np.int64
                assert np.abs(group.current).max() <= top
                assert -top - 1 <= group.threshold.min() <= group.threshold.max() <= top
                assert 0 <= group.lift.min() <= group.lift.max() <= network.phi_bits
        for array in (network.table, network.shift, network.base, network.head, network.bias):
            assert array.dtype == np.int64


def test_scales_follow_the_channel_not_the_layer():
    """A channel a thousand times larger than its neighbours costs them nothing, not one bit."""
    folded = fold(trained(CASES["no norm"]))
    scale = np.ones(folded.table.shape[1])
    scale[2] = 1024.0
    layers = tuple(
        replace(layer, rows=layer.rows * scale, neurons=tuple(
            replace(g, threshold=g.threshold * scale, current=g.current * scale) for g in layer.neurons))
        for layer in folded.layers
    )  # fmt: skip
    large = replace(folded, table=folded.table * scale, layers=layers, head=folded.head / scale[:, None])
    x = sequences("no norm")
    one, other = (Simulation(quantize(each, x)).run(x[0]) for each in (folded, large))
    same(other, one.scores, one.spikes)


def test_too_long_for_the_sums():
    network = quantized("prenorm", 8, 32)
    assert network.most_steps > 100_000
    short = replace(network, bias=np.full_like(network.bias, 1 << 58))
    assert short.most_steps == 15
    with pytest.raises(ValueError, match="run: x must have from 1 to 15 steps, got 50"):
        run_integer(short, sequences("prenorm")[0])
    with pytest.raises(ValueError, match=r"run: x must have from 1 to \d+ steps, got 0"):
        Simulation(network).run(np.zeros((0, 2)))


BAD_WIDTHS = [
    ({"weight_bits": 5}, "weight_bits must be one of 8, 6, 4, got 5"),
    ({"state_bits": 8}, "state_bits must be one of 16, 24, 32, got 8"),
    ({"input_bits": 0}, "input_bits must be an integer from 1 to 16, got 0"),
    ({"phi_bits": 31}, "phi_bits must be an integer from 1 to 30, got 31"),
    ({"phi_bits": True}, "phi_bits must be an integer from 1 to 30, got True"),
]


def test_bad_widths_are_refused(subtests):
    for settings, message in BAD_WIDTHS:
        with subtests.test(message), pytest.raises(ValueError, match=f"quantize: {message}"):
            quantized("prenorm", **settings)


def test_samples_that_cannot_be():
    folded = fold(trained(CASES["prenorm"]))
    with pytest.raises(ValueError, match="samples must hold at least one sequence, got none"):
        quantize(folded, [])
    for bad in (np.zeros((3, 1)), np.zeros((0, 2)), np.full((2, 2), np.nan), np.zeros(3)):
        with pytest.raises(ValueError, match=r"samples must be finite numbers of shape \[steps, 2\]"):
            quantize(folded, [bad])
    for bad in (np.zeros(3), np.array([11]), np.array([-1])):
        with pytest.raises(ValueError, match=r"samples must be tokens from 0 to 10 of shape \[steps\]"):
            quantize(fold(trained(CASES["tokens"])), [bad])
    with pytest.raises(TypeError, match=r"folded must be a Folded \(see fold\), got Classifier"):
        quantize(trained(CASES["prenorm"]), sequences("prenorm"))
    group = folded.layers[0].neurons[0]
    growing = replace(folded.layers[0], neurons=(replace(group, phi_re=group.phi_re + 2),))
    with pytest.raises(ValueError, match="must be at most 1, got"):
        quantize(replace(folded, layers=(growing, *folded.layers[1:])), sequences("prenorm"))


def test_sequences_that_cannot_be_run():
    values, tokens = quantized("prenorm"), quantized("tokens")
    for network, bad, words in (
        (values, np.zeros((3, 1)), r"numbers of shape \[steps, 2\], got float64 of \[3, 1\]"),
        (values, np.full((1, 2), np.inf), "finite, got inf"),
        (tokens, np.zeros(3), r"integers of shape \[steps\], got float64"),
        (tokens, np.array([0, 11]), "tokens from 0 to 10, got 11"),
        (tokens, np.array([-1, 1]), "tokens from 0 to 10, got -1"),
    ):
        with pytest.raises(ValueError, match=f"encode: x must .*{words}"):
            Simulation(network).run(bad)
    with pytest.raises(ValueError, match="x and labels must have the same length, at least 1, got 4 and 1"):
        compare(fold(trained(CASES["prenorm"])), values, sequences("prenorm"), np.zeros(1))
