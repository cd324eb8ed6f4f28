"""A scikit-learn estimator, for pipelines, searches and cross-validation."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from . import automatic, models, train
from .data import Split, Task, from_arrays
from .data.samples import Reading, read_sequences
from .train.evaluation import predictions
from .train.progress import silent

# Time steps that one batch of a prediction has at most.
PREDICTED = 60_000


class SpikingClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no annotations
    """Classify sequences with a network of resonate-and-fire neurons, its settings chosen from the data.

    X is an array [n, T] or [n, T, C], or a list of sequences [T_i] or [T_i, C]; y has a label of any type for each
    sequence, or one for each step, [n, T]. Values are used as they are: the network standardises them itself.

    Args:
        max_minutes: Budget of `fit`. It becomes a number of steps after some have been timed, so results of a fit
            that the budget ends depend on the machine. None: no limit.
        max_epochs: Most passes over the data; None chooses by their number.
        features: Channels of the network; None chooses, as it does for `depth`, `batch` and `lr`.
        depth: Blocks of the network.
        batch: Sequences per step.
        lr: Highest learning rate.
        bidirectional: Whether blocks also run in reverse. Such a network cannot be streamed or exported to C.
        class_weight: None, "balanced", or the weight of each class in the loss, by its label.
        missing: What to do with NaN: "refuse", "zero", "previous" or "interpolate", see `data.from_arrays`.
        padded: Whether NaN at the end of a sequence is padding, to be cut.
        validation: Fraction held out to select the best weights; None holds out a tenth of at least 1,000 sequences
            and otherwise keeps the last weights.
        random_state: Seed, an integer or a RandomState.
        folder: Where to keep the run, for `resofire evaluate`, `export`, `stream` and the like; None: nowhere.
        verbose: Whether to show progress on standard error.

    Attributes:
        classes_: The labels, sorted.
        model_: The trained network, a `resofire.models.Classifier`; `resofire.deploy` streams and exports it.
        config_: All settings of the run, a `resofire.train.RunConfig`.
        n_features_in_: Time steps of X, if it was an array.

    Example:
        >>> classifier = SpikingClassifier(max_minutes=1).fit(X, y)
        >>> cross_val_score(SpikingClassifier(max_epochs=20), X, y)
    """

    def __init__(
        self, *, max_minutes: float | None = 5.0, max_epochs: int | None = None, features: int | None = None,
        depth: int | None = None, batch: int | None = None, lr: float | None = None, bidirectional: bool = False,
        class_weight: Any = None, missing: str = "refuse", padded: bool = False, validation: float | None = None,
        random_state: Any = 0, folder: str | os.PathLike[str] | None = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self.max_minutes, self.max_epochs = max_minutes, max_epochs
        self.features, self.depth, self.batch, self.lr = features, depth, batch, lr
        self.bidirectional, self.class_weight = bidirectional, class_weight
        self.missing, self.padded, self.validation = missing, padded, validation
        self.random_state, self.folder, self.verbose = random_state, folder, verbose

    def fit(self, X: Any, y: Any) -> "SpikingClassifier":
        """Train a network.

        Args:
            X: Sequences: [n, T], [n, T, C], or a list of [T_i] or [T_i, C].
            y: Labels: [n], or one for each step.

        Returns:
            The estimator.

        Raises:
            DataError: The data are unfit; it is a ValueError that names the sequence.
        """
        counts = {"max_epochs": self.max_epochs, "features": self.features, "depth": self.depth, "batch": self.batch}
        automatic.require_positive("SpikingClassifier", {"max_minutes": self.max_minutes, "lr": self.lr}, counts)
        X, y, per_step = self._checked(X, y)
        flat = np.concatenate(y) if per_step else y
        check_classification_targets(flat)
        self.classes_, numbers = np.unique(flat, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"SpikingClassifier: y must have at least two classes, got 1 class: {str(self.classes_[0])!r}"
            )
        names = [str(label) for label in self.classes_]
        labels = [names[number] for number in numbers]
        if per_step:
            ends = np.cumsum([len(row) for row in y])
            labels = [labels[end - len(row) : end] for row, end in zip(y, ends, strict=True)]
        task = from_arrays(
            X, labels, validation=self.validation, missing=self.missing, padded=self.padded, class_names=names
        )
        try:
            self.config_ = automatic.choose(
                task, minutes=self.max_minutes, epochs=self.max_epochs, seed=self._seed(), features=self.features,
                depth=self.depth, bidirectional=self.bidirectional, batch=self.batch, lr=self.lr,
                class_weights=self._class_weights(task),
            )  # fmt: skip
        except train.RunError as error:
            raise ValueError(f"SpikingClassifier: {error}") from None
        with tempfile.TemporaryDirectory() if self.folder is None else nullcontext(self.folder) as folder:
            self._train(task, Path(folder))
        self.per_step_ = per_step
        return self

    def predict(self, X: Any) -> Any:
        """The most likely label of each sequence, [n]; of each step, [n, T] or a list of [T_i]."""
        scores = self._scores(X)
        if isinstance(scores, list):
            return [self.classes_[each.argmax(-1)] for each in scores]
        return self.classes_[scores.argmax(-1)]

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, [n, classes]; of each step, [n, T, classes] or a list of [T_i, classes]."""
        scores = self._scores(X)
        return [_softmax(each) for each in scores] if isinstance(scores, list) else _softmax(scores)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of correct answers; with a label for each step, of steps."""
        if not getattr(self, "per_step_", False):
            return float(super().score(X, y, sample_weight))
        right = [np.asarray(a) == np.asarray(b) for a, b in zip(self.predict(X), y, strict=True)]
        return float(np.concatenate(right).mean())

    def _train(self, task: Task, folder: Path) -> None:
        with nullcontext() if self.verbose else silent():
            try:
                train.train(self.config_, task, folder)
            except train.Stopped as stopped:
                if stopped.code == 130:
                    raise KeyboardInterrupt from None
                raise RuntimeError(f"SpikingClassifier: {stopped}") from None
            except train.RunError as error:
                raise ValueError(f"SpikingClassifier: {error}") from None
        self.model_ = models.load(folder)

    def _checked(self, X: Any, y: Any) -> tuple[Any, Any, bool]:
        """X and y as arrays where they are, with scikit-learn's own checks; and whether labels are per step."""
        if _is_array(X):
            X = validate_data(self, X, dtype=np.float32, allow_nd=True, ensure_all_finite=self._finite())
        if y is None:
            raise ValueError("SpikingClassifier: requires y to be passed, but the target y is None")
        y = [np.asarray(row) for row in y] if isinstance(y, list | tuple) else np.asarray(y)
        per_step = len(y) > 0 and np.shape(y[0]) not in ((), (1,))
        if not per_step:
            y = column_or_1d(np.asarray(y), warn=True)
            if y.dtype.kind == "f" and not np.isfinite(y).all():
                raise ValueError("SpikingClassifier: Input y contains NaN or infinity")
        if len(y) != len(X):
            raise ValueError(f"SpikingClassifier: y must have {len(X)} labels, one per sequence, got {len(y)}")
        return X, y, per_step

    def _scores(self, X: Any) -> Any:
        """Logits in float64: [n, classes], with labels per step [n, T, classes] or a list of [T_i, classes]."""
        check_is_fitted(self)
        if _is_array(X):
            finite = self._finite()
            X = validate_data(self, X, reset=False, dtype=np.float32, allow_nd=True, ensure_all_finite=finite)
        sequences = read_sequences(Reading("SpikingClassifier", self.missing, self.padded), X)
        inputs = self.model_.config.inputs  # type: ignore[attr-defined] # a Classifier
        if sequences[0].shape[1] != inputs:
            raise ValueError(f"SpikingClassifier: X must have {inputs} channels, got {sequences[0].shape[1]}")
        logits: list[Any] = []
        size = max(1, PREDICTED // max(map(len, sequences)))
        for first in range(0, len(sequences), size):
            part = sequences[first : first + size]
            labels = np.zeros(len(part), np.int64)
            bounds = np.cumsum([0, *map(len, part)])
            split = Split(np.concatenate(part), labels, kind="values", bounds=bounds)
            with torch.no_grad():
                ((scores, _),) = predictions(self.model_, split.batches(len(part)))
            array = scores.double().cpu().numpy()
            logits += np.split(array[0], bounds[1:-1]) if self.per_step_ else [*array]
        lengths = {len(each) for each in logits} if self.per_step_ else {0}
        return np.stack(logits) if len(lengths) == 1 else logits

    def _finite(self) -> bool | str:
        return "allow-nan" if self.padded or self.missing != "refuse" else True

    def _seed(self) -> int:
        if self.random_state is None:
            return int(np.random.randint(2**31))
        state = self.random_state
        return int(state.randint(2**31)) if isinstance(state, np.random.RandomState) else int(state)

    def _class_weights(self, task: Task) -> tuple[float, ...] | None:
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            return automatic.balanced_weights(task)
        if isinstance(self.class_weight, Mapping):
            return tuple(float(self.class_weight.get(label, 1.0)) for label in self.classes_.tolist())
        raise ValueError(
            f"SpikingClassifier: class_weight must be None, 'balanced' or a weight for each class, "
            f"got {self.class_weight!r}"
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.padded or self.missing != "refuse"
        return tags


def _is_array(X: Any) -> bool:
    """Whether X is one array or something like it (a data frame, a sparse matrix), not a list of sequences."""
    if hasattr(X, "shape") or not isinstance(X, list | tuple):
        return True
    # Plain nested lists of one length are an array; arrays in a list are sequences.
    return all(isinstance(row, list) and len(row) == len(X[0]) for row in X) or not any(map(np.ndim, X[:1]))


def _softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)
