"""Random dynamics: elementwise functions of one step that stay finite, for tests of the compiler."""

import random

import torch

STATES = ("a", "b")
COEFFICIENTS = ("p", "q")


def dynamics_of(seed: int, size: int = 14):
    """A random `dynamics` with the states and coefficients above; the same for the same seed."""

    def dynamics(current, state, c, spike):
        draw = random.Random(seed)
        values = [current, state.a, state.b, c.p, c.q]

        def one():
            return draw.choice(values)

        spikes = []
        for number in range(size):
            if number in (size // 2, size - 2):
                # With the current, for an argument of coefficients alone would not be one value for each sequence.
                value = spike(one() - draw.uniform(-0.3, 0.6) * one() + 0.1 * current)
                spikes.append(value)
                values.append(value.detach() if draw.random() < 0.3 else value)
                continue
            values.append(_operation(draw, one))
        total = spikes[0] if draw.random() < 0.5 else spikes[0] * one() + spikes[1]
        a = torch.tanh(values[-1]) * draw.uniform(0.2, 1.5) + 0.5 * state.a - (0.3 * spikes[0]).detach()
        return total, {"a": a, "b": torch.clamp(values[-2] * 0.5 + 0.4 * state.b, -2.0, 2.0)}

    return dynamics


def _operation(draw, one):
    """One value from others; divisors, roots and logarithms keep away from 0."""
    x, y = one(), one()
    small = draw.uniform(0.1, 1.0)
    cases = [
        lambda: x + y,
        lambda: small * x - y,
        lambda: x * y * small,
        lambda: x / (1.0 + torch.abs(y)),
        lambda: torch.tanh(x) * y,
        lambda: torch.sigmoid(x - y),
        lambda: torch.sin(x) + torch.cos(y),
        lambda: torch.exp(-torch.abs(x)),
        lambda: torch.log(1.0 + y * y),
        lambda: torch.sqrt(small + x**2),
        lambda: (small + torch.abs(x)) ** 1.5 / (1 + x.abs()),
        lambda: torch.minimum(x, y),
        lambda: torch.maximum(x, small * y),
        lambda: torch.clamp(x, min=-small, max=small),
        lambda: torch.where(x > small * y, x, -y),
        lambda: torch.where((x < y) & ~(x <= -small), small, y),
        lambda: torch.where(x >= y, small, 0 * x),
        lambda: torch.relu(x) - small,
        lambda: -x + y * 0.25,
    ]
    return torch.tanh(draw.choice(cases)()) * 1.5
