"""resofire export: a trained network as a file for other programs and devices, verified before it gets its name."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .parsing import File, Folder, Model, Readout, Switch
from .runs import SCALES_FROM, find_run, named_classes, open_model, open_samples, open_task, sequences
from .usage import UsageError, require_one_of, require_positive, require_writable, writing

ENDINGS = {"nir": ".nir", "onnx": ".onnx", "onnx-step": "-step.onnx", "c": "-c", "safetensors": ".safetensors"}


@dataclass(frozen=True)
class Export:
    """Export to C, NIR, ONNX or safetensors, verified by running the file."""

    model: Model
    """A shipped network, a run folder or a weights file."""
    to: str
    """nir, onnx (whole sequences), onnx-step (one step with its state), c (header and test) or safetensors."""
    out: File = None
    """Target file; for c a folder, whatever its suffix. Default: named after the network."""
    samples: int = 16
    """Training sequences to verify the file with; a shipped network comes with 80."""
    longest: int = 1024
    """Truncate these sequences to this many steps; not for c in fixed point."""
    numbers: str = "fixed"
    """Numbers of c: fixed (fixed point: PRF and LIF neurons) or float (any neuron)."""
    weight_bits: int = 8
    """Width of weights in fixed point: 8, 6 or 4."""
    state_bits: int = 16
    """Width of states in fixed point: 16, 24 or 32."""
    readout: Readout = None
    """Pooling over time: mean, last, leaky:STEPS (a mean that forgets) or window:STEPS. Default: as trained."""
    data_dir: Folder = None
    """Folder with the files of the data set, used instead of the sample sequences; see resofire data --help."""
    json: Switch = False
    """Print what was verified as JSON."""

    def run(self) -> int:
        from .. import deploy

        require_one_of("export: --to", self.to, ENDINGS)
        require_positive("export: --samples", self.samples)
        require_positive("export: --longest", self.longest)
        require_one_of("export: --numbers", self.numbers, ("fixed", "float"))
        if self.to != "c" and (self.weight_bits, self.state_bits, self.numbers) != (8, 16, "fixed"):
            raise UsageError(f"export: --numbers, --weight-bits and --state-bits are for c, got --to {self.to}")
        if self.numbers == "float" and (self.weight_bits, self.state_bits) != (8, 16):
            raise UsageError("export: --weight-bits and --state-bits are for fixed point, got --numbers float")
        out = self.out or Path(Path(self.model).name + ENDINGS[self.to])
        require_writable("export: --out", out, folder=self.to == "c")
        model = open_model(self.model)
        samples, options = self._samples()
        options["readout"] = self.readout
        try:
            with writing("export: --out", out):
                checked = deploy.export(model, self.to, out, samples, **options)
        except deploy.VerificationError as error:
            print(f"resofire: {error}", file=sys.stderr)
            return 1
        except (deploy.ExportError, TypeError) as error:
            raise UsageError(str(error)) from None
        if self.json:
            print(json.dumps(checked, indent=2))
            return 0
        files = f" in {', '.join(checked['files'])}" if "files" in checked else ""
        print(f"{checked['file']}: {checked['bytes']:,} bytes{files}")
        if checked.get("run", True):
            spikes = f"{checked['spikes_different']} of {checked['spikes_compared']:,} spikes differ"
            print(f"verified: {checked['compared']}; {spikes}")
        else:
            print(f"not run: {checked['compared']}; {checked['files'][-1]} checks it where there is one")
        if "agreement" in checked:
            print(f"fixed point agrees with float on {100 * checked['agreement']:.1f} % of the samples")
        return 0

    def _samples(self) -> tuple[list[Any], dict[str, Any]]:
        """Sequences to verify with, and options of the export that depend on the data."""
        folder = find_run(self.model)
        shipped = open_samples(folder) if self.data_dir is None else None
        task = shipped or open_task(folder, self.data_dir)
        split = task["train"]
        options: dict[str, Any] = {"class_names": named_classes(task.class_names)}
        if shipped is not None and self.samples > len(split):
            raise UsageError(
                f"export: --samples must be at most {len(split)}, the sample sequences of {self.model}, got "
                f"{self.samples}; name the folder of its data set with --data-dir for more"
            )
        if self.to == "c":
            options["numbers"] = self.numbers
        if self.to != "c" or self.numbers == "float":
            x, _ = sequences(split, self.samples, shuffle=shipped is None)
            return [each[: self.longest] for each in x], options
        scales, _ = sequences(split, SCALES_FROM, shuffle=shipped is None)
        options |= {"scales": scales, "weight_bits": self.weight_bits, "state_bits": self.state_bits}
        # Other sequences than those the scales come from, if there are enough.
        first = max(0, min(SCALES_FROM, len(split) - self.samples))
        return sequences(split, self.samples, first=first, shuffle=shipped is None)[0], options
