"""Networks as files for other programs. A file is written only after its content was run and agreed with the network.
The exception is C without a compiler: it is written unverified, and the report says so."""

import copy
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..atomic import require_folder, require_regular, write_atomic, write_folder
from ..models import Network
from ..nn.folded import Array, Folded
from .fold import fold
from .formats import FORMATS, ExportError, Format, VerificationError
from .reference import run

# The network is compared with its folded form on this many samples of at most this many steps.
CHECKED, LONGEST, TOLERANCE = 2, 1_000, 1e-6


def export(
    model: Folded | nn.Module, to: str, out: str | os.PathLike[str], samples: list[Array], *,
    class_names: tuple[str, ...] | None = None, readout: str | None = None, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Write a network to a file, after verifying its content in memory.

    Args:
        model: A folded network, or one that can be folded.
        to: A name in `FORMATS`: nir, onnx, onnx-step, c, safetensors, or one of your own (`register`).
        out: The file. If it exists, it must be a regular file; for c a folder.
        samples: Sequences to verify it on (and for c to calibrate on): values [T, inputs] or tokens [T].
        class_names: Names of the classes, used if the network has none.
        readout: mean, last, leaky:STEPS or window:STEPS instead of the network's own pool; see `Folded.with_readout`.
        options: For c `numbers`, "fixed" or "float"; for fixed point also those of `quantize` and `scales`, sequences
            to calibrate on. Other formats have none.

    Returns:
        What was written and verified: `format`, `file`, `bytes` (of all files) and the report of `Format.verify`; for
        a folder also the names of its `files`.

    Raises:
        ExportError: Nothing was written; the message says why.
        VerificationError: In particular, the content does not compute what the network computes.
        FoldError: The network cannot be folded.
    """
    form = FORMATS.get(to)
    if form is None:
        raise ExportError(f"export: to must be one of {', '.join(FORMATS)}, got {to!r}")
    out = Path(out)
    _check_target(out, form.folder)
    folded = model if isinstance(model, Folded) else fold(model)
    if folded.class_names is None and class_names is not None:
        folded = replace(folded, class_names=tuple(class_names))
    if readout is not None:
        try:
            folded = folded.with_readout(readout)
        except ValueError as error:
            raise ExportError(f"export: {error}") from None
    fault = folded.fault()
    if fault:
        raise ExportError(f"export: the folded network cannot be used: {fault}")
    if folded.equation_owner is not None and not form.equations:
        raise ExportError(
            f"export: to {to!r} takes PRF and LIF neurons, got {folded.equation_owner}; c takes any neuron, with "
            f"numbers 'float' (--to c --numbers float)"
        )
    samples = _checked_samples(folded, samples)
    if isinstance(model, Network):
        _check_fold(model, samples)
    try:
        has_suffix = out.name.endswith(form.suffix) and bool(form.suffix)
        name = out.name.removesuffix(form.suffix) if has_suffix else out.stem
        network = form.prepare(folded, samples, name, **options)
        content = form.write(network)
        report = form.verify(network, content, samples)
    except VerificationError as error:
        raise VerificationError(f"export: the {to} file {error}") from None
    except ModuleNotFoundError as error:
        raise _missing_package(to, form, error) from None
    except OSError as error:
        raise ExportError(f"export: to {to!r} could not be verified: {error.strerror or error}") from None
    except (ValueError, RuntimeError) as error:
        raise ExportError(f"export: to {to!r}: {' '.join(str(error).split())[:400]}") from None
    try:
        if isinstance(content, bytes):
            write_atomic(out, content)
            return {"format": to, "file": str(out), "bytes": len(content), **report}
        write_folder(out, content)
    except OSError as error:
        raise ExportError(f"export: {out} could not be written: {error.strerror or error}") from None
    size = sum(map(len, content.values()))
    return {"format": to, "file": str(out), "files": sorted(content), "bytes": size, **report}


def _check_fold(model: Network, samples: list[Array]) -> None:
    """Compare the network with its folded form in float64, where rounding decides no spike.

    Folding is a method of blocks and neurons, which may be a user's own: a wrong one must not pass as verified.
    """
    double = copy.deepcopy(model).double().eval()
    folded = fold(double, "float64")
    for sample in samples[:CHECKED]:
        x = sample[:LONGEST]
        batch = torch.from_numpy(np.ascontiguousarray(x))[None]
        with torch.no_grad():
            expected = double(batch if folded.tokens else batch.double())[0].numpy()
        difference = float(np.abs(run(folded, x).scores - expected).max())
        if not difference <= TOLERANCE * (1 + float(np.abs(expected).max())):
            raise VerificationError(
                f"export: the folded network differs from the network by {difference:.3g} in a score; "
                f"check the `fold` methods of its blocks and neurons"
            )


def _checked_samples(folded: Folded, samples: list[Array]) -> list[Array]:
    samples = [np.asarray(sample) for sample in samples]
    if not samples:
        raise ExportError("export: samples must be at least one sequence, got none")
    for sample in samples:
        fault = folded.input_fault(sample)
        if fault:
            raise ExportError(f"export: samples must be {fault}")
    return samples


def _check_target(out: Path, folder: bool) -> None:
    """Refuse a target that cannot be written, before any work is done."""
    if not out.absolute().parent.is_dir():
        raise ExportError(f"export: out must be {'' if folder else 'a file '}in a folder that exists, got {out}")
    try:
        (require_folder if folder else require_regular)(out)
    except OSError as error:
        raise ExportError(f"export: {out} could not be written: {error.strerror or error}") from None


def _missing_package(to: str, form: Format, error: ModuleNotFoundError) -> Exception:
    if error.name not in form.packages:
        return error
    return ExportError(f"export: to {to!r} needs the package {error.name}: pip install 'resofire[export]'")
