"""Networks that standardise their input: raw values go in everywhere, far from zero, and classes keep their names."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from resofire import data, deploy, models, train
from resofire.models import ClassifierConfig
from resofire.nn import PRFConfig

NAMES = ("idle", 'é "run??/" */')
CONFIG = ClassifierConfig(
    inputs=3, classes=2, features=16, depth=2, neuron=PRFConfig(tau=5.0, delta=(0.05, 1.0)), standardise=True,
    class_names=NAMES,
)  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small network trained on sensors with offsets, one of which never changes."""
    random = np.random.RandomState(0)
    labels = np.arange(80) % 2
    waves = np.sin(np.linspace(0, 12, 50) * (1 + labels[:, None]))
    x = 20.5 + 0.1 * waves[..., None] * [1, 500, 0] + random.randn(80, 50, 3) * [0.02, 3, 0] + [0, -1e4, 7]
    task = data.from_arrays(x, [NAMES[label] for label in labels], test=0.2, class_names=NAMES)
    folder = tmp_path_factory.mktemp("run")
    config = train.RunConfig(name="raw", task="own", model=CONFIG, batch=8, steps=30)
    result = train.train(config, task, folder).result
    return models.load(folder), task, folder, result


def test_the_input_is_standardised_by_the_training_data(trained):
    model, task, _, result = trained
    x = task["train"].stored.astype(np.float64)
    encoder = model.encoder
    np.testing.assert_allclose(encoder.input_mean, x.mean((0, 1)), rtol=1e-6)
    np.testing.assert_allclose(1 / encoder.input_scale[:2], x.std((0, 1))[:2], rtol=1e-4)
    assert float(encoder.input_scale[2]) == 1
    plain = replace(CONFIG, standardise=False).build().double().eval()
    standard = copy.deepcopy(model).double()
    plain.load_state_dict({key: value for key, value in standard.state_dict().items() if key in plain.state_dict()})
    raw = torch.from_numpy(x[:4])
    centred = (raw - standard.encoder.input_mean) * standard.encoder.input_scale
    torch.testing.assert_close(standard(raw), plain(centred), rtol=0, atol=1e-12)
    assert result["classes"].keys() == {*NAMES}
    assert sum(correct for correct, _ in result["classes"].values()) == result["correct"]["test"][0]


def test_stream_and_steps_equal_the_network_on_raw_values(trained):
    model, task, *_ = trained
    double = copy.deepcopy(model).double()
    x = torch.from_numpy(task["test"].stored[:2].astype(np.float64))
    expected = double(x).detach().numpy()
    stream = deploy.Stream(double, 2)
    np.testing.assert_allclose(stream.feed(x.numpy()), expected, atol=1e-9)
    state = None
    for step in x.unbind(1):
        logits, state = double.step(step, state)
    np.testing.assert_allclose(logits.detach(), expected, atol=1e-9)
    single = deploy.Stream(model, 2).feed(x.numpy())
    np.testing.assert_allclose(single, model(x.float()).detach(), atol=1e-2)


@pytest.mark.parametrize("to", ["c", "c float", "nir", "onnx", "onnx-step", "safetensors"])
def test_exports_take_raw_values(trained, to, tmp_path):
    model, task, *_ = trained
    samples = [*task["train"].stored[:6]]
    to, _, numbers = to.partition(" ")
    options = {"numbers": numbers} if numbers else {}
    report = deploy.export(model, to, tmp_path / "file", samples, **options)
    assert report["spikes_compared"] > 0
    if to == "c":
        text = (tmp_path / "file" / "file.h").read_text()
        assert '"idle",\n        "\\303\\251 \\042run\\077\\077/\\042 */",' in text
        assert ("_origin[" in text) == bool(numbers)
        assert numbers or report["agreement"] >= 0.8
    if to == "safetensors":
        loaded = deploy.load(tmp_path / "file")
        assert loaded.class_names == NAMES
        np.testing.assert_array_equal(loaded.origin, model.encoder.input_mean)


def test_names_and_statistics_that_do_not_fit():
    with pytest.raises(ValueError, match="class_names must be 2, one for each class, got 3"):
        replace(CONFIG, class_names=("a", "b", "c"))
    with pytest.raises(ValueError, match="standardise must be False for tokens"):
        replace(CONFIG, inputs=None, vocabulary=5)
    with pytest.raises(RuntimeError, match="must have standardise=True"):
        replace(CONFIG, standardise=False).build().encoder.standardise([0.0] * 3, [1.0] * 3)
    task = data.from_arrays(np.zeros((20, 5, 3)), ["a", "b"] * 10)
    with pytest.raises(train.RunError, match=r"model.class_names must be those of own, \('a', 'b'\), got \('idle', "):
        train.train(train.RunConfig(name="x", task="own", model=CONFIG, batch=4), task, "nowhere")
