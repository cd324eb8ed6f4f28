"""What all scenarios share: how often to attack, what went wrong, and the list of scenarios."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

# What may not happen: ended by a signal, no end in time, more memory than the file can need, an exception that is not
# one of ours with one sentence, files that stay behind, and other bytes than those of a run that nobody disturbed.
KINDS = ("crash", "hang", "memory", "traceback", "leftover", "bytes")


class Failure(NamedTuple):
    """A case that went wrong."""

    scenario: str
    case: int
    kind: str  # one of KINDS
    detail: str


@dataclass
class Report:
    """Counts of all cases, and the failures.

    Attributes:
        cases: How many of each scenario.
        outcomes: How they ended, where a scenario says more than that they ended well ("loaded", "refused").
        failures: Cases that went wrong.
    """

    cases: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, scenario: str, outcome: str = "") -> None:
        """Count a case that ended as it should."""
        self.cases[scenario] += 1
        if outcome:
            self.outcomes[scenario, outcome] += 1

    def fail(self, scenario: str, case: int, kind: str, detail: str) -> None:
        """Count a case that went wrong."""
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        self.cases[scenario] += 1
        self.failures.append(Failure(scenario, case, kind, detail))

    def text(self) -> str:
        """A table of all scenarios, then the failures."""
        kinds = Counter((failure.scenario, failure.kind) for failure in self.failures)
        outcomes = sorted({outcome for _, outcome in self.outcomes})
        width = max(map(len, ("scenario", *self.cases)))
        heads = ("cases", *outcomes, *KINDS)
        lines = [f"{'scenario':{width}}" + "".join(f"{head:>{len(head) + 2}}" for head in heads)]
        for name in [*self.cases, "all"]:
            names = self.cases if name == "all" else (name,)
            row = [sum(self.cases[each] for each in names)]
            row += [sum(self.outcomes[each, outcome] for each in names) for outcome in outcomes]
            row += [sum(kinds[each, kind] for each in names) for kind in KINDS]
            cells = zip(row, heads, strict=True)
            lines.append(f"{name:{width}}" + "".join(f"{number:>{len(head) + 2}}" for number, head in cells))
        for failure in self.failures:
            lines.append(f"{failure.kind}: {failure.scenario}, case {failure.case}: {failure.detail}")
        return "\n".join(lines)


@dataclass
class Budget:
    """How many cases a scenario may run: numbers from `first` on, until `seconds` or `cases` are used up."""

    seconds: float = float("inf")
    cases: int | None = None
    first: int = 0

    def numbers(self) -> Iterator[int]:
        """The numbers of the cases to run."""
        deadline, number = time.monotonic() + self.seconds, self.first
        while (self.cases is None or number < self.first + self.cases) and time.monotonic() < deadline:
            yield number
            number += 1


class Scenario(NamedTuple):
    """One kind of attack.

    Attributes:
        name: Its name, KIND/DETAIL.
        run: Called with the seed, the budget and the report. Case number i must depend on the seed and i alone, and
            leave nothing behind.
        share: How much of the time it gets, relative to the others.
    """

    name: str
    run: Callable[[int, Budget, Report], None]
    share: float = 1.0


SCENARIOS: list[Scenario] = []
