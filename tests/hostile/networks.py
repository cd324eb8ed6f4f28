"""The formats that we write ourselves and read again: networks, run folders, checkpoints, arrays of a run."""

import contextlib
import hashlib
import io
import re
import tempfile
from pathlib import Path
from random import Random

import numpy as np
import torch

from resofire import cli, data, deploy, models, train
from resofire.data import DataError
from resofire.deploy.reference import run as reference
from resofire.models import FeedforwardConfig, checksum
from resofire.models.storage import StorageError
from resofire.nn import LIFConfig
from resofire.train import RunConfig, RunError, Stopped

from . import mutations as m
from .report import SCENARIOS
from .worker import Target

CONFIG = RunConfig(
    name="tiny", task="own", model=FeedforwardConfig(sizes=(2, 6, 3), neuron=LIFConfig(train_tau=True, threshold=0.3)),
    batch=8, steps=2, validate_every=1, checkpoint_minutes=0.0,
)  # fmt: skip


class Refused(Exception):
    """A command that ended with an exit code other than 0; its text is what it printed to the standard error."""


def tiny_task() -> data.Task:
    draw = np.random.RandomState(0)
    return data.from_arrays(draw.randn(30, 5, 2), draw.randint(0, 3, 30), test=0.3, validation=0.3)


def tiny_run() -> dict[str, bytes]:
    """The files of a finished run."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        torch.manual_seed(0)
        train.train(CONFIG, tiny_task(), Path(folder) / "run")
        return {
            f"data/{file.relative_to(folder).as_posix()}": file.read_bytes()
            for file in Path(folder).rglob("*") if file.is_file() and ".lock" not in file.name
        }  # fmt: skip


def part(*patterns: str):
    """The files of a finished run whose paths match one of these."""
    return lambda: {
        path: raw for path, raw in tiny_run().items() if any(re.search(pattern, path) for pattern in patterns)
    }


def unfinished() -> dict[str, bytes]:
    """A run that was stopped before its result was written."""
    return {path: raw for path, raw in tiny_run().items() if not path.endswith("result.json")}


def named_by_checksum(files: dict[str, bytes]) -> dict[str, bytes]:
    """Checkpoints whose names match their contents, so that these are read."""
    named = {}
    for path, raw in files.items():
        digest = hashlib.sha256(raw).hexdigest()[:16]
        named[re.sub(r"(step-\d+)-[0-9a-f]{16}", rf"\1-{digest}", path)] = raw
    return named


def sealed(inner: m.Mutation) -> m.Mutation:
    """Give a changed safetensors file the right checksum, where it carries one."""

    def mutate(random: Random, raw: bytes) -> bytes:
        changed = inner(random, raw)
        with contextlib.suppress(Exception):
            return bytes(checksum.seal(changed))
        return changed

    return mutate


def command(*words: str):
    """Run a command on the folder data/run."""

    def read(root: Path) -> None:
        errors = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            code = cli.main([word.format(run=root / "data/run") for word in words])
        if code and errors.getvalue():
            raise Refused(errors.getvalue().strip())

    return read


def resume(root: Path) -> None:
    with contextlib.redirect_stderr(io.StringIO()):
        train.resume(root / "data/run", train.load_task(root / "data/run"))


def load_network(root: Path) -> None:
    model = models.load(root / "data/run")
    with torch.no_grad():
        model(torch.zeros(2, 3, 2))


def folded() -> dict[str, bytes]:
    network = models.build(CONFIG.model).eval()
    return {"data/folded.safetensors": deploy.FORMATS["safetensors"].write(deploy.fold(network))}


def load_folded(root: Path) -> None:
    network = deploy.load(root / "data/folded.safetensors")
    reference(network, np.zeros((3, len(network.table))))


BYTES = m.any_bytes
WEIGHTS = m.either(BYTES, sealed(BYTES), sealed(m.safetensors), sealed(m.safetensors))
RUN = (StorageError, RunError, DataError, Stopped, Refused)
TARGETS = [
    Target(
        "network-safetensors",
        part("model.safetensors", "config.json"),
        {"*.safetensors": WEIGHTS, "*.json": m.either(BYTES, m.json_values)},
        load_network,
        RUN,
    ),
    Target("folded-safetensors", folded, {"data/*": WEIGHTS}, load_folded, RUN),
    Target(
        "run-evaluate",
        part("json$", "safetensors", "npz"),
        {
            "*/run.json": m.either(BYTES, m.json_values, m.json_values),
            "*/result.json": m.either(BYTES, m.json_values, m.json_values),
            "*/data.npz": m.either(BYTES, m.inside_zip(m.either(BYTES, m.npy, m.json_values))),
        },
        command("evaluate", "{run}"),
        RUN,
    ),
    Target(
        "run-resume",
        unfinished,
        {
            "*/run.json": m.either(BYTES, m.json_values, m.json_values),
            "*/metrics.csv": m.either(BYTES, m.lines),
            "*/checkpoints/*": m.either(BYTES, m.inside_zip(m.either(BYTES, m.pickled))),
        },
        resume,
        RUN,
        finish=named_by_checksum,
        writes=True,
    ),
]
SCENARIOS += [target.scenario() for target in TARGETS]
