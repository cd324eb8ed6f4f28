"""resofire stream: a trained network on a stream of values, tokens or samples, step by step as on a device."""

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from .output import LiveLine
from .parsing import Folder, Model, Switch
from .runs import find_run, open_model, open_task
from .usage import UsageError, require_positive


@dataclass(frozen=True)
class Stream:
    """Run a network step by step on a file or standard input."""

    model: Model
    """A shipped network, a run folder or a weights file, also an exported one."""
    file: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[FILE]", help_behavior_hint="")] = None
    """Numbers separated by spaces, commas or line ends, with one line per step if a step has several; or a wav.
    Default, or -: standard input."""
    chunk: int = 64
    """Most steps that are read before the network runs."""
    text: Switch = False
    """Read the input as text, for networks that read characters."""
    data_dir: Folder = None
    """Folder with the files of the data set, for --text; see resofire data --help."""
    json: Switch = False
    """Print the result as JSON and nothing before it."""

    def run(self) -> int:
        from .. import deploy

        require_positive("stream: --chunk", self.chunk)
        try:
            folded, names = self._network()
            stream = deploy.Stream(folded)
        except (TypeError, ValueError) as error:
            raise UsageError(str(error)) from None
        line, scores = LiveLine(self.json), None
        try:
            for chunk in self._chunks(folded):
                _require_usable(chunk, folded)
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

    def _network(self) -> tuple[Any, list[str]]:
        """The folded network, and a name for each layer of neurons."""
        from .. import deploy, models
        from ..nn import Neuron, SpatialNeuron

        if deploy.holds_folded(models.find(self.model)):
            folded = deploy.load(self.model)
            return folded, [f"layers.{number}" for number in range(len(folded.layers))]
        model = open_model(self.model)
        names = [name for name, part in model.named_modules() if isinstance(part, Neuron | SpatialNeuron)]
        return deploy.fold(model), names

    def _chunks(self, folded: Any) -> Iterator[Any]:
        """The input as a stream takes it: values [1, steps, inputs] or tokens [1, steps]."""
        import numpy as np

        if self.text:
            with self._opened() as lines:
                ids = _characters(lines, self._symbols(folded))
                for part in chunked(ids, self.chunk, at_once=True):
                    yield np.array([part])
            return
        if self.file is not None and self.file.lower().endswith(".wav"):
            samples = self._samples(folded)
            for at in range(0, len(samples), self.chunk):
                yield samples[None, at : at + self.chunk]
            return
        width = 1 if folded.tokens else len(folded.table)
        with self._opened() as lines:
            steps = (_numbers(text, number, width, folded.tokens) for number, text in enumerate(lines, 1))
            # What a person or a sensor writes line by line is answered line by line.
            for part in chunked(steps, self.chunk, at_once=self.file in (None, "-")):
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

    def _samples(self, folded: Any) -> Any:
        """The samples of a wav, [T, 1]."""
        from ..data import DataError, speech

        assert self.file is not None
        if folded.tokens or len(folded.table) != 1:
            raise UsageError(f"stream: {self.file} is a wav, but {self.model} does not take one value at a step")
        try:
            return speech.read_wav(self.file, Path(self.file).read_bytes())[:, None] / 32768
        except DataError as error:
            raise UsageError(f"stream: {error}") from None
        except OSError as error:
            raise UsageError(f"stream: {self.file} cannot be read: {error.strerror}") from None

    def _symbols(self, folded: Any) -> dict[str, int]:
        """The token of each character or byte that the network reads."""
        symbols = open_task(find_run(self.model), self.data_dir).symbols
        if not folded.tokens or symbols is None:
            raise UsageError(f"stream: --text is for networks that read characters, {self.model} does not")
        if any(len(symbol) > 1 and not symbol.startswith("<") for symbol in symbols):
            raise UsageError(f"stream: --text is for networks that read characters, {self.model} reads words")
        return {symbol: number for number, symbol in enumerate(symbols)}


def chunked(lines: Iterable[Sequence[Any]], size: int, *, at_once: bool) -> Iterator[Sequence[Any]]:
    """Cut the steps of lines into chunks; each step is copied at most twice, however long its line.

    Args:
        lines: The steps of each line.
        size: Steps in a chunk.
        at_once: Yield the last, shorter chunk of every line instead of filling it from the next line.
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


def _numbers(line: str, number: int, width: int, tokens: bool) -> list[Any]:
    """The steps of a line: numbers, or lists of `width` of them."""
    kind: type = int if tokens else float
    try:
        values = [kind(word) for word in line.replace(",", " ").split()]
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
