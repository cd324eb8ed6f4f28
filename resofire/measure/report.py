"""A measured network as text tables, at most 100 columns wide."""

from collections.abc import Sequence
from typing import Any

BAR = 24


def report(measured: dict[str, Any]) -> str:
    """Write what `measure` returned as tables."""
    return "\n\n".join(part(measured) for part in (_heading, _rates, _components, _operations, _peers))


def _heading(measured: dict[str, Any]) -> str:
    network, length, costs = measured["network"], measured["length"], measured["costs"]
    widths = network["widths"]
    sizes = f"{len(widths)} x {widths[0]}" if len(set(widths)) == 1 else "-".join(map(str, widths))
    ways = "bidirectional, " if network["bidirectional"] else ""
    pair = f" (of {length['sequences']} sequences together)" if length["sequences"] > 1 else ""
    return (
        f"{network['kind']}, {sizes} {network['neuron']}, {ways}norm {network['norm']}, "
        f"{network['parameters']:,} parameters\n"
        f"{length['value']:,.6g} time steps per inference{pair}\n"
        f"costs {costs['name']}: {costs['source']}"
    )


def _rates(measured: dict[str, Any]) -> str:
    rates = measured["rates"]
    if not rates["layers"]:
        return "No layer spikes"
    rows = [[name, f"{100 * rate:.2f} %", _bar(rate, max(rates["layers"].values()))]
            for name, rate in rates["layers"].items()]  # fmt: skip
    rows.append(["mean", f"{100 * rates['mean']:.2f} %", ""])
    return table("Fire rate of each layer", ["", "rate", ""], rows, left=(0, 2))


def _components(measured: dict[str, Any]) -> str:
    spent = measured["energy"]
    total, rows = spent["pJ_per_step"], []
    for name, each in spent["components"].items():
        share = 100 * each["pJ_per_step"] / total if total > 0 else 0.0
        rows.append([name, number(each["pJ_per_step"]), f"{share:.1f} %", _bar(each["pJ_per_step"], total)])
    rows.append(["all", number(total), "100.0 %", ""])
    rows.append(["mJ per inference", number(spent["mJ_per_inference"]), "", ""])
    return table("Energy, pJ per time step", ["", "energy", "share", ""], rows, left=(0, 3))


def _operations(measured: dict[str, Any]) -> str:
    per_step = measured["counts"]["per_step"]
    operations = [kind for kind in per_step if "_" not in kind]
    moved = [kind for kind in per_step if "_" in kind]
    first = table("Operations per time step", operations, [[number(per_step[kind]) for kind in operations]], left=())
    titles = [kind.replace("_", " ") for kind in moved]
    return f"{first}\n\n" + table("Bytes per time step", titles, [[number(per_step[kind]) for kind in moved]], left=())


def _peers(measured: dict[str, Any]) -> str:
    block = measured["block"]
    rows = [["this network", number(measured["energy"]["mJ_per_inference"]), "1.0x", block["dynamics"],
             _yes(block["no_nonlinear"]), _yes(block["no_mac"])]]  # fmt: skip
    for each in measured["peers"].values():
        size = "" if each["state_size"] is None else f", H = {each['state_size']}"
        rows.append([f"{each['title']}{size}", number(each["energy"]["mJ_per_inference"]),
                     f"{each['energy']['times_ours']:,.1f}x", each["dynamics"], _yes(each["no_nonlinear"]),
                     _yes(each["no_mac"])])  # fmt: skip
    titles = ["", "energy", "", "dynamics", "no nonlin.", "no MAC"]
    return table("Against peers of the same widths and depth, mJ per inference", titles, rows, left=(0, 3))


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], left: tuple[int, ...] = (0,)) -> str:
    """Write a table; columns in `left` are left-aligned, the others right-aligned."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        placed = [cell.ljust(width) if column in left else cell.rjust(width)
                  for column, (cell, width) in enumerate(zip(cells, widths, strict=True))]  # fmt: skip
        return "  ".join(placed).rstrip()

    return "\n".join([title, *(f"  {line(row)}" for row in (head, *rows))])


def _bar(value: float, full: float) -> str:
    return "#" * round(BAR * value / full) if full > 0 else ""


def number(value: float) -> str:
    """Format a number with at least three digits: 1,234,567  12.3  0.00456."""
    return f"{value:,.0f}" if value >= 1000 or value == 0 else f"{value:.3g}"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
