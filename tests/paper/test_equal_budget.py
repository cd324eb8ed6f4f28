"""Rows trained here under one budget: only from files of `resofire compare`, apart from the copied numbers."""

import json

import pytest

from resofire.paper import equal_budget, long_range_arena, sequential_mnist
from resofire.paper.workplace import Workplace

ROW = {
    "network": "s4d", "title": "S4D", "accuracy": 0.6543, "spread": 0.01, "seeds": [0, 1], "threads": [2],
    "tested": 2000, "parameters": 36_000, "epochs": 1.25, "seconds_per_epoch": 300.0, "fire_rate": None, "model": {},
    "energy": {"audited": 0.5, "published": None}, "no_nonlinear": False, "no_mac": False,
}  # fmt: skip
TABLE = {
    "task": "listops", "recipe": "listops-small", "budget": {"minutes": 15.0, "epochs": None, "steps": None},
    "rows": [ROW, {**ROW, "title": "SD-TCM", "accuracy": 0.7, "fire_rate": 0.05, "no_mac": True}],
}  # fmt: skip


@pytest.fixture
def records(tmp_path, monkeypatch):
    """No records but those of the test, and no runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(equal_budget, "RECORDS", tmp_path / "records")
    (tmp_path / "records").mkdir()
    return tmp_path / "records"


def test_without_records_there_are_no_rows(records, tmp_path):
    for page in (long_range_arena, sequential_mnist):
        result = page.run(Workplace("x", 1.0, tmp_path / "runs"))
        assert result["equal_budget"] == []
        assert "equal budget" not in page.page(result)


def test_records_become_rows_of_their_page_only(records, tmp_path):
    (records / "listops.json").write_text(json.dumps(TABLE))
    (records / "broken.json").write_text('{"task": "listops"}')
    other = tmp_path / "runs" / "compare-smnist" / "compare.json"
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps({**TABLE, "task": "smnist", "recipe": "smnist-small"}))
    workplace = Workplace("x", 1.0, tmp_path / "runs" / "reproduce")
    arena, mnist = (page.run(workplace) for page in (long_range_arena, sequential_mnist))
    assert [each["recipe"] for each in arena["equal_budget"]] == ["listops-small"]
    assert [each["recipe"] for each in mnist["equal_budget"]] == ["smnist-small"]
    copied, _, trained = long_range_arena.page(arena).partition("## Trained here, equal budget")
    assert "65.43" not in copied
    assert "`listops-small`, 15 minutes each (threads: 2), 2,000 test sequences:" in trained
    first, second = (line for line in trained.splitlines() if "36,000" in line)
    assert first == "| SD-TCM | 70.00 ± 1.00 | 2 | 36,000 | 1.25 | 5.0 % | 0.5 | no | yes |"
    assert second == "| S4D | 65.43 ± 1.00 | 2 | 36,000 | 1.25 |  | 0.5 | no | no |"


def test_a_record_comes_before_a_run_of_the_same_budget(records, tmp_path):
    (records / "listops.json").write_text(json.dumps(TABLE))
    run = tmp_path / "runs" / "compare-listops" / "compare.json"
    run.parent.mkdir(parents=True)
    run.write_text(json.dumps({**TABLE, "rows": [ROW]}))
    assert [len(each["rows"]) for each in equal_budget.comparisons(("listops",), tmp_path / "runs")] == [2]
