"""Export formats, by name. Each imports its packages only when it is used."""

from typing import Any

from ...nn.folded import Array, Folded
from ..reference import Result
from .format import ExportError, FloatFormat, Format, VerificationError

__all__ = ["FORMATS", "ExportError", "FloatFormat", "Format", "VerificationError", "register"]


class NIR(FloatFormat):
    """A NIR graph, for neuromorphic tools."""

    suffix = ".nir"
    packages = ("nir", "h5py")

    def write(self, network: Folded) -> bytes:
        from . import nir

        return nir.write(network)

    def replay(self, content: bytes, samples: list[Array]) -> list[Result]:
        from . import nir

        return nir.replay(content, samples)


class ONNX(FloatFormat):
    """An ONNX graph of whole sequences."""

    suffix = ".onnx"
    packages = ("onnx", "onnxruntime")

    def write(self, network: Folded) -> bytes:
        from . import onnx

        return bytes(onnx.sequence(network).SerializeToString())

    def replay(self, content: bytes, samples: list[Array]) -> list[Result]:
        from . import onnxruntime

        session = onnxruntime.SequenceSession(content)
        return [session.walk(sample) for sample in samples]


class ONNXStep(FloatFormat):
    """An ONNX graph of one time step, with the state as inputs and outputs."""

    suffix = "-step.onnx"
    packages = ("onnx", "onnxruntime")
    each_step = True

    def write(self, network: Folded) -> bytes:
        from . import onnx

        return bytes(onnx.step(network).SerializeToString())

    def replay(self, content: bytes, samples: list[Array]) -> list[Result]:
        from . import onnxruntime

        session = onnxruntime.StepSession(content)
        return [session.walk(sample) for sample in samples]


class Safetensors(FloatFormat):
    """The folded arrays, for `resofire stream` and `deploy.load`."""

    suffix = ".safetensors"
    in_float64 = False

    def write(self, network: Folded) -> bytes:
        from . import safetensors

        return safetensors.encode(network)

    def replay(self, content: bytes, samples: list[Array]) -> list[Result]:
        from . import safetensors

        return safetensors.replay(content, samples)


class C(Format):
    """A folder of C99: a header and its test.

    Options: `numbers`, "fixed" or "float"; for fixed point also those of `quantize`, and `scales`, sequences to
    calibrate on.
    """

    suffix = "-c"
    folder = True
    equations = True

    def prepare(self, folded: Folded, samples: list[Array], name: str, **options: Any) -> Any:
        from . import c

        return c.prepare(folded, samples, name, **options)

    def write(self, network: Any) -> dict[str, bytes]:
        return {name: text.encode("ascii") for name, text in network.files().items()}

    def verify(self, network: Any, content: Any, samples: list[Array]) -> dict[str, Any]:
        from . import c

        return c.report(network, {name: data.decode("ascii") for name, data in content.items()}, samples)


FORMATS: dict[str, Format] = {
    "nir": NIR(),
    "onnx": ONNX(),
    "onnx-step": ONNXStep(),
    "c": C(),
    "safetensors": Safetensors(),
}


def register(name: str, form: Format) -> None:
    """Add a format of your own.

    Args:
        name: What `export(..., to=name)` and `resofire export --to` call it.
        form: The format.

    Raises:
        TypeError: It is not a `Format`.
        ValueError: The name is taken.
    """
    if not isinstance(form, Format):
        raise TypeError(f"register: form must be a Format, got {type(form).__name__}")
    if name in FORMATS:
        raise ValueError(f"register: name must be new, got {name!r}, which is {FORMATS[name]!r}")
    FORMATS[name] = form
