"""The paper's view of the gradient: the inner product of a kernel and the spikes of the layer before, on real networks.

With K_k = Δ e^{-kΔ/τ} cos(kΔθ), the response of the potential to a spike k steps ago,

    ∂u_T[n] / ∂W[n, m] = Σ_t K_{T-t} s_t[m] = <K, spikes of m reversed>

for a neuron n of the middle layer. The networks are three of those of loss-landscape.
"""

from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy

from .. import data
from ..models import Feedforward
from ..nn import PRF
from ..plot import figure, styled
from . import decay as sweep
from .loss_landscape import CASES, LABELS, TASK, networks
from .pages import percent, plain_lines, short, table
from .workplace import Workplace

TITLE = "The gradient as an inner product of kernel and spikes, measured on trained networks"
SHOWN = ("fast", "slow", "resonate")
IMAGES, CHECKED, WINDOW, LAYER = 32, 4, 40, 1
# An inner product below this share of a single spike's at the last step counts as vanished.
NEAR = 0.01
# Steps by which spikes are shifted; 4 are a period at θ = π/2.
MOVES = (1, 2, 4)
QUANTILES = tuple(i / 40 for i in range(41))


def run(workplace: Workplace) -> dict[str, Any]:
    trained = networks(workplace)
    batch = next(workplace.task(TASK)["validation"].batches(IMAGES))
    models = {label: trained[label][1].double() for label in SHOWN}
    trains = {label: _trains(model, batch.x.double()) for label, model in models.items()}
    cases = {}
    for label, model in models.items():
        kernel = response(_neuron(model), batch.x.shape[1])
        cases[label] = {
            "beta": CASES[label][0], "theta": sweep.THETAS[CASES[label][1]],
            "agreement": agreement(model, data.Batch(batch.x[:CHECKED], batch.labels[:CHECKED], None)),
            "kernel": kernel[:WINDOW].tolist(),
            "steps_without_effect": float((kernel.abs() < NEAR * kernel[0]).double().mean()),
            "own": _inner_products(kernel, trains[label]), "same": _inner_products(kernel, trains["resonate"]),
        }  # fmt: skip
    return {
        "task": TASK, **trained["fast"][0].scale, "images": len(batch.x),
        "checked": CHECKED, "length": batch.x.shape[1], "near": NEAR, "moves": MOVES, "quantiles": QUANTILES,
        "train": _one_train(trains["resonate"]), "cases": cases,
    }  # fmt: skip


def _neuron(model: Feedforward) -> PRF:
    neuron = model.neurons[LAYER]
    assert isinstance(neuron, PRF)
    return neuron


@torch.no_grad()
def _trains(model: Feedforward, x: Tensor) -> Tensor:
    """The input spikes of the middle layer, [B · inputs, T]."""
    spikes = model.neurons[0](model.linears[0](x))
    return spikes.transpose(1, 2).flatten(0, 1)


def response(neuron: PRF, steps: int) -> Tensor:
    """K_0 to K_{steps - 1} from the formula, the same for all neurons of the layer."""
    tau, delta, theta = (neuron.get_buffer(name).double()[0] for name in ("tau", "delta", "theta"))
    k = torch.arange(steps, dtype=torch.float64)
    return delta * torch.exp(-k * delta / tau) * torch.cos(k * delta * theta)


def agreement(model: Feedforward, batch: data.Batch) -> dict[str, float]:
    """The formula against autograd, in float64; differences are relative to the largest gradient.

    last_potential    the gradient of u_T, by <K, S reversed>
    as_printed        the same by the paper's printed sum, Σ_t β^t s_t
    loss              the gradient of the loss, by the sum over all steps of ∂L/∂u_t times the inner product up to t
    last_step_only    cosine between that gradient and its term t = T, the only one in the paper
    """
    neuron, linear = _neuron(model), model.linears[LAYER]
    weight, bias = linear.get_parameter("weight"), linear.get_parameter("bias")
    with torch.no_grad():
        spikes = model.neurons[0](model.linears[0](batch.x.double()))
    fired, last = neuron.scan(linear(spikes), None)
    kernel = response(neuron, spikes.shape[1] + 1)
    reached = past(kernel[:-1]) @ spikes
    printed = torch.einsum("t,btm->bm", kernel[1:], spikes)
    gradients = torch.stack([torch.autograd.grad(u.sum(), weight, retain_graph=True)[0] for u in last.u])

    loss = cross_entropy(_above(model, fired), batch.labels)
    expected, to_spikes = torch.autograd.grad(loss, (weight, fired))
    with torch.no_grad():
        u = past(kernel[:-1]) @ (spikes @ weight.T + bias)
        to_potential = to_spikes * neuron.surrogate.derivative(u - neuron.threshold)
        by_steps = torch.einsum("btn,btm->nm", to_potential, reached)
        by_last = torch.einsum("bn,bm->nm", to_potential[:, -1], reached[:, -1])
    return {
        "last_potential": _apart(reached[:, -1, None].expand_as(gradients), gradients),
        "as_printed": _apart(printed[:, None].expand_as(gradients), gradients),
        "loss": _apart(by_steps, expected),
        "last_step_only": float(torch.cosine_similarity(by_last.flatten(), expected.flatten(), 0)),
    }


def past(kernel: Tensor) -> Tensor:
    """[T, T]: row t holds K_{t - j} for each j up to t; its product with spikes is the potential at t."""
    steps = torch.arange(len(kernel))
    return kernel[(steps[:, None] - steps).clamp(min=0)].tril()


def _above(model: Feedforward, spikes: Tensor) -> Tensor:
    """Logits from the spikes of the middle layer; the mean over time comes before the last Linear."""
    for linear, neuron in list(zip(model.linears[:-1], model.neurons, strict=True))[LAYER + 1 :]:
        spikes = neuron(linear(spikes))
    return model.linears[-1](spikes.mean(1))


def _apart(values: Tensor, expected: Tensor) -> float:
    return float((values - expected).abs().max() / expected.abs().max().clamp(min=1e-300))


def _inner_products(kernel: Tensor, trains: Tensor) -> dict[str, Any]:
    """<K, S reversed> over all trains with spikes, and its change when the spikes are shifted."""
    fire = trains[trains.sum(1) > 0]
    rates: dict[str, Any] = {"fire_rate": float(trains.mean()), "silent": 1 - len(fire) / len(trains)}
    if len(fire) == 0:
        return {**rates, "vanished": 1.0, "late": 0.0, "position": 0.0, "moved": [0.0] * len(MOVES),
                "sizes": [0.0] * len(QUANTILES), "positions": [0.0] * len(QUANTILES)}  # fmt: skip
    over = moved(kernel, fire)
    size = over[:, 0].abs() / kernel[0]
    position = over.std(1, correction=0) / over.square().mean(1).sqrt()
    weighted = fire * kernel.flip(0).abs()
    levels = torch.tensor(QUANTILES, dtype=torch.float64)
    return {
        **rates,
        "vanished": float((size < NEAR).double().mean()),
        "late": float(weighted[:, -(fire.shape[1] // 10) :].sum() / weighted.sum()),
        "position": float(position.median()),
        "moved": [float((over[:, k] - over[:, 0]).norm() / over[:, 0].norm().clamp(min=1e-300)) for k in MOVES],
        "sizes": [short(value) for value in size.quantile(levels).tolist()],
        "positions": [short(value) for value in position.quantile(levels).tolist()],
    }


def moved(kernel: Tensor, trains: Tensor) -> Tensor:
    """<K, S reversed> [M, T] with the spikes of a train shifted cyclically by k steps."""
    steps = torch.arange(len(kernel))
    return trains @ kernel.flip(0)[(steps[:, None] - steps) % len(kernel)]


def _one_train(trains: Tensor) -> list[int]:
    """Spike times before the last step of a typical train: the median of those that fire in the window."""
    near = trains[:, -WINDOW:].flip(1)
    near = near[near.sum(1) > 0]
    if len(near) == 0:
        return []
    return near[near.sum(1).argsort(stable=True)[len(near) // 2]].nonzero()[:, 0].tolist()


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (top, middle, bottom) = figure(1, 3, width=5.6, height=2.6)
    styles = dict(zip(SHOWN, plain_lines(len(SHOWN)), strict=True))
    for label, style in styles.items():
        case = result["cases"][label]
        top.plot([-k for k in range(len(case["kernel"]))], case["kernel"], label=LABELS[label], **style)
        # A logarithm has no zero.
        middle.plot([max(size, 1e-6) for size in case["own"]["sizes"]], result["quantiles"], **style)
        bottom.plot(case["own"]["positions"], result["quantiles"], **style)
    top.eventplot([-k for k in result["train"]], lineoffsets=-1.55, linelengths=0.6, colors="black", linewidths=1.6)
    top.set(title="kernels, and a spike train below", xlabel="time step before the last", ylim=(-2.0, 1.15),
            yticks=(-1, 0, 1))  # fmt: skip
    middle.axvline(result["near"], color="#6b6b6b", linestyle=":", linewidth=1.4)
    middle.set(title="size of the inner product", xscale="log", xlim=(5e-7, None), xlabel="in spikes at the last step",
               ylabel="share of trains", ylim=(0, 1.02))  # fmt: skip
    bottom.set(title="how much it depends on where the spikes are", xlabel="0: not at all, 1: entirely",
               ylabel="share of trains", xlim=(-0.02, 1.02), ylim=(0, 1.02))  # fmt: skip
    drawn.legend(*top.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return drawn


def page(result: dict[str, Any]) -> str:
    cases = result["cases"]
    fast, slow, resonate = (cases[label] for label in SHOWN)
    checks = [
        (LABELS[label], f"{each['last_potential']:.0e}", f"{each['as_printed']:.2g}", f"{each['loss']:.0e}",
         f"{each['last_step_only']:.2f}")
        for label, each in ((label, case["agreement"]) for label, case in cases.items())
    ]  # fmt: skip
    rows = [
        (LABELS[label], f"{case['beta']:g}", "π/2" if case["theta"] else "0", words, percent(case[spikes]["fire_rate"]),
         percent(case[spikes]["vanished"]), f"{case[spikes]['position']:.2g}",
         ", ".join(f"{100 * share:.3g} %" for share in case[spikes]["moved"]))
        for spikes, words in (("own", "its own"), ("same", "resonating"))
        for label, case in cases.items()
    ]  # fmt: skip
    *first, last = map(str, result["moves"])
    heads = (
        ("case", "∂u_T/∂W by ⟨K, S reversed⟩", "by the printed sum, K_t for K_(T-t)",
         "∂L/∂W by the sum over all steps", "cosine"),
        ("case", "β", "θ", "spikes", "fire rate", "vanished", "depends on position",
         f"shifted by {', '.join(first)} and {last} steps"),
    )  # fmt: skip
    near, turn = f"{100 * result['near']:g} %", result["moves"].index(4)
    return f"""
Networks 1-64-256-256-10 on psMNIST (bitrev), Δ = 1, β and θ equal for all neurons and not trained, one seed,
{result["steps"]:,} steps of {result["batch"]} images ({result["epochs"]:.2f} epochs; the paper trains 50): those of
[decay](decay.md) at this budget. Spikes of the first layer on {result["images"]} validation images of
{result["length"]} steps; weights of the middle layer.

**Does the equation hold?** K_k = Δ e^(-kΔ/τ) cos(kΔθ) and recorded spikes against autograd, float64,
{result["checked"]} images, all weights; the largest difference relative to the largest gradient, and the cosine of the
angle between ∂L/∂W and its term t = T:

{table(heads[0], checks)}

The inner product {_exact(cases)}. Slips of the paper: the sum printed beside it, Σ β^t s_t, weights the
*first* spikes most; β^(T-t) is meant. The appendix states that with fast decay early spikes dominate (true of the
reversed sequence only): here {100 * fast["own"]["late"]:.0f} % of it is from the last tenth of the steps. And ∂L/∂W
is more than the one inner product at T: the loss depends on every step, and the gradient is the sum over t of ∂L/∂u_t
times the inner product up to t. The cosine tells how well the term T alone gives its direction (1: exactly).

**The three cases.** Each with the spikes of its own network, and all with those of the resonating one:

{table(heads[1], rows)}

*Vanished*: the inner product at T is below {near} of that of one spike at T; trains without spikes are excluded.
*Depends on position*: the spikes of a train are shifted cyclically by every number of steps; standard deviation of the
inner product over its root mean square, median over the trains: 0 if the position does not matter, 1 if the mean over
positions is negligible. *Shifted*: the change, root mean square over the trains, as a share of the inner product.

- Fast decay, "gradient vanishing": {_vanishing(fast, slow, resonate)}.
- Slow decay, "overly consistent gradient values across spike positions": {_least(cases)}.
- Resonance, "can adjust the gradient at different spike positions": {_gain(resonate["same"], slow["same"])}.
  This follows from the kernel alone, whatever the spikes: its sum over a period is close to zero.

Not in the paper: with θ = π/2 a single spike has no effect (below {near}) at
{100 * resonate["steps_without_effect"]:.0f} % of the positions (fast decay
{100 * fast["steps_without_effect"]:.0f} %, slow decay {100 * slow["steps_without_effect"]:.0f} %), and a shift by a
whole period, 4 steps, changes the inner product by {100 * resonate["same"]["moved"][turn]:.2g} %; slow decay on the
same spikes {100 * slow["same"]["moved"][turn]:.2g} %.
"""


def _exact(cases: dict[str, Any]) -> str:
    worst = max(max(case["agreement"]["last_potential"], case["agreement"]["loss"]) for case in cases.values())
    return f"is exact to rounding ({worst:.0e})" if worst < 1e-9 else f"is off by up to {worst:.0e}"


def _confirmed(holds: bool) -> str:
    return "confirmed" if holds else "not confirmed"


def _vanishing(fast: dict[str, Any], slow: dict[str, Any], resonate: dict[str, Any]) -> str:
    shares = [100 * case["own"]["vanished"] for case in (fast, slow, resonate)]
    return (
        f"{_confirmed(shares[0] > max(shares[1:]))}. {shares[0]:.1f} % of the trains give nearly nothing, with slow "
        f"decay {shares[1]:.1f} %, with resonance {shares[2]:.1f} %"
    )


def _least(cases: dict[str, Any]) -> str:
    positions = {label: case["own"]["position"] for label, case in cases.items()}
    others = " and ".join(f"{positions[label]:.2g} ({LABELS[label]})" for label in ("fast", "resonate"))
    holds = min(positions, key=positions.__getitem__) == "slow"
    return f"{_confirmed(holds)}. The dependence on position is {positions['slow']:.2g}, against {others}"


def _gain(resonate: dict[str, Any], slow: dict[str, Any]) -> str:
    return (
        f"{_confirmed(resonate['position'] > slow['position'])}. On the same spikes the dependence on position is "
        f"{resonate['position']:.2g}, without the oscillation {slow['position']:.2g}, and "
        f"{100 * resonate['vanished']:.1f} % of the inner products vanish"
    )
