"""The table of accuracy and energy on the page of the Long Range Arena."""

import pytest

import resofire
from resofire import measure, models, train
from resofire.paper import arena_energy

TITLES = {"listops": "ListOps", "text": "Text", "image": "Image", "pathfinder": "Pathfinder"}
PAPER = {"ListOps": 59.20, "Text": 86.33, "Image": 84.77, "Pathfinder": 91.76}


@pytest.fixture(scope="module")
def rows():
    return arena_energy.energies(TITLES, PAPER)


def test_every_shipped_network_of_these_tasks_has_a_row(rows):
    tasks = {name: train.RunConfig.from_json(train.read(models.find(name))["config"]).task for name in models.shipped()}
    assert {row["network"] for row in rows if row["network"]} == {name for name in tasks if tasks[name] in TITLES}
    assert [row["accuracy"] for row in rows if row["network"] is None] == [*PAPER.values()]


def test_a_row_is_what_the_record_and_the_account_say(rows):
    (row,) = [row for row in rows if row["network"] == "pathfinder-small"]
    recorded = train.recorded(models.find("pathfinder-small"))
    counts = measure.count_ops(resofire.pretrained("pathfinder-small"), (1024.0,), recorded["fire_rates"])
    assert row["accuracy"] == pytest.approx(100 * 17_372 / 20_000)
    assert row["audited"] == pytest.approx(measure.energy(counts).mj_per_inference)
    # Two directions are charged as one, and neither norm nor pool: the published figure is smaller.
    assert row["published"] < row["audited"]
    assert 0 < row["saving_audited"] < row["saving_published"] < 100


def test_the_paper_saves_what_it_prints(rows):
    (row,) = [row for row in rows if row["network"] is None and row["task"] == "ListOps"]
    assert row["saving_published"] == pytest.approx(100 * (1 - 0.075 / 5.104))
    assert row["fire_rate"] == pytest.approx(3.97, abs=0.005)


def test_the_section(rows):
    text = arena_energy.section(rows)
    assert "| Pathfinder | `pathfinder-small` | 86.86 | 67,846 |" in text
    assert "| Image | the paper's | 84.77 | 4.1M |" in text
    assert arena_energy.section([]) == ""
