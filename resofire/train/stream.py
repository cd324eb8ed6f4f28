"""The batches of a run as one stream: step n is a function of the config alone, so that a run can go on anywhere.

What training asks of a data set is written here as protocols; `resofire.data` has them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from .config import RunConfig


class Batch(Protocol):
    @property
    def x(self) -> Tensor: ...
    @property
    def labels(self) -> Tensor: ...
    @property
    def cu_seqlens(self) -> Tensor | None: ...


class Split(Protocol):
    def __len__(self) -> int: ...
    def batches(
        self, size: int, *, seed: int | None = None, epoch: int = 0, start: int = 0, last: bool = True, rank: int = 0,
        world: int = 1,
    ) -> Iterator[Batch]: ...  # fmt: skip


class Task(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def splits(self) -> Mapping[str, Split]: ...
    @property
    def classes(self) -> int: ...


@dataclass(frozen=True)
class Plan:
    """When what happens, in steps."""

    epoch: int  # steps in an epoch: what is left over at its end is not used
    steps: int  # of the whole run
    between: int  # between validations

    @staticmethod
    def of(config: RunConfig, split: Split) -> "Plan":
        epoch = len(split) // config.batch
        if epoch == 0:
            raise ValueError(
                f"train: batch must not be above the {len(split)} training sequences of {config.task}, "
                f"got {config.batch}"
            )
        steps = config.steps or config.epochs * epoch
        return Plan(epoch, steps, config.validate_every or epoch)

    def stop(self, step: int) -> int:
        """Where the stretch of training that has step `step` in it ends, and validation comes."""
        return min(self.steps, (step // self.between + 1) * self.between)

    def stretches(self, step: int) -> int:
        """How many of them are left."""
        left = self.steps - step
        return 0 if left <= 0 else -(-self.steps // self.between) - step // self.between


class Training:
    """Batches from a step on; each walk over it ends where a validation is due."""

    def __init__(
        self, split: Split, config: RunConfig, plan: Plan, step: int = 0, rank: int = 0, world: int = 1
    ) -> None:
        self.split, self.config, self.plan, self.step = split, config, plan, step
        self.rank, self.world = rank, world

    def __iter__(self) -> Iterator[Batch]:
        step, stop = self.step, self.plan.stop(self.step)
        while step < stop:
            epoch, start = divmod(step, self.plan.epoch)
            batches = self.split.batches(
                self.config.batch, seed=self.config.seed, epoch=epoch, start=start, last=False, rank=self.rank,
                world=self.world,
            )  # fmt: skip
            for batch in batches:
                if step == stop:
                    break
                step += 1
                yield batch
        self.step = stop


class Watching:
    """Every `world`th batch of a split in its own order, the first one `rank`: no sequence twice."""

    def __init__(self, split: Split, size: int, rank: int = 0, world: int = 1) -> None:
        self.split, self.size, self.rank, self.world = split, size, rank, world

    def __iter__(self) -> Iterator[Batch]:
        for number, batch in enumerate(self.split.batches(self.size)):
            if number % self.world == self.rank:
                yield batch
