"""Export formats: write a network as bytes, and verify them by running them."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ...nn.folded import Array, Folded
from ..reference import Result, run
from .agreement import Agreement, DisagreementError, run_each_step

# If ties leave less than this share of the spikes to compare, the file counts as not verified.
LEAST_COMPARED = 0.5


class ExportError(ValueError):
    """Why nothing was written, in one sentence."""


class VerificationError(ExportError):
    """The file could be made, but it does not compute what the network computes."""


class Format(ABC):
    """A file format for networks. Subclass it and `register` an instance; `export` and `resofire export` then offer it.

    `export` calls `prepare`, `write` and `verify` in this order, and writes the file only if all three succeed.
    """

    suffix: str = ""
    """Suffix of file names, with the dot."""
    folder: bool = False
    """Whether it is a folder: `write` then returns the content of each file by name."""
    equations: bool = False
    """Whether it takes neurons of any equation (`folded.Equation`); otherwise `export` refuses them."""
    packages: tuple[str, ...] = ()
    """Optional packages it imports; if one is missing, `export` says how to install it."""

    def prepare(self, folded: Folded, samples: list[Array], name: str, **options: Any) -> Any:
        """Turn a folded network into what `write` and `verify` take; by default the network itself.

        Args:
            folded: The network.
            samples: Sequences to verify it on, values [T, inputs] or tokens [T].
            name: The name of the file or folder, without suffix.
            options: What the caller of `export` asks for.
        """
        if options:
            raise ExportError(f"this format takes no options, got {', '.join(options)}")
        return folded

    @abstractmethod
    def write(self, network: Any) -> bytes | dict[str, bytes]:
        """The content of the file, or of each file of a folder by name.

        Raises:
            ValueError: The format cannot express this network.
        """

    @abstractmethod
    def verify(self, network: Any, content: Any, samples: list[Array]) -> dict[str, Any]:
        """Run what was written on the samples and compare it with the network.

        Args:
            network: What was exported.
            content: What `write` returned.
            samples: Sequences to compare on.

        Returns:
            What was compared, as values for JSON: `compared` (a clause), `sequences`, `steps`, `dtype`,
            `largest_deviation` (of scores), `spikes_compared`, `spikes_different`. `run` is False if nothing could be
            run here, and `compared` then says why.

        Raises:
            VerificationError: They disagree. The message completes "the file ...".
        """


class FloatFormat(Format):
    """A format that computes in floats. It is verified against the reference up to rounding.

    Where the file can be written in float64, it is also verified in that, with ties of 1e-12 only.
    """

    each_step: bool = False
    """Whether `replay` returns the scores after every step."""
    in_float64: bool = True
    """Whether to verify a second file in float64."""

    @abstractmethod
    def write(self, network: Folded) -> bytes:
        """The content of the file."""

    @abstractmethod
    def replay(self, content: bytes, samples: list[Array]) -> list[Result]:
        """Run the file on each sample."""

    def verify(self, network: Folded, content: bytes, samples: list[Array]) -> dict[str, Any]:
        """Compare scores and spikes with the reference, up to rounding; see `Format.verify`."""
        report = self._report(network, content, samples)
        if self.in_float64 and network.dtype != np.float64:
            double = network.astype(np.float64)
            report["float64"] = self._report(double, self.write(double), samples)
        return report

    def _report(self, folded: Folded, content: bytes, samples: list[Array]) -> dict[str, Any]:
        try:
            agreement = self._compare(folded, content, samples)
        except DisagreementError as error:
            raise VerificationError(f"disagrees with the network in {folded.dtype}: {error}") from None
        if agreement.compared < LEAST_COMPARED * agreement.spikes or not agreement.scores:
            raise ExportError(
                f"the file could not be verified: after ties, {agreement.compared} of {agreement.spikes} spikes and "
                f"{agreement.scores} scores were left to compare; use other or shorter samples"
            )
        steps = sum(map(len, samples))
        return {
            "compared": f"scores and spikes of {len(samples)} sequences ({steps} steps) with the reference, "
            f"{folded.dtype}",
            "sequences": len(samples),
            "steps": steps,
            "dtype": str(folded.dtype),
            "largest_deviation": agreement.deviation,
            "spikes_compared": agreement.compared,
            "spikes_different": agreement.different,
        }

    def _compare(self, folded: Folded, content: bytes, samples: list[Array]) -> Agreement:
        agreement, cut = Agreement(), []
        reference = run_each_step if self.each_step else run
        for sample, result in zip(samples, self.replay(content, samples), strict=True):
            end = agreement.add(folded, sample, reference(folded, sample), result)
            if folded.causal and 0 < end < len(sample):
                cut.append(sample[:end])
        # The scores of a whole sequence include what follows a tie: run it again up to there.
        if cut and not self.each_step:
            until_tie = Agreement(deviation=agreement.deviation)
            for sample, result in zip(cut, self.replay(content, cut), strict=True):
                until_tie.add(folded, sample, run(folded, sample), result)
            agreement.scores += until_tie.scores
            agreement.deviation = until_tie.deviation
        return agreement
