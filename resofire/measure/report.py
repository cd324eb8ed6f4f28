"""What was measured, as tables for a person: at most 100 columns, the numbers in line."""

from collections.abc import Sequence
from typing import Any

WIDTH = 100
BAR = 24


def report(found: dict[str, Any]) -> str:
    """The tables of what `measure` found."""
    return "\n\n".join([_heading(found), _rates(found), _components(found), _operations(found), _peers(found)])


def report_published(tasks: list[dict[str, Any]]) -> str:
    """The tables of what `compare_published` found."""
    rates = [
        [each["task"], each["average"]["reproduced"], each["average"]["printed"], f"{each['average']['true']:.2f}",
         f"{each['average']['temporal']:.2f}", f"{each['average']['spatial']:.2f}"]
        for each in tasks
    ]  # fmt: skip
    energies = [
        [each["task"], each["energy"]["reproduced"], each["energy"]["printed"], f"{each['energy']['formula']:.3f}",
         f"{100 * each['energy']['formula_deviation']:+.1f} %", f"{each['energy']['audited']:.3f}",
         f"{each['energy']['audited_over_printed']:.2f}x"]
        for each in tasks
    ]  # fmt: skip
    peers = [
        [each["task"], each["s4"]["reproduced"], each["s4"]["printed"], "{} x {}".format(*each["s4"]["sizes"]),
         f"{each['s4']['formula']:.3f}", _needed(each["s4"]["state_size_needed"]), f"{each['s4']['audited']:.3f}",
         f"{each['saving']['printed']:.1f} %", f"{each['saving']['audited']:.1f} %"]
        for each in tasks
    ]  # fmt: skip
    audits = [
        [each["task"], _number(each["energy"]["audited"]), f"{each['energy']['audited_over_float32']:.1f}x",
         f"{100 * each['energy']['neuron_share']:.0f} %", *(f"{times:,.1f}x" for times in each["times"].values())]
        for each in tasks
    ]  # fmt: skip
    costs, size, curve = tasks[0]["costs"], tasks[0]["state_size"], tasks[0]["curve_of_s4"]
    printed, audited = (sum(each["saving"][key] for each in tasks) / len(tasks) for key in ("printed", "audited"))
    claim = tasks[0]["claim_of_average_saving"]
    return "\n\n".join(
        [
            _table("Average fire rate, %", ["", "reproduced", "printed", "true", "temporal", "spatial"], rates),
            _table(f"Energy, mJ per inference; audited at costs {costs}",
                   ["", "reproduced", "printed", "its formula", "deviation", "audited", "of printed"], energies),
            _table(f"S4, mJ per inference; its formula and audited at H = {size}, audited at costs {costs}",
                   ["", "reproduced", "printed", "at", "its formula", "needs H", "audited", "saved", "audited"], peers),
            "S4 as printed, MACs of a block of width w: "
            f"{curve['square']:.4f} w² + {curve['linear']:.2f} w + {curve['constant']:,.0f} "
            f"(± {curve['constant_within']:.0f})",
            _table(f"Audited at costs {costs}, H = {size}: mJ per inference, and how many times that the peers take",
                   ["", "mJ", "of float32", "neurons", *tasks[0]["times"]], audits),
            f"Saved, mean over the tasks: {printed:.1f} % by the printed numbers, {audited:.1f} % audited "
            f"(the paper: {claim} %,\nwhich is 1 less the quotient of its two mean energies).",
        ]
    )  # fmt: skip


def _heading(found: dict[str, Any]) -> str:
    network, length, costs = found["network"], found["length"], found["costs"]
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


def _rates(found: dict[str, Any]) -> str:
    rates = found["rates"]
    rows = [[name, f"{100 * rate:.2f} %", _bar(rate, max(rates["layers"].values()))]
            for name, rate in rates["layers"].items()]  # fmt: skip
    rows.append(["mean", f"{100 * rates['mean']:.2f} %", ""])
    if rates["mean_as_published"] is not None:
        rows.append(["mean, as published", f"{100 * rates['mean_as_published']:.2f} %", ""])
    return _table("Fire rate of each layer", ["", "rate", ""], rows, left=(0, 2))


def _components(found: dict[str, Any]) -> str:
    audited, published = found["energy"]["audited"], found["energy"]["published"]
    total, rows = audited["pJ_per_step"], []
    known = published.get("components", {})
    for name, each in audited["components"].items():
        other = known.get(name)
        rows.append([name, _number(each["pJ_per_step"]), f"{_share(each['pJ_per_step'], total):.1f} %",
                     _number(other["pJ_per_step"]) if other else "-", _bar(each["pJ_per_step"], total)])  # fmt: skip
    rows.append(["all", _number(total), "100.0 %", _number(published["pJ_per_step"]) if known else "-", ""])
    rows.append(["mJ per inference", _number(audited["mJ_per_inference"]), "",
                 _number(published["mJ_per_inference"]) if known else "-", ""])  # fmt: skip
    table = _table("Energy, pJ per time step", ["", "audited", "share", "as published", ""], rows, left=(0, 4))
    return table if known else f"{table}\nno published account: {published['not_defined']}"


def _operations(found: dict[str, Any]) -> str:
    per_step = found["counts"]["per_step"]
    operations = [kind for kind in per_step if "_" not in kind]
    moved = [kind for kind in per_step if "_" in kind]
    first = _table("Operations per time step", operations, [[_number(per_step[kind]) for kind in operations]], left=())
    titles = [kind.replace("_", " ") for kind in moved]
    return f"{first}\n\n" + _table(
        "Bytes per time step", titles, [[_number(per_step[kind]) for kind in moved]], left=()
    )


def _peers(found: dict[str, Any]) -> str:
    audited, published, block = found["energy"]["audited"], found["energy"]["published"], found["block"]
    rows = [["this network", _number(audited["mJ_per_inference"]), "1.0x",
             _number(published["mJ_per_inference"]) if "components" in published else "-", "",
             block["dynamics"], _yes(block["no_nonlinear"]), _yes(block["no_mac"])]]  # fmt: skip
    for each in found["peers"].values():
        size = "" if each["state_size"] is None else f", H = {each['state_size']}"
        theirs = each["published"]
        rows.append([f"{each['title']}{size}", _number(each["audited"]["mJ_per_inference"]),
                     f"{each['audited']['times_ours']:,.1f}x",
                     "-" if theirs is None else _number(theirs["mJ_per_inference"]),
                     "" if theirs is None else f"{theirs['times_ours']:,.1f}x",
                     each["dynamics"], _yes(each["no_nonlinear"]), _yes(each["no_mac"])])  # fmt: skip
    titles = ["", "audited", "", "published", "", "dynamics", "no nonlin.", "no MAC"]
    return _table("Against peers of the same widths and depth, mJ per inference", titles, rows, left=(0, 5))


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], left: tuple[int, ...] = (0,)) -> str:
    """Columns in line: those in `left` begin together, the others end together."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        placed = [cell.ljust(width) if column in left else cell.rjust(width)
                  for column, (cell, width) in enumerate(zip(cells, widths, strict=True))]  # fmt: skip
        return "  ".join(placed).rstrip()

    return "\n".join([title, *(f"  {line(row)}" for row in (head, *rows))])


def _bar(value: float, full: float) -> str:
    return "#" * round(BAR * value / full) if full > 0 else ""


def _share(value: float, total: float) -> float:
    return 100 * value / total if total > 0 else 0.0


def _number(value: float) -> str:
    """Three or more digits, whatever the size: 1,234,567  12.3  0.00456."""
    return f"{value:,.0f}" if value >= 1000 or value == 0 else f"{value:.3g}"


def _needed(state_size: float | None) -> str:
    return "not derivable" if state_size is None else f"{state_size:.1f}"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
