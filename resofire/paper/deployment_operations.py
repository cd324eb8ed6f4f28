"""Operations per time step of a PRF and a LIF: the paper's claim, and the count.

Each form of a neuron is written once, as the dynamics of one step. Its operations are counted and its spikes compared
with the library's, so that what is counted is the neuron.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..deploy import fold
from ..measure.costs import FLOAT32
from ..models import FeedforwardConfig, build
from ..models.feedforward import Feedforward
from ..nn import LIF, PRF, PRFConfig
from ..nn.counts import count_dynamics
from ..ops import lif, prf, prf_coefficients
from ..plot import figure, hatches, styled
from .pages import table
from .workplace import Workplace

TITLE = "Operations per time step: PRF against LIF"
STEPS = 400
KINDS = {"multiply": "multiplications", "add": "additions", "compare": "comparisons"}
# "Two more multiplications and one more addition" than a LIF, and one more state.
CLAIM = {"multiply": 2, "add": 1, "states": 1}
LABELS = {
    "lif_no_reset": "LIF, no reset", "lif": "LIF, soft reset", "prf": "PRF", "prf_folded": "PRF, folded",
    "prf_three": "PRF, folded, three products", "lif_norm": "norm + LIF", "lif_norm_folded": "norm + LIF, folded",
    "prf_norm": "norm + PRF", "prf_norm_folded": "norm + PRF, folded",
}  # fmt: skip
Dynamics = Callable[[Tensor, Any, Any, Callable[[Tensor], Tensor]], tuple[Tensor, dict[str, Tensor]]]


def _lif(current: Tensor, state: Any, c: Any, spike: Any) -> tuple[Tensor, dict[str, Tensor]]:
    u = c.beta * state.u + current
    s = spike(u - c.threshold)
    return s, {"u": u - c.threshold * s}


def _lif_no_reset(current: Tensor, state: Any, c: Any, spike: Any) -> tuple[Tensor, dict[str, Tensor]]:
    u = c.beta * state.u + current
    return spike(u - c.threshold), {"u": u}


def _prf(current: Tensor, state: Any, c: Any, spike: Any) -> tuple[Tensor, dict[str, Tensor]]:
    return _prf_folded(c.delta * current, state, c, spike)


def _prf_folded(z: Tensor, state: Any, c: Any, spike: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """State and threshold divided by Δ."""
    u = c.re * state.u - c.im * state.r + z
    return spike(u - c.threshold), {"u": u, "r": c.im * state.u + c.re * state.r}


def _prf_three(z: Tensor, state: Any, c: Any, spike: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """The complex product with a constant by three real ones; sum and difference of φ's parts are constants."""
    both = c.re * (state.u + state.r)
    u = both - c.sum * state.r + z
    return spike(u - c.threshold), {"u": u, "r": both + c.difference * state.u}


def _after_norm(dynamics: Dynamics) -> Dynamics:
    return lambda current, state, c, spike: dynamics(c.gain * current + c.offset, state, c, spike)


def _shifted(dynamics: Dynamics) -> Dynamics:
    """A folded norm leaves a constant current."""
    return lambda z, state, c, spike: dynamics(z + c.current, state, c, spike)


def run(workplace: Workplace) -> dict[str, Any]:
    re, im = (float(part) for part in prf_coefficients(0.3, 1.0, torch.tensor(20.0, dtype=torch.float64)))
    gain, offset, delta, beta = 1.7, -0.2, 0.3, 0.9
    current = 1.5 * torch.randn(STEPS, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.3
    plain, scaled = current[None, :, None], (gain * current + offset)[None, :, None]
    spikes = {
        "lif_no_reset": lif(plain, beta, reset="none")[0], "lif": lif(plain, beta)[0], "lif_norm": lif(scaled, beta)[0],
        "prf": prf(plain, re, im, delta)[0], "prf_norm": prf(scaled, re, im, delta)[0],
    }  # fmt: skip
    constants = {
        "re": re, "im": im, "sum": re + im, "difference": im - re, "gain": gain, "offset": offset, "delta": delta,
        "current": offset / gain, "beta": beta,
    }  # fmt: skip
    # Dynamics, threshold, and the neuron of the library that must fire the same.
    forms: dict[str, tuple[Dynamics, float, str]] = {
        "lif_no_reset": (_lif_no_reset, 1.0, "lif_no_reset"),
        "lif": (_lif, 1.0, "lif"),
        "prf": (_prf, 1.0, "prf"),
        "prf_folded": (_prf_folded, 1 / delta, "prf"),
        "prf_three": (_prf_three, 1 / delta, "prf"),
        "lif_norm": (_after_norm(_lif), 1.0, "lif_norm"),
        "lif_norm_folded": (_shifted(_lif), 1 / gain, "lif_norm"),
        "prf_norm": (_after_norm(_prf), 1.0, "prf_norm"),
        "prf_norm_folded": (_shifted(_prf_folded), 1 / (delta * gain), "prf_norm"),
    }
    results = {}
    for name, (dynamics, threshold, same) in forms.items():
        states = ("u", "r") if "prf" in name else ("u",)
        fired = _fired(dynamics, states, {**constants, "threshold": threshold}, current)
        counted = count_dynamics(dynamics, states, (*constants, "threshold"))
        results[name] = {
            **{kind: counted[kind] for kind in KINDS}, "states": len(states),
            "pJ": round(sum(FLOAT32.of(kind) * counted[kind] for kind in KINDS), 3), "spikes": int(fired.sum()),
            "spikes_differing": int((fired != spikes[same].flatten()).sum()),
        }  # fmt: skip
    library = {"prf": PRF(1).count("prf", 1), "lif": LIF(1).count("lif", 1)}
    return {
        "steps": STEPS, "forms": results, "claim": CLAIM, "folded_network": _folded_network(),
        "library": {name: {kind: getattr(count, kind) for kind in KINDS} for name, count in library.items()},
    }  # fmt: skip


def _fired(dynamics: Dynamics, states: tuple[str, ...], constants: dict[str, Any], current: Tensor) -> Tensor:
    """The spikes of a current [T] or [T, N]."""
    c, state = SimpleNamespace(**constants), dict.fromkeys(states, torch.zeros_like(current[0]))
    spikes = []
    for x in current:
        fired, state = dynamics(x, SimpleNamespace(**state), c, lambda u: (u >= 0).double())
        spikes.append(fired)
    return torch.stack(spikes)


def _folded_network() -> dict[str, Any]:
    """The first layer of a small network, run in the folded form with the arrays of `resofire.deploy`."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        neuron = PRFConfig(tau=20.0, delta=(0.1, 1.0))
        model = build(FeedforwardConfig(sizes=(1, 8, 2), neuron=neuron, gain=4.0)).double().eval()
        x = torch.randn(1, STEPS, 1, dtype=torch.float64)
    assert isinstance(model, Feedforward)
    folded, dynamics = fold(model), _shifted(_prf_folded)
    (neurons,) = folded.layers[0].neurons
    with torch.no_grad():
        expected = model.neurons[0](model.linears[0](x))[0]
    arrays = {"re": neurons.phi_re, "im": neurons.phi_im, "threshold": neurons.threshold, "current": neurons.current}
    constants = {name: torch.from_numpy(each) for name, each in arrays.items()}
    fired = _fired(dynamics, ("u", "r"), constants, torch.from_numpy(neurons.sign * folded.table[0]) * x[0])
    return {
        "neurons": neurons.count, "spikes": int(expected.sum()), "spikes_differing": int((fired != expected).sum()),
        "multiply": count_dynamics(dynamics, ("u", "r"), constants)["multiply"],
    }  # fmt: skip


@styled
def draw(result: dict[str, Any]) -> Figure:
    drawn, (panel,) = figure(height=4.4)
    base, claim = result["forms"]["lif"], result["claim"]
    bars = {"PRF, as the paper says": {**base, **{kind: base[kind] + claim.get(kind, 0) for kind in KINDS}}}
    for name in ("prf_three", "prf_folded", "prf", "lif"):
        bars[LABELS[name].replace(", three", ",\nthree")] = result["forms"][name]
    left = [0.0] * len(bars)
    for (kind, label), fill in zip(KINDS.items(), hatches(), strict=False):
        values = [each[kind] for each in bars.values()]
        panel.barh(range(len(bars)), values, 0.62, left=left, label=label, **fill)
        for place, (begin, value) in enumerate(zip(left, values, strict=True)):
            box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
            panel.text(begin + value / 2, place, f"{value:g}", ha="center", va="center", fontsize=10, bbox=box)
        left = [begin + value for begin, value in zip(left, values, strict=True)]
    panel.set_yticks(range(len(bars)), list(bars))
    panel.set(title="operations per neuron and step", xlim=(0, 9.3), ylim=(-0.5, len(bars) - 0.5))
    panel.grid(visible=False)
    drawn.legend(loc="outside lower center", ncols=3)
    return drawn


def page(result: dict[str, Any]) -> str:
    forms, claim, network = result["forms"], result["claim"], result["folded_network"]
    rows = []
    for name, each in forms.items():
        base = forms["lif_norm_folded" if name.endswith("norm_folded") else "lif_norm" if "norm" in name else "lif"]
        more = ", ".join(f"{each[kind] - base[kind]:+g}" for kind in ("multiply", "add"))
        rows.append((LABELS[name], *(f"{each[kind]:g}" for kind in (*KINDS, "states", "pJ")), more))
    return f"""
Per neuron and time step; energy by the paper's table (45 nm, float32). The last column is relative to the LIF with a
soft reset in the same setting. Each form ran for {result["steps"]} steps; spikes that differ from the library's:
{sum(each["spikes_differing"] for each in forms.values())}.

{table(("form", *KINDS.values(), "states", "pJ", "more than the LIF: products, additions"), rows)}

The paper's claim: {claim["multiply"]} multiplications and {claim["add"]} addition more than a LIF, and one more
state. State and addition are right. The multiplications are
{forms["prf"]["multiply"] - forms["lif"]["multiply"]:g} more (its own complexity table has 5 for a PRF): two for the
cross terms, one for the decay of the second state, one for Δ.

Folding (`resofire.deploy.fold`) keeps the state divided by Δ, which saves one, and merges a norm before the neuron into
the threshold and a constant current. A folded network of {network["neurons"]} PRFs, run in this form with its own
arrays, takes {network["multiply"]} multiplications per neuron and fires {network["spikes"]:,} spikes;
{network["spikes_differing"]} of them differ from the network's.

With the complex product written by three real ones, two more multiplications than a LIF are enough, for one more
addition. The library does not do this: the product is then a difference of larger numbers.
"""
