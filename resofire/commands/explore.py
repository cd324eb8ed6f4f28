"""resofire explore: the neuron explorer."""

import webbrowser
from dataclasses import dataclass
from pathlib import Path

from ..atomic import write_atomic
from .parsing import Switch
from .usage import require_writable, writing


@dataclass(frozen=True)
class Explore:
    """Write the neuron explorer, a page with sliders for LIF and PRF."""

    out: Path = Path("explorer.html")
    """The file to write."""
    open: Switch = False
    """Open it in the browser."""

    def run(self) -> int:
        require_writable("explore: --out", self.out)
        from ..report import explorer_page

        with writing("explore: --out", self.out):
            write_atomic(self.out, explorer_page().encode())
        print(self.out)
        if self.open:
            webbrowser.open(self.out.resolve().as_uri())
        return 0
