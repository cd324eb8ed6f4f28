"""Every compiled neuron and a layer with feedback against two loops over time, the memory's own speed and the peers.

All times are forward + backward in float32 at 64 x 1024 x 128, medians of rounds in which the contenders take turns.
The loops are plain PyTorch around the neuron's own `dynamics`: over `x[:, t]`, whose gradients make it quadratic in T,
and over `x.unbind(1)`. The memory limit is a kernel that only streams what a training step has to move: forward one
tensor in and one out, backward two in and one out, on as many threads.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from resofire import nn
from resofire.ops.neuron_scan.threads import share_out
from resofire.ops.surrogate import spike

from . import kernels, peer_layers
from .clock import Table, medians
from .peer_layers import Absent

SHAPE = (64, 1024, 128)
SIZE = "x".join(map(str, SHAPE))
# The config, and whether it has one or two states, for which there is a goal for the share of the memory limit.
NEURONS: dict[str, tuple[Any, bool]] = {
    "LIF": (nn.LIFConfig(), True),
    "PRF": (nn.PRFConfig(), True),
    "PLIF": (nn.PLIF.config(), True),
    "GLIF": (nn.GLIF.config(), True),
    "TCLIF": (nn.TCLIF.config(), True),
    "ALIF": (nn.ALIF.config(), True),
    "AHP": (nn.AHP.config(), True),
    "BRF": (nn.BRF.config(), False),
    "BHRF": (nn.BHRF.config(), False),
    "DRF": (nn.DRF.config(), False),
}
FIRE_RATE = 0.1


def streamer() -> Callable[[], object]:
    """Moves what a training step has to move, into fresh tensors as it does, and computes nothing."""
    x, y = (torch.randn(SHAPE).view(-1).numpy() for _ in range(2))
    threads = torch.get_num_threads()
    step = x.size // (4 * threads)
    pieces = [(first, first + step) for first in range(0, x.size, step)]

    def run() -> None:
        spikes, grad = (torch.empty(SHAPE).view(-1).numpy() for _ in range(2))
        share_out(lambda piece: kernels.copy(x, spikes, *piece), pieces, threads)
        share_out(lambda piece: kernels.add(x, y, grad, *piece), pieces, threads)

    return run


def training_step(run: Callable[[Tensor], Tensor], scale: float = 1.0) -> Callable[[], object]:
    """Forward and backward of a function from currents to spikes."""
    current, grad = (scale * torch.randn(SHAPE)).requires_grad_(), torch.randn(SHAPE)

    def step() -> None:
        current.grad = None
        run(current).backward(grad)

    return step


def loop(neuron: Any, steps: Callable[[Tensor], Iterable[Tensor]]) -> Callable[[Tensor], Tensor]:
    """A neuron's equation as a plain loop over the steps of its input."""

    def run(x: Tensor) -> Tensor:
        made = neuron._equation(x)
        state = made.state_type(*(torch.zeros_like(x[:, 0]) for _ in neuron.states))
        spikes = []
        for current in steps(x):
            s, after = made.function(current, state, made.coefficients, lambda a: spike(a, made.surrogate))
            state = made.state_type(**after)
            spikes.append(s)
        return torch.stack(spikes, 1)

    return run


def slices(x: Tensor) -> Iterable[Tensor]:
    return (x[:, t] for t in range(x.shape[1]))


def unbound(x: Tensor) -> Iterable[Tensor]:
    return x.unbind(1)


def every_neuron(table: Table, rounds: int, names: Iterable[str] = NEURONS) -> None:
    """Each neuron over both loops, and its share of the memory limit."""
    for name in names:
        config, few_states = NEURONS[name]
        neuron = config.build(SHAPE[2])
        assert neuron.explain(torch.zeros(1, 1, SHAPE[2])).split(maxsplit=1)[0] in ("scan:", "lif:", "prf:")
        seconds = medians(
            {"scan": training_step(neuron), "unbound": training_step(loop(neuron, unbound)), "limit": streamer()},
            rounds,
        )
        once = medians({"slices": training_step(loop(neuron, slices))}, 1, warm=False)
        scan = seconds["scan"]
        table.add(f"{name} over the loop over x[:, t]", once["slices"] / scan, "x", least=100, note="(loop timed once)")
        table.add(f"{name} over the loop over x.unbind(1)", seconds["unbound"] / scan, "x", least=30)
        goal = 0.6 if few_states else None
        table.add(f"{name}, share of the memory limit", seconds["limit"] / scan, "", least=goal)


def feedback(table: Table, rounds: int) -> None:
    """`Recurrent(LIF)` at a fire rate of 10 % over both loops."""
    layer, scale = nn.Recurrent(SHAPE[2]), _scale_for(nn.Recurrent(SHAPE[2]))
    seconds = medians(
        {"scan": training_step(layer, scale), "unbound": training_step(loop(layer, unbound), scale)}, rounds
    )
    once = medians({"slices": training_step(loop(layer, slices), scale)}, 1, warm=False)
    name = f"Recurrent(LIF) at a fire rate of {FIRE_RATE:.0%}"
    note = "(loop timed once)"
    table.add(f"{name} over the loop over x[:, t]", once["slices"] / seconds["scan"], "x", least=20, note=note)
    table.add(f"{name} over the loop over x.unbind(1)", seconds["unbound"] / seconds["scan"], "x")


def _scale_for(layer: Any) -> float:
    """The deviation of the input at which a layer fires at FIRE_RATE."""
    x, low, high = torch.randn(4, 512, SHAPE[2]), 0.0, 10.0
    for _ in range(20):
        middle = (low + high) / 2
        with torch.no_grad(), nn.fire_rates(layer) as rates:
            layer(middle * x)
        low, high = (middle, high) if rates[""] < FIRE_RATE else (low, middle)
    return low


def against_peers(table: Table, rounds: int) -> None:
    """The LIF and the PRF beside neurons of SpikingJelly and snnTorch."""
    lif, prf = nn.LIF(SHAPE[2]), nn.PRF(SHAPE[2])
    # Those that take seconds are timed once.
    peers: dict[str, tuple[Any, Any, int, float | None]] = {
        "LIF over SpikingJelly's LIFNode": (lif, peer_layers.spikingjelly, rounds, 30.0),
        "LIF over SpikingJelly's FlexSN": (lif, peer_layers.spikingjelly_flex, 1, None),
        "PRF over SpikingJelly's RAFNode": (prf, peer_layers.spikingjelly_resonate, 1, None),
        "LIF over snnTorch's Leaky": (lif, peer_layers.snntorch_leaky, rounds, None),
        "LIF over snnTorch's StateLeaky": (lif, peer_layers.snntorch_state, 1, None),
    }
    for name, (ours, build, times, goal) in peers.items():
        try:
            peer = build(SHAPE[2])
        except Absent as reason:
            print(reason)
            continue
        scan, other = training_step(ours), training_step(peer)
        if times > 1:
            seconds = medians({"scan": scan, "peer": other}, times)
        else:
            seconds = medians({"scan": scan}, rounds) | medians({"peer": other}, 1, warm=False)
        note = "" if times > 1 else "(peer timed once)"
        table.add(f"{name} at {SIZE}", seconds["peer"] / seconds["scan"], "x", least=goal, note=note)
