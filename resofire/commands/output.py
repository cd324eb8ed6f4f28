"""Tables and live lines: rich in a terminal, plain text elsewhere."""

import os
import sys
from collections.abc import Sequence
from typing import Any


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells on standard output; in a terminal the last column wraps."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if not sys.stdout.isatty():
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for width in widths[:-1]:
        table.add_column(no_wrap=True, style="bold", min_width=width)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


class LiveLine:
    """A line on standard error that is redrawn in place and removed at the end; without a terminal, plain lines.

    Args:
        silent: Show no lines except notes.
        seconds: Least time between two lines, in a terminal and elsewhere.
    """

    def __init__(self, silent: bool = False, seconds: tuple[float, float] = (0.1, 1.0)) -> None:
        import time

        self._clock = time.monotonic
        self._silent = silent
        self._live: Any = None
        terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._interval = seconds[0] if terminal else seconds[1]
        self._next = self._clock() + (0 if terminal else self._interval)
        if terminal and not silent:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
            self._live.start()

    def due(self) -> bool:
        """Whether it is time for another line."""
        return not self._silent and self._clock() >= self._next

    def show(self, line: str) -> None:
        if self._live is None:
            print(line, file=sys.stderr, flush=True)
        else:
            from rich.text import Text

            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
        self._next = self._clock() + self._interval

    def note(self, line: str) -> None:
        """Print a permanent line above the live one; also if silent."""
        if self._live is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._live.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
