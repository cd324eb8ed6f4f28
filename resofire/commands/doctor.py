"""resofire doctor."""

import json
from dataclasses import dataclass

from .parsing import Switch


@dataclass(frozen=True)
class Doctor:
    """Show versions and backends, and check that PRF and LIF run."""

    json: Switch = False
    """Print JSON."""

    def run(self) -> int:
        from .. import doctor

        facts = doctor.examine()
        print(json.dumps(facts, indent=2) if self.json else doctor.report(facts))
        return 0 if facts["works"] else 1
