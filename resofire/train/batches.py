"""The batches of a run. Step n depends on the config alone, so that a run can resume anywhere."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ..data import Batch, Split
from .config import RunConfig


@dataclass(frozen=True)
class Plan:
    """The schedule of a run, in steps.

    Attributes:
        epoch: Steps in an epoch; its last incomplete batch is dropped.
        steps: Steps of the whole run.
        between: Steps between validations.
    """

    epoch: int
    steps: int
    between: int

    @staticmethod
    def of(config: RunConfig, split: Split) -> "Plan":
        """The plan of a config on its training split.

        Raises:
            ValueError: The split is smaller than one batch.
        """
        epoch = len(split) // config.batch
        if epoch == 0:
            raise ValueError(
                f"train: batch must not be above the {len(split)} training sequences of {config.task}, "
                f"got {config.batch}"
            )
        return Plan(epoch, config.steps or config.epochs * epoch, config.validate_every or epoch)

    def next_validation(self, step: int) -> int:
        """The step after which the next validation comes, for a run that has done `step` steps."""
        return min(self.steps, (step // self.between + 1) * self.between)

    def validates(self, step: int) -> bool:
        """Whether a validation comes after step `step` (the first is 1)."""
        return step == self.next_validation(step - 1)


def training_batches(
    split: Split, config: RunConfig, plan: Plan, step: int = 0, *, rank: int = 0, world: int = 1
) -> Iterator[Batch]:
    """Iterate over this process's share of each batch after `step`, to the end of the run."""
    while step < plan.steps:
        epoch, start = divmod(step, plan.epoch)
        rest = split.batches(
            config.batch, seed=config.seed, epoch=epoch, start=start, last=False, rank=rank, world=world
        )
        for batch in islice(rest, plan.steps - step):
            step += 1
            yield batch


def evenly_spaced(split: Split, size: int, count: int) -> Iterator[Batch]:
    """Iterate over batches evenly spaced over a split in its stored order, without augmentation.

    Args:
        split: The split.
        size: Sequences in a batch.
        count: Maximal number of batches.
    """
    whole = max(1, len(split) // size)
    count = min(count, whole)
    for number in range(count):
        yield next(iter(split.batches(size, start=number * whole // count)))
