"""Does the time of an event-driven network follow its operations? Inference at fire rates from 0.5 % to 50 %.

The same network, weights and thresholds four times: with event-driven synapses, with dense ones (its neurons are the
same fused scan, so that only the synapse differs), fused into one operator per block, and folded into streams, which
run on one core and step by step. An operation is the addition of one weight row for one active input. Times are forward
passes in float32 without gradient, in evaluation, medians of rounds in which all take turns.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resofire.deploy import Stream
from resofire.models import Classifier, ClassifierConfig
from resofire.nn import PRFConfig, fire_rates
from resofire.ops import spike_linear

from .clock import Table, medians
from .networks import Case, blocks, evaluated, set_rates

RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
# Blocks of so many channels; batch, time.
SHAPES = ((128, 64, 784), (128, 1, 784), (256, 16, 1024))
KINDS = ("events", "dense", "fused")


def network(features: int, batch: int, length: int) -> tuple[Classifier, Case]:
    """Two SD-TCM blocks, see `evaluated`."""
    neuron = PRFConfig(tau=5.0, delta=(0.01, 1.0))
    config = ClassifierConfig(inputs=1, features=features, depth=2, classes=10, neuron=neuron)
    x, name = torch.rand(batch, length, 1), f"2 blocks of {features}, {batch} x {length}"
    case = Case(name, config, x, torch.empty(0), {}, batch * length)
    return evaluated(case), case


def variant(model: Classifier, kind: str) -> Classifier:
    """The same network with its blocks run in one of KINDS; the temporal neuron is the fused scan in all."""
    other = copy.deepcopy(model)
    backend = "reference" if kind == "dense" else kind
    for block in blocks(other):
        block.backend, block.token_neuron.backend = backend, "scan"
        block.token_linear.backend = block.channel_linear.backend = "auto" if kind == "fused" else backend
    return other


def inference(model: Classifier, x: Tensor) -> Callable[[], object]:
    def run() -> None:
        with torch.no_grad():
            model(x)

    return run


def rates_of(model: Classifier, x: Tensor) -> dict[str, float]:
    with torch.no_grad(), fire_rates(model) as rates:
        model(x)
    return rates.as_dict()


def network_points(features: int, batch: int, length: int, rates: tuple[float, ...], rounds: int) -> dict[str, Any]:
    """A whole network at each rate: what its layers really fire, its operations, and its times."""
    model, case = network(features, batch, length)
    points: list[dict[str, Any]] = []
    for rate in rates:
        set_rates(model, case, [(rate, rate)] * len(blocks(model)))
        kinds = {kind: variant(model, kind) for kind in KINDS}
        by_layer = rates_of(kinds["events"], case.x)
        stream, x = Stream(model, batch), case.x.numpy()
        ways: dict[str, Callable[[], object]] = {kind: inference(kinds[kind], case.x) for kind in KINDS}
        times = medians({**ways, "stream": functools.partial(stream.feed, x)}, rounds)
        # Every neuron layer feeds one Linear of `features` inputs.
        additions = sum(by_layer.values()) * features * case.steps
        points.append({"target": rate, "rate": sum(by_layer.values()) / len(by_layer), "layers": by_layer,
                       "operations": additions, "seconds": times})  # fmt: skip
        print(f"{case.name}, {100 * points[-1]['rate']:5.1f} %:  " + milliseconds(times), flush=True)
    return {"name": case.name, "steps": case.steps, "features": features, "points": points}


def synapse_points(features: int, batch: int, length: int, rates: tuple[float, ...], rounds: int) -> dict[str, Any]:
    """One Linear alone, on random spikes of each density."""
    steps, weight, bias = batch * length, torch.randn(features, features), torch.randn(features)
    name = f"one Linear of {features}, {batch} x {length}"
    points: list[dict[str, Any]] = []
    for rate in rates:
        spikes = (torch.rand(steps, features) < rate).float()
        synapse = functools.partial(spike_linear, spikes, weight, bias)
        ways: dict[str, Callable[[], object]] = {
            "events": functools.partial(synapse, backend="events"),
            "dense": functools.partial(synapse, backend="reference"),
        }
        times = medians(ways, rounds)
        measured = float(spikes.mean())
        points.append({"target": rate, "rate": measured, "layers": {"": measured},
                       "operations": measured * steps * features, "seconds": times})  # fmt: skip
        print(f"{name}, {100 * measured:5.1f} %:  " + milliseconds(times), flush=True)
    return {"name": name, "steps": steps, "features": features, "points": points}


def milliseconds(times: dict[str, float]) -> str:
    return "  ".join(f"{kind} {1e3 * seconds:.3f} ms" for kind, seconds in times.items())


def follow(points: list[dict[str, Any]], kind: str) -> dict[str, float | None]:
    """Time = base + slope · operations by least squares; their correlation; the rate at which dense breaks even.

    base_share_at_5 is the part of the time at 5 % that no operation accounts for."""
    work = np.array([point["operations"] for point in points])
    seconds = np.array([point["seconds"][kind] for point in points])
    slope, base = np.polyfit(work, seconds, 1)
    at_five = 0.05 * work[-1] / points[-1]["rate"]
    return {
        "correlation": float(np.corrcoef(work, seconds)[0, 1]),
        "nanoseconds_per_row": 1e9 * float(slope),
        "base_seconds": float(base),
        "base_share_at_5": float(base / (base + slope * at_five)),
        "break_even": break_even(points, kind),
    }


def break_even(points: list[dict[str, Any]], kind: str) -> float | None:
    """The rate at which `kind` stops being faster than dense, between two points; None: it always is, or never was."""
    gains = [point["seconds"]["dense"] - point["seconds"][kind] for point in points]
    for i in range(len(points) - 1, 0, -1):
        if gains[i - 1] > 0 >= gains[i]:
            share = gains[i - 1] / (gains[i - 1] - gains[i])
            return float(points[i - 1]["rate"] + share * (points[i]["rate"] - points[i - 1]["rate"]))
    return None


def report(figures: Table, case: dict[str, Any]) -> None:
    for kind, fit in case["fits"].items():
        where = f"{kind}: {case['name']}"
        figures.add(f"correlation of time and operations, {where}", fit["correlation"], "")
        figures.add(f"per weight row of {case['features']}, {where}", fit["nanoseconds_per_row"], "ns")
        figures.add(f"share of time at 5 % that is no operation, {where}", 100 * fit["base_share_at_5"], "%")
        if fit["break_even"] is not None:
            figures.add(f"breaks even with dense, {where}", 100 * fit["break_even"], "%")
    off = max(abs(point["rate"] / point["target"] - 1) for point in case["points"])
    figures.add(f"fire rate, furthest from its target: {case['name']}", 100 * off, "%", most=10)
    for point in case["points"]:
        times = point["seconds"]
        for kind in case["fits"]:
            name = f"{kind} over dense at {100 * point['rate']:.1f} %: {case['name']}"
            figures.add(name, times["dense"] / times[kind], "x")


def table(result: dict[str, Any]) -> str:
    """The table of docs/events.md: how much faster than dense, by fire rate; whether time follows the operations."""
    rates = [point["target"] for point in result["cases"][0]["points"]]
    shown = [rate for rate in (0.005, 0.02, 0.05, 0.1, 0.2, 0.5) if rate in rates]
    head = ["inference, over dense", *(f"{100 * rate:g} %" for rate in shown), "breaks even", "time ~ operations",
            "ns per row", "base, at 5 %"]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for case in result["cases"]:
        at = {point["target"]: point["seconds"] for point in case["points"]}
        for kind, fit in case["fits"].items():
            cells = [f"{at[rate]['dense'] / at[rate][kind]:.2g}x" for rate in shown]
            cells.append(crossing(case["points"], kind, fit["break_even"]))
            cells += [f"r = {fit['correlation']:.3f}", f"{fit['nanoseconds_per_row']:.2g}"]
            cells.append(f"{100 * fit['base_share_at_5']:.0f} %")
            lines.append(f"| {case['name']}, {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def answer(result: dict[str, Any]) -> str:
    """Whether the time follows the operations, in words, by how much both grow from the lowest rate to the highest."""
    grown: dict[str, list[float]] = {}
    for case in result["cases"]:
        for kind in case["fits"]:
            grown.setdefault(kind, []).append(growth(case["points"], kind))
    first, last = (result["cases"][0]["points"][i] for i in (0, -1))
    work = last["operations"] / first["operations"]
    fits = [fit for case in result["cases"] for fit in case["fits"].values()]
    correlations, shares = ([fit[key] for fit in fits] for key in ("correlation", "base_share_at_5"))
    least = min(map(min, grown.values()))
    verdict = "Yes" if least > work / 2 else "Only above a base" if np.median(correlations) > 0.9 else "No"
    times = ", ".join(f"{min(each):.2g} to {max(each):.2g} times ({kind})" for kind, each in grown.items())
    return (
        f"{verdict}: from {100 * first['target']:g} % to {100 * last['target']:g} % the operations grow "
        f"{work:.0f} times, the time {times}. Along the way they correlate with r = {min(correlations):.3f} to "
        f"{max(correlations):.3f}; at 5 %, {100 * min(shares):.0f} to {100 * max(shares):.0f} % of the "
        "time is no operation."
    )


def growth(points: list[dict[str, Any]], kind: str) -> float:
    return float(points[-1]["seconds"][kind] / points[0]["seconds"][kind])


def crossing(points: list[dict[str, Any]], kind: str, rate: float | None) -> str:
    """Where dense catches up, in words for a table."""
    if rate is not None:
        return f"{100 * rate:.0f} %"
    last = points[-1]
    return f"> {100 * last['rate']:.0f} %" if last["seconds"][kind] < last["seconds"]["dense"] else "never faster"


def run(quick: bool = False) -> dict[str, Any]:
    """Measures and prints; returns all figures with the machine they come from."""
    from resofire import doctor

    torch.manual_seed(0)
    figures, cases = Table(), []
    rates, rounds = ((0.02, 0.1, 0.5), 3) if quick else (RATES, 9)
    print("inference without gradient, float32, medians; an operation adds one weight row\n")
    for shape in ((128, 4, 784),) if quick else SHAPES:
        for measured in (network_points, synapse_points):
            case = measured(*shape, rates, rounds)
            kinds = [kind for kind in ("events", "fused", "stream") if kind in case["points"][0]["seconds"]]
            case["fits"] = {kind: follow(case["points"], kind) for kind in kinds}
            cases.append(case)
            report(figures, case)
    command = "resofire bench events" + (" --quick" if quick else "")
    return {"command": command, "machine": doctor.examine(), "cases": cases, "figures": figures.rows}
