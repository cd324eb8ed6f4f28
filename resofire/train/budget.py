"""Turn a budget in minutes into a number of steps, once, by timing some steps that are then discarded."""

import copy
import time
from itertools import islice

import torch
from torch import nn

from ..data import Task
from ..models import build
from ..models.encoder import Encoder
from .batches import Plan, evenly_spaced, training_batches
from .config import RunConfig
from .evaluation import losses, predictions, score
from .memory import require_memory
from .optimiser import adamw
from .processes import training_device

# Steps before timing begins (the first compiles kernels), and seconds and steps after which it ends.
WARM_UP_STEPS, TIMED_SECONDS, TIMED_STEPS = 2, 3.0, 30
# Share of the budget that is planned; the rest is for writing files and for steps slower than the timed ones.
PLANNED = 0.9


def steps_within(
    config: RunConfig, task: Task, minutes: float, validations: int | None = None, *, evaluation: bool = True
) -> int:
    """Compute how many steps of a run fit into a budget, with their validations and the final evaluation.

    The result depends on the machine and its load. A run records it in its config, so its schedule and the bits of a
    resumed run do not depend on them.

    Args:
        config: The run; its `steps` and `epochs` are ignored.
        task: Its data.
        minutes: The budget.
        validations: The number of validations; None takes `config.validate_every`.
        evaluation: Whether the budget includes the final evaluation.

    Returns:
        The number of steps, at least 1.

    Raises:
        RunError: The run needs more memory than there is.
    """
    begun = time.perf_counter()
    require_memory(config, task, 1, 1.0)
    torch.manual_seed(config.seed % 2**64)
    model: nn.Module = build(config.model).to(training_device())
    for module in model.modules():
        if isinstance(module, Encoder) and module.config.standardise:
            first = next(iter(task["train"].batches(config.batch))).x.flatten(0, -2).double()
            module.standardise(first.mean(0).numpy(), first.std(0, correction=0).numpy())
    step = _time_steps(config, task, model)
    forward = _time_evaluation(config, task, model)
    # The timed steps are discarded, but their time is gone.
    left = 60 * minutes * PLANNED - (time.perf_counter() - begun)
    scored = {name: -(-len(split) // config.batch) for name, split in task.splits.items()}
    if "test" in scored:
        # The final evaluation takes no more training batches than test batches.
        scored["train"] = min(scored["train"], scored["test"])
    if evaluation:
        left -= forward * sum(scored.values())
    validation = forward * (scored["train" if config.select == "last" else config.select] + 1.5 * config.recalibrate)
    if validations is not None:
        return max(1, int((left - validations * validation) / step))
    return max(1, int(left / (step + validation / Plan.of(config, task["train"]).between)))


def _time_steps(config: RunConfig, task: Task, model: nn.Module) -> float:
    """Mean seconds of a training step."""
    model = copy.deepcopy(model).train()
    optimizer = adamw(model, config)
    plan = Plan(len(task["train"]) // config.batch, WARM_UP_STEPS + TIMED_STEPS, 1)
    begun, count = time.perf_counter(), 0
    for number, batch in enumerate(training_batches(task["train"], config, plan)):
        if number == WARM_UP_STEPS:
            begun = time.perf_counter()
        ((logits, target),) = predictions(model, [batch])
        total, _, labels = losses(logits, target)
        optimizer.zero_grad()
        (total / labels.clamp(min=1)).backward()
        optimizer.step()
        if total.is_cuda:
            torch.cuda.synchronize()
        count = number + 1 - WARM_UP_STEPS
        if count >= 3 and time.perf_counter() - begun > TIMED_SECONDS:
            break
    return (time.perf_counter() - begun) / max(1, count)


def _time_evaluation(config: RunConfig, task: Task, model: nn.Module) -> float:
    """Mean seconds of evaluating a batch."""
    batches = [*islice(evenly_spaced(task["train"], config.batch, 3), 3)]
    score(model, batches[:1])
    begun = time.perf_counter()
    score(model, batches)
    return (time.perf_counter() - begun) / len(batches)
