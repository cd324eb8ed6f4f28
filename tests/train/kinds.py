"""Five kinds of tiny runs on synthetic data, and a program that trains, resumes or records them.

    python kinds.py train KIND FOLDER      from the beginning
    python kinds.py resume KIND FOLDER     from the newest checkpoint; more pairs of KIND and FOLDER may follow
    python kinds.py record KIND FOLDER     FOLDER/interrupted, FOLDER/finished and FOLDER/expected.json

`fixtures/` was recorded with version 0.1.0 (commit 58773bf, on the Lightning Trainer), one thread per process. Since
then the kernels of PRF and LIF are compiled from their equations and sum the gradients of Δ, θ and τ in another order:
the digests are of today's kernels, the weights in `last.safetensors` still those of 0.1.0, reached to within 1e-6.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from resofire.data.task import Form, Split, Task
from resofire.models import ClassifierConfig, FeedforwardConfig, RetrievalConfig
from resofire.nn import LIFConfig, PRFConfig
from resofire.train import RunConfig, resume, train

NEURON = PRFConfig(delta=(0.05, 0.5), threshold=0.2)
# Everything that a checkpoint has to carry: averaged weights, dropout, recalibrated norms, rows of logs half done.
SETTINGS = {"batch": 8, "steps": 14, "validate_every": 5, "checkpoint_minutes": 0.0, "label_smoothing": 0.1}
FULL = ClassifierConfig(
    inputs=2, classes=3, features=12, depth=2, neuron=NEURON, dropout=0.2, bidirectional=True, rate_target=0.1
)
MODELS = {
    "classifier": FULL,
    "retrieval": RetrievalConfig(vocabulary=7, features=8, depth=1, neuron=NEURON, dropout=0.1),
    "feedforward": FeedforwardConfig(sizes=(2, 12, 10, 3), neuron=LIFConfig(train_tau=True, threshold=0.3)),
    "per-step": ClassifierConfig(
        inputs=2, classes=3, features=8, depth=1, neuron=NEURON, pool="none", prenorm=False, amplitude="both"
    ),
    "two": FULL,
}
KINDS = tuple(MODELS)
DEVICES = {"two": 2}
# The step after which the interrupted fixture was copied: in the middle of a stretch between validations.
INTERRUPTED = 7


def config(kind: str) -> RunConfig:
    averaged = {"ema": 0.9, "recalibrate": 2} if kind in ("classifier", "two") else {"ema": None}
    return RunConfig(name=kind, task="synthetic", model=MODELS[kind], seed=3, **SETTINGS, **averaged)


def task(kind: str) -> Task:
    """The data of a kind: the same on every machine, since numpy keeps the stream of RandomState."""
    draw = np.random.RandomState(KINDS.index("classifier" if kind == "two" else kind))
    splits = {name: _split(kind, draw, count) for name, count in (("train", 44), ("validation", 19), ("test", 21))}
    if kind == "retrieval":
        return Task("synthetic", "tokens", 2, splits, vocabulary=7, pairs=True)
    return Task("synthetic", "values", 3, splits, inputs=2, per_step=kind == "per-step")


def _split(kind: str, draw: np.random.RandomState, count: int) -> Split:
    if kind == "retrieval":
        bounds = np.cumsum([0, *draw.randint(3, 20, 2 * count)])
        tokens = draw.randint(0, 7, bounds[-1]).astype(np.uint8)
        return Split(tokens, draw.randint(0, 2, count), kind="tokens", form=Form(), bounds=bounds, pairs=True)
    labels = draw.randint(0, 3, count)
    if kind == "feedforward":
        values = draw.randn(count, 16, 2).astype(np.float32) + labels[:, None, None]
        return Split(values, labels, kind="values", form=Form())
    bounds = np.cumsum([0, *draw.randint(1, 30, count)])
    lengths = np.diff(bounds)
    values = draw.randn(bounds[-1], 2).astype(np.float32) + np.repeat(labels, lengths)[:, None].astype(np.float32)
    if kind == "per-step":
        return Split(values, np.repeat(labels, lengths), kind="values", form=Form(), bounds=bounds, per_step=True)
    return Split(values, labels, kind="values", form=Form(), bounds=bounds)


def machine() -> dict[str, str]:
    """What the bits of a run depend on."""
    return {
        "torch": str(torch.__version__),
        "numba": numba.__version__,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "processor": llvmlite.binding.get_host_cpu_name(),
    }


def digest(folder: Path) -> str:
    """Of the weights alone: the header of their file may change between versions."""
    sha = hashlib.sha256()
    for name, value in sorted(load_file(folder / "model.safetensors").items()):
        sha.update(f"{name} {value.dtype} {list(value.shape)}".encode() + value.numpy().tobytes())
    return sha.hexdigest()


def record(kind: str, folder: Path) -> None:
    from resofire.train import checkpoints

    write, finished, interrupted = checkpoints.write, folder / "finished", folder / "interrupted"
    without = shutil.ignore_patterns("tensorboard", ".lock")

    def copying(run: Path, state: dict) -> Path:
        file = write(run, state)
        if state["step"] == INTERRUPTED:
            shutil.copytree(run, interrupted, ignore=without)
            for older in set((interrupted / checkpoints.FOLDER).iterdir()):
                if older.name != file.name:
                    older.unlink()
        return file

    checkpoints.write = copying
    result = train(config(kind), task(kind), finished, devices=DEVICES.get(kind, 1)).result
    if result is None:
        return
    last = checkpoints.newest(finished)
    for name in ("tensorboard", "checkpoints"):
        shutil.rmtree(finished / name)
    (finished / ".lock").unlink()
    expected = {
        "machine": machine(), "sha256": digest(finished), "correct": result["correct"], "best": result["best"],
    }  # fmt: skip
    save_file(last.state["model"], folder / "last.safetensors")
    (folder / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


if __name__ == "__main__":
    verb, *pairs = sys.argv[1:]
    torch.set_num_threads(1)
    for kind, folder in zip(pairs[::2], map(Path, pairs[1::2]), strict=True):
        if verb == "train":
            train(config(kind), task(kind), folder, devices=DEVICES.get(kind, 1))
        elif verb == "resume":
            resume(folder, task(kind))
        else:
            record(kind, folder)
