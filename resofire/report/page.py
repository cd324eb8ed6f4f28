"""Pages as HTML: one file each, with everything inside, which opens from disk without a network."""

import base64
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
import plotly.offline

from .. import __version__
from ..models.storage import SHIPPED
from ..train import load_samples

PAGES = Path(__file__).parent / "pages"
LARGEST = 8_000_000
RUN = (
    ("summary", "Summary", ""),
    ("curves", "Learning curves", ""),
    ("answers", "Answers", ""),
    ("rasters", "Spikes", ""),
    ("plane", "Neurons", "Each temporal neuron by the frequency it resonates at and the number of steps it remembers."),
    ("rates", "Fire rates", "Spikes per neuron and time step, in each layer."),
    ("energy", "Energy", "Computed from operation counts and a cost table for 45 nm, not measured on a chip."),
    ("mistakes", "Most confident mistakes", ""),
)
COMPARISON = (
    ("runs", "Runs", ""),
    ("scores", "Accuracy", "Bars are 95 % intervals (Wilson)."),
    ("progress", "Learning curves", ""),
    ("tradeoff", "Accuracy and energy", "Energy is computed from operation counts and a cost table for 45 nm."),
    ("layers", "Fire rates", "Spikes per neuron and time step, in each layer."),
)
SCRIPTS = {
    "run": ("charts.js", "rasters.js", "page.js"),
    "comparison": ("charts.js", "rasters.js", "comparison.js", "page.js"),
}
SECTIONS = {"run": RUN, "comparison": COMPARISON}
# The neuron explorer, which is also docs/explorer.html.
NEURONS = (
    ("lif", "LIF", "v ← e^(−Δ/τ) v + Δ input: decay alone."),
    ("prf", "PRF", "z ← e^(Δ(−1/τ + iθ)) z + Δ input: decay and rotation; its potential is the real part."),
    ("several", "PRF with several resonators", "A sum of resonators with frequencies from 0 to 2θ; it has no reset."),
)
# The shipped network whose samples the digit comes from, and which of them it is.
DIGIT = ("smnist", 0)


def page(data: dict[str, Any], live: str = "") -> str:
    """A page as HTML.

    Args:
        data: What `run_data` or `comparison_data` returned.
        live: Where the page fetches newer data; "" for a page that stays as it is.

    Returns:
        The whole document. Names from the run are text in it and nothing else: they are escaped, and a policy in its
        head lets no other script run than those of the page.
    """
    kind = data["kind"]
    return render(
        "report.html", styles=("report.css",), scripts=SCRIPTS[kind], first=plotly.offline.get_plotlyjs(), data=data,
        title=f"{data['title']} · Resofire", sections=SECTIONS[kind], live=live, version=__version__,
    )  # fmt: skip


def explorer_page() -> str:
    """The neuron explorer as HTML, in one file that needs no network."""
    name, number = DIGIT
    samples = load_samples(SHIPPED / name)
    assert samples is not None  # every shipped network has samples
    pixels = samples["train"].stored[number].reshape(-1).tolist()
    return render(
        "explorer.html", styles=("report.css", "explorer.css"), scripts=("neurons.js", "explorer.js"),
        data={"pixels": pixels}, neurons=NEURONS,
    )  # fmt: skip


def render(
    template: str, *, styles: tuple[str, ...], scripts: tuple[str, ...], data: Any, first: str = "", **values: Any
) -> str:
    """A template of the pages with its styles, scripts and data inside.

    The scripts read `data` as JSON; `first` is the text of a script before them; the template names `values`.
    """
    texts = [_script(text) for text in (first, *map(source, scripts)) if text]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(template).render(
        css=markupsafe.Markup("".join(map(source, styles))), scripts=texts, data=embedded(data),
        hashes=markupsafe.Markup(" ".join(map(_hash, texts))), **values,
    )  # fmt: skip


def embedded(data: Any) -> markupsafe.Markup:
    """JSON that is safe inside a script element, whatever the texts in it; not-a-number becomes null."""
    text = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return markupsafe.Markup(text)


def source(name: str) -> str:
    """A file of the pages."""
    return (PAGES / name).read_text("utf-8")


def _script(text: str) -> markupsafe.Markup:
    return markupsafe.Markup(text.replace("</script", "<\\/script"))


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
