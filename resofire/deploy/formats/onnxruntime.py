"""Runs the ONNX graphs of `onnx` in onnxruntime, on the CPU: to verify them, and as the dense peer of a stream."""

import os
from typing import Any

import numpy as np
import onnxruntime

from ...nn.folded import Array
from ...ops.checks import require_count
from ..reference import Result

TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}


class SequenceSession:
    """A graph of whole sequences, from bytes or a file."""

    def __init__(self, model: bytes | str | os.PathLike[str], *, threads: int = 1) -> None:
        self._session = _session(model, "sequence", threads)
        self._type = TYPES[self._session.get_inputs()[0].type]
        self._spikes = [each.name for each in self._session.get_outputs() if each.name.startswith("spikes.")]

    def run(self, x: Array) -> Array:
        """Scores [batch, classes], or [batch, time, classes] with pool none.

        Args:
            x: Values [batch, time, inputs] or tokens [batch, time].
        """
        return self._run(["scores"], x)[0]

    def walk(self, x: Array) -> Result:
        """Scores and spikes of one sequence, values [time, inputs] or tokens [time]."""
        scores, *spikes = self._run(["scores", *self._spikes], np.asarray(x)[None])
        return Result(scores[0], [each[0] > 0 for each in spikes])

    def _run(self, names: list[str], x: Array) -> list[Array]:
        return list(self._session.run(names, {"x": np.ascontiguousarray(x, self._type)}))


class StepSession:
    """A graph of one time step, from bytes or a file, with the state of `batch` streams.

    Input, state and scores are in arrays that onnxruntime reads and writes in place. There are two sets of the state:
    each step reads one and writes the other.
    """

    def __init__(self, model: bytes | str | os.PathLike[str], *, batch: int = 1, threads: int = 1) -> None:
        require_count("StepSession", "batch", batch)
        self._session = _session(model, "step", threads)
        inputs = {each.name: _array(each, batch) for each in self._session.get_inputs()}
        outputs = {each.name: each for each in self._session.get_outputs()}
        self._x, self._scores = inputs.pop("x"), _array(outputs["scores"], batch)
        self._states = [inputs, {name: np.zeros_like(array) for name, array in inputs.items()}]
        self._bindings = [self._bind(self._states[now], self._states[1 - now]) for now in range(2)]
        self._now = 0

    def step(self, x: Any) -> Array:
        """One time step, values [batch, inputs] or tokens [batch].

        Returns:
            Scores [batch, classes] over all steps so far (pool "none" and "last": of this one).
        """
        self._x[...] = x
        self._session.run_with_iobinding(self._bindings[self._now])
        self._now = 1 - self._now
        return self._scores.copy()

    def walk(self, x: Array) -> Result:
        """The scores after every step and the spikes of one whole sequence; the state kept here does not change."""
        names = [each.name for each in self._session.get_outputs()]
        state = {name: np.zeros_like(array[:1]) for name, array in self._states[0].items()}
        scores, spikes = [], []
        for now in np.asarray(x, self._x.dtype):
            out = dict(zip(names, self._session.run(names, {"x": now[None], **state}), strict=True))
            state = {name: out[f"{name}.new"] for name in state}
            scores.append(out["scores"][0])
            spikes.append([out[name][0] > 0 for name in names if name.startswith("spikes.")])
        return Result(np.stack(scores), [np.stack(layer) for layer in zip(*spikes, strict=True)])

    def reset(self) -> None:
        """Return to the state before the first step."""
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


def _session(model: bytes | str | os.PathLike[str], kind: str, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    source = model if isinstance(model, bytes) else os.fspath(model)
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    name = session.get_modelmeta().graph_name
    if name != kind:
        raise ValueError(f"model must be a {kind} graph of resofire, got {name!r}")
    return session


def _array(description: Any, batch: int) -> Array:
    return np.zeros([size if isinstance(size, int) else batch for size in description.shape], TYPES[description.type])
