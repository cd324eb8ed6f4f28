"""The neuron modules: verbs, initialisation, training in log space, state dict, fire rates."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from resofire.nn import LIF, PRF, Neuron, PRFConfig, SpatialNeuron, fire_rates
from resofire.ops import lif, prf, prf_coefficients

NEURONS = {
    "prf": lambda: PRF(6, delta=(0.1, 0.5)),
    "prf soft": lambda: PRF(6, delta=(0.1, 0.5), reset="soft", train_tau=True),
    "lif": lambda: LIF(6),
    "lif hard": lambda: LIF(6, tau=(2.0, 20.0), train_tau=True, reset="hard", reset_gradient="full"),
}


@pytest.mark.parametrize("name", NEURONS)
def test_the_verbs_agree(name):
    neuron = NEURONS[name]().double()
    x = 3 * torch.randn(2, 40, 6, dtype=torch.float64)
    spikes, last = neuron.scan(x)
    assert 0 < spikes.mean() < 1
    assert torch.equal(neuron(x), spikes)
    state, steps = None, []
    for t in range(40):
        out, state = neuron.step(x[:, t], state)
        steps.append(out)
    assert torch.equal(torch.stack(steps, 1), spikes)
    for ours, theirs in zip(state, last, strict=True):
        torch.testing.assert_close(ours, theirs)
    first, middle = neuron.scan(x[:, :17])
    second, end = neuron.scan(x[:, 17:], middle)
    assert torch.equal(torch.cat([first, second], 1), spikes)
    torch.testing.assert_close(end, last)
    trace = neuron.trace(x)
    assert torch.equal(trace.spikes, spikes)
    assert torch.equal((trace.argument >= 0).double(), spikes)
    assert tuple(trace.states) == neuron.states
    for name in neuron.states:
        torch.testing.assert_close(getattr(trace, name)[:, -1], getattr(last, name))
    with pytest.raises(AttributeError, match="there is no 'v'"):
        _ = trace.v


@pytest.mark.parametrize("name", NEURONS)
def test_the_equation_of_a_step_is_the_operators(name):
    neuron = NEURONS[name]().double()
    x = (3 * torch.randn(1, 40, 6, dtype=torch.float64)).requires_grad_()
    cu = torch.tensor([0, 13, 13, 40], dtype=torch.int32)
    for options in ({}, {"reverse": True}, {"cu_seqlens": cu}, {"cu_seqlens": cu, "reverse": True}):
        ours, theirs = neuron.scan(x, **options), Neuron.scan(neuron, x, **options)
        assert torch.equal(ours[0], theirs[0])
        torch.testing.assert_close(tuple(ours[1]), tuple(theirs[1]))
        weight = torch.randn_like(x)
        wrt = [x, *neuron.parameters()]
        gradients = [torch.autograd.grad((out * weight).sum() + sum(s.sum() for s in state), wrt, allow_unused=True)
                     for out, state in (ours, theirs)]  # fmt: skip
        torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NEURONS)
def test_packed_and_reversed_go_through(name):
    neuron = NEURONS[name]()
    x = 3 * torch.randn(1, 30, 6)
    cu = torch.tensor([0, 10, 30], dtype=torch.int32)
    packed, _ = neuron.scan(x, cu_seqlens=cu, reverse=True)
    parts = [neuron.scan(x[:, a:b].flip(1))[0].flip(1) for a, b in ((0, 10), (10, 30))]
    assert torch.equal(packed, torch.cat(parts, 1))
    assert torch.equal(neuron(x, cu_seqlens=cu, reverse=True), packed)


def test_prf_draws_from_its_ranges_and_the_equation_is_the_operators():
    neuron = PRF(4000, tau=3.0, delta=(1e-3, 1e-1), theta=(0.0, 5.0))
    delta, theta = neuron.log_delta.exp(), neuron.log_theta.exp()
    assert 1e-3 <= delta.min() < 1.2e-3
    assert 0.085 < delta.max() <= 1e-1
    assert abs(delta.log().mean().item() - math.log(1e-2)) < 0.1
    assert 0 < theta.min() < 0.02
    assert 4.98 < theta.max() <= 5.0
    assert abs(theta.mean().item() - 2.5) < 0.1
    c = neuron.coefficients()
    torch.testing.assert_close((c["phi_re"], c["phi_im"], c["gain"]), (*prf_coefficients(delta, theta, 3.0), delta))


def test_evenly_spread_channels_are_the_middles_of_equal_shares_in_a_random_order():
    neuron = PRF(8, tau=3.0, delta=(1e-2, 1.0), theta=(1.0, 5.0), evenly_spaced=True)
    delta, theta = neuron.log_delta.exp().detach(), neuron.log_theta.exp().detach()
    torch.testing.assert_close(theta.sort().values, torch.arange(1.25, 5.0, 0.5))
    torch.testing.assert_close(delta.sort().values, 10 ** (torch.arange(0.125, 2.0, 0.25) - 2))
    assert not torch.equal(delta.argsort(), theta.argsort())
    assert not torch.equal(
        delta, PRF(8, tau=3.0, delta=(1e-2, 1.0), theta=(1.0, 5.0), evenly_spaced=True).log_delta.exp()
    )
    assert PRF(8, evenly_spaced=True, delta=0.1).log_delta.exp().unique().numel() == 1
    with pytest.raises(ValueError, match="PRF: evenly_spaced must be True or False, got 1"):
        PRF(8, evenly_spaced=1)


def test_a_period_rounds_the_initial_frequencies_to_its_harmonics():
    torch.manual_seed(0)
    plain = PRF(64, delta=(0.1, 1.0), theta=(0.0, 2.0))
    torch.manual_seed(0)
    tuned = PRF(64, delta=(0.1, 1.0), theta=(0.0, 2.0), period=32)
    assert torch.equal(tuned.log_delta, plain.log_delta)
    cycles = [32 * (neuron.log_theta.exp() * neuron.log_delta.exp()) / (2 * math.pi) for neuron in (plain, tuned)]
    torch.testing.assert_close(cycles[1], cycles[0].round(), atol=1e-4, rtol=0)
    assert len(cycles[1].round().unique()) > 4
    for period in (0, -1.0, "32", math.inf, True):
        with pytest.raises(ValueError, match="PRF: period must be a positive number of steps or None, got"):
            PRF(8, period=period)
    with pytest.raises(ValueError, match="PRF: period must be None with resonators or history, got 32"):
        PRFConfig(resonators=2, period=32).build(8)


@pytest.mark.parametrize(("delta", "theta"), [(d, t) for d in (1e-4, 0.01, 1.0) for t in (1e-6, 1.0, 3.14159)], ids=str)
def test_unit_gain_makes_the_potential_of_white_noise_as_large_as_the_noise(delta, theta):
    neuron = PRF(1, delta=delta, theta=theta, tau=5.0, gain="unit", threshold=1e9).double()
    length = int(25 * 5.0 / delta)
    impulse = torch.zeros(1, length, 1, dtype=torch.float64)
    impulse[0, 0] = 1.0
    phi_re, phi_im, gain, _ = (c.detach() for c in neuron.coefficients().values())
    k = torch.arange(length, dtype=torch.float64)
    kernel = gain * torch.hypot(phi_re, phi_im) ** k * torch.cos(k * torch.atan2(phi_im, phi_re))
    if length <= 20_000:
        torch.testing.assert_close(neuron.trace(impulse).u[0, :, 0], kernel, atol=1e-9, rtol=0)
    assert float(kernel.square().sum()) == pytest.approx(1.0, abs=1e-6)


def test_unit_gain_is_differentiable_and_adds_no_state():
    neuron = PRF(6, delta=(1e-3, 1.0), train_tau=True, gain="unit")
    neuron(torch.randn(2, 50, 6)).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in neuron.parameters())
    assert neuron.state_dict().keys() == PRF(6, train_tau=True).state_dict().keys()
    with pytest.raises(ValueError, match="gain must be one of 'delta', 'unit', got 'one'"):
        PRF(6, gain="one")


def test_everything_trained_gets_a_gradient_and_stays_in_its_domain():
    neuron = PRF(5, delta=(0.1, 0.5), train_tau=True)
    optimiser = torch.optim.SGD(neuron.parameters(), lr=0.05)
    for _ in range(3):
        optimiser.zero_grad()
        neuron(3 * torch.randn(4, 30, 5)).sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in neuron.parameters())
        optimiser.step()
    phi_re, phi_im, delta, _ = neuron.coefficients().values()
    assert (delta > 0).all()
    assert (phi_re**2 + phi_im**2 <= 1).all()


def test_lif_decay_is_the_papers_and_the_plif_form_is_the_same_at_the_start():
    x = 2 * torch.randn(2, 50, 3)
    fixed, trained = LIF(3, tau=4.0), LIF(3, tau=4.0, train_tau=True)
    torch.testing.assert_close(fixed.beta(), torch.full((3,), 0.75))
    torch.testing.assert_close(trained.beta(), torch.full((3,), 0.75))
    assert torch.equal(fixed(x), lif(x, 0.75)[0])
    trained(x).sum().backward()
    assert trained.log_tau_above_1.grad.abs().sum() > 0


def test_state_dict_keys_are_stable_and_round_trip():
    assert list(PRF(3).state_dict()) == ["log_delta", "log_theta", "tau"]
    assert list(PRF(3, train_delta=False, train_theta=False, train_tau=True).state_dict()) == [
        "log_tau",
        "delta",
        "theta",
    ]
    assert list(LIF(3).state_dict()) == ["tau"]
    assert list(LIF(3, train_tau=True).state_dict()) == ["log_tau_above_1"]
    assert list(SpatialNeuron().state_dict()) == ["log_amplitude"]
    assert list(SpatialNeuron(amplitude=False).state_dict()) == []
    x = 20 * torch.randn(2, 60, 3)
    one, other = PRF(3), PRF(3)
    assert not torch.equal(one.log_delta, other.log_delta)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x), other(x))


def test_the_spatial_neuron_fires_at_its_threshold_with_its_amplitude():
    neuron = SpatialNeuron(threshold=0.5)
    x = torch.tensor([0.4, 0.5, 0.6], requires_grad=True)
    with torch.no_grad():
        neuron.log_amplitude.fill_(math.log(3.0))
    out = neuron(x)
    torch.testing.assert_close(out, torch.tensor([0.0, 3.0, 3.0]))
    out.sum().backward()
    torch.testing.assert_close(neuron.log_amplitude.grad, torch.tensor(6.0))
    torch.testing.assert_close(x.grad, 3 * neuron.surrogate.derivative(x.detach() - 0.5))
    assert torch.equal(neuron.step(x, None)[0], out)
    assert torch.equal(neuron.scan(x)[0], out)


def test_prf_without_resonance_is_allowed_when_untrained():
    x = 3 * torch.randn(2, 40, 3)
    neuron = PRF(3, delta=1.0, theta=0.0, train_delta=False, train_theta=False)
    torch.testing.assert_close(neuron(x), prf(x, math.exp(-0.5), 0.0, 1.0)[0])


BAD = {
    "theta of 0, trained": (lambda: PRF(3, theta=0.0), "PRF: theta must be above 0, got 0.0"),
    "negative delta": (lambda: PRF(3, delta=-0.1), "PRF: delta must be above 0, got -0.1"),
    "a range that falls": (lambda: PRF(3, theta=(2.0, 1.0)), r"PRF: theta must be a number or a pair .* got \(2.0, 1.0\)"),
    "tau of 0": (lambda: PRF(3, tau=0), "PRF: tau must be above 0, got 0"),
    "hard reset": (lambda: PRF(3, reset="hard"), "PRF: reset must be one of 'none', 'soft', got 'hard'"),
    "no features": (lambda: LIF(0), "LIF: features must be a positive integer, got 0"),
    "tau of 1": (lambda: LIF(3, tau=1.0), "LIF: tau must be above 1, got 1.0"),
    "a negative frequency": (lambda: PRF(3, theta=(-1.0, 1.0)), r"PRF: theta must not be negative to be trained, got \(-1.0, 1.0\)"),
    "delta as a list": (lambda: PRF(3, delta=[0.1, 0.2]), r"PRF: delta must be a number or a pair .* got \[0.1, 0.2\]"),
    "no pair": (lambda: PRF(3, delta=()), r"PRF: delta must be a number or a pair .* got \(\)"),
    "unknown backend": (lambda: PRF(3, backend="skan"), r"PRF: backend must be one of .*did you mean 'scan'\?\), got 'skan'"),
    "unknown gradient": (lambda: LIF(3, reset_gradient="fulll"), "LIF: reset_gradient must be one of .* got 'fulll'"),
    "trace of a step": (lambda: LIF(3).trace(torch.zeros(2, 3)), r"LIF.trace: current must have shape \[B, T, N\], got \[2, 3\]"),
    "another width": (lambda: LIF(3)(torch.zeros(1, 2, 4)), r"LIF: the input must have 3 channels in its last dimension, got \[1, 2, 4\]"),
    "another width of a fixed neuron": (lambda: PRF(3).step(torch.zeros(2, 4)), r"PRF: the input must have 3 channels .*, got \[2, 4\]"),
}  # fmt: skip


def test_a_tensor_or_text_as_a_modules_threshold_is_refused():
    with pytest.raises(
        TypeError, match=r"LIF: threshold must be a number, got a tensor; resofire\.ops\.lif takes tensors"
    ):
        LIF(3, threshold=torch.ones(3))
    with pytest.raises(TypeError, match="SpatialNeuron: threshold must be a number or a tensor, got 'a'"):
        SpatialNeuron(threshold="a")


def test_bad_settings_are_named(subtests):
    for case, (call, pattern) in BAD.items():
        with subtests.test(case), pytest.raises(ValueError, match=pattern):
            call()


def test_repr_shows_what_matters():
    torch.manual_seed(0)
    text = repr(nn.Sequential(PRF(4, theta=0.0, train_theta=False), LIF(4, train_tau=True), SpatialNeuron()))
    assert "theta=0 fixed, tau=2 fixed, threshold=1, reset='none', ATan(alpha=2.0)" in text
    assert "LIF(4, tau=2 trained, threshold=1, reset='soft', reset_gradient='detached'" in text
    assert "SpatialNeuron(threshold=0.5, amplitude=1 trained" in text


def test_fire_rates_are_counted_per_layer():
    model = nn.Sequential(LIF(5), nn.Linear(5, 7), SpatialNeuron())
    x = 2 * torch.randn(3, 20, 5)
    with fire_rates(model) as rates:
        first = model[0](x)
        model(x)
        model(x)
    assert set(rates.as_dict()) == {"0", "2"}
    assert rates["0"] == pytest.approx(first.mean().item())
    model(x)
    assert rates["0"] == pytest.approx(first.mean().item())


def test_nobody_watches_a_copy():
    model, x = nn.Sequential(LIF(5), SpatialNeuron()), 2 * torch.randn(3, 20, 5)
    with fire_rates(model) as rates:
        model(x)
        once, copies = rates._counts.copy(), (copy.deepcopy(model), pickle.loads(pickle.dumps(model)))
        for each in copies:
            each(x)
        assert rates._counts == once
        model(x)
        assert rates._counts == {name: 2 * count for name, count in once.items()}
    assert not any(neuron._watchers for each in copies for neuron in each)


def test_fire_rates_are_counted_however_a_neuron_is_called():
    neuron, x = LIF(5), 2 * torch.randn(3, 20, 5)
    with fire_rates(neuron) as rates:
        spikes, state = neuron.scan(x)
        step, _ = neuron.step(x[:, 0], state)
    assert rates[""] == pytest.approx((spikes.sum() + step.sum()).item() / (x.numel() + 15))


def test_a_spatial_neuron_is_traced():
    neuron, x = SpatialNeuron(), torch.tensor([[[0.4], [0.6]]])
    with torch.no_grad():
        neuron.log_amplitude.fill_(math.log(2))
    seen = neuron.trace(x)
    assert seen.spikes.tolist() == neuron(x).tolist() == [[[0.0], [2.0]]]
    torch.testing.assert_close(seen.argument, x - 0.5)
    assert seen.states == {}


def test_half_precision_modules_keep_their_decay():
    neuron = PRF(64).bfloat16()
    phi_re, phi_im, *_ = neuron.coefficients().values()
    assert (phi_re**2 + phi_im**2 < 1).all()
    assert LIF(1, tau=2000.0).bfloat16().beta().item() == pytest.approx(1 - 1 / 2000)
    spikes = neuron(torch.randn(2, 30, 64, dtype=torch.bfloat16))
    assert spikes.dtype == torch.bfloat16


def test_modules_are_shown_on_the_meta_device():
    assert "delta=? trained" in repr(PRF(3).to("meta"))


def test_fire_rates_can_be_trained():
    model = nn.Sequential(LIF(5), nn.Linear(5, 7), SpatialNeuron())
    x = 2 * torch.randn(3, 20, 5)
    with fire_rates(model) as plain, fire_rates(model, gradient=True) as rates:
        spikes = model[0](x)
        model[2](model[1](spikes))
        model[2](model[1](spikes[:1]))
    assert rates.as_dict() == pytest.approx(plain.as_dict())
    assert not plain.tensors()["2"].requires_grad
    (ours,) = torch.autograd.grad(rates.tensors()["2"], model[1].weight)
    again = torch.cat([model[2](model[1](spikes)), model[2](model[1](spikes[:1]))])
    (expected,) = torch.autograd.grad(again.mean(), model[1].weight)
    assert expected.abs().sum() > 0
    torch.testing.assert_close(ours, expected)


def test_a_rate_worked_out_elsewhere_counts_and_no_watcher_costs_nothing():
    neuron = LIF(5)
    neuron._report_rate(torch.tensor(1.0), 10)
    with fire_rates(neuron) as rates:
        neuron._report_rate(torch.tensor(0.25), 20)
        neuron(torch.zeros(2, 3, 5))
        neuron(torch.zeros(2, 0, 5))
    assert rates[""] == pytest.approx(0.25 * 20 / 50)
    with fire_rates(neuron, gradient=True) as rates:
        neuron(torch.zeros(2, 0, 5))
    assert rates.as_dict() == {"": 0.0}


@pytest.mark.parametrize("name", NEURONS)
def test_the_zero_state_is_what_no_state_means(name):
    neuron, x = NEURONS[name](), 3 * torch.randn(2, 20, 6)
    zero = neuron.init_state(2)
    assert all(not value.any() and value.shape == (2, 6) for value in zero)
    assert torch.equal(neuron.scan(x, zero)[0], neuron(x))
