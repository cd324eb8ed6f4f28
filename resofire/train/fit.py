"""The Lightning Trainer: devices and processes, and the loop over steps and validations."""

import logging
import warnings
from typing import Any

import pytorch_lightning as lightning
import torch
from pytorch_lightning.strategies import DDPStrategy

from .module import Listener, Trainee
from .processes import rank, world
from .stream import Task, Training, Watching

__all__ = ["Listener", "Trainee", "fit"]


def fit(trainee: Trainee, task: Task, devices: int) -> None:
    """Trains to the last step of the plan."""
    config, plan, count = trainee.config, trainee.plan, world(devices)
    threads = torch.get_num_threads()
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    training = Training(task.splits["train"], config, plan, trainee.step, rank(), count)
    watching = Watching(task.splits[config.select], config.batch, rank(), count)
    accelerator = "gpu" if torch.cuda.is_available() else "cpu"
    strategy: Any = "auto"
    if count > 1:
        backend = "nccl" if accelerator == "gpu" else "gloo"
        # Norms are synchronised, so that buffers are the same everywhere.
        strategy = DDPStrategy(process_group_backend=backend, broadcast_buffers=False)
    trainer = lightning.Trainer(
        accelerator=accelerator, devices=devices, num_nodes=count // devices, strategy=strategy, logger=False,
        max_epochs=plan.stretches(trainee.step), enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, use_distributed_sampler=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        # Lightning takes any loader for one that should have more workers.
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        trainer.fit(trainee, training, watching)
    # Lightning shares the cores out over the processes; what follows has them to itself, like a later evaluation.
    torch.set_num_threads(threads)
