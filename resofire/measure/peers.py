"""Networks to compare with, counted in the same kinds: the paper's formulas for S4, Binary S4D and GSU; a diagonal S4
and a Transformer block of our own.

Per time step, D channels, H state size, R the fire rate of the layer that feeds the Linears, C the tokens attended to:

    s4            A u + B x: H² + DH MACs; C u: HD; D x: D²; two Linears: 2D²; a sigmoid: D nonlinear; a gate: D
                  products
    binary-s4d    as s4, but the Linears receive spikes (2 R D² accumulates), and the spike is D comparisons
    gsu           as s4, but one of each pair in the Linears is ternary: 2 R D² accumulates
    s4d           D channels with H/2 complex states each, as S4D is run step by step: 6 MACs and 2 products per state
                  (rotate, add B x, read C u), D x: D MACs; the rest as s4
    transformer   Q, K, V and output: 4D² MACs; Q K^T and A V: CD each; softmax per head: C comparisons (maximum),
                  2C additions, C exponentials, and a reciprocal that multiplies the D outputs; MLP: 8D² MACs, 4D GELUs;
                  two layer norms of D MACs, 3D additions, 2D products and a root. C is the length if bidirectional,
                  else (length + 1) / 2

Sums start at the biases. All but the transformer, which has its own norms, get a batch norm where the network they are
compared with has one, and one shortcut of D additions. Bidirectional: the state space (all of A, B, C) exists twice.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..nn.counts import NUMBER, Count, Counts, count_norm, count_residual, joined, require_positive, require_rate
from ..ops.checks import require_count
from ..ops.registry import nearest


@dataclass(frozen=True)
class Site:
    """The parameters of a peer's block besides its width."""

    steps: float  # per inference
    context: float  # tokens attended to per step, on average
    state_size: int
    rate: float
    directions: int
    norm: bool


def s4(width: int, name: str, site: Site) -> list[Count]:
    return [*_states(width, name, site), _linears(width, name, site, spikes=False), *_rest(width, name, site)]


def binary_s4d(width: int, name: str, site: Site) -> list[Count]:
    spike = Count(layer=f"{name}.spike", component="spatial neuron", times=site.steps, compare=width)
    return [*_states(width, name, site), spike, _linears(width, name, site, spikes=True), *_rest(width, name, site)]


def gsu(width: int, name: str, site: Site) -> list[Count]:
    return [*_states(width, name, site), _linears(width, name, site, spikes=True), *_rest(width, name, site)]


def s4d(width: int, name: str, site: Site) -> list[Count]:
    states = site.directions * width * site.state_size / 2
    space = _stated(f"{name}.state_space", site, mac=6 * states, multiply=2 * states, weights=6 * states,
                    states=2 * states, width=width)  # fmt: skip
    through = Count(layer=f"{name}.feedthrough", component="feedthrough", times=site.steps, mac=width,
                    weights_read=NUMBER * width)  # fmt: skip
    return [space, through, _linears(width, name, site, spikes=False), *_rest(width, name, site)]


def transformer(width: int, name: str, site: Site) -> list[Count]:
    heads, context = max(1, width // 64), site.context

    def part(layer: str, component: str, **counted: float) -> Count:
        return Count(layer=f"{name}.{layer}", component=component, times=site.steps, **counted)

    norms = [
        part(f"norm{i}", "norm", mac=width, add=3 * width, multiply=2 * width, nonlinear=1,
             weights_read=NUMBER * 2 * width, activations_read=NUMBER * width, activations_written=NUMBER * width)
        for i in range(2)
    ]  # fmt: skip
    return [
        *norms,
        part("projections", "token linear", mac=4 * width**2, weights_read=NUMBER * 4 * width * (width + 1),
             activations_read=NUMBER * 2 * width, activations_written=NUMBER * 4 * width),
        # The state: keys and values of the tokens so far, all read at each step, one of each written.
        part("attention", "attention", mac=2 * context * width, state_read=NUMBER * 2 * context * width,
             state_written=NUMBER * 2 * width, activations_read=NUMBER * width, activations_written=NUMBER * width),
        part("softmax", "softmax", compare=heads * context, add=2 * heads * context, multiply=width,
             nonlinear=heads * (context + 1), activations_read=NUMBER * heads * context,
             activations_written=NUMBER * heads * context),
        part("mlp", "channel linear", mac=8 * width**2, nonlinear=4 * width,
             weights_read=NUMBER * (8 * width + 5) * width, activations_read=NUMBER * 5 * width,
             activations_written=NUMBER * 5 * width),
        *(count_residual(f"{name}.shortcut{i}", width, site.steps) for i in range(2)),
    ]  # fmt: skip


PEERS: dict[str, Callable[[int, str, Site], list[Count]]] = {
    "s4": s4, "binary-s4d": binary_s4d, "gsu": gsu, "s4d": s4d, "transformer": transformer
}  # fmt: skip
SPIKING = ("binary-s4d", "gsu")
TITLES = {
    "s4": "S4-LegS", "binary-s4d": "Binary S4D", "gsu": "GSU", "s4d": "S4D (diagonal)", "transformer": "Transformer",
}  # fmt: skip


def peer(
    name: str, widths: tuple[int, ...], length: float, *, state_size: int = 64, rate: float = 0.0,
    bidirectional: bool = False, norm: bool = True, sequences: int = 1,
) -> Counts:  # fmt: skip
    """Count the blocks of a peer.

    Args:
        name: One of PEERS.
        widths: Channels of each block: (128,) * 6 is six blocks of 128.
        length: Time steps per inference.
        state_size: H; even for s4d, whose states are complex.
        rate: R, the fire rate of peers that spike.
        bidirectional: Whether the state space exists twice, or attention sees the whole sequence.
        norm: Whether each block has a batch norm.
        sequences: Number of equal sequences that the time steps belong to; attention stays within one.

    Raises:
        ValueError: An argument is out of range.
    """
    require_peers("peer", (name,))
    if not isinstance(widths, tuple) or not widths or any(type(width) is not int or width < 1 for width in widths):
        raise ValueError(f"peer: widths must be a tuple of positive integers, one a block, got {widths!r}")
    require_rate("peer", "rate", rate)
    require_state_size("peer", state_size, (name,))
    for each, value in (("length", length), ("sequences", sequences)):
        require_positive("peer", each, value)
    own = length / sequences
    context = own if bidirectional else (own + 1) / 2
    site = Site(
        steps=length, context=context, state_size=state_size, rate=rate, directions=1 + bidirectional, norm=norm
    )
    blocks = (PEERS[name](width, f"blocks.{number}", site) for number, width in enumerate(widths))
    return joined(TITLES[name], length, *blocks)


def require_peers(owner: str, names: tuple[str, ...]) -> None:
    if isinstance(names, str):
        raise ValueError(f"{owner}: against must be a tuple of names, got {names!r}")
    for name in names:
        if name not in PEERS:
            raise ValueError(f"{owner}: against must be among {nearest(name, list(PEERS))}, got {name!r}")


def require_state_size(owner: str, state_size: int, names: tuple[str, ...]) -> None:
    require_count(owner, "state_size", state_size)
    if "s4d" in names and state_size % 2:
        raise ValueError(f"{owner}: state_size must be even for s4d, which has half as many complex states, "
                         f"got {state_size}")  # fmt: skip


def law(products: Callable[[int, int], float], other: str = "H") -> str:
    """Write a number of products as a polynomial in D and another size, fitted to its values: H² + 2DH."""
    terms: dict[str, Callable[[int, int], int]] = {
        f"{other}²": lambda d, h: h * h, "D²": lambda d, h: d * d, "".join(sorted(f"D{other}")): lambda d, h: d * h,
        "D": lambda d, h: d, other: lambda d, h: h,
    }  # fmt: skip
    points = [(d, h) for d in (1, 2, 3, 5) for h in (2, 4, 6)]
    matrix = np.array([[term(*point) for term in terms.values()] for point in points], float)
    values = np.array([products(*point) for point in points])
    factors = np.linalg.lstsq(matrix, values, rcond=None)[0]
    if not np.allclose(matrix @ factors, values):
        return f"no polynomial of D and {other}"
    kept = [(name, float(factor)) for name, factor in zip(terms, factors, strict=True) if abs(factor) > 1e-9]
    return " + ".join(name if abs(factor - 1) < 1e-9 else f"{factor:.6g}{name}" for name, factor in kept)


def complexity(name: str, *, bidirectional: bool = False) -> str:
    """Return the products per time step of a peer's state and read-out in D and H; attention's in D and C.

    Args:
        name: The peer, one of PEERS.
        bidirectional: Whether it runs in both directions.
    """

    def products(block: Counts) -> float:
        dynamics = block.only("state space", "attention")
        return dynamics.per_step("mac") + dynamics.per_step("multiply")

    if name == "transformer":
        # Bidirectional, so that C is the length.
        return law(lambda width, context: products(peer(name, (width,), context, bidirectional=True)), "C")
    return law(lambda width, size: products(peer(name, (width,), 1, state_size=size, bidirectional=bidirectional)))


def _states(width: int, name: str, site: Site) -> list[Count]:
    size, ways = site.state_size, site.directions
    products = ways * (size**2 + 2 * width * size)
    space = _stated(f"{name}.state_space", site, mac=products, weights=products, states=ways * size, width=width)
    through = Count(layer=f"{name}.feedthrough", component="feedthrough", times=site.steps, mac=width**2,
                    weights_read=NUMBER * width**2)  # fmt: skip
    return [space, through]


def _stated(
    layer: str, site: Site, *, mac: float, weights: float, states: float, width: int, multiply: float = 0
) -> Count:
    return Count(
        layer=layer, component="state space", times=site.steps, mac=mac, multiply=multiply,
        weights_read=NUMBER * weights, state_read=NUMBER * states, state_written=NUMBER * states,
        activations_read=NUMBER * width, activations_written=NUMBER * width,
    )  # fmt: skip


def _linears(width: int, name: str, site: Site, *, spikes: bool) -> Count:
    work: dict[str, float] = {"ac": 2 * site.rate * width**2} if spikes else {"mac": 2 * width**2}
    used = site.rate if spikes else 1
    return Count(
        layer=f"{name}.linears", component="channel linear", times=site.steps, **work,
        weights_read=NUMBER * 2 * (used * width + 1) * width, activations_read=NUMBER * width,
        activations_written=NUMBER * 2 * width,
    )  # fmt: skip


def _rest(width: int, name: str, site: Site) -> list[Count]:
    gate = Count(
        layer=f"{name}.gate", component="gate", times=site.steps, nonlinear=width, multiply=width,
        activations_read=NUMBER * 2 * width, activations_written=NUMBER * width,
    )  # fmt: skip
    shortcut = count_residual(f"{name}.shortcut", width, site.steps)
    return [gate, shortcut, *([count_norm(f"{name}.norm", width, site.steps)] if site.norm else [])]
