"""The commands, one file each: a dataclass whose fields are the flags, and `run`, which returns the exit code.

What a command needs is imported when it runs: `resofire --help` must not wait for torch.
"""

from typing import Any

from .bench import Bench
from .compare import Compare
from .data import Data
from .doctor import Doctor
from .evaluate import Evaluate
from .explore import Explore
from .export import Export
from .fit import Fit
from .measure import Measure
from .paper import Paper
from .parsing import parse
from .report import Report
from .stream import Stream
from .train import Train, parse_train
from .usage import UsageError, hint
from .watch import Watch

COMMANDS: dict[str, Any] = {
    "train": Train, "fit": Fit, "evaluate": Evaluate, "measure": Measure, "compare": Compare, "export": Export,
    "stream": Stream, "report": Report, "watch": Watch, "explore": Explore, "data": Data, "bench": Bench,
    "paper": Paper, "doctor": Doctor,
}  # fmt: skip
ALIASES = {"reproduce": "paper"}


def parse_command(arguments: list[str]) -> Any:
    """The command that the arguments ask for, ready to run."""
    word, *rest = arguments
    name = ALIASES.get(word, word)
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise UsageError(f"command must be one of {known}, got {word!r}{hint(word, [*COMMANDS, *ALIASES])}")
    if name == "train":
        return parse_train(rest)
    return parse(COMMANDS[name], rest, f"resofire {name}")


def overview() -> str:
    """The text of resofire --help."""
    lines = [f"  {name:<10}{command.__doc__.splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "resofire: long-sequence spiking neural networks",
            "",
            "usage: resofire COMMAND [flags]",
            "",
            *lines,
            "",
            "MODEL is a shipped network (such as digits), a run folder or a weights file.",
            "Flags of a command: resofire COMMAND --help. Version: resofire --version.",
            "Any command: --import MODULE (repeatable) imports your own classes first.",
        ]
    )


__all__ = ["ALIASES", "COMMANDS", "UsageError", "overview", "parse_command"]
