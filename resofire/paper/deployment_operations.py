"""Operations per time step of a PRF beside a LIF: what the paper says, and what is counted.

Each form of a neuron is written once, on numbers that note every operation done with them. Its spikes are compared with
the library's own, so that what is counted is the neuron and not a drawing of it.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from matplotlib.figure import Figure

from ..deploy import fold
from ..measure.costs import FLOAT32
from ..models import FeedforwardConfig, build
from ..models.feedforward import Feedforward
from ..nn import LIF, PRF, PRFConfig
from ..ops import lif, prf, prf_coefficients
from ..plot import figure, hatches, styled
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


class Noted:
    """A number that notes in a tally what is done with it. A sign is free: it turns an addition into a subtraction."""

    def __init__(self, value: float, tally: Counter[str]) -> None:
        self.value, self.tally = value, tally

    def _done(self, kind: str, value: float) -> "Noted":
        self.tally[kind] += 1
        return Noted(value, self.tally)

    def __mul__(self, other: "Noted") -> "Noted":
        return self._done("multiply", self.value * other.value)

    def __add__(self, other: "Noted") -> "Noted":
        return self._done("add", self.value + other.value)

    def __sub__(self, other: "Noted") -> "Noted":
        return self._done("add", self.value - other.value)

    def __ge__(self, other: "Noted") -> bool:
        self.tally["compare"] += 1
        return self.value >= other.value


Step = Callable[[dict[str, Noted], list[Noted], Noted], tuple[bool, list[Noted]]]


def _lif(k: dict[str, Noted], state: list[Noted], c: Noted) -> tuple[bool, list[Noted]]:
    u = k["beta"] * state[0] + c
    fires = u >= k["threshold"]
    return fires, [u - k["threshold" if fires else "zero"]]


def _lif_no_reset(k: dict[str, Noted], state: list[Noted], c: Noted) -> tuple[bool, list[Noted]]:
    u = k["beta"] * state[0] + c
    return u >= k["threshold"], [u]


def _prf(k: dict[str, Noted], state: list[Noted], c: Noted) -> tuple[bool, list[Noted]]:
    return _prf_folded(k, state, k["delta"] * c)


def _prf_folded(k: dict[str, Noted], state: list[Noted], z: Noted) -> tuple[bool, list[Noted]]:
    """The state is kept divided by Δ, and so is the threshold."""
    u, r = state
    u, r = k["re"] * u - k["im"] * r + z, k["im"] * u + k["re"] * r
    return u >= k["threshold"], [u, r]


def _prf_three(k: dict[str, Noted], state: list[Noted], z: Noted) -> tuple[bool, list[Noted]]:
    """A complex product with a constant by three real ones; sum and difference of φ's parts are constants."""
    u, r = state
    both = k["re"] * (u + r)
    u, r = both - k["sum"] * r + z, both + k["difference"] * u
    return u >= k["threshold"], [u, r]


def _after_norm(step: Step) -> Step:
    return lambda k, state, c: step(k, state, k["gain"] * c + k["offset"])


def _shifted(step: Step) -> Step:
    """Folded, a norm leaves a constant current."""
    return lambda k, state, z: step(k, state, z + k["current"])


def run(workplace: Workplace) -> dict[str, Any]:
    re, im = (float(part) for part in prf_coefficients(0.3, 1.0, torch.tensor(20.0, dtype=torch.float64)))
    wave = {"re": re, "im": im, "sum": re + im, "difference": im - re}
    gain, offset, delta, beta = 1.7, -0.2, 0.3, 0.9
    current = 1.5 * torch.randn(STEPS, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.3
    scaled = gain * current + offset
    decay = {"beta": beta, "threshold": 1.0, "zero": 0.0}
    spikes = {
        "lif_no_reset": lif(current[None, :, None], beta, reset="none")[0],
        "lif": lif(current[None, :, None], beta)[0],
        "lif_norm": lif(scaled[None, :, None], beta)[0],
        "prf": prf(current[None, :, None], re, im, delta)[0],
        "prf_norm": prf(scaled[None, :, None], re, im, delta)[0],
    }
    norm = {"gain": gain, "offset": offset, "current": offset / gain}
    forms: dict[str, tuple[Step, dict[str, float], str]] = {
        "lif_no_reset": (_lif_no_reset, decay, "lif_no_reset"),
        "lif": (_lif, decay, "lif"),
        "prf": (_prf, {**wave, "delta": delta, "threshold": 1.0}, "prf"),
        "prf_folded": (_prf_folded, {**wave, "threshold": 1 / delta}, "prf"),
        "prf_three": (_prf_three, {**wave, "threshold": 1 / delta}, "prf"),
        "lif_norm": (_after_norm(_lif), {**decay, **norm}, "lif_norm"),
        "lif_norm_folded": (_shifted(_lif), {**decay, **norm, "threshold": 1 / gain}, "lif_norm"),
        "prf_norm": (_after_norm(_prf), {**wave, **norm, "delta": delta, "threshold": 1.0}, "prf_norm"),
        "prf_norm_folded": (_shifted(_prf_folded), {**wave, **norm, "threshold": 1 / (delta * gain)}, "prf_norm"),
    }
    found = {}
    for name, (step, constants, same) in forms.items():
        tally, fired = _walk(step, constants, current.tolist(), 2 if "prf" in name else 1)
        counts = {kind: tally[kind] / STEPS for kind in KINDS}
        found[name] = {
            **counts,
            "states": 2 if "prf" in name else 1,
            "pJ": round(sum(FLOAT32.of(kind) * number for kind, number in counts.items()), 3),
            "spikes": sum(fired),
            "spikes_differing": sum(a != bool(b) for a, b in zip(fired, spikes[same].flatten(), strict=True)),
        }
    library = {"prf": PRF(1).count("prf", 1), "lif": LIF(1).count("lif", 1)}
    return {
        "steps": STEPS, "forms": found, "claim": CLAIM, "folded_network": _folded_network(),
        "library": {name: {kind: getattr(count, kind) for kind in KINDS} for name, count in library.items()},
    }  # fmt: skip


def _walk(
    step: Step, constants: dict[str, float], current: list[float], states: int
) -> tuple[Counter[str], list[bool]]:
    tally: Counter[str] = Counter()
    k = {name: Noted(value, tally) for name, value in constants.items()}
    state, fired = [Noted(0.0, tally) for _ in range(states)], []
    for c in current:
        fires, state = step(k, state, Noted(c, tally))
        fired.append(fires)
    return tally, fired


def _folded_network() -> dict[str, int]:
    """The first layer of a small network, walked by the folded form with the arrays that `resofire.deploy` gives."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        neuron = PRFConfig(tau=20.0, delta=(0.1, 1.0))
        model = build(FeedforwardConfig(sizes=(1, 8, 2), neuron=neuron, gain=4.0)).double().eval()
        x = torch.randn(1, STEPS, 1, dtype=torch.float64)
    assert isinstance(model, Feedforward)
    folded = fold(model)
    (neurons,) = folded.layers[0].neurons
    with torch.no_grad():
        wanted = model.neurons[0](model.linears[0](x))[0]
    differing = multiplied = 0
    for i in range(neurons.count):
        constants = {"re": neurons.phi_re[i], "im": neurons.phi_im[i], "threshold": neurons.threshold[i],
                     "current": neurons.current[i]}  # fmt: skip
        seen = (neurons.sign[i] * folded.table[0, i] * x.flatten()).tolist()
        tally, fired = _walk(_shifted(_prf_folded), {name: float(each) for name, each in constants.items()}, seen, 2)
        differing += sum(a != bool(b) for a, b in zip(fired, wanted[:, i], strict=True))
        multiplied += tally["multiply"]
    return {
        "neurons": neurons.count, "spikes": int(wanted.sum()), "spikes_differing": differing,
        "multiply": multiplied // (STEPS * neurons.count),
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
    forms, base, claim = result["forms"], result["forms"]["lif"], result["claim"]
    rows = []
    for name, each in forms.items():
        against = forms["lif_norm_folded" if name.endswith("norm_folded") else "lif_norm" if "norm" in name else "lif"]
        more = ", ".join(f"{each[kind] - against[kind]:+g}" for kind in ("multiply", "add"))
        counts = " | ".join(f"{each[kind]:g}" for kind in KINDS)
        rows.append(f"| {LABELS[name]} | {counts} | {each['states']} | {each['pJ']:g} | {more} |")
    wrong = sum(each["spikes_differing"] for each in forms.values())
    network = result["folded_network"]
    return f"""
Per neuron and time step; energy by the paper's table (45 nm, float32). The last column is against the LIF with a soft
reset in the same setting. Every form ran {result["steps"]} steps; spikes unlike the library's: {wrong}.

| form | multiplications | additions | comparisons | states | pJ | more than the LIF: products, additions |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

The paper says: {claim["multiply"]} multiplications and {claim["add"]} addition more than a LIF, and one more state. The
state and the addition are right. The multiplications are {forms["prf"]["multiply"] - base["multiply"]:g} more (its own
complexity table has 5 for a PRF): two for the cross terms, one for the second state's own decay, one for Δ.

Folding (`resofire.deploy.fold`) keeps the state divided by Δ and saves that one, and takes a norm before the neuron
into the threshold and a constant current. A folded network of {network["neurons"]} PRFs, walked this way with its own
arrays, takes {network["multiply"]} multiplications a neuron and fires {network["spikes"]:,} spikes,
{network["spikes_differing"]} of them otherwise than the network.

With the complex product written by three real ones the claim's two more multiplications can be had, for one more
addition. The library does not do that: the product is then a difference of larger numbers.
"""
