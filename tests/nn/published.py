"""The neurons of the literature as plain loops over one sequence [T, N] in numpy, written from the papers' equations.

Nothing here uses the library: each function takes the raw parameters by name, settings, and the input, and returns
spikes.
"""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def over_time(x, step):
    return np.stack([step(now) for now in x])


def plif(x, p, V=1.0):
    u = np.zeros(x.shape[1])

    def step(c):
        nonlocal u
        h = u + sigmoid(p["w"]) * (c - u)
        s = np.where(h >= V, 1.0, 0.0)
        u = h * (1 - s)
        return s

    return over_time(x, step)


def glif(x, p):
    """As published: the last spike enters the next step."""
    q = {name.removeprefix("logit_"): sigmoid(value) for name, value in p.items()}
    u, last = np.zeros(x.shape[1]), np.zeros(x.shape[1])

    def step(c):
        nonlocal u, last
        leaked = (1 - q["alpha"] * (1 - q["decay"])) * u - (1 - q["alpha"]) * q["leak"]
        charged = leaked + (1 - q["beta"] * (1 - q["conductance"])) * c
        hard = q["gamma"] * (1 - q["alpha"] * (1 - q["decay"])) * u * last
        soft = (1 - q["gamma"]) * q["reset"] * last
        u = charged - hard - soft
        last = np.where(u >= q["threshold"], 1.0, 0.0)
        return last

    return over_time(x, step)


def tclif(x, p, gamma=0.5, V=1.0):
    d = u = last = np.zeros(x.shape[1])

    def step(c):
        nonlocal d, u, last
        d_new = d - sigmoid(p["b1"]) * (u - V * last) + c - gamma * last
        u = u + sigmoid(p["b2"]) * d_new - V * last
        d = d_new
        last = np.where(u >= V, 1.0, 0.0)
        return last

    return over_time(x, step)


def alif(x, p, beta=1.8, b0=0.01):
    alpha, rho = np.exp(-1 / np.exp(p["log_tau"])), np.exp(-1 / np.exp(p["log_tau_adapt"]))
    u = eta = last = np.zeros(x.shape[1])

    def step(c):
        nonlocal u, eta, last
        eta = rho * eta + (1 - rho) * last
        threshold = b0 + beta * eta
        u = alpha * u + (1 - alpha) * c - threshold * last
        last = np.where(u >= threshold, 1.0, 0.0)
        return last

    return over_time(x, step)


def ahp(x, p, V=1.0):
    """Main and auxiliary compartment: the auxiliary one is added to the input, and each spike lowers it."""
    tau, slow, kappa = (np.exp(p[f"log_{name}"]) for name in ("tau", "tau_ahp", "strength"))
    u = current = np.zeros(x.shape[1])

    def step(c):
        nonlocal u, current
        h = np.exp(-1 / tau) * u + c + current
        s = np.where(h >= V, 1.0, 0.0)
        u = np.where(s == 1, 0.0, h)
        current = np.exp(-1 / slow) * current - kappa * s
        return s

    return over_time(x, step)


def brf(x, p, delta=0.01, V=1.0, gamma=0.9):
    """In complex numbers, with the paper's factor δ on the current."""
    omega, offset = abs(p["omega"]), abs(p["offset"])
    bound = (-1 + np.sqrt(1 - (delta * omega) ** 2)) / delta
    z, q = np.zeros(x.shape[1], complex), np.zeros(x.shape[1])

    def step(c):
        nonlocal z, q
        b = bound - offset - q
        z = z + delta * ((b + 1j * omega) * z + c)
        s = np.where(z.real >= V + q, 1.0, 0.0)
        q = gamma * q + s
        return s

    return over_time(x, step)


def bhrf(x, p, delta=0.01, V=1.0, gamma=0.9):
    omega, offset = abs(p["omega"]), abs(p["offset"])
    u = v = q = np.zeros(x.shape[1])

    def step(c):
        nonlocal u, v, q
        b = delta * omega**2 / 2 + offset + q
        v = v + delta * u
        u = u + delta * (c - 2 * b * u - omega**2 * v)
        s = np.where(u >= V + q, 1.0, 0.0)
        q = gamma * q + s
        return s

    return over_time(x, step)


def psn(x, p):
    return np.where(p["weight"] @ x >= p["threshold"][:, None], 1.0, 0.0)


def sliding_psn(x, p):
    h = np.stack([np.convolve(x[:, n], p["weight"])[: len(x)] for n in range(x.shape[1])], 1)
    return np.where(h >= p["threshold"], 1.0, 0.0)


def drf(x, p, n=3, V=1.0):
    """By convolution with the kernels, then the adaptive threshold by a causal convolution of would-be spikes."""
    steps, features = x.shape
    t = np.arange(steps)[:, None]
    delta = np.exp(p["log_delta"])
    tau, theta, mix = (value.reshape(n, features) for value in (np.exp(p["log_tau"]), np.exp(p["log_theta"]), p["mix"]))
    h = np.zeros_like(x)
    for i in range(n):
        kernel = delta * np.exp(t * delta * (-1 / tau[i] + 1j * theta[i])).real
        for k in range(features):
            h[:, k] += mix[i, k] * np.convolve(x[:, k], kernel[:, k])[:steps]
    would = np.where(h >= V, 1.0, 0.0)
    alpha = np.concatenate(([0.0], sigmoid(p["adaptation"])))
    raised = np.stack([np.convolve(would[:, k], alpha)[:steps] for k in range(features)], 1)
    return np.where(h >= V + raised, 1.0, 0.0)


def recurrent_lif(x, p, tau=2.0, V=1.0):
    u = s = np.zeros(x.shape[1])

    def step(c):
        nonlocal u, s
        u = (1 - 1 / tau) * (u - V * s) + c + p["feedback.weight"] @ s
        s = np.where(u >= V, 1.0, 0.0)
        return s

    return over_time(x, step)
