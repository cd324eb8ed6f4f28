"""Training: from a config and a data set to a run folder, interrupted or distributed, always repeatable."""

from ..extras import require

require("train", __name__)

from .config import RunConfig
from .recalibrate import recalibrate, spread
from .result import evaluate, recorded, report
from .run import Outcome, RunError, Stopped, read, resume, train
from .score import Score, score

__all__ = [
    "Outcome",
    "RunConfig",
    "RunError",
    "Score",
    "Stopped",
    "evaluate",
    "read",
    "recalibrate",
    "recorded",
    "report",
    "resume",
    "score",
    "spread",
    "train",
]
