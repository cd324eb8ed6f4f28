"""One training step, for Lightning. What is kept, written and shown is told to listeners, in their order.

Every random draw comes from (seed, step, rank), the learning rate and the batch from the step: the state of a run
is its step, weights and optimiser, nothing else.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pytorch_lightning as lightning
import torch
import torch.distributed
from torch import Tensor

from ..models.network import Network
from ..nn import synchronise
from .average import Average
from .config import RunConfig
from .diverged import Diverged, first_nonfinite_layer
from .optimiser import optimiser, rate, set_rate
from .recalibrate import recalibrate, spread
from .score import Score, cross_entropy
from .stream import Batch, Plan, Split


@dataclass(frozen=True)
class Figures:
    """What a training step came to, over all processes."""

    loss: float
    accuracy: float
    fire_rate: float
    tokens: int  # time steps
    lr: float
    gradient: float


class Listener(Protocol):
    """Who is told what happens. `stop` is whether any process was asked to stop."""

    def started(self, run: "Trainee") -> None: ...
    def trained(self, run: "Trainee", figures: Figures, stop: bool) -> None: ...
    def validated(self, run: "Trainee", score: Score, stop: bool) -> None: ...


class Trainee(lightning.LightningModule):
    """A network in training on a split, from step `step` on."""

    def __init__(
        self, model: Network, config: RunConfig, plan: Plan, split: Split, listeners: Iterable[Listener] = (),
        step: int = 0, state: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model, self.config, self.plan, self.step, self._split = model, config, plan, step, split
        self.average = None if config.ema is None else Average(model, config.ema)
        self.listeners = tuple(listeners)
        self.asked_to_stop = False
        self._optimiser_state = state
        self._score = Score()

    @property
    def chosen(self) -> Network:
        """The network that is validated and shipped."""
        return self.model if self.average is None else self.average.model

    def configure_optimizers(self) -> Any:
        made = optimiser(self.model, self.config)
        if self._optimiser_state is not None:
            made.load_state_dict(self._optimiser_state)
        return made

    def optimiser_state(self) -> dict[str, Any]:
        return self.optimizers(use_pl_optimizer=False).state_dict()  # type: ignore[union-attr]

    def on_fit_start(self) -> None:
        if self.trainer.world_size > 1:
            synchronise(self.model)
        if self.average is not None:
            self.average.model.to(self.device)

    def on_train_start(self) -> None:
        for listener in self.listeners:
            listener.started(self)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self._factor = rate(self.step, self.plan.steps, self.config)
        set_rate(self.optimizers(use_pl_optimizer=False), self._factor)  # type: ignore[arg-type]
        torch.manual_seed(seed_of(self.config.seed, self.step, self.global_rank))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        tokens = batch.x.shape[0] * batch.x.shape[1]
        told = torch.tensor([int((batch.labels >= 0).sum()), tokens, self.asked_to_stop], dtype=torch.float64)
        count, self._tokens, self._stop = self._summed(told).tolist()
        logits, penalty, rates = self.model.penalised(batch.x, cu_seqlens=batch.cu_seqlens)
        loss, correct, _ = cross_entropy(logits, batch.labels, self.config.label_smoothing)
        self._batch = batch
        self._told = torch.stack((loss.detach().double(), correct.double())) / max(1, count)
        self._fire_rate = float(torch.stack([*rates.values()]).mean()) if rates else 0.0
        # Lightning takes the mean of the processes' gradients: their sum is to be that of the mean over all sequences.
        return loss * (self.trainer.world_size / max(1, count)) + penalty

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip or math.inf)
        self._gradient = float(norm)
        # After the gradients have been exchanged: what is wrong in one process is wrong in all.
        if not math.isfinite(self._gradient):
            raise Diverged(self.step + 1, first_nonfinite_layer(self.model, self._batch))

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self.step += 1
        if self.average is not None:
            self.average.follow(self.model, self.step)
        loss, accuracy = self._summed(self._told).tolist()
        if not math.isfinite(loss):
            raise Diverged(self.step, first_nonfinite_layer(self.model, self._batch))
        figures = Figures(
            loss, accuracy, self._fire_rate, int(self._tokens), self._factor * self.config.lr, self._gradient
        )
        for listener in self.listeners:
            listener.trained(self, figures, bool(self._stop))

    def on_validation_epoch_start(self) -> None:
        self._score = Score()
        if self.config.recalibrate:
            # Every process takes the same batches, so that all have the same statistics.
            recalibrate(self.chosen, spread(self._split, self.config.batch, self.config.recalibrate))

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        logits = self.chosen(batch.x, cu_seqlens=batch.cu_seqlens)
        loss, correct, count = cross_entropy(logits, batch.labels)
        self._score.loss += float(loss)
        self._score.correct += int(correct)
        self._score.count += int(count)

    def on_validation_epoch_end(self) -> None:
        mine = self._score
        told = torch.tensor([mine.loss, mine.correct, mine.count, self.asked_to_stop], dtype=torch.float64)
        loss, correct, count, stop = self._summed(told).tolist()
        for listener in self.listeners:
            listener.validated(self, Score(int(correct), int(count), loss), bool(stop))

    def _summed(self, values: Tensor) -> Tensor:
        """Over all processes."""
        if self.trainer.world_size == 1:
            return values
        values = values.to(self.device)
        torch.distributed.all_reduce(values)
        return values.cpu()


def seed_of(seed: int, step: int, rank: int) -> int:
    """What torch is seeded with in a step."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0])
