"""The commands, one file each: a dataclass whose fields are the flags, and `run`, which gives the exit code.

What a command needs is imported when it runs: `resofire --help` must not wait for torch.
"""

from typing import Annotated

import tyro

from .bench import Bench
from .data import Data
from .doctor import Doctor
from .evaluate import Evaluate
from .export import Export
from .measure import Measure
from .paper import Paper
from .stream import Stream
from .train import Train
from .usage import UsageError, hint

COMMANDS = {
    "train": Train, "evaluate": Evaluate, "data": Data, "measure": Measure, "export": Export, "stream": Stream,
    "bench": Bench, "reproduce": Paper, "doctor": Doctor,
}  # fmt: skip
# Train is here for the help; its flags depend on the recipe, see cli._parse_train.
Command = (
    Annotated[Train, tyro.conf.subcommand("train", prefix_name=False)]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate", prefix_name=False)]
    | Annotated[Data, tyro.conf.subcommand("data", prefix_name=False)]
    | Annotated[Measure, tyro.conf.subcommand("measure", prefix_name=False)]
    | Annotated[Export, tyro.conf.subcommand("export", prefix_name=False)]
    | Annotated[Stream, tyro.conf.subcommand("stream", prefix_name=False)]
    | Annotated[Bench, tyro.conf.subcommand("bench", prefix_name=False)]
    | Annotated[Paper, tyro.conf.subcommand("reproduce", prefix_name=False)]
    | Annotated[Doctor, tyro.conf.subcommand("doctor", prefix_name=False)]
)

__all__ = ["COMMANDS", "Command", "Train", "UsageError", "hint"]
