"""Folded networks into files for others. A file gets its name only after it was run and agreed with the network.

Each format is written into a folder beside the target, read again, run on samples and held against the reference (see
`agreement`): in the precision of the network, and, where a format can be written in float64, a second time in that,
where nothing but a tie of 1e-12 is excused. Then the file is renamed. If anything fails, nothing is left.
"""

import importlib
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from .agreement import Agreement, DisagreementError, compare, running
from .fold import fold
from .folded import Array, Folded, unlike, wrong
from .reference import Walked, walk

# Less than this share of the spikes compared is no check: the rest came after ties.
ENOUGH = 0.5
# Of the answers that integers give, so many must be those of the network they were made from.
LEAST_AGREEMENT = 0.8
OPTIONAL = ("h5py", "nir", "onnx", "onnxruntime")


class ExportError(ValueError):
    """Why nothing was written. Its text is one sentence."""


class VerificationError(ExportError):
    """The file could be made, but what it computes is not what the network computes."""


@dataclass(frozen=True)
class Format:
    """How a file is written and run again, as "module.function" of this package: modules are loaded when needed."""

    write: str
    """(folded, file) -> None"""
    replay: str
    """(file, samples) -> list[Walked]"""
    running: bool = False
    """Whether a replay gives the scores after every step."""
    twin: bool = True
    """Whether it is checked in float64 as well."""


FORMATS = {
    "nir": Format("nir.write", "nir.replay"),
    "onnx": Format("onnx.write", "onnxruntime.replay"),
    "onnx-step": Format("onnx.write_step", "onnxruntime.replay_steps", running=True),
    "safetensors": Format("storage.save", "storage.replay", twin=False),
}
# Formats with a check of their own: (folded, out, samples, **options) -> report.
OWN = {"c": "export.export_c"}


def export(
    model: Folded | nn.Module, to: str, out: str | os.PathLike[str], samples: list[Array], **options: Any
) -> dict[str, Any]:
    """Writes a network to the file `out` and says what was compared; ExportError, and no file, if it disagrees.

    model      a folded network, or one that can be folded
    to         nir, onnx, onnx-step, safetensors or c
    samples    sequences to check it with, and for c to choose scales from: values [T, inputs] or tokens [T]
    options    for c those of `quantize`, e.g. weight_bits; other formats have none
    """
    if to not in FORMATS and to not in OWN:
        raise ExportError(f"export: to must be one of {', '.join((*FORMATS, *OWN))}, got {to!r}")
    out = Path(out)
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise ExportError(f"export: out must be a file in a folder that exists, got {out}")
    folded = model if isinstance(model, Folded) else fold(model)
    fault = wrong(folded)
    if fault:
        raise ExportError(f"export: the folded network cannot be used: {fault}")
    samples = _require(folded, samples)
    if to in OWN:
        own: dict[str, Any] = _function(to, OWN[to])(folded, out, samples, **options)
        return own
    if options:
        raise ExportError(f"export: to {to!r} takes no options, got {', '.join(options)}")
    form = FORMATS[to]
    write, replay = _function(to, form.write), _function(to, form.replay)
    return verified(
        folded, to, out, samples, write, replay, each_step=form.running, twin=form.twin and folded.dtype != np.float64
    )


def verified(
    folded: Folded,
    to: str,
    out: Path,
    samples: list[Array],
    write: Callable[[Folded, Path], object],
    replay: Callable[[Path, list[Array]], list[Walked]],
    *,
    each_step: bool = False,
    twin: bool = False,
) -> dict[str, Any]:
    """Writes, checks and only then names a file.

    each_step     a replay gives the scores after every step
    twin          the same is written and checked in float64 first
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".export-", dir=out.absolute().parent) as folder:
            rough = Path(folder) / out.name
            exact: dict[str, Any] = {}
            if twin:
                wide = folded.astype(np.float64)
                seen = _check(wide, to, rough, samples, write, replay, each_step=each_step)
                exact = {"float64": _said(wide, samples, seen)}
            seen = _check(folded, to, rough, samples, write, replay, each_step=each_step)
            with rough.open("rb+") as stream:
                os.fsync(stream.fileno())
            size = rough.stat().st_size
            rough.replace(out)
    except OSError as error:
        raise ExportError(f"export: {out} could not be written: {error.strerror or error}") from None
    return {"format": to, "file": str(out), "bytes": size, **_said(folded, samples, seen), **exact}


def export_c(
    folded: Folded, out: Path, samples: list[Array], *, scales: list[Array] | None = None, **options: Any
) -> dict[str, Any]:
    """A C header of the network in integers.

    The compiled header and the simulation must agree bit for bit; integers and the folded network in most of their
    answers. Names in the header begin with that of the file.

    scales     sequences from which scales are chosen; otherwise the samples
    options    those of `quantize`
    """
    from . import c
    from .compare import compare as compared
    from .quantize import quantize

    name = re.sub(r"\W", "_", out.stem, flags=re.ASCII)
    if not name[:1].isalpha() or name in c.KEYWORDS.split():
        name = f"network_{name}"
    name = name[:63]
    try:
        quantized = quantize(folded, samples if scales is None else _require(folded, scales), **options)
        (beside,) = compared(folded, quantized, samples, np.zeros(len(samples), np.int64))
        if beside.agreement < LEAST_AGREEMENT:
            raise VerificationError(
                f"export: in integers the network gives the same answer in {beside.agreement:.0%} of the "
                f"samples, less than {LEAST_AGREEMENT:.0%}; give more or longer sequences to choose scales from, or "
                f"more bits"
            )
        with tempfile.TemporaryDirectory(prefix=".export-", dir=out.absolute().parent) as folder:
            rough = Path(folder) / out.name
            c.write(quantized, rough, name)
            found = c.verify(rough, quantized, samples, name)
            if not found.equal:
                raise VerificationError(
                    f"export: the c file, compiled by {found.compiler}, disagrees with the network in integers in "
                    f"{len(found.different)} of {found.sequences} sequences"
                )
            size = rough.stat().st_size
            rough.replace(out)
    except ExportError:
        raise
    except (ValueError, RuntimeError, OSError) as error:
        raise ExportError(f"export: {' '.join(str(error).split())[:400]}") from None
    steps = sum(map(len, samples))
    return {
        "format": "c",
        "file": str(out),
        "bytes": size,
        "compared": f"bits of scores and spikes of {len(samples)} sequences ({steps} steps) with the simulation in "
        f"integers, compiled by {found.compiler}",
        "sequences": len(samples),
        "steps": steps,
        "dtype": "integers",
        "largest_deviation": 0.0,
        "spikes_compared": steps * sum(len(layer.rows) for layer in folded.layers),
        "spikes_different": 0,
        "agreement": beside.agreement,
        "spikes_apart": list(beside.divergence),
    }


def _check(
    folded: Folded,
    to: str,
    rough: Path,
    samples: list[Array],
    write: Callable[[Folded, Path], object],
    replay: Callable[[Path, list[Array]], list[Walked]],
    *,
    each_step: bool,
) -> Agreement:
    seen = Agreement()
    refer = running if each_step else walk
    try:
        write(folded, rough)
        again = []
        for sample, found in zip(samples, replay(rough, samples), strict=True):
            end = compare(folded, sample, refer(folded, sample), found, seen)
            if folded.causal and 0 < end < len(sample):
                again.append(sample[:end])
        # Scores are those of a whole sequence: one with a tie is run once more up to it.
        if again and not each_step:
            short = Agreement(deviation=seen.deviation)
            for sample, found in zip(again, replay(rough, again), strict=True):
                compare(folded, sample, walk(folded, sample), found, short)
            seen.scores, seen.deviation = seen.scores + short.scores, short.deviation
    except DisagreementError as error:
        raise VerificationError(
            f"export: the {to} file disagrees with the network in {folded.dtype}: {error}"
        ) from None
    except ValueError as error:
        raise ExportError(f"export: {error}") from None
    if seen.compared < ENOUGH * seen.spikes or not seen.scores:
        raise ExportError(
            f"export: the {to} file could not be checked: after ties, {seen.compared} of {seen.spikes} spikes and "
            f"{seen.scores} scores were left to compare; use other or shorter samples"
        )
    return seen


def _said(folded: Folded, samples: list[Array], seen: Agreement) -> dict[str, Any]:
    steps = sum(map(len, samples))
    return {
        "compared": f"scores and spikes of {len(samples)} sequences ({steps} steps) with the reference, {folded.dtype}",
        "sequences": len(samples),
        "steps": steps,
        "dtype": str(folded.dtype),
        "largest_deviation": seen.deviation,
        "spikes_compared": seen.compared,
        "spikes_different": seen.different,
    }


def _function(to: str, name: str) -> Callable[..., Any]:
    module, function = name.split(".")
    try:
        return getattr(importlib.import_module(f"{__package__}.{module}"), function)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        raise ExportError(f"export: to {to!r} needs the package {error.name}: pip install 'resofire[export]'") from None


def _require(folded: Folded, samples: list[Array]) -> list[Array]:
    samples = [np.asarray(sample) for sample in samples]
    if not samples:
        raise ExportError("export: samples must be at least one sequence, got none")
    for sample in samples:
        fault = unlike(folded, sample)
        if fault:
            raise ExportError(f"export: samples must be {fault}")
    return samples
