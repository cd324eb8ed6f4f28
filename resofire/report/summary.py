"""The figures at the top of a page, in words."""

import datetime
from typing import Any

from ..nn import PRFConfig
from ..train import RunConfig
from .tally import wilson


def network_words(model: Any) -> str:
    """A network in one line: kind, size, neuron."""
    widths = list(getattr(model, "widths", ()))
    same = len(set(widths)) == 1
    size = f"{len(widths)} × {widths[0]}" if same else "-".join(map(str, widths))
    return ", ".join([type(model).__name__, *([size] if widths else []), *_parts(model.config)])


def _parts(config: Any) -> list[str]:
    block, neuron = getattr(config, "block", None), getattr(config, "neuron", None)
    kind = type(neuron if block is None else block).__name__.removesuffix("Config")
    if block is None and isinstance(neuron, PRFConfig) and neuron.resonators > 1:
        kind = f"PRF with {neuron.resonators} resonators"
    directions = "bidirectional" if getattr(config, "bidirectional", False) else "causal"
    return [kind, directions] if neuron is not None or block is not None else []


def accuracy(result: dict[str, Any] | None, network: dict[str, Any]) -> dict[str, Any] | None:
    """Accuracy with its interval: as recorded when the run ended, else of the sequences just read.

    Returns:
        split, correct, count, share, low, high, and whether it was recorded; None if nothing is known.
    """
    if result is not None:
        split = next(name for name in ("test", "validation", "train") if name in result["correct"])
        correct, count = result["correct"][split]
    elif network.get("summary", {}).get("tally", [0, 0])[1]:
        split, (correct, count) = network["summary"]["split"], network["summary"]["tally"]
    else:
        return None
    if not count:
        return None
    low, high = wilson(correct, count)
    return {"split": split, "correct": correct, "count": count, "share": correct / count, "low": low, "high": high,
            "recorded": result is not None}  # fmt: skip


def tiles(
    record: dict[str, Any], result: dict[str, Any] | None, network: dict[str, Any], rows: dict[str, Any],
    config: RunConfig,
) -> list[dict[str, str]]:  # fmt: skip
    """The large figures: accuracy, parameters, fire rate, energy, time."""
    made = []
    score = accuracy(result, network)
    if score is not None:
        biased = ", which selected the weights" if config.select == score["split"] else ""
        made.append(_tile(
            f"{score['split']} accuracy", f"{100 * score['share']:.2f} %",
            f"95 % interval {100 * score['low']:.2f} to {100 * score['high']:.2f} %; {score['correct']:,} of "
            f"{score['count']:,}{biased}",
        ))  # fmt: skip
    parameters = (result or record).get("parameters", record.get("parameters"))
    if parameters is not None:
        made.append(_tile("parameters", f"{parameters:,}", network.get("network", "")))
    rates = network.get("summary", {}).get("rates") or (result or {}).get("fire_rates") or {}
    if rates:
        mean = sum(rates.values()) / len(rates)
        made.append(_tile("fire rate", f"{100 * mean:.1f} %", f"mean of {len(rates)} layers"))
    energy = network.get("energy", {})
    if "peers" in energy:
        times = " and ".join(
            f"{each['title']} {each['energy']['times_ours']:.3g} times" for each in energy["peers"].values()
        )
        made.append(_tile(
            "energy per inference", _joules(energy["energy"]["mJ_per_inference"]), f"{times} as much, at equal size"
        ))  # fmt: skip
    seconds = (result or {}).get("seconds") or _seconds(rows)
    if seconds:
        made.append(_tile("training time", duration(seconds), _threads(record)))
    return made


def details(
    record: dict[str, Any], result: dict[str, Any] | None, config: RunConfig, rows: dict[str, Any], *,
    step: int | None, command: str | None,
) -> list[dict[str, str]]:  # fmt: skip
    """The table below the figures."""
    last = max((curve["step"][-1] for curve in rows.values()), default=0)
    epochs = {at: epoch for curve in rows.values() for at, epoch in zip(curve["step"], curve["epoch"], strict=True)}
    chosen = "none yet"
    if step is not None:
        where = f" (epoch {epochs[step]:.3g})" if epochs.get(step) is not None else ""
        chosen = f"step {step:,}{where}, by {'the last step' if config.select == 'last' else config.select}"
    versions = record.get("versions") or {}
    made = [
        ("task", config.task),
        ("state", "finished" if result is not None else f"not finished, {int(last):,} steps so far"),
        ("chosen network", chosen),
        ("seed", str(config.seed)),
        ("trained on", f"{record.get('machine', 'unknown')}, {_threads(record)}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("commit", record.get("commit") or "unknown"),
        ("backends", "; ".join(f"{op}: {', '.join(each)}" for op, each in (record.get("backends") or {}).items())),
    ]
    rows_ = [_tile(label, value, "") for label, value in made if value]
    if command is not None:
        rows_.append({**_tile("reproduce with", command, ""), "code": "yes"})
    return rows_


def duration(seconds: float) -> str:
    """A time in words: 1:45:27 from an hour on, else 3 min 12 s."""
    whole = round(seconds)
    if whole >= 3600:
        return str(datetime.timedelta(seconds=whole))
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{seconds:.3g} s"


def _seconds(rows: dict[str, Any]) -> float | None:
    return max((curve["seconds"][-1] or 0.0 for curve in rows.values()), default=None)


def _threads(record: dict[str, Any]) -> str:
    count = record.get("threads", "unknown")
    return "1 thread" if count == 1 else f"{count} threads"


def _joules(mj: float) -> str:
    value, unit = (mj, "mJ") if mj >= 1 else (mj * 1e3, "µJ") if mj >= 1e-3 else (mj * 1e6, "nJ")
    return f"{value:.3g} {unit}"


def _tile(label: str, value: str, note: str) -> dict[str, str]:
    return {"label": label, "value": value, "note": note}
