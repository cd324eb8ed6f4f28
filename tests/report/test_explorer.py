"""The neuron explorer: its arithmetic, in JavaScript, against the operators; and the page in a browser."""

import itertools
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile_run import visible_charts

from resofire import cli, nn, ops
from resofire.report import explorer_page
from resofire.report.page import PAGES

ROOT = Path(__file__).parents[2]
STEPS = 240
OMEGAS = np.linspace(0, np.pi, 9)
PIXELS = [(37 * i) % 256 for i in range(784)]
# Fast and slow, low and high thresholds, with and without reset, one resonator and several.
SETTINGS = [
    {"delta": delta, "theta": theta, "tau": tau, "threshold": threshold, "reset": reset, "count": count}
    for delta, theta, tau, threshold, reset, count in itertools.product(
        (0.01, 0.3, 1.0), (0.0, 0.157, 2.9), (1.5, 600.0), (0.05, 1.5), ("none", "soft"), (2, 5)
    )
]
INPUTS = [
    ("pulses", {"amplitude": 3.0, "first": 40, "second": 200, "shift": 10}),
    ("step", {"amplitude": 0.7, "first": 20, "second": 150}),
    ("chirp", {"amplitude": 1.0}),
    ("noise", {"amplitude": 2.0, "seed": 7}),
    ("digit", {"amplitude": 5.0, "row": 6, "pixels": PIXELS}),
]
PROGRAM = """
const N = require(process.argv[1]);
const { settings, inputs, steps, omegas } = JSON.parse(require("fs").readFileSync(0, "utf-8"));
const out = inputs.map(([kind, given]) => {
  const current = N.input(kind, steps, given);
  return { current, runs: settings.map((set) => {
    const several = N.bands(set.theta, set.count), { theta, count, ...rest } = set;
    return {
      prf: N.prf(current, set), lif: N.lif(current, { ...rest, beta: Math.exp(-set.delta / set.tau), gain: set.delta }),
      several: N.resonators(current, { ...rest, ...several }), bands: several,
      kernel: N.kernel(steps, { ...rest, ...several }), response: N.response(omegas, { ...rest, ...several }),
    };
  }) };
});
process.stdout.write(JSON.stringify(out));
"""


@pytest.fixture(scope="module")
def computed():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    given = {"settings": SETTINGS, "inputs": INPUTS, "steps": STEPS, "omegas": OMEGAS.tolist()}
    done = subprocess.run(
        [node, "-e", PROGRAM, str(PAGES / "neurons.js")], input=json.dumps(given), capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    return json.loads(done.stdout)


def columns(key):
    return torch.tensor([each[key] for each in SETTINGS], dtype=torch.float64)


def agree(found, exact, fired, threshold):
    """Potentials to 1e-6 of their size; equal spikes but for potentials at the threshold itself."""
    found_u, found_s = (np.array([each[key] for each in found]).T for key in ("potential", "spikes"))
    assert np.abs(found_u - exact.numpy()).max() <= 1e-6 * max(1.0, np.abs(exact.numpy()).max())
    clear = np.abs(exact.numpy() - threshold.numpy()) > 1e-9
    assert clear.mean() > 0.99
    assert (found_s == fired.numpy())[clear].all()
    return found_s


@pytest.mark.parametrize("reset", ["none", "soft"])
@pytest.mark.parametrize("place", range(len(INPUTS)), ids=[kind for kind, _ in INPUTS])
def test_prf_and_lif_agree_with_the_operators(computed, place, reset):
    current = torch.tensor(computed[place]["current"], dtype=torch.float64)
    assert current.abs().max() > 0
    chosen = torch.tensor([each["reset"] == reset for each in SETTINGS])
    delta, theta, tau, threshold = (columns(key)[chosen] for key in ("delta", "theta", "tau", "threshold"))
    phi_re, phi_im = ops.prf_coefficients(delta, theta, tau)
    options = {"threshold": threshold, "reset": reset, "backend": "reference"}
    calls = {
        "prf": lambda x, state: ops.prf(x, phi_re, phi_im, delta, state=state, **options),
        "lif": lambda x, state: ops.lif(x * delta, torch.exp(-delta / tau), state=state, **options),
    }
    x = current[None, :, None].expand(1, -1, len(delta)).contiguous()
    for name, call in calls.items():
        fired, state, exact = call(x, None)[0][0], None, []
        for t in range(STEPS):
            _, state = call(x[:, t : t + 1], state)
            # The state is the potential after the reset.
            exact.append(state.u[0] + (threshold * fired[t] if reset == "soft" else 0))
        found = [run[name] for run, each in zip(computed[place]["runs"], chosen, strict=True) if each]
        assert agree(found, torch.stack(exact), fired, threshold).sum() > 0


@pytest.mark.parametrize("place", range(len(INPUTS)), ids=[kind for kind, _ in INPUTS])
def test_several_resonators_agree_with_the_neuron(computed, place):
    current = torch.tensor(computed[place]["current"], dtype=torch.float64)
    for set_, run in list(zip(SETTINGS, computed[place]["runs"], strict=True))[::7]:
        count = set_["count"]
        fixed = {"train_theta": False, "train_tau": False, "train_delta": False, "gain": "delta", "history": 0}
        neuron = nn.DRF(1, resonators=count, threshold=set_["threshold"], theta=1.0, **fixed).double()
        with torch.no_grad():
            neuron.delta.fill_(set_["delta"])
            neuron.tau.fill_(set_["tau"])
            neuron.theta.copy_(torch.tensor(run["bands"]["thetas"], dtype=torch.float64))
            neuron.mix.copy_(torch.tensor(run["bands"]["mix"], dtype=torch.float64))
        trace = neuron.trace(current[None, :, None])
        exact = trace.argument[0, :, 0].numpy() + set_["threshold"]
        found = np.array(run["several"]["potential"])
        assert np.abs(found - exact).max() <= 1e-6 * max(1.0, np.abs(exact).max())
        clear = np.abs(exact - set_["threshold"]) > 1e-9
        assert (np.array(run["several"]["spikes"]) == trace.spikes[0, :, 0].numpy())[clear].all()


def test_kernel_and_frequency_response_are_those_of_the_operator(computed):
    for set_, run in list(zip(SETTINGS, computed[0]["runs"], strict=True))[::7]:
        thetas, mix = (torch.tensor(run["bands"][key], dtype=torch.float64) for key in ("thetas", "mix"))
        delta = torch.full_like(thetas, set_["delta"])
        phi_re, phi_im = ops.prf_coefficients(delta, thetas, torch.full_like(thetas, set_["tau"]))
        state, kernel = None, []
        for t in range(STEPS):
            x = torch.full((1, 1, len(thetas)), float(t == 0), dtype=torch.float64)
            _, state = ops.prf(x, phi_re, phi_im, delta, threshold=1e9, state=state, backend="reference")
            kernel.append(float(mix @ state.u[0]))
        assert np.abs(np.array(run["kernel"]) - kernel).max() < 1e-6
        # Σ_k φ^k e^{-iωk} of the real part, summed in closed form by numpy.
        phi = (phi_re + 1j * phi_im).numpy()[:, None]
        wave = np.exp(-1j * OMEGAS)[None]
        both = set_["delta"] / 2 * (1 / (1 - phi * wave) + 1 / (1 - phi.conj() * wave))
        exact = np.abs((mix.numpy()[:, None] * both).sum(0))
        assert np.allclose(run["response"], exact, rtol=1e-6)
        if set_["tau"] / set_["delta"] < 10:
            # The kernel has ended: its own transform says the same.
            summed = np.abs(
                (np.array(run["kernel"])[:, None] * np.exp(-1j * np.arange(STEPS)[:, None] * OMEGAS)).sum(0)
            )
            assert np.allclose(run["response"], summed, atol=1e-6)


def test_the_page_in_docs_is_the_one_that_is_made():
    assert (ROOT / "docs" / "explorer.html").read_text("utf-8") == explorer_page(), (
        "run: resofire explore --out docs/explorer.html"
    )


def test_the_command_writes_the_page(tmp_path, capsys):
    out = tmp_path / "page.html"
    assert cli.main(["explore", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text("utf-8") == explorer_page()
    assert cli.main(["explore", "--out", str(tmp_path)]) == 2
    assert "explore: --out must name a file" in capsys.readouterr().err


SLIDER = "(({min, max, value}) => ({min, max, value}))(document.activeElement)"


def drawn(page):
    return page.evaluate("[...document.querySelectorAll('svg.chart')].map((svg) => svg.innerHTML)")


@pytest.mark.deep
def test_every_slider_changes_the_drawing(opened):
    page = opened(ROOT / "docs" / "explorer.html")
    assert len(drawn(page)) == 10
    page.select_option("select[name=reset]", "soft")
    for kind in ("pulses", "step", "chirp", "noise", "digit"):
        page.select_option("select[name=input]", kind)
        for name in page.eval_on_selector_all(".slider:not([hidden]) input", "all => all.map((each) => each.name)"):
            before = drawn(page)
            page.focus(f"input[name={name}]")
            low = page.evaluate("({min, max, value}) => 2 * value < Number(min) + Number(max)", page.evaluate(SLIDER))
            for _ in range(4):
                page.keyboard.press("ArrowRight" if low else "ArrowLeft")
            assert drawn(page) != before, (kind, name)


def test_the_buttons_show_the_problem(opened):
    """As in resofire.paper.problem: nothing is left, the two cases look the same, the two cases differ."""
    page, found = opened(ROOT / "docs" / "explorer.html"), {}
    for name in ("fast", "slow", "resonance"):
        page.click(f"button[data-preset={name}]")
        words = page.text_content("#prf-words")
        found[name] = float(words.split("differ by ")[1].rstrip("."))
    assert found["fast"] < 1e-6
    assert 0.005 < found["slow"] < 0.05
    assert found["resonance"] > 20 * found["slow"]


def test_it_is_reachable_by_keyboard_and_fits_a_phone(opened):
    page = opened(ROOT / "docs" / "explorer.html", width=400, dark=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.name || document.activeElement.dataset.preset || ''"))
    assert reached >= {"input", "reset", "fast", "slow", "resonance", "delta", "theta", "tau", "threshold", "shift"}
    assert visible_charts(page, "svg.chart") == 10
