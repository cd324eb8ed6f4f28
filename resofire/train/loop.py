"""The training loop: steps and validations. Fabric provides devices, processes and precision.

Every random draw depends on (seed, step, rank) only, the learning rate and the batch on the step only. So the state of
a run is its step, weights and optimiser, nothing else.
"""

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn
from torch.optim import Optimizer

from ..data import Batch, Task
from ..data.task import IGNORED
from ..nn import fire_rates, synchronise
from .batches import Plan, evenly_spaced, training_batches
from .callbacks import Figures, notify
from .config import RunConfig
from .diverged import Diverged, first_nonfinite_layer
from .evaluation import Loss, Score, call, losses, recalibrate, score
from .optimiser import Average, lr_factor, set_lr
from .processes import Children, StopSignals, end_with_the_first, rank, training_device, world


class Run:
    """A run in training, as callbacks see it.

    Attributes:
        folder: The run folder.
        config: Its config.
        plan: Its schedule.
        model: The network in training.
        average: The averaged weights, if the config asks for them.
        optimizer: The optimiser.
        step: Steps done.
        best: Step and score of the best validation so far.
        rank: The number of this process.
        world: The number of processes.
        stopping: Whether the run ends after this step, because the user stopped one of its processes.
    """

    optimizer: Optimizer
    average: Average | None = None

    def __init__(self, folder: Path, config: RunConfig, plan: Plan, model: nn.Module) -> None:
        self.folder, self.config, self.plan, self.model = folder, config, plan, model
        self.step = 0
        self.best: dict[str, Any] | None = None
        self.rank, self.world = 0, 1
        self.stopping = False

    @property
    def chosen(self) -> nn.Module:
        """The network that is validated and saved: the average if there is one."""
        return self.model if self.average is None else self.average.model


class Objective(nn.Module):
    """A network and its loss as one module, so that data parallel training sees the whole forward pass.

    The penalty and the fire rates come from the network's `penalised`. Without it there is no penalty, and fire rates
    are measured by hooks.
    """

    def __init__(self, model: nn.Module, loss: Loss | None, config: RunConfig) -> None:
        super().__init__()
        self.model, self.loss, self.smoothing = model, loss, config.label_smoothing
        self.weights = None if config.class_weights is None else torch.tensor(config.class_weights)

    def forward(self, batch: Batch, share: float) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """The loss to differentiate, which is `share` · sum + penalty; the sum; correct answers; fire rates."""
        penalised = getattr(self.model, "penalised", None)
        if penalised is not None:
            logits, penalty, rates = penalised(batch.x, cu_seqlens=batch.cu_seqlens)
        else:
            with fire_rates(self.model) as watched:
                logits = call(self.model, batch)
            penalty, rates = logits.new_zeros(()), watched.tensors()
        weights = None if self.weights is None else self.weights.to(logits.device)
        total, correct, _ = losses(logits, batch.labels, self.loss, self.smoothing, weights)
        return total * share + penalty, total.detach(), correct, rates


def launch(devices: int, explain: Callable[[bool], None]) -> tuple[Fabric, Children | None]:
    """Start the processes of a run, or join those that torchrun started.

    Args:
        devices: Processes on this machine (CPU) or GPUs.
        explain: Prints why the run ends if a process started here ends too early; see `Children`.

    Returns:
        Fabric, and the processes that were started here; None if there are none.
    """
    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    count = world(devices)
    accelerator = "gpu" if training_device().type == "cuda" else "cpu"
    strategy: Any = "auto"
    if count > 1:
        end_with_the_first()
        backend = "nccl" if accelerator == "gpu" else "gloo"
        # Norms are synchronised, so buffers are equal everywhere.
        strategy = DDPStrategy(process_group_backend=backend, broadcast_buffers=False)
    fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=count // devices, strategy=strategy)
    started = getattr(fabric.strategy.launcher, "procs", None)
    children = None if started is None or rank() > 0 else Children(started, explain)
    try:
        fabric.launch()
    except BaseException:
        if children is not None:
            children.close()
        raise
    if children is not None:
        children.connect()
    return fabric, children


def fit(
    run: Run, task: Task, fabric: Fabric, callbacks: Sequence[object], signals: StopSignals, loss: Loss | None = None
) -> None:
    """Train to the last step of the plan, from `run.step` on.

    Raises:
        Diverged: A loss or gradient is not finite.
        Interrupted: The user stopped the run; raised by the callback that saves.
    """
    config, plan, train = run.config, run.plan, task.splits["train"]
    if run.world > 1:
        synchronise(run.model)
    with warnings.catch_warnings():
        # Newer versions of torch deprecate `broadcast_buffers`; older ones have nothing else.
        warnings.filterwarnings("ignore", module="lightning_fabric")
        objective, optimizer = fabric.setup(Objective(run.model.train(), loss, config), run.optimizer)
    notify(callbacks, "on_start", run)
    signals.deferred = True
    try:
        for batch in training_batches(train, config, plan, run.step, rank=run.rank, world=run.world):
            figures = _step(run, fabric, objective, optimizer, fabric.to_device(batch), signals)
            notify(callbacks, "on_step", run, figures)
            if plan.validates(run.step):
                if config.recalibrate:
                    # Every process uses the same batches, so that all get the same statistics.
                    recalibrate(run.chosen, evenly_spaced(train, config.batch, config.recalibrate))
                result = _validate(run, task, signals, loss)
                notify(callbacks, "on_validation", run, result)
                run.model.train()
    finally:
        signals.deferred = False


def _step(run: Run, fabric: Fabric, objective: Any, optimizer: Any, batch: Batch, signals: StopSignals) -> Figures:
    """One step of training: forward, backward, clip, update, average."""
    config = run.config
    factor = lr_factor(run.step, run.plan.steps, config)
    set_lr(run.optimizer, factor)
    torch.manual_seed(step_seed(config.seed, run.step, run.rank))
    tokens = batch.x.shape[0] * batch.x.shape[1]
    mine = torch.tensor([int((batch.labels != IGNORED).sum()), tokens, signals.requested], dtype=torch.float64)
    count, tokens, stop = _summed(run, mine).tolist()
    run.stopping = bool(stop)
    # DDP averages gradients over processes; this scale makes the result the gradient of the mean over the global batch.
    objective_loss, total, correct, rates = objective(batch, run.world / max(1, count))
    optimizer.zero_grad()
    fabric.backward(objective_loss)
    norm = float(nn.utils.clip_grad_norm_(run.model.parameters(), config.clip or math.inf))
    # Gradients have been exchanged, so the norm is the same in all processes: all raise, or none.
    if not math.isfinite(norm):
        raise Diverged(run.step + 1, first_nonfinite_layer(run.model, batch))
    optimizer.step()
    run.step += 1
    if run.average is not None:
        run.average.update(run.model, run.step)
    sums = torch.stack((total.double(), correct.double())) / max(1, count)
    loss, accuracy = _summed(run, sums).tolist()
    if not math.isfinite(loss):
        raise Diverged(run.step, first_nonfinite_layer(run.model, batch))
    fire_rate = float(torch.stack([*rates.values()]).mean()) if rates else 0.0
    return Figures(
        loss=loss, accuracy=accuracy, fire_rate=fire_rate, tokens=int(tokens), lr=factor * config.lr, gradient=norm
    )


def _validate(run: Run, task: Task, signals: StopSignals, loss: Loss | None) -> Score:
    """Evaluate `run.chosen`; the batches are divided among the processes and the scores summed."""
    config = run.config
    split = task.splits["train" if config.select == "last" else config.select]
    mine = score(run.chosen, islice(split.batches(config.batch), run.rank, None, run.world), loss=loss)
    sums = torch.tensor([mine.loss, mine.correct, mine.count, signals.requested], dtype=torch.float64)
    total, correct, count, stop = _summed(run, sums).tolist()
    run.stopping = bool(stop)
    # Fire rates are those of this process's share.
    return Score(int(correct), int(count), total, mine.rates)


def _summed(run: Run, values: Tensor) -> Tensor:
    """The sum over all processes."""
    if run.world == 1:
        return values
    values = values.to(next(run.model.parameters()).device)
    dist.all_reduce(values)
    return values.cpu()


def step_seed(seed: int, step: int, rank: int) -> int:
    """The seed of torch's generator in a step."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0])
