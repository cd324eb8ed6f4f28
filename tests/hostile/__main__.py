"""The command line of the attacks. Exit code 1 if anything went wrong."""

import argparse
import fnmatch
import importlib
import sys

from .report import SCENARIOS, Budget, Report

# Files of this package that add scenarios to `SCENARIOS` when they are imported.
SOURCES = ("formats", "own_files", "networks", "processes")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="time in all, shared among the scenarios")
    parser.add_argument("--cases", type=int, help="at most so many cases of each scenario")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="*", help="scenarios to run, a pattern such as files/*")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios")
    arguments = parser.parse_args()
    for source in SOURCES:
        importlib.import_module(f"{__package__}.{source}")
    scenarios = [each for each in SCENARIOS if fnmatch.fnmatch(each.name, arguments.only)]
    if arguments.list or not scenarios:
        print("\n".join(each.name for each in SCENARIOS))
        return 0 if scenarios else 2
    report, shares = Report(), sum(each.share for each in scenarios)
    for scenario in scenarios:
        seconds = 60 * arguments.minutes * scenario.share / shares
        scenario.run(arguments.seed, Budget(seconds, arguments.cases, arguments.first), report)
        print(f"{scenario.name}: {report.cases[scenario.name]} cases", file=sys.stderr, flush=True)
    print(report.text())
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
