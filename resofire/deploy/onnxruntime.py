"""Runs the ONNX graphs of `onnx` in onnxruntime, on the CPU: to check them, and as the dense peer of a stream."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from ..models.storage import StorageError
from .folded import Array
from .onnx import read
from .reference import Walked

TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}


def session(file: str | os.PathLike[str], *, threads: int = 1) -> Any:
    """An InferenceSession of a file that `onnx.read` has looked through."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    model = read(file)
    try:
        return onnxruntime.InferenceSession(
            model.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            # Our graphs have none; in a hostile one it would make large arrays before anything is run.
            disabled_optimizers=["ConstantFolding"],
        )
    except Exception as error:  # onnxruntime's own kinds of error have no public base
        raise StorageError(f"{file} cannot be used as an ONNX graph: {_sentence(error)}") from None


class SequenceSession:
    """A graph for whole sequences. A batch is values [batch, time, inputs] or tokens [batch, time]."""

    def __init__(self, file: str | os.PathLike[str], *, threads: int = 1) -> None:
        self._file, self._session = file, session(file, threads=threads)
        outputs = [each.name for each in self._session.get_outputs()]
        named = self._session.get_modelmeta().graph_name == "sequence" and "scores" in outputs
        _require(file, named and [each.name for each in self._session.get_inputs()] == ["x"], "sequence")
        self._type = TYPES[self._session.get_inputs()[0].type]
        self._spikes = [name for name in outputs if name.startswith("spikes.")]

    def run(self, x: Array) -> Array:
        """Scores [batch, classes], or [batch, time, classes] with pool none."""
        return self._run(["scores"], x)[0]

    def walk(self, x: Array) -> Walked:
        """Scores and spikes of one sequence."""
        scores, *spikes = self._run(["scores", *self._spikes], np.asarray(x)[None])
        return Walked(scores[0], [each[0] > 0 for each in spikes])

    def _run(self, names: list[str], x: Array) -> list[Array]:
        return _run(self._file, self._session, names, {"x": np.ascontiguousarray(x, self._type)})


class StepSession:
    """A step graph with its state: `step(x)` is one time step, values [batch, inputs] or tokens [batch].

    Inputs, state and scores lie in arrays that onnxruntime reads and writes in place. There are two sets of the state:
    each step reads one and writes the other.
    """

    def __init__(self, file: str | os.PathLike[str], *, batch: int = 1, threads: int = 1) -> None:
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise ValueError(f"StepSession: batch must be a positive integer, got {batch!r}")
        self._file, self._session = file, session(file, threads=threads)
        inputs = {each.name: each for each in self._session.get_inputs()}
        found = {each.name: each for each in self._session.get_outputs()}
        outputs = {name: each for name, each in found.items() if not name.startswith("spikes.")}
        state = [name for name in inputs if name != "x"]
        named = self._session.get_modelmeta().graph_name == "step" and "x" in inputs
        _require(file, named and set(outputs) == {"scores", *(f"{name}.new" for name in state)}, "step")
        for name in state:
            same = inputs[name].type == outputs[f"{name}.new"].type
            _require(file, same and inputs[name].shape == outputs[f"{name}.new"].shape, "step")
        self._x, self._scores = _array(inputs["x"], batch), _array(outputs["scores"], batch)
        self._states = [{name: _array(inputs[name], batch) for name in state} for _ in range(2)]
        self._bindings = [self._bind(self._states[now], self._states[1 - now]) for now in range(2)]
        self._now = 0

    def step(self, x: Any) -> Array:
        """Scores [batch, classes] of all steps so far (pool "none" and "last": of this one)."""
        self._x[...] = x
        try:
            self._session.run_with_iobinding(self._bindings[self._now])
        except Exception as error:  # as in `session`
            raise StorageError(f"{self._file} cannot be run: {_sentence(error)}") from None
        self._now = 1 - self._now
        return self._scores.copy()

    def walk(self, x: Array) -> Walked:
        """One whole sequence from the start, beside the state held here: the scores after every step, and spikes."""
        names = [each.name for each in self._session.get_outputs()]
        state = {name: np.zeros_like(array[:1]) for name, array in self._states[0].items()}
        scores, spikes = [], []
        for now in np.asarray(x, self._x.dtype):
            found = _run(self._file, self._session, names, {"x": now[None], **state})
            out = dict(zip(names, found, strict=True))
            state = {name: out[f"{name}.new"] for name in state}
            scores.append(out["scores"][0])
            spikes.append([out[name][0] > 0 for name in names if name.startswith("spikes.")])
        return Walked(np.stack(scores), [np.stack(layer) for layer in zip(*spikes, strict=True)])

    def reset(self) -> None:
        """Back to before the first step."""
        for array in self._states[self._now].values():
            array[...] = 0

    @property
    def state(self) -> dict[str, Array]:
        """A copy of the state."""
        return {name: array.copy() for name, array in self._states[self._now].items()}

    def _bind(self, old: dict[str, Array], new: dict[str, Array]) -> Any:
        binding = self._session.io_binding()
        for name, array in {"x": self._x, **old}.items():
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        for name, array in {"scores": self._scores, **{f"{name}.new": each for name, each in new.items()}}.items():
            binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        return binding


def replay(file: Path, samples: list[Array]) -> list[Walked]:
    """What the sequence graph in a file makes of sequences."""
    held = SequenceSession(file)
    return [held.walk(sample) for sample in samples]


def replay_steps(file: Path, samples: list[Array]) -> list[Walked]:
    """What the step graph in a file makes of sequences: the scores after every step."""
    held = StepSession(file)
    return [held.walk(sample) for sample in samples]


def _array(about: Any, batch: int) -> Array:
    return np.zeros([size if isinstance(size, int) else batch for size in about.shape], TYPES[about.type])


def _run(file: Any, held: Any, names: list[str], given: dict[str, Array]) -> list[Array]:
    try:
        return list(held.run(names, given))
    except Exception as error:  # as in `session`
        raise StorageError(f"{file} cannot be run: {_sentence(error)}") from None


def _require(file: Any, holds: bool, kind: str) -> None:
    if not holds:
        raise StorageError(f"{file} is no {kind} graph: its inputs and outputs have other names or shapes")


def _sentence(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
