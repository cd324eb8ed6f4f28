"""resofire stream: a trained network on a stream of values, tokens or samples, step by step as on a device."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from .output import LiveLine
from .parsing import Folder, Model, Readout, Switch
from .runs import Metadata, find_run, open_model, open_samples, open_task, read_metadata
from .usage import UsageError, require_positive


@dataclass(frozen=True)
class Stream:
    """Run a network step by step on a file or standard input."""

    model: Model
    """A shipped network, a run folder or a weights file, also an exported one."""
    file: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[FILE]", help_behavior_hint="")] = None
    """Text (one line per step), a wav, or an npy [steps] or [steps, inputs]. Default, or -: standard input."""
    readout: Readout = None
    """Pooling over time: mean, last, leaky:STEPS (a mean that forgets) or window:STEPS. Default: as trained."""
    chunk: int = 64
    """Maximum number of steps to read before the network runs."""
    text: Switch = False
    """Read the input as text, for networks that read characters."""
    data_dir: Folder = None
    """Folder with the files of the data set, for --text without sample sequences; see resofire data --help."""
    json: Switch = False
    """Print only the final result, as JSON."""

    def run(self) -> int:
        from .. import deploy

        require_positive("stream: --chunk", self.chunk)
        try:
            folded, names, metadata = self._network()
            if self.readout is not None:
                folded = folded.with_readout(self.readout)
            stream = deploy.Stream(folded)
        except (TypeError, ValueError) as error:
            raise UsageError(f"stream: {str(error).removeprefix('stream: ')}") from None
        line, scores, ranges = LiveLine(self.json), None, metadata.ranges
        try:
            for chunk in framed(self._chunks(folded, metadata), metadata.frame):
                _require_usable(chunk, folded)
                outside = None if ranges is None else _outside(chunk[0], ranges)
                if outside is not None:
                    step, warning = outside
                    line.note(f"resofire: step {int(stream.steps[0]) + step + 1:,}: {warning}")
                    ranges = None
                scores = stream.feed(chunk)[0]
                if line.due():
                    line.show(_text(_result(names, stream, scores)))
        except KeyboardInterrupt:
            # A stream from standard input may have no other end.
            if scores is None:
                raise
        finally:
            line.close()
        if scores is None:
            raise UsageError(f"stream: {self.file or 'standard input'} must hold at least one step, got none")
        result = _result(names, stream, scores)
        print(json.dumps(result, indent=2) if self.json else _text(result))
        return 0

    def _network(self) -> tuple[Any, list[str], Metadata]:
        """The folded network, a name for each layer of neurons, and what its run knows about the data."""
        from .. import deploy, models
        from ..nn import Neuron, SpatialNeuron

        if deploy.holds_folded(models.find(self.model)):
            folded = deploy.load(self.model)
            return folded, [f"layers.{number}" for number in range(len(folded.layers))], Metadata()
        model = open_model(self.model)
        names = [name for name, part in model.named_modules() if isinstance(part, Neuron | SpatialNeuron)]
        folded = deploy.fold(model)
        metadata = read_metadata(find_run(self.model), len(folded.bias), None if folded.tokens else len(folded.table))
        return dataclasses.replace(folded, class_names=folded.class_names or metadata.class_names), names, metadata

    def _chunks(self, folded: Any, metadata: Metadata) -> Iterator[Any]:
        """The input, not yet framed: values [1, steps, channels] or tokens [1, steps]."""
        import numpy as np

        width = 1 if folded.tokens else len(folded.table) // metadata.frame

        if self.text:
            with self._opened() as lines:
                ids = _characters(lines, self._symbols(folded))
                for part in chunked(ids, self.chunk, at_once=True):
                    yield np.array([part])
            return
        ending = Path(self.file or "").suffix.lower()
        if ending in (".wav", ".npy"):
            values = self._wav(folded, metadata, width) if ending == ".wav" else self._npy(folded, width)
            for at in range(0, len(values), self.chunk):
                yield np.array(values[None, at : at + self.chunk])
            return
        live = self.file in (None, "-")
        with self._opened() as lines:
            steps = (
                [] if number == 1 and not live and _is_header(text) else _numbers(text, number, width, folded.tokens)
                for number, text in enumerate(lines, 1)
            )
            # What a person or a sensor writes line by line is answered line by line.
            for part in chunked(steps, self.chunk, at_once=live):
                yield np.array([part]) if folded.tokens else np.array([part], np.float64).reshape(1, -1, width)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Iterable[str]]:
        name = self.file if self.file not in (None, "-") else None
        # A process may start without a standard input.
        if name is None and (sys.stdin is None or sys.stdin.closed):
            raise UsageError("stream: standard input is closed; name a file")
        try:
            if name is None:
                yield sys.stdin
            else:
                with open(name, encoding="utf-8") as lines:
                    yield lines
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise UsageError(f"stream: {name or 'standard input'} cannot be read: {reason}") from None

    def _wav(self, folded: Any, metadata: Metadata, width: int) -> Any:
        """The samples of a wav, [T, width]."""
        from ..data import DataError
        from ..data.own.binary import read_wav

        file = Path(self.file or "")
        try:
            values, rate = read_wav(file, file.read_bytes())
        except DataError as error:
            raise UsageError(f"stream: {str(error).removeprefix('from_path: ')}") from None
        except OSError as error:
            raise UsageError(f"stream: {file} cannot be read: {error.strerror}") from None
        if folded.tokens or width != values.shape[1]:
            channels = f"{values.shape[1]} channel{'s' if values.shape[1] > 1 else ''}"
            takes = "tokens" if folded.tokens else f"{width} values at a step"
            raise UsageError(f"stream: {file} is a wav of {channels}, but {self.model} takes {takes}")
        if metadata.rate not in (None, rate):
            raise UsageError(f"stream: {file} must have {metadata.rate} samples a second, as in training, got {rate}")
        return values

    def _npy(self, folded: Any, width: int) -> Any:
        """The array of an npy, [T] tokens or [T, width] values; long ones stay on the disk."""
        import numpy as np

        from ..data.archives import BROKEN

        try:
            # Anything may be in a file: a damaged header makes NumPy raise almost anything.
            array = np.load(self.file or "", mmap_mode="r", allow_pickle=False)
        except (*BROKEN, KeyError, TypeError, AttributeError, SyntaxError) as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
            raise UsageError(f"stream: {self.file} cannot be read: {reason}") from None
        if not isinstance(array, np.ndarray):
            raise UsageError(f"stream: {self.file} must hold one array, got an archive")
        if not folded.tokens and width == 1 and array.ndim == 1:
            array = array[:, None]
        steps = array.shape[0] if array.ndim else 0
        kinds, what, shape = "fiu", "numbers", [steps, width]
        if folded.tokens:
            kinds, what, shape = "iu", "integers", [steps]
        if array.dtype.kind not in kinds or list(array.shape) != shape:
            form = ", ".join(["steps", *map(str, shape[1:])])
            raise UsageError(f"stream: {self.file} must hold {what} [{form}], got {array.dtype} {list(array.shape)}")
        return array

    def _symbols(self, folded: Any) -> dict[str, int]:
        """The token of each character or byte that the network reads."""
        folder = find_run(self.model)
        task = (open_samples(folder) if self.data_dir is None else None) or open_task(folder, self.data_dir)
        symbols = task.symbols
        if not folded.tokens or symbols is None:
            raise UsageError(f"stream: --text is for networks that read characters, {self.model} does not")
        if any(len(symbol) > 1 and not symbol.startswith("<") for symbol in symbols):
            raise UsageError(f"stream: --text is for networks that read characters, {self.model} reads words")
        return {symbol: number for number, symbol in enumerate(symbols)}


def framed(chunks: Iterable[Any], frame: int) -> Iterator[Any]:
    """Join `frame` steps of chunks [1, steps, channels] into one; steps left over at the end are dropped."""
    import numpy as np

    if frame == 1:
        yield from chunks
        return
    rest = None
    for chunk in chunks:
        steps = chunk if rest is None else np.concatenate([rest, chunk], 1)
        whole = steps.shape[1] // frame
        rest = steps[:, whole * frame :]
        if whole:
            yield steps[:, : whole * frame].reshape(1, whole, -1)


def chunked(lines: Iterable[Sequence[Any]], size: int, *, at_once: bool) -> Iterator[Sequence[Any]]:
    """Cut the steps of lines into chunks of `size`; each step is copied at most twice, however long its line.

    `at_once` yields the last, shorter chunk of every line instead of filling it from the next line.
    """
    pending: list[Any] = []
    for steps in lines:
        start = 0
        if pending:
            start = size - len(pending)
            pending += steps[:start]
            if len(pending) < size:
                continue
            yield pending
            pending = []
        whole = max(start, len(steps) - (len(steps) - start) % size)
        for at in range(start, whole, size):
            yield steps[at : at + size]
        pending = list(steps[whole:])
        if pending and at_once:
            yield pending
            pending = []
    if pending:
        yield pending


def _require_usable(chunk: Any, folded: Any) -> None:
    """Refuse tokens outside the vocabulary and numbers that are not finite: they would stay in the state for ever."""
    import numpy as np

    if folded.tokens:
        bad = chunk[(chunk < 0) | (chunk >= len(folded.table))]
        if bad.size:
            raise UsageError(f"stream: input must hold tokens from 0 to {len(folded.table) - 1}, got {bad[0]}")
        return
    with np.errstate(over="ignore"):
        values = chunk.astype(folded.dtype)
    if not np.isfinite(values).all():
        raise UsageError(f"stream: input must be finite in {folded.dtype}, got {values[~np.isfinite(values)][0]}")


def _outside(values: Any, ranges: Any) -> tuple[int, str] | None:
    """The first step whose values [T, inputs] leave the training range [2, inputs], and how; None if none does."""
    import numpy as np

    low, high = ranges
    slack = 1e-5 * np.maximum(np.abs(low), np.abs(high))
    bad = (values < low - slack) | (values > high + slack)
    if not bad.any():
        return None
    step, channel = np.argwhere(bad)[0]
    where = f"input {channel}" if len(low) > 1 else "the input"
    return int(step), (
        f"{where} is {values[step, channel]:.6g}, outside the range of the training data, {low[channel]:.6g} to "
        f"{high[channel]:.6g}"
    )


def _characters(lines: Iterable[str], table: dict[str, int]) -> Iterator[list[int]]:
    """The tokens of each line."""
    unknown = table.get("<unk>")
    for line in lines:
        yield [number for character in line for number in _token(character, table, unknown)]


def _token(character: str, table: dict[str, int], unknown: int | None) -> list[int]:
    """A character's token, else those of its bytes if the network reads bytes, else that of unknown characters."""
    if character in table:
        return [table[character]]
    single = [f"<{byte:02x}>" for byte in character.encode()]
    if all(name in table for name in single):
        return [table[name] for name in single]
    if unknown is None:
        raise UsageError(f"stream: the text must be of characters that the network knows, got {character!r}")
    return [unknown]


def _words(line: str) -> list[str]:
    return line.replace(",", " ").replace(";", " ").split()


def _is_header(line: str) -> bool:
    """Whether a line names columns: it has words, and none of them is a number or a missing one."""
    from ..data.own.tables import number

    words = _words(line)
    return bool(words) and not line.startswith("RIFF") and all(number(word) is None for word in words)


def _numbers(line: str, number: int, width: int, tokens: bool) -> list[Any]:
    """The steps of a line: numbers, or lists of `width` of them."""
    kind: type = int if tokens else float
    try:
        values = [kind(word) for word in _words(line)]
    except ValueError:
        if line.startswith("RIFF"):
            raise UsageError("stream: the input is a wav; give it as a file whose name ends in .wav") from None
        noun = "integers" if tokens else "numbers"
        raise UsageError(f"stream: line {number} must hold {noun}, got {line.strip()[:40]!r}") from None
    if width == 1:
        return values
    if values and len(values) != width:
        raise UsageError(f"stream: line {number} must hold {width} numbers, one step, got {len(values)}")
    return [values] if values else []


def _result(names: list[str], stream: Any, scores: Any) -> dict[str, Any]:
    from .. import measure
    from ..deploy.operations import operations

    called = stream.folded.class_names
    rates = dict(zip(names, stream.fire_rates()[0].tolist(), strict=True))
    steps = int(stream.steps[0])
    spent = measure.energy(operations(stream.folded, list(rates.values()), steps))
    return {
        "steps": steps,
        "prediction": int(scores.argmax()),
        **({} if called is None else {"class": called[int(scores.argmax())]}),
        "readout": stream.folded.readout,
        "scores": [round(float(score), 6) for score in scores],
        "fire_rates": rates,
        "mean_fire_rate": sum(rates.values()) / len(rates),
        "energy_mj": spent.mj_per_inference,
    }


def _text(result: dict[str, Any]) -> str:
    best = result["prediction"]
    nanojoules = result["energy_mj"] * 1e6
    energy = f"{nanojoules:,.0f} nJ" if nanojoules < 1e6 else f"{nanojoules / 1e6:,.3f} mJ"
    return (
        f"step {result['steps']:,}: class {result.get('class', best)} ({result['scores'][best]:+.3f}), "
        f"fire rate {100 * result['mean_fire_rate']:.1f} %, {energy}"
    )
