"""The SD-TCM block: its equation written out by hand, dropout, packing, streaming, foreign neurons, bad settings."""

import copy
import itertools

import pytest
import torch
from torch import nn

from resofire.nn import PRF, SDTCM, LIFConfig, PRFConfig, SpatialNeuron, fire_rates
from resofire.ops import Triangle, prf
from resofire.ops.surrogate import spike

QUICK = PRFConfig(delta=(0.1, 0.5), threshold=0.5)
DOUBLE = torch.float64


def block(features: int = 6, **settings) -> SDTCM:
    """A block in float64 in which nothing is at its tidy initial value."""
    made = SDTCM(features, **{"neuron": QUICK, **settings}).double()
    with torch.no_grad():
        for name, value in (*made.named_parameters(), *made.named_buffers()):
            if name.endswith("log_amplitude"):
                value.fill_(0.4 if "channel" in name else -0.3)
            if name.startswith("norm.") and value.is_floating_point():
                value.uniform_(0.5, 1.5)
    return made


def by_hand(made: SDTCM, u: torch.Tensor, bounds: list[int] | None) -> torch.Tensor:
    """The block's equation in plain torch; the neuron by its reference, sequence by sequence."""

    def norm(x):
        n = made.norm
        flat = x.reshape(-1, x.shape[-1])
        mean, var = (flat.mean(0), flat.var(0, unbiased=False)) if n.training else (n.running_mean, n.running_var)
        return (x - mean) / (var + n.eps).sqrt() * n.weight + n.bias

    def walk(neuron, x, back):
        pieces = [x] if bounds is None else [x[:, a:b] for a, b in itertools.pairwise(bounds)]
        fired = []
        for piece in pieces:
            piece = piece.flip(1) if back else piece
            out, _ = prf(
                piece, *list(neuron.coefficients().values())[:3], threshold=neuron.threshold, backend="reference"
            )
            fired.append(out.flip(1) if back else out)
        return torch.cat(fired, 1)

    x = norm(u) if made.norm is not None and made.prenorm else u
    s = walk(made.token_neuron, x, False)
    if made.bidirectional:
        s = torch.cat([s, walk(made.token_neuron_reverse, x, True)], 2)
    if made.log_amplitude is not None:
        s = made.log_amplitude.exp() * s
    r = u + s @ made.token_linear.weight.T + made.token_linear.bias
    s = spike(r - made.channel_neuron.threshold, made.channel_neuron.surrogate)
    if made.channel_neuron.log_amplitude is not None:
        s = made.channel_neuron.log_amplitude.exp() * s
    out = r + s @ made.channel_linear.weight.T + made.channel_linear.bias
    return norm(out) if made.norm is not None and not made.prenorm else out


def assert_equation(
    *, amplitude: str, order: str, bidirectional: bool, training: bool, bounds: list[int] | None
) -> None:
    """Output and all gradients of a block are those of its equation."""
    made = block(
        amplitude=amplitude, norm="none" if order == "none" else "batch", prenorm=order != "post",
        bidirectional=bidirectional, spatial_threshold=0.3, surrogate=Triangle(2.0),
    ).train(training)  # fmt: skip
    twin = copy.deepcopy(made)
    u = (2 * torch.randn(1 if bounds else 2, 24, 6, dtype=DOUBLE)).requires_grad_()
    v = u.detach().clone().requires_grad_()
    cu = None if bounds is None else torch.tensor(bounds, dtype=torch.int32)
    out, expected = made(u, cu_seqlens=cu), by_hand(twin, v, bounds)
    torch.testing.assert_close(out, expected)
    weight = torch.randn_like(out)
    (out * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(u.grad, v.grad)
    for (name, ours), theirs in zip(made.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=lambda text, name=name: f"{name}: {text}")
        # In training a batch norm takes the bias in front of it away; all others must be reached.
        assert ours.grad.abs().max() > 1e-9 or (name == "channel_linear.bias" and order == "post" and training), name
    amplitudes = {name for name, _ in made.named_parameters() if "amplitude" in name}
    assert amplitudes == {
        "none": set(), "sn": {"channel_neuron.log_amplitude"}, "tn": {"log_amplitude"},
        "both": {"log_amplitude", "channel_neuron.log_amplitude"},
    }[amplitude]  # fmt: skip


@pytest.mark.parametrize("order", ["pre", "post", "none"])
@pytest.mark.parametrize("amplitude", ["none", "sn", "tn", "both"])
def test_the_equation(amplitude, order, subtests):
    for bidirectional, training, bounds in itertools.product((False, True), (True, False), (None, [0, 10, 10, 24])):
        options = {"bidirectional": bidirectional, "training": training, "bounds": bounds}
        with subtests.test(**options):
            torch.manual_seed(0)
            assert_equation(amplitude=amplitude, order=order, **options)


def test_dropout_drops_whole_time_steps():
    made = block(norm="none", dropout=0.25)
    with torch.no_grad():
        for linear, size in ((made.token_linear, 1.0), (made.channel_linear, 100.0)):
            linear.weight.zero_()
            linear.bias.fill_(size)
    u = torch.zeros(8, 500, 6, dtype=DOUBLE)
    out = made(u)
    assert torch.equal(out, out[:, :, :1].expand_as(out))
    second = out[:, :, 0] > 100
    first = out[:, :, 0] - second * (400 / 3) > 0.5
    for kept in (first, second):
        assert abs(kept.double().mean() - 0.75) < 0.03
        # One draw per sequence, not one for the batch.
        assert not torch.equal(kept[0], kept[1])
    assert abs((first & second).double().mean() - 0.75**2) < 0.03
    torch.testing.assert_close(out[:, :, 0], (first + 100 * second.double()) * 4 / 3)
    assert torch.equal(made.eval()(u), u + 101)


@pytest.mark.parametrize("settings", [{}, {"bidirectional": True, "amplitude": "both"}], ids=["causal", "both ways"])
def test_a_named_backend_runs_the_linears(settings):
    made, twin = block(backend="events", **settings), block(backend="reference", **settings)
    twin.load_state_dict(made.state_dict())
    u = 2 * torch.randn(2, 24, 6, dtype=DOUBLE)
    torch.testing.assert_close(made(u), twin(u))
    assert made.token_linear.backend == made.channel_linear.backend == "events"


def test_fire_rates_are_those_of_the_raw_spikes():
    made = block(amplitude="both", bidirectional=True).eval()
    u = 2 * torch.randn(2, 24, 6, dtype=DOUBLE)
    with fire_rates(made) as rates:
        made(u)
    assert set(rates.as_dict()) == {"token_neuron", "token_neuron_reverse", "channel_neuron"}
    spikes = made.token_neuron(made.norm(u))
    assert rates["token_neuron"] == pytest.approx(spikes.mean().item())
    assert 0 < rates["channel_neuron"] < 1


STREAMS = {
    "pre": {},
    "post": {"prenorm": False, "amplitude": "both"},
    "none, soft reset": {"norm": "none", "neuron": PRFConfig(delta=(0.1, 0.5), reset="soft")},
    "lif": {"neuron": LIFConfig(threshold=0.5)},
    "dropout": {"dropout": 0.5},
}


@pytest.mark.parametrize("case", STREAMS)
def test_streaming_is_the_whole_call(case):
    made = block(**STREAMS[case]).eval()
    u = 2 * torch.randn(3, 30, 6, dtype=DOUBLE)
    whole = made(u)
    torch.testing.assert_close(made.scan(u)[0], whole, rtol=1e-12, atol=1e-12)
    _, last = made.scan(u)
    for state in (None, made.init_state(3)):
        for t in range(30):
            out, state = made.step(u[:, t], state)
            torch.testing.assert_close(out, whole[:, t], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(state, last)
    first, state = made.scan(u[:, :13], made.init_state(3))
    second, end = made.scan(u[:, 13:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(end, last)
    # Packed: one row of state per sequence, and the pieces may be of different lengths.
    packed = torch.cat([u[:1, :4], u[1:2, :0], u[2:, :9]], 1)
    out, state = made.scan(packed, cu_seqlens=torch.tensor([0, 4, 4, 13], dtype=torch.int32))
    torch.testing.assert_close(out, torch.cat([whole[:1, :4], whole[2:, :9]], 1), rtol=1e-12, atol=1e-12)
    for row, at in ((0, 4), (1, 0), (2, 9)):
        torch.testing.assert_close(made.step(u[:, at], state)[0][row], whole[row, at], rtol=1e-12, atol=1e-12)


def test_zero_states_have_the_neurons_type():
    assert made_types(block()) == [DOUBLE, DOUBLE]
    assert made_types(SDTCM(4, neuron=LIFConfig())) == [torch.float32]
    # Potentials of a half-precision module are kept in float32.
    assert made_types(SDTCM(4).bfloat16()) == [torch.float32] * 2
    state = SDTCM(4).init_state(2)
    assert state.u.shape == state.r.shape == (2, 4)
    assert state.u.data_ptr() != state.r.data_ptr()
    assert SDTCM(4, neuron=lambda features: SpatialNeuron()).init_state(2) is None


def made_types(made: SDTCM) -> list[torch.dtype]:
    return [value.dtype for value in made.init_state(2)]


def test_what_cannot_be_streamed_says_so():
    made = SDTCM(4)
    state, u = made.init_state(2), torch.randn(2, 5, 4)
    made.scan(u)
    for call in (lambda: made.scan(u, state), lambda: made.step(u[:, 0], state)):
        with pytest.raises(RuntimeError, match=r"SDTCM\.\w+: batch statistics cannot be streamed; call \.eval\(\)"):
            call()
    SDTCM(4, norm="none").step(u[:, 0], state)
    both = SDTCM(4, bidirectional=True).eval()
    for call in (lambda: both.scan(u), lambda: both.step(u[:, 0], None), lambda: both.init_state(2)):
        with pytest.raises(RuntimeError, match=r"SDTCM\.\w+: a bidirectional block needs whole sequences"):
            call()


class Late(nn.Module):
    """Fires when the step before was above zero: the smallest neuron with a memory."""

    def forward(self, x, **options):
        return self.scan(x, None, **options)[0]

    def scan(self, x, state=None, *, cu_seqlens=None, reverse=False):
        assert cu_seqlens is None
        x = x.flip(1) if reverse else x
        before = torch.cat([(torch.zeros_like(x[:, 0]) if state is None else state)[:, None], x], 1)
        out = (before[:, :-1] > 0).to(x.dtype)
        return (out.flip(1) if reverse else out), before[:, -1]

    def step(self, x, state):
        return (torch.zeros_like(x) if state is None else (state > 0).to(x.dtype)), x


def test_any_neuron_with_the_verbs_will_do():
    made = SDTCM(4, neuron=lambda features: Late(), prenorm=False).eval()
    u = torch.randn(2, 12, 4)
    whole, state = made(u), made.init_state(2)
    assert state is None
    for t in range(12):
        out, state = made.step(u[:, t], state)
        torch.testing.assert_close(out, whole[:, t])
    both = SDTCM(4, neuron=lambda features: Late(), bidirectional=True)
    assert both(u).shape == u.shape
    assert both.token_neuron is not both.token_neuron_reverse


def test_the_spatial_neuron_can_stand_where_a_temporal_one_does():
    def neuron(features):
        return SpatialNeuron(amplitude=False)

    u, cu = torch.randn(1, 12, 4), torch.tensor([0, 5, 12], dtype=torch.int32)
    made = SDTCM(4, neuron=neuron).eval()
    assert torch.equal(made(u, cu_seqlens=cu), made(u))
    torch.testing.assert_close(made.step(u[0], None)[0], made(u)[0])
    assert SDTCM(4, neuron=neuron, bidirectional=True)(u, cu_seqlens=cu).shape == u.shape
    assert isinstance(SDTCM(4, neuron=PRF).token_neuron, PRF)


def test_the_two_directions_are_two_draws():
    made = SDTCM(16, bidirectional=True)
    assert not torch.equal(made.token_neuron.log_delta, made.token_neuron_reverse.log_delta)
    assert made.token_linear.weight.shape == (16, 32)


def test_state_dict_and_copies():
    assert [name for name, _ in SDTCM(4, amplitude="both").named_parameters()] == [
        "log_amplitude", "norm.weight", "norm.bias", "token_neuron.log_delta", "token_neuron.log_theta",
        "token_linear.weight", "token_linear.bias", "channel_neuron.log_amplitude", "channel_linear.weight",
        "channel_linear.bias",
    ]  # fmt: skip
    one, other = block(bidirectional=True), block(bidirectional=True)
    u = 2 * torch.randn(2, 24, 6, dtype=DOUBLE)
    one(u)
    one.eval(), other.eval()
    assert not torch.allclose(one(u), other(u))
    other.load_state_dict(one.state_dict())
    twin = copy.deepcopy(one)
    assert torch.equal(one(u), other(u))
    assert torch.equal(one(u), twin(u))
    with torch.no_grad():
        twin.token_linear.bias.add_(1)
    assert not torch.allclose(one(u), twin(u))


@pytest.mark.parametrize("shape", [(2, 0, 4), (0, 5, 4)], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_an_empty_stream_passes(shape, training):
    made = SDTCM(4, bidirectional=True, dropout=0.5).train(training)
    assert made(torch.zeros(shape)).shape == shape
    causal = SDTCM(4).train(training)
    out, state = causal.scan(torch.zeros(shape))
    assert out.shape == shape
    assert state.u.shape == (shape[0], 4)


def test_a_clock_is_an_oscillation_that_fades_with_a_long_memory():
    neuron = PRFConfig(tau=20.0, delta=(0.05, 0.5), theta=(0.5, 6.0), evenly_spaced=True)
    made = SDTCM(64, neuron=neuron, positional_bias=1.5)
    phi_re, phi_im, delta, _ = (each.detach() for each in made.token_neuron.coefficients().values())
    # What the neuron sees where the stream is at its mean: the norm's bias alone.
    potentials = made.token_neuron.trace(made.norm.bias.detach().expand(1, 5000, 64))
    spiral = torch.complex(potentials.u[0], potentials.r[0])
    spiral = spiral - spiral[-1]
    decay = torch.hypot(phi_re, phi_im)[None] ** torch.arange(1, 101)[:, None]
    long = 20.0 / delta >= 100
    assert 0 < long.sum() < 64
    torch.testing.assert_close(spiral[:100].abs(), 1.5 * decay * long, rtol=1e-4, atol=1e-4)
    assert torch.equal(made.norm.bias > 0, long & (torch.arange(64) % 2 == 0))
    assert torch.equal(SDTCM(64, neuron=neuron).norm.bias, torch.zeros(64))
    # A memory without end, where |φ| is 1 in float32.
    assert SDTCM(4, neuron=PRFConfig(tau=1e12), positional_bias=1.0).norm.bias.all()
    # Two neurons on one norm: the mean of what each needs.
    both = SDTCM(16, neuron=neuron, bidirectional=True, positional_bias=2.0)
    needed = []
    for each in (both.token_neuron, both.token_neuron_reverse):
        phi_re, phi_im, delta = (value.detach() for value in list(each.coefficients().values())[:3])
        needed.append((1 - torch.complex(phi_re, phi_im)).abs() / delta * (20.0 / delta >= 100))
    torch.testing.assert_close(both.norm.bias.abs(), needed[0] + needed[1])


BAD = {
    "features": (lambda: SDTCM(0), "SDTCM: features must be a positive integer, got 0"),
    "norm": (lambda: SDTCM(4, norm="bach"), r"SDTCM: norm must be one of .*did you mean 'batch'\?\), got 'bach'"),
    "amplitude": (lambda: SDTCM(4, amplitude="s"), "SDTCM: amplitude must be one of .* got 's'"),
    "dropout": (lambda: SDTCM(4, dropout=1.0), "SDTCM: dropout must be from 0 up to, but not, 1, got 1.0"),
    "neuron": (lambda: SDTCM(4, neuron="prf"), r"SDTCM: neuron must be settings such as PRFConfig\(\) .* got 'prf'"),
    "a made neuron": (lambda: SDTCM(4, neuron=PRF(4)), r"SDTCM: neuron must be settings .* got PRF\(4"),
    "no verbs": (lambda: SDTCM(4, neuron=lambda n: nn.Linear(n, n)), "SDTCM: neuron must make .* got Linear"),
    "backend": (lambda: SDTCM(4, backend="event"), "SDTCM: backend must be one of .*'events'.* got 'event'"),
    "threshold": (lambda: SDTCM(4, spatial_threshold="a"), "threshold must be a number or a tensor, got 'a'"),
    "positional bias": (
        lambda: SDTCM(4, positional_bias=-1.0),
        "SDTCM: positional_bias must be a number from 0 to 1e6, got -1.0",
    ),
    "positional bias, no number": (
        lambda: SDTCM(4, positional_bias=True),
        "SDTCM: positional_bias must be a number from 0 to 1e6, got True",
    ),
    "positional bias, too large": (
        lambda: SDTCM(4, positional_bias=1e39),
        r"positional_bias must be a number from 0 to 1e6, got 1e\+39",
    ),
    "positional bias, post-norm": (
        lambda: SDTCM(4, positional_bias=1.0, prenorm=False),
        "positional_bias must be 0 without a norm .* got 1.0",
    ),
    "positional bias, no PRF": (
        lambda: SDTCM(4, positional_bias=1.0, neuron=LIFConfig()),
        r"positional_bias must be 0 unless .* got 1.0 and LIF\(",
    ),
    "width": (lambda: SDTCM(4)(torch.zeros(2, 5, 3)), r"SDTCM: u must have shape \[B, T, 4\], got \[2, 5, 3\]"),
    "no tensor": (lambda: SDTCM(4)([1.0]), r"SDTCM: u must be a tensor \[B, T, 4\], got list"),
    "a sequence": (lambda: SDTCM(4).step(torch.zeros(2, 5, 4), None), r"SDTCM.step: u must have shape \[B, 4\]"),
    "a step": (lambda: SDTCM(4).scan(torch.zeros(2, 4)), r"SDTCM.scan: u must have shape \[B, T, 4\], got \[2, 4\]"),
}


def test_bad_settings_are_named(subtests):
    for case, (call, pattern) in BAD.items():
        with subtests.test(case), pytest.raises((ValueError, TypeError), match=pattern):
            call()
