"""SpikingClassifier as scikit-learn and its users see it."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

import resofire
from resofire import SpikingClassifier, deploy, train

SMALL = {"max_minutes": None, "max_epochs": 6, "features": 8, "depth": 1, "batch": 8}


def waves(count=48, steps=24):
    """Slow and fast waves far from zero, [count, steps], and what they are called."""
    labels = np.arange(count) % 2
    random = np.random.RandomState(0)
    x = (
        300
        + 5 * np.sin(np.arange(steps) * (0.2 + 0.9 * labels[:, None]) + random.rand(count, 1))
        + random.randn(count, steps)
    )
    return x, np.array(["slow", "fast"])[labels]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("estimator") / "run"
    x, y = waves()
    return SpikingClassifier(**SMALL, folder=folder).fit(x, y), x, y, folder


def test_it_learns_and_predicts(fitted, capsys):
    classifier, x, y, folder = fitted
    assert classifier.classes_.tolist() == ["fast", "slow"]
    assert classifier.score(x, y) > 0.9
    probabilities = classifier.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(classifier.predict(x), classifier.classes_[probabilities.argmax(1)])
    assert capsys.readouterr() == ("", "")
    # Sequences of other lengths come as a list.
    np.testing.assert_allclose(classifier.predict_proba([*x[:3], x[0, :9]])[:3], probabilities[:3], atol=1e-5)
    # The run and the network in it are like any others.
    assert resofire.load(folder).config.class_names == ("fast", "slow")
    assert train.recorded(folder)["accuracy"].keys() == {"train"}
    scores = deploy.Stream(classifier.model_).feed(x[:1, :, None])
    assert classifier.classes_[scores[0].argmax()] == classifier.predict(x[:1])[0]


def test_copies(fitted):
    classifier, x, _, _ = fitted
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(x), classifier.predict_proba(x))
    assert clone(classifier).get_params() == classifier.get_params()
    assert not hasattr(clone(classifier), "model_")


def test_pipelines_and_searches():
    x, y = waves(24)
    classifier = SpikingClassifier(**{**SMALL, "max_epochs": 1})
    assert cross_val_score(make_pipeline(FunctionTransformer(), classifier), x[..., None], y, cv=2).shape == (2,)
    search = GridSearchCV(classifier, {"features": [4, 8]}, cv=2).fit(x, y)
    assert search.best_params_["features"] in (4, 8)


def test_labels_for_each_step_and_missing_values():
    x, _ = waves(12)
    x[0, 3] = np.nan
    steps = (x > 300).astype(int)
    classifier = SpikingClassifier(**{**SMALL, "missing": "previous"}).fit(x[..., None], steps)
    assert classifier.predict(x[..., None]).shape == (12, 24)
    assert classifier.predict_proba([x[1], x[2, :5]])[1].shape == (5, 2)
    assert 0.3 < classifier.score(x, steps) <= 1


WRONG = [
    ({}, np.full((4, 3), np.nan), [0, 1, 0, 1], "Input X contains NaN"),
    ({}, [np.ones(3), np.ones((3, 2))], [0, 1], "x must have the same channels everywhere, sequence 1 has 2, sequence 0 has 1"),
    ({}, np.ones((4, 3)), [0, 1], "y must have 4 labels, one per sequence, got 2"),
    ({"max_epochs": -1}, np.ones((4, 3)), ["a", "b"] * 2, "SpikingClassifier: max_epochs must be a positive integer or None, got -1"),
    ({"max_minutes": "5"}, np.ones((4, 3)), ["a", "b"] * 2, "max_minutes must be a positive number or None, got '5'"),
    ({}, np.ones((4, 3)), ["a"] * 4, "got 1 class: 'a'"),
    ({}, np.ones((4, 3)), ["a"] * 4, "y must have at least two classes, got 1 class: .*'a'"),
    ({"class_weight": "even"}, np.ones((4, 3)), [0, 1] * 2, "class_weight must be None, 'balanced' or a weight for each class, got 'even'"),
    ({"features": 10**9, "max_minutes": 1}, np.ones((4, 3)), [0, 1] * 2, "SpikingClassifier: train: memory must be at least "),
    ({"missing": "drop"}, np.ones((4, 3)), [0, 1] * 2, "missing must be one of refuse, zero, previous, interpolate, got 'drop'"),
]  # fmt: skip


def test_one_sentence_for_what_is_wrong(subtests):
    for settings, x, y, message in WRONG:
        with subtests.test(message), pytest.raises(ValueError, match=message):
            SpikingClassifier(**{**SMALL, **settings}).fit(x, y)


def test_weights_of_classes():
    x, y = waves(24)
    classifier = SpikingClassifier(**{**SMALL, "max_epochs": 1, "class_weight": {"fast": 3.0}}).fit(x, y)
    assert classifier.config_.class_weights == (3.0, 1.0)
    classifier.set_params(class_weight="balanced").fit(x[:18], np.r_[y[:12], ["slow"] * 6])
    assert classifier.config_.class_weights == (18 / 12, 18 / 24)


@pytest.mark.deep
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(estimator, check, id=check.func.__name__)
        for estimator, check in estimator_checks_generator(SpikingClassifier(max_minutes=None, max_epochs=20))
    ],
)
def test_scikit_learn_s_own_checks(estimator, check):
    """No failure is expected; checks for pandas and other array libraries are skipped where these are missing."""
    check(estimator)
