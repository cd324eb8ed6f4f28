"""The blocks of `resofire.models.baselines` once more, step by step in NumPy and float64, from their equations."""

import math

import numpy as np


def array(tensor):
    return tensor.detach().double().numpy()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def linear(layer, x):
    return x @ array(layer.weight).T + array(layer.bias)


def batch_norm(norm, x):
    scale = array(norm.weight) / np.sqrt(array(norm.running_var) + norm.eps)
    return (x - array(norm.running_mean)) * scale + array(norm.bias)


def layer_norm(norm, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + norm.eps) * array(norm.weight) + array(norm.bias)


def glu(x):
    value, gate = np.split(x, 2, -1)
    return value * sigmoid(gate)


def state_space(space, x):
    """y of one sequence [T, D]: the recurrence, and for the reversed direction the states one step ahead."""
    pole = -np.exp(array(space.log_decay)) + 1j * array(space.frequency)
    step = np.exp(array(space.log_delta))[:, None] * pole
    read = array(space.read)[0] + 1j * array(space.read)[1]
    out = array(space.through) * x
    for direction in range(len(read)):
        weight = read[direction] * (np.exp(step) - 1) / pole
        state = np.zeros_like(pole)
        order = range(len(x)) if direction == 0 else range(len(x) - 1, -1, -1)
        for t in order:
            if direction == 1:
                out[t] += 2 * (weight * state).sum(-1).real
            state = np.exp(step) * state + x[t][:, None]
            if direction == 0:
                out[t] += 2 * (weight * state).sum(-1).real
    return out


def s4d(block, u):
    y = state_space(block.space, batch_norm(block.norm, u))
    return u + glu(linear(block.mixer, gelu(y)))


def binary_s4d(block, u):
    y = state_space(block.space, batch_norm(block.norm, u))
    return u + glu(linear(block.mixer, (y >= block.neuron.threshold).astype(float)))


def ternary(x, limit):
    return np.where(x >= limit, 1.0, 0.0) - np.where(x <= -limit, 1.0, 0.0)


def gsu(block, u):
    z = gelu(state_space(block.space, batch_norm(block.norm, u)))
    spikes = ternary(z, 0.15 * np.abs(z).max(-1, keepdims=True))
    weight = array(block.gate.weight)
    gate = np.exp(array(block.log_scale)) * z @ ternary(weight, 0.15 * np.abs(weight).max()).T
    return u + linear(block.mixer, spikes) * (gate + array(block.gate.bias))


def stochastic_s4(block, u, noise):
    spikes = (noise < state_space(block.space, u)).astype(float)
    return np.clip(batch_norm(block.norm, u + glu(linear(block.mixer, spikes))), 0, 1)


def hard_lif(x, beta):
    potential, spikes = np.zeros_like(x[0]), np.zeros_like(x)
    for t, now in enumerate(x):
        potential = beta * potential + now
        spikes[t] = potential >= 1
        potential = potential * (1 - spikes[t])
    return spikes


def spiking_ssm(block, u):
    y = state_space(block.space, batch_norm(block.norm, u))
    return u + glu(linear(block.mixer, hard_lif(y / np.exp(array(block.log_threshold)), 0.125)))


def soft_lif(x, tau):
    potential, spikes = np.zeros_like(x[0]), np.zeros_like(x)
    for t, now in enumerate(x):
        potential = (1 - 1 / tau) * potential + now
        spikes[t] = potential >= 1
        potential = potential - spikes[t]
    return spikes


def legendre(order, window):
    """The continuous A and B of a Legendre memory, entry by entry."""
    a, b = np.zeros((order, order)), np.zeros(order)
    for i in range(order):
        b[i] = (2 * i + 1) * (-1) ** i / window
        for j in range(order):
            a[i, j] = (2 * i + 1) * (-1 if i < j else (-1) ** (i - j + 1)) / window
    return a, b


def legendre_memory(order, window, q, substeps=400):
    """m of one channel [T], by Runge-Kutta steps with q held constant during a time step."""
    a, b = legendre(order, window)
    m, rows, h = np.zeros(order), [], 1 / substeps
    for now in q:
        for _ in range(substeps):
            k1 = a @ m + b * now
            k2 = a @ (m + h / 2 * k1) + b * now
            k3 = a @ (m + h / 2 * k2) + b * now
            k4 = a @ (m + h * k3) + b * now
            m = m + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        rows.append(m)
    return np.array(rows)


def spiking_lmu(block, u, tau=2.0):
    def fire(name, x):
        return soft_lif(batch_norm(block.norms[name], x), tau)

    s = fire("input", u)
    q = fire("query", linear(block.query, s))[:, 0]
    m = fire("memory", legendre_memory(block.memory.order, block.memory.window, q))
    h = fire("hidden", linear(block.hidden, np.concatenate((m, s), -1)))
    r = u + batch_norm(block.out_norm, linear(block.out, h))
    return r + batch_norm(block.narrow_norm, linear(block.narrow, fire("wide", linear(block.wide, fire("mixer", r)))))


def elm(block, u):
    x = batch_norm(block.norm, u)
    kappa = np.exp(-1 / (1 + (block.longest - 1) * sigmoid(array(block.logit_tau))))
    synapse, memory, rows = np.zeros(block.features), np.zeros(block.size), []
    for now in x:
        synapse = math.exp(-1 / block.tau) * synapse + np.maximum(array(block.weight), 0) * now
        hidden = np.maximum(linear(block.into, np.concatenate((synapse, kappa * memory))), 0)
        change = 1.7159 * np.tanh(2 / 3 * linear(block.update, hidden))
        memory = kappa * memory + block.gain * (1 - kappa) * change
        rows.append(memory)
    return u + linear(block.out, np.array(rows))


def rotate(x):
    """[T, E]: channels j and j + E/2 as a complex number, turned by t / 10000^(2j/E)."""
    half = x.shape[-1] // 2
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(
        1j * np.arange(len(x))[:, None] * 10_000.0 ** (-2 * np.arange(half) / (2 * half))
    )
    return np.concatenate((turned.real, turned.imag), -1)


def transformer(block, u):
    queries, keys, values = np.split(linear(block.project, layer_norm(block.norm, u)), 3, -1)
    size, mixed = block.features // block.heads, np.zeros_like(u)
    for head in range(block.heads):
        own = slice(head * size, (head + 1) * size)
        scores = rotate(queries[:, own]) @ rotate(keys[:, own]).T / math.sqrt(size)
        if not block.bidirectional:
            scores[np.triu_indices(len(u), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed[:, own] = weights / weights.sum(-1, keepdims=True) @ values[:, own]
    r = u + linear(block.out, mixed)
    return r + linear(block.narrow, gelu(linear(block.wide, layer_norm(block.mlp_norm, r))))
