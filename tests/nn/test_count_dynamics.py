"""Counting the operations of a neuron by running its dynamics once, against counts by hand."""

import pytest
import torch

from resofire import nn
from resofire.nn import LIF, PRF, Neuron
from resofire.nn.counts import CountError, count_dynamics


def lif(current, state, c, spike):
    u = c.beta * state.u + current
    s = spike(u - 1)
    return s, {"u": u - s.detach()}


def prf(current, state, c, spike):
    u = c.re * state.u - c.im * state.r + c.gain * current
    return spike(u - c.threshold), {"u": u, "r": c.im * state.u + c.re * state.r}


def adaptive(current, state, c, spike):
    u = c.beta * state.u + current
    s = spike(u - 1 - c.kappa * state.a)
    return s, {"u": u - s.detach(), "a": c.rho * state.a + s}


def hard_reset(current, state, c, spike):
    u = c.beta * state.u + current
    s = spike(u - c.threshold)
    # By a product with the complement, by `where`, and with a sign changed: all are selections.
    return s, {"u": u * (1 - s), "w": torch.where(s > 0, torch.zeros_like(u), -u), "v": u - c.threshold * s}


def distance_is_kept(current, state, c, spike):
    """The argument of the spike is a state as well, so the subtraction is no part of the comparison."""
    v = state.u + current - c.threshold
    return spike(v), {"u": v}


def exponential(current, state, c, spike):
    u = state.u + torch.exp(state.u) / c.tau + current**2 + (current**3).clamp(0, 1) + torch.maximum(current, state.u)
    return spike(u - 1), {"u": u}


COUNTED = [
    # multiply, add, compare, nonlinear
    (lif, "u", ("beta",), (1, 2, 1, 0)),
    (prf, "ur", ("re", "im", "gain", "threshold"), (5, 3, 1, 0)),
    (adaptive, "ua", ("beta", "kappa", "rho"), (3, 4, 1, 0)),
    (hard_reset, "uwv", ("beta", "threshold"), (1, 2, 1, 0)),
    (distance_is_kept, "u", ("threshold",), (0, 2, 1, 0)),
    (exponential, "u", ("tau",), (3, 4, 4, 2)),
]


def test_by_hand(subtests):
    for dynamics, states, coefficients, expected in COUNTED:
        with subtests.test(dynamics.__name__):
            counted = count_dynamics(dynamics, tuple(states), coefficients)
            assert tuple(counted.values()) == expected


# Every neuron of the library by hand: products with a spike and the last difference before a comparison are free.
LIBRARY = [
    (nn.PLIF(3), (1, 2, 1, 0)),  # u + r(c - u)
    (nn.GLIF(3), (3, 4, 1, 0)),  # u - λ + gc; κv(1 - γs) - ρs
    (nn.TCLIF(3), (2, 5, 1, 0)),  # d + β₁u + c; u + β₂d; two resets
    (nn.ALIF(3), (5, 5, 1, 0)),  # u + gc; βη in both thresholds; ρη + rs; αv - ϑs
    (nn.AHP(3), (3, 3, 1, 0)),  # αu + c - κa; ρa + s
    (nn.BRF(3), (7, 6, 1, 0)),  # k - δq; ku - ωv + gc; ωu + kv; V + q; γq + s
    (nn.BHRF(3), (6, 6, 1, 0)),  # v + δu; (k - 2δq)u - ω²v + gc; V + q; γq + s
    (nn.DRF(3, resonators=2, history=2), (14, 9, 2, 0)),  # twice 5 products, 3 sums; h; h - V - α₁o₁ - α₂o₂
    (nn.SlidingPSN(3, order=4), (4, 3, 1, 0)),
]


def test_every_neuron_of_the_library_by_hand(subtests):
    for neuron, expected in LIBRARY:
        with subtests.test(type(neuron).__name__):
            counted = neuron.count("n", 7)
            each = (counted.multiply, counted.add, counted.compare, counted.nonlinear)
            assert each == tuple(3 * number for number in expected)


@pytest.mark.parametrize(
    "neuron", [PRF(3), PRF(3, reset="soft"), LIF(3), LIF(3, reset="none"), LIF(3, reset="hard", reset_gradient="full")]
)
def test_the_counts_of_prf_and_lif_are_those_of_their_dynamics(neuron):
    assert neuron.count("n", 7) == Neuron.count(neuron, "n", 7)
    assert neuron.count("n", 7).times == 7


class Adaptive(Neuron):
    states = ("u", "a")
    dynamics = staticmethod(adaptive)

    def coefficients(self):
        return {"beta": torch.ones(self.features), "rho": torch.ones(self.features), "kappa": torch.ones(())}


def test_a_neuron_of_ones_own_counts_itself():
    counted = Adaptive(5).count("mine", 10)
    assert (counted.multiply, counted.add, counted.compare, counted.nonlinear) == (15, 20, 5, 0)
    # Two coefficients per channel; κ is shared.
    assert (counted.weights_read, counted.state_read) == (4 * 2 * 5, 4 * 2 * 5)


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(CountError, match="the cost of 'lgamma' is not known"):
        count_dynamics(lambda x, state, c, spike: (spike(x.lgamma()), {}), (), ())
    with pytest.raises(CountError, match=r"the Neuron at mine has neither `dynamics` nor its own `count`"):
        Neuron(2).count("mine", 1)
