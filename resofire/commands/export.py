"""resofire export: a trained network as a file for other programs and devices, checked before it gets its name."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from .runs import SCALES_FROM, find_run, open_model, open_task, read_run, sequences
from .usage import UsageError, hint, require_writable

ENDINGS = {"nir": ".nir", "onnx": ".onnx", "onnx-step": "-step.onnx", "c": ".h", "safetensors": ".safetensors"}


@dataclass(frozen=True)
class Export:
    """Fold a trained network and write it for others: NIR, ONNX, C, safetensors. A file that disagrees is not kept."""

    model: tyro.conf.Positional[str]
    """A run folder, a file of weights, or the name of a network that comes with the package."""
    to: str
    """nir, onnx (whole sequences), onnx-step (one step, with its state), c (integers, one header) or safetensors."""
    out: Path | None = None
    """The file; otherwise one named after the network."""
    samples: int = 16
    """With how many sequences of its data set's training split it is checked."""
    weight_bits: int = 8
    """Of synapses in c: 8, 6 or 4."""
    state_bits: int = 16
    """Of states in c: 16, 24 or 32."""
    longest: int = 1024
    """Where they are cut; not for c."""
    data_dir: Path | None = None
    """Where the data set's files are; see resofire data."""
    json: bool = False
    """Print what was compared as JSON."""

    def run(self) -> int:
        from .. import deploy

        if self.to not in ENDINGS:
            raise UsageError(
                f"export: --to must be one of {', '.join(ENDINGS)}, got {self.to!r}{hint(self.to, ENDINGS)}"
            )
        for name in ("samples", "longest"):
            if getattr(self, name) < 1:
                raise UsageError(f"export: --{name} must be a positive integer, got {getattr(self, name)}")
        if self.to != "c" and (self.weight_bits, self.state_bits) != (8, 16):
            raise UsageError(f"export: --weight-bits and --state-bits are for c, got --to {self.to}")
        out = self.out or Path(Path(self.model).name + ENDINGS[self.to])
        require_writable("export: --out", out)
        model = open_model(self.model)
        try:
            samples, options = self._samples()
            said = deploy.export(model, self.to, out, samples, **options)
        except deploy.VerificationError as error:
            print(f"resofire: {error}", file=sys.stderr)
            return 1
        except (deploy.ExportError, TypeError) as error:
            raise UsageError(str(error)) from None
        if self.json:
            print(json.dumps(said, indent=2))
        else:
            print(f"{said['file']}: {said['bytes']:,} bytes")
            print(
                f"checked: {said['compared']}; {said['spikes_different']} of {said['spikes_compared']:,} spikes differ"
            )
            if "agreement" in said:
                print(f"in integers it gives the same answer as before in {100 * said['agreement']:.1f} % of them")
        return 0

    def _samples(self) -> tuple[list[Any], dict[str, Any]]:
        """Sequences to check with, and what the format is told besides."""
        from .. import train

        config = train.RunConfig.from_json(read_run(find_run(self.model))["config"])
        split = open_task(config, self.data_dir)["train"]
        if self.to != "c":
            return [x[: self.longest] for x in sequences(split, self.samples)[0]], {}
        scales, _ = sequences(split, SCALES_FROM)
        told = {"scales": scales, "weight_bits": self.weight_bits, "state_bits": self.state_bits}
        return sequences(split, self.samples, first=SCALES_FROM)[0], told
