"""The neuron explorer: one static page, drawn without any library. `docs/explorer.html` is what this file makes."""

from ..models.storage import SHIPPED
from ..train import load_samples
from .page import render

NEURONS = (
    ("lif", "LIF", "v ← e^(−Δ/τ) v + Δ input: decay alone."),
    ("prf", "PRF", "z ← e^(Δ(−1/τ + iθ)) z + Δ input: decay and rotation; its potential is the real part."),
    ("several", "PRF with several resonators", "A sum of resonators with frequencies from 0 to 2θ; it has no reset."),
)
# The shipped network whose samples the digit comes from, and which of them it is.
DIGIT = ("smnist", 0)


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
