"""Pages in a real browser: drawn without errors, by keyboard, narrow, dark and on paper; hostile names run nothing."""

import base64
import json
import threading
from dataclasses import replace

import pytest
from hostile_run import CLASSES, TASK, config, task, visible_charts

from resofire import report, train
from resofire.models.storage import SHIPPED
from resofire.report.live import Live, Server
from resofire.train.progress import silent

PLOTS = ".plot .main-svg:first-child"
# Curves, confusions, calibration, raster, plane, rates, two of energy.
CHARTS = 8
FOCUSED = "(document.activeElement.closest('section') || {}).id + ' ' + document.activeElement.tagName"


@pytest.fixture(scope="module")
def page_file(run, tmp_path_factory):
    file = tmp_path_factory.mktemp("pages") / "report <b>🎉.html"
    file.write_text(report.page(report.run_data(run)), "utf-8")
    return file


def untouched(page):
    """No name has become markup or run as a script."""
    return page.evaluate("window.ran === undefined && !document.querySelector('main b:not(.tile b), main i, main img')")


def test_a_run_is_drawn_and_nothing_of_its_names_runs(opened, page_file, run):
    page = opened(page_file)
    assert visible_charts(page, PLOTS) == CHARTS
    assert untouched(page)
    text = page.text_content("body")
    assert all(name in text for name in CLASSES)
    assert TASK in page.title()
    assert str(run) in page.text_content("#about")
    # Names of classes in the charts themselves.
    shown = page.text_content("#answers .plot") + page.text_content("#rasters .plot")
    assert "<script>win" in shown
    assert "🎉 %{x} &lt;b&gt;" in shown
    assert page.evaluate("document.querySelectorAll('#mistakes figure').length") > 0


@pytest.mark.parametrize(("width", "dark"), [(1100, True), (400, False)])
def test_it_fits_the_window_in_light_and_dark(opened, page_file, width, dark):
    page = opened(page_file, width=width, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert visible_charts(page, PLOTS) == CHARTS
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 22, 26)" if dark else "rgb(255, 255, 255)")
    fill = page.evaluate("document.querySelector('.plot .main-svg').style.background")
    assert fill == ground


def test_on_paper_it_is_light_and_complete(opened, page_file, tmp_path):
    page = opened(page_file, dark=True)
    before = page.get_attribute("body", "data-ready")
    page.emulate_media(media="print")
    page.wait_for_function("before => document.body.dataset.ready !== before", arg=before)
    assert page.evaluate("document.querySelector('.plot .main-svg').style.background") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert visible_charts(page, PLOTS) == CHARTS
    assert page.pdf(path=str(tmp_path / "page.pdf")).startswith(b"%PDF")


def test_everything_is_reachable_by_keyboard(opened, page_file):
    page, reached = opened(page_file), []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
    assert {"rasters SELECT", "rasters DIV", "plane SELECT", "answers DIV"} <= {*reached}
    before = page.text_content("#rasters .plot")
    page.focus("#rasters select")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("before => document.querySelector('#rasters .plot').textContent !== before", arg=before)
    page.focus("#rasters .plot")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert "block 1, temporal, neuron 1, step 2: " in page.text_content("#potential")


def test_pointing_at_a_neuron_shows_its_potential(opened, page_file):
    """The words agree with the bytes of the raster."""
    page = opened(page_file)
    data = json.loads(page.text_content("#data"))
    page.evaluate("document.querySelector('#rasters .plot').scrollIntoView({block: 'end', behavior: 'instant'})")
    box = page.locator("#rasters .plot .heatmaplayer").last.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.52, box["y"] + box["height"] * 0.03)
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.02)
    page.wait_for_function("() => document.querySelector('#tip').textContent.includes('neuron 0, step 1')")
    assert page.is_visible("#tip")
    words = page.text_content("#tip")
    assert words == page.text_content("#potential")
    sample = data["rasters"][0]
    assert words.startswith("block 1, temporal, neuron 0, step 1")
    step = int(words.split("step ")[1].split(":")[0])
    byte = int.from_bytes(base64.b64decode(sample["cells"])[step : step + 1], signed=True)
    assert ("spike" in words) == (byte >= 0)
    distance = abs(byte if byte >= 0 else byte + 1) / 127 * sample["layers"][0]["scale"]
    assert float(words.split("potential ")[1].split()[0]) == pytest.approx(distance, rel=1e-2)


def test_choosing_a_layer_changes_the_plane(opened, page_file):
    page = opened(page_file)
    count = "document.querySelector('#plane .plot').data[1].x.length"
    assert page.evaluate(count) == 16
    page.select_option("#plane select", "1")
    assert page.evaluate(count) == 8


def test_a_run_without_any_epoch(opened, begun, tmp_path):
    file = tmp_path / "begun.html"
    file.write_text(report.page(report.run_data(begun)), "utf-8")
    page = opened(file)
    assert "No step has been recorded yet." in page.text_content("#curves")
    assert "has not saved a network yet" in page.text_content("#rasters")
    assert untouched(page)


@pytest.mark.deep
def test_two_hundred_layers(opened, tmp_path):
    settings = config(steps=1, validate_every=1)
    settings = replace(settings, model=replace(settings.model, depth=100, features=4))
    with silent():
        train.train(settings, task(), tmp_path / "run")
    data = report.run_data(tmp_path / "run")
    assert len(data["rasters"][0]["layers"]) == 200
    file = tmp_path / "deep.html"
    file.write_text(report.page(data), "utf-8")
    assert file.stat().st_size < 8_000_000
    page = opened(file)
    assert visible_charts(page, PLOTS) == CHARTS


def test_a_comparison_is_drawn(opened, run, begun, tmp_path):
    file = tmp_path / "comparison.html"
    names = (CLASSES[0], "digits", TASK)
    file.write_text(report.page(report.comparison_data([run, SHIPPED / "digits", begun], names=names)), "utf-8")
    page = opened(file, width=400)
    assert visible_charts(page, PLOTS) == 4
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert untouched(page)
    assert CLASSES[0] in page.text_content("#runs")
    before = page.evaluate("document.querySelector('#tradeoff .plot').data[0].x[0]")
    page.select_option("#tradeoff select", "parameters")
    assert page.evaluate("document.querySelector('#tradeoff .plot').data[0].x[0]") != before


@pytest.mark.deep
def test_a_live_page_follows_the_run_without_reloading(opened, tmp_path):
    """From before the first step to the end, in two windows; what a person chose stays chosen."""
    folder, moments = tmp_path / "run", {}

    class Pause(train.Callback):
        def on_start(self, run):
            live = Live(folder, report.Request(count=4))
            moments["server"] = Server(live)
            threading.Thread(target=moments["server"].serve_forever, daemon=True).start()
            moments["pages"] = [opened(moments["server"].address) for _ in range(2)]
            for page in moments["pages"]:
                page.evaluate("window.kept = true")
                assert "No step has been recorded yet." in page.text_content("#curves")

        def on_step(self, run, figures):
            moments["server"].live.refresh()
            if run.step == 6:
                for page in moments["pages"]:
                    page.wait_for_selector("#curves .plot .main-svg")
                    assert "Live: 4 steps so far" in page.text_content("#state")
                    page.select_option("#rasters select", "2")

    with silent():
        train.train(config(), task(), folder, callbacks=[Pause()])
    server = moments["server"]
    server.live.refresh()
    for page in moments["pages"]:
        page.wait_for_function("() => document.querySelector('#state').textContent === 'The training has finished.'")
        assert page.evaluate("window.kept") is True
        assert page.input_value("#rasters select") == "2"
        assert "test accuracy" in page.text_content("#summary")
        page.goto("about:blank")
    server.shutdown()
    server.server_close()
