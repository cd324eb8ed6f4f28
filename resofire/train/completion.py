"""Complete a run from any state: train it, resume it, or read its result."""

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
        owner: The caller, for error messages.
        config: The run.
        task: Its data.
        folder: The run folder; one with other settings is refused.

    Returns:
        The content of result.json.

    Raises:
        RunError: The run cannot begin, or the folder holds another one.
        Stopped: It was interrupted; the same call resumes it.
    """
    exists = (folder / RUN).exists()
    if exists and RunConfig.from_json(read(folder)["config"]) != config:
        raise RunError(f"{owner}: {folder} holds a run with other settings; move it away")
    if recorded(folder) is None:
        try:
            if exists:
                resume(folder, task)
            else:
                train(config, task, folder)
        except Stopped as stopped:
            # `Stopped` advises to resume this run alone; here it is part of a larger command, which resumes it.
            advice = "the same command resumes it" if stopped.code == INTERRUPTED else ""
            raise Stopped(f"{folder}: {stopped.why}", stopped.code, advice) from None
    result = recorded(folder)
    assert result is not None
    return result
