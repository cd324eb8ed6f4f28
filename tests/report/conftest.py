"""A small run with hostile names, and a browser."""

import json
import shutil
from pathlib import Path

import pytest
from hostile_run import FOLDER, TASK, config, task

from resofire import train
from resofire.train.progress import silent

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A finished run in a folder with a hostile name; not to be changed."""
    folder = tmp_path_factory.mktemp("report") / FOLDER
    with silent():
        train.train(config(), task(), folder)
    return folder


@pytest.fixture
def copied(run, tmp_path):
    """A copy of it that may be changed."""
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.fixture
def begun(copied):
    """A run before its first row of figures."""
    for name in ("result.json", "metrics.csv", "model.safetensors", "model.safetensors.sha256", "config.json"):
        (copied / name).unlink(missing_ok=True)
    assert json.loads((copied / "run.json").read_text())["config"]["name"] == TASK
    return copied


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, headless."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}: apt-get install chromium")
    with playwright.sync_playwright() as opened:
        started = opened.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """A function that opens a page; afterwards nothing may have failed in any of them, nor asked for the network."""
    contexts, problems = [], []

    def open_page(address, *, width=1100, dark=False, wait="body[data-ready]"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=False
        )
        # A machine that does much else at the same time is slow, not broken.
        context.set_default_timeout(180_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else 0)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: None if _local(request.url) else problems.append(request.url))
        page.goto(address if "://" in str(address) else Path(address).as_uri())
        page.wait_for_selector(wait)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def _local(address):
    return address.startswith(("file:", "data:", "blob:", "http://127.0.0.1:"))
