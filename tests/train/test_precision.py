"""bfloat16 gradient products in a run: resolved once, recorded, given up on a CPU that cannot continue with them."""

import json
from dataclasses import replace

import pytest

from resofire import data, train
from resofire.models import Classifier
from resofire.nn import SDTCM
from resofire.ops import sdtcm
from resofire.recipes import digits_small
from resofire.train.precision import apply_gradient_dtype

BASE = digits_small()
CONFIG = replace(
    BASE, model=replace(BASE.model, features=8, depth=1), batch=50, steps=4, validate_every=2, checkpoint_minutes=0.0
)


@pytest.fixture
def cpu_with(monkeypatch):
    """Sets whether the CPU seems to have bfloat16. (Without it torch emulates the product: slow, but it runs.)"""
    return lambda present: monkeypatch.setattr(sdtcm, "has_bfloat16", lambda: present)


@pytest.mark.parametrize(
    ("asked", "present", "used"), [("auto", True, "bfloat16"), ("auto", False, "float32"), ("float32", True, "float32")]
)
def test_the_type_is_set_on_every_block(asked, present, used, cpu_with):
    cpu_with(present)
    model = Classifier(CONFIG.model)
    assert apply_gradient_dtype(model, asked) == used
    assert {module.gradient_dtype for module in model.modules() if isinstance(module, SDTCM)} == {used}


def test_a_run_records_it_and_resumes_in_float32_where_the_cpu_lacks_it(tmp_path, cpu_with, capsys):
    task, folder = data.load("digits"), tmp_path / "run"
    cpu_with(True)
    train.train(replace(CONFIG, gradient_dtype="auto"), task, folder)
    record = json.loads((folder / "run.json").read_text())
    assert (record["config"]["gradient_dtype"], record["gradient_dtype"]) == ("auto", "bfloat16")
    capsys.readouterr()
    for present in (True, False):
        (folder / "result.json").unlink()
        cpu_with(present)
        train.resume(folder, task)
        assert ("continuing with float32 gradients" in capsys.readouterr().err) == (not present)
    resumed = json.loads((folder / "run.json").read_text())["resumed"]
    assert [entry["gradient_dtype"] for entry in resumed] == ["bfloat16", "float32"]


def test_a_run_begun_in_float32_stays_there(tmp_path, cpu_with):
    """Also one that an older version began, whose record does not name a type."""
    task, folder = data.load("digits"), tmp_path / "run"
    cpu_with(False)
    train.train(replace(CONFIG, gradient_dtype="auto"), task, folder)
    cpu_with(True)
    for old in (False, True):
        (folder / "result.json").unlink()
        record = json.loads((folder / "run.json").read_text())
        if old:
            del record["gradient_dtype"], record["config"]["gradient_dtype"]
            (folder / "run.json").write_text(json.dumps(record))
        train.resume(folder, task)
        assert json.loads((folder / "run.json").read_text())["resumed"][-1]["gradient_dtype"] == "float32"


def test_refused_before_anything_is_written(tmp_path, cpu_with):
    cpu_with(False)
    with pytest.raises(train.RunError, match=r"train: gradient_dtype must be 'float32' on this CPU.*, got 'bfloat16'"):
        train.train(replace(CONFIG, gradient_dtype="bfloat16"), data.load("digits"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"RunConfig: gradient_dtype must be one of .*, got 'half'"):
        replace(CONFIG, gradient_dtype="half")
