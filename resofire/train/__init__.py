"""Training: from a config and a data set to a run folder; interrupted or distributed, always reproducible."""

from ..extras import require

require("train", __name__)

from .batches import evenly_spaced
from .budget import steps_within
from .callbacks import Callback, Figures
from .completion import complete
from .config import RunConfig
from .evaluation import Score, evaluate, recalibrate, recorded, report, score
from .folder import new_folder
from .record import RunError, read
from .run import Outcome, Stopped, resume, train
from .samples import load_samples, save_samples
from .source import load_task

__all__ = [
    "Callback",
    "Figures",
    "Outcome",
    "RunConfig",
    "RunError",
    "Score",
    "Stopped",
    "complete",
    "evaluate",
    "evenly_spaced",
    "load_samples",
    "load_task",
    "new_folder",
    "read",
    "recalibrate",
    "recorded",
    "report",
    "resume",
    "save_samples",
    "score",
    "steps_within",
    "train",
]
