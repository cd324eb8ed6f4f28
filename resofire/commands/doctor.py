"""resofire doctor."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Doctor:
    """Tell versions, cores, which backends can run here and why others cannot."""

    json: bool = False
    """Print it as JSON."""

    def run(self) -> int:
        from .. import doctor

        found = doctor.examine()
        print(json.dumps(found, indent=2) if self.json else doctor.report(found))
        return 0 if found["works"] else 1
