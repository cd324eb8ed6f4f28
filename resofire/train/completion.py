"""A run to its end, however far it has come: begun, resumed, or only read."""

from pathlib import Path
from typing import Any

from ..data import Task
from .config import RunConfig
from .evaluation import recorded
from .record import RUN, RunError, read
from .run import Stopped, resume, train

INTERRUPTED = 130


def complete(owner: str, config: RunConfig, task: Task, folder: Path) -> dict[str, Any]:
    """Train a run in its folder, resume it if it was interrupted, or read its result if it is finished.

    Args:
        owner: Who asks, for errors.
        config: The run.
        task: Its data.
        folder: The run folder; one with other settings is refused.

    Returns:
        The content of result.json.

    Raises:
        RunError: The run cannot begin, or the folder holds another one.
        Stopped: It was interrupted; the same call resumes it.
    """
    known = (folder / RUN).exists()
    if known and RunConfig.from_json(read(folder)["config"]) != config:
        raise RunError(f"{owner}: {folder} holds a run with other settings; move it away")
    if recorded(folder) is None:
        try:
            if known:
                resume(folder, task)
            else:
                train(config, task, folder)
        except Stopped as stopped:
            # Not with its own advice: to resume the run by itself would not continue what it belongs to.
            advice = "the same command resumes it" if stopped.code == INTERRUPTED else ""
            raise Stopped(f"{folder}: {stopped.why}", stopped.code, advice) from None
    result = recorded(folder)
    assert result is not None
    return result
