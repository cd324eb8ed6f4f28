"""The paper's view of the gradient: the inner product of a kernel and the spikes of the layer before, on real networks.

With K_k = Δ e^{-kΔ/τ} cos(kΔθ), the potential's response to a spike k steps ago,

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
from ..plot import figure, lines, styled
from . import decay as sweep
from .loss_landscape import CASES, LABELS, TASK, networks
from .workplace import Workplace

TITLE = "The gradient as an inner product of kernel and spikes, measured on trained networks"
SHOWN = ("fast", "slow", "resonate")
IMAGES, CHECKED, WINDOW, LAYER = 32, 4, 40, 1
# Of what one spike at the last step gives; an inner product below it counts as vanished.
NEAR = 0.01
# The steps by which spikes are moved; 4 are a whole turn at θ = π/2.
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
            "beta": CASES[label][0],
            "theta": sweep.THETAS[CASES[label][1]],
            "agreement": agreement(model, data.Batch(batch.x[:CHECKED], batch.labels[:CHECKED], None)),
            "kernel": kernel[:WINDOW].tolist(),
            "steps_without_effect": float((kernel.abs() < NEAR * kernel[0]).double().mean()),
            "own": _inner_products(kernel, trains[label]),
            "same": _inner_products(kernel, trains["resonate"]),
        }
    first = trained["fast"][0]
    return {
        "task": TASK, "steps": first.config.steps, "epochs": first.epochs, "batch": sweep.BATCH, "images": len(batch.x),
        "checked": CHECKED, "length": batch.x.shape[1], "near": NEAR, "moves": MOVES, "quantiles": QUANTILES,
        "train": _one_train(trains["resonate"]), "cases": cases,
    }  # fmt: skip


def _neuron(model: Feedforward) -> PRF:
    neuron = model.neurons[LAYER]
    assert isinstance(neuron, PRF)
    return neuron


@torch.no_grad()
def _trains(model: Feedforward, x: Tensor) -> Tensor:
    """The spikes that go into the middle layer, [B · inputs, T]."""
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
    as_printed        the same by the sum that the paper prints, Σ_t β^t s_t
    loss              the gradient of the loss, by the sum over all steps of ∂L/∂u_t times the inner product up to t
    last_step_only    cosine of that gradient with the one term t = T that the paper writes
    """
    neuron, linear = _neuron(model), model.linears[LAYER]
    weight, bias = linear.get_parameter("weight"), linear.get_parameter("bias")
    with torch.no_grad():
        spikes = model.neurons[0](model.linears[0](batch.x.double()))
    fired, last = neuron.scan(linear(spikes), None)
    kernel = response(neuron, spikes.shape[1] + 1)
    reached = past(kernel[:-1]) @ spikes
    printed = torch.einsum("t,btm->bm", kernel[1:], spikes)
    found = [torch.autograd.grad(u.sum(), weight, retain_graph=True)[0] for u in last.u]

    loss = cross_entropy(_above(model, fired), batch.labels)
    wanted, to_spikes = torch.autograd.grad(loss, (weight, fired))
    with torch.no_grad():
        u = past(kernel[:-1]) @ (spikes @ weight.T + bias)
        to_potential = to_spikes * neuron.surrogate.derivative(u - neuron.threshold)
        by_steps = torch.einsum("btn,btm->nm", to_potential, reached)
        by_last = torch.einsum("bn,bm->nm", to_potential[:, -1], reached[:, -1])
    gradients = torch.stack(found)
    return {
        "last_potential": _apart(reached[:, -1, None].expand_as(gradients), gradients),
        "as_printed": _apart(printed[:, None].expand_as(gradients), gradients),
        "loss": _apart(by_steps, wanted),
        "last_step_only": float(torch.cosine_similarity(by_last.flatten(), wanted.flatten(), 0)),
    }


def past(kernel: Tensor) -> Tensor:
    """[T, T]: row t holds K_{t - j} for each j up to t, so that its product with spikes is what has come in until t."""
    steps = torch.arange(len(kernel))
    return kernel[(steps[:, None] - steps).clamp(min=0)].tril()


def _above(model: Feedforward, spikes: Tensor) -> Tensor:
    """Logits from the spikes of the middle layer; the network takes the mean over time before its last Linear."""
    for linear, neuron in list(zip(model.linears[:-1], model.neurons, strict=True))[LAYER + 1 :]:
        spikes = neuron(linear(spikes))
    return model.linears[-1](spikes.mean(1))


def _apart(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-300))


def _inner_products(kernel: Tensor, trains: Tensor) -> dict[str, Any]:
    """<K, S reversed> over all trains that fire at all, and what becomes of it when the spikes are moved."""
    fire = trains[trains.sum(1) > 0]
    found: dict[str, Any] = {"fire_rate": float(trains.mean()), "silent": 1 - len(fire) / len(trains)}
    if len(fire) == 0:
        return {**found, "vanished": 1.0, "late": 0.0, "position": 0.0, "moved": [0.0] * len(MOVES),
                "sizes": [0.0] * len(QUANTILES), "positions": [0.0] * len(QUANTILES)}  # fmt: skip
    over = moved(kernel, fire)
    size = over[:, 0].abs() / kernel[0]
    position = over.std(1, correction=0) / over.square().mean(1).sqrt()
    weighed = fire * kernel.flip(0).abs()
    levels = torch.tensor(QUANTILES, dtype=torch.float64)
    return {
        **found,
        "vanished": float((size < NEAR).double().mean()),
        "late": float(weighed[:, -(fire.shape[1] // 10) :].sum() / weighed.sum()),
        "position": float(position.median()),
        "moved": [float((over[:, k] - over[:, 0]).norm() / over[:, 0].norm().clamp(min=1e-300)) for k in MOVES],
        "sizes": [_short(value) for value in size.quantile(levels).tolist()],
        "positions": [_short(value) for value in position.quantile(levels).tolist()],
    }


def moved(kernel: Tensor, trains: Tensor) -> Tensor:
    """<K, S reversed> [M, T] with all spikes of a train k steps earlier; what leaves in front comes in behind."""
    steps = torch.arange(len(kernel))
    return trains @ kernel.flip(0)[(steps[:, None] - steps) % len(kernel)]


def _one_train(trains: Tensor) -> list[int]:
    """How many steps before the last one the spikes of a train are: of those that fire there, the median one."""
    near = trains[:, -WINDOW:].flip(1)
    near = near[near.sum(1) > 0]
    if len(near) == 0:
        return []
    return near[near.sum(1).argsort(stable=True)[len(near) // 2]].nonzero()[:, 0].tolist()


def _short(value: float) -> float:
    return float(f"{value:.4g}")


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (top, middle, bottom) = figure(1, 3, width=5.6, height=2.6)
    styles = {label: {**style, "marker": ""} for label, style in zip(SHOWN, lines(), strict=False)}
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
        f"| {LABELS[label]} | {case['agreement']['last_potential']:.0e} | {case['agreement']['as_printed']:.2g} | "
        f"{case['agreement']['loss']:.0e} | {case['agreement']['last_step_only']:.2f} |"
        for label, case in cases.items()
    ]
    turn = result["moves"].index(4)
    return f"""
Networks 1-64-256-256-10 on psMNIST (bitrev), Δ = 1, β and θ the same for all neurons and not trained, one seed,
{result["steps"]:,} steps of {result["batch"]} images ({result["epochs"]:.2f} epochs; the paper trains 50): those of
[decay](decay.md) at this budget. Spikes are those of the first layer
on {result["images"]} validation images, {result["length"]} steps each; the weights are those of the middle layer.

**Does the equation hold?** K_k = Δ e^(-kΔ/τ) cos(kΔθ) and recorded spikes against autograd, float64,
{result["checked"]} images, all weights; the largest difference relative to the largest gradient, and the cosine of the
angle between ∂L/∂W and its term t = T:

| case | ∂u_T/∂W by ⟨K, S reversed⟩ | by the printed sum, K_t for K_(T-t) | ∂L/∂W by the sum over all steps | cosine |
|---|---|---|---|---|
{chr(10).join(checks)}

The inner product {_exact(cases)}. Slips of the paper: the sum it prints beside it, Σ β^t s_t, weighs the
*first* spikes most; β^(T-t) is meant. The appendix says that with fast decay early spikes dominate (true of the
reversed sequence only): here {100 * fast["own"]["late"]:.0f} % of it is from the last tenth of the steps. And ∂L/∂W
is more than the one inner product at T: the loss hears from every step, and the gradient is the sum over t of ∂L/∂u_t
times the inner product up to t. The cosine says how far the one term T goes in its direction (1: all the way).

**The three cases.** Each with the spikes of its own network, and all with those of the resonating one:

| case | β | θ | spikes | fire rate | vanished | depends on position | moved by {_moves(result)} steps |
|---|---|---|---|---|---|---|---|
{chr(10).join(_rows(cases))}

*Vanished*: the inner product at T is below {100 * result["near"]:g} % of what one spike at T gives; trains without any
spike are left out. *Depends on position*: all spikes of a train are moved by every number of steps (those that leave
in front come in behind); the standard deviation of the inner product over its root mean square, median over the trains:
0 if the position does not matter, 1 if the mean over positions is nothing beside the differences. *Moved*: the
change, root mean square over the trains, as a share of the inner product.

- Fast decay, "gradient vanishing": {_compare(fast, slow, resonate, "vanished")}.
- Slow decay, "overly consistent gradient values across spike positions": {_least(cases)}.
- Resonance, "can adjust the gradient at different spike positions": {_gain(resonate["same"], slow["same"])}.
  This follows from the kernel alone, whatever the spikes: its sum over a turn is close to nothing.

What the paper does not say: with θ = π/2 a single spike leaves nothing (below {100 * result["near"]:g} %) at
{100 * resonate["steps_without_effect"]:.0f} % of the positions (fast decay
{100 * fast["steps_without_effect"]:.0f} %, slow decay {100 * slow["steps_without_effect"]:.0f} %), and a move by a
whole turn, 4 steps, changes the inner product by {100 * resonate["same"]["moved"][turn]:.2g} %; slow decay on the same
spikes {100 * slow["same"]["moved"][turn]:.2g} %.
"""


def _exact(cases: dict[str, Any]) -> str:
    worst = max(max(case["agreement"]["last_potential"], case["agreement"]["loss"]) for case in cases.values())
    return f"is exact to rounding ({worst:.0e})" if worst < 1e-9 else f"is off by up to {worst:.0e}"


def _moves(result: dict[str, Any]) -> str:
    *first, last = map(str, result["moves"])
    return f"{', '.join(first)} and {last}"


def _rows(cases: dict[str, Any]) -> list[str]:
    rows = []
    for spikes, words in (("own", "its own"), ("same", "resonating")):
        for label, case in cases.items():
            each, theta = case[spikes], "π/2" if case["theta"] else "0"
            moved_by = ", ".join(f"{100 * share:.3g} %" for share in each["moved"])
            rows.append(
                f"| {LABELS[label]} | {case['beta']:g} | {theta} | {words} | {100 * each['fire_rate']:.1f} % | "
                f"{100 * each['vanished']:.1f} % | {each['position']:.2g} | {moved_by} |"
            )
    return rows


def _compare(fast: dict[str, Any], slow: dict[str, Any], resonate: dict[str, Any], name: str) -> str:
    shares = [100 * case["own"][name] for case in (fast, slow, resonate)]
    seen = "seen" if shares[0] > max(shares[1:]) else "not seen"
    return (
        f"{seen}. {shares[0]:.1f} % of the trains give nearly nothing, with slow decay {shares[1]:.1f} %, "
        f"with resonance {shares[2]:.1f} %"
    )


def _least(cases: dict[str, Any]) -> str:
    found = {label: case["own"]["position"] for label, case in cases.items()}
    seen = "seen" if min(found, key=found.__getitem__) == "slow" else "not seen"
    others = " and ".join(f"{found[label]:.2g} ({LABELS[label]})" for label in ("fast", "resonate"))
    return f"{seen}. The position counts {found['slow']:.2g}, against {others}"


def _gain(resonate: dict[str, Any], slow: dict[str, Any]) -> str:
    seen = "seen" if resonate["position"] > slow["position"] else "not seen"
    return (
        f"{seen}. On the same spikes the position counts {resonate['position']:.2g}, without the oscillation "
        f"{slow['position']:.2g}, and {100 * resonate['vanished']:.1f} % of the inner products vanish"
    )
