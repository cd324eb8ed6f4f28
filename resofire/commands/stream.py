"""resofire stream: a trained network on a stream of values, tokens or samples, as a device would run it."""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from .runs import find_run, open_model, open_task, read_run
from .usage import UsageError

# Seconds between two looks at the prediction in a terminal, and where lines stay.
LIVELY, QUIET = 0.1, 1.0
ERASE = "\r\x1b[K"


@dataclass(frozen=True)
class Stream:
    """Run a trained network step by step on a file, standard input or a wav, and show its prediction as it goes."""

    model: tyro.conf.Positional[str]
    """A run folder, a file of weights (folded ones, too), or the name of a network that comes with the package."""
    file: tyro.conf.Positional[str | None] = None
    """Numbers between spaces, commas or line ends, a line for each step if a step has several; or a wav. Without it,
    or with -, standard input."""
    chunk: int = 64
    """Steps that are read before the network runs, at most."""
    text: bool = False
    """The input is a text, to be read by the characters of the network's data set."""
    data_dir: Path | None = None
    """Where the data set's files are, for --text; see resofire data."""
    json: bool = False
    """Print the outcome as JSON, and nothing in between."""

    def run(self) -> int:
        from .. import deploy

        if self.chunk < 1:
            raise UsageError(f"stream: --chunk must be a positive integer, got {self.chunk}")
        try:
            folded, names = self._network()
            stream = deploy.Stream(folded)
        except (TypeError, ValueError) as error:
            raise UsageError(str(error)) from None
        shown = _Shown(self.json)
        scores = None
        try:
            for piece in self._pieces(stream.folded):
                scores = stream.feed(piece)[0]
                shown.perhaps(names, stream, scores)
        except ValueError as error:
            shown.close()
            raise UsageError(str(error).replace("Stream.feed: x", "stream: input")) from None
        except KeyboardInterrupt:
            # A stream from standard input may have no other end.
            if scores is None:
                raise
        shown.close()
        if scores is None:
            raise UsageError(f"stream: {self.file or 'standard input'} must hold at least one step, got none")
        found = _outcome(names, stream, scores)
        print(json.dumps(found, indent=2) if self.json else _line(found))
        return 0

    def _network(self) -> tuple[Any, list[str]]:
        """It is folded, and has a name for each layer of neurons."""
        from .. import deploy, models
        from ..nn import LIF, PRF, SpatialNeuron

        if deploy.holds_folded(models.find(self.model)):
            folded = deploy.load(self.model)
            return folded, [f"layers.{number}" for number in range(len(folded.layers))]
        model = open_model(self.model)
        names = [name for name, part in model.named_modules() if isinstance(part, PRF | LIF | SpatialNeuron)]
        return deploy.fold(model), names

    def _pieces(self, folded: Any) -> Iterator[Any]:
        """Chunks as a stream takes them."""
        import numpy as np

        if self.text:
            yield from self._characters(folded)
            return
        if self.file is not None and self.file.lower().endswith(".wav"):
            samples = self._samples(folded)
            for at in range(0, len(samples), self.chunk):
                yield samples[None, at : at + self.chunk]
            return
        width = 1 if folded.tokens else len(folded.table)
        kind: type = int if folded.tokens else float
        held: list[Any] = []
        with self._opened() as lines:
            for number, line in enumerate(lines, 1):
                held += _numbers(line, number, kind, width)
                # What a person or a sensor writes line by line is answered line by line.
                while len(held) >= self.chunk or (held and self.file in (None, "-")):
                    piece, held = held[: self.chunk], held[self.chunk :]
                    yield np.array([piece]) if folded.tokens else np.array([piece], np.float64).reshape(1, -1, width)
        if held:
            yield np.array([held]) if folded.tokens else np.array([held], np.float64).reshape(1, -1, width)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        if self.file in (None, "-"):
            yield sys.stdin
            return
        assert self.file is not None
        try:
            with open(self.file, encoding="utf-8") as lines:
                yield lines
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UsageError(f"stream: {self.file} cannot be read: {reason}") from None

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

    def _characters(self, folded: Any) -> Iterator[Any]:
        import numpy as np

        from .. import train

        config = train.RunConfig.from_json(read_run(find_run(self.model))["config"])
        symbols = open_task(config, self.data_dir).symbols
        if not folded.tokens or symbols is None:
            raise UsageError(f"stream: --text is for networks that read characters, {self.model} does not")
        if any(len(symbol) > 1 and not symbol.startswith("<") for symbol in symbols):
            raise UsageError(f"stream: --text is for networks that read characters, {self.model} reads words")
        table = {symbol: number for number, symbol in enumerate(symbols)}
        unknown = table.get("<unk>")
        with self._opened() as lines:
            for line in lines:
                ids = [number for character in line for number in _token(character, table, unknown)]
                for at in range(0, len(ids), self.chunk):
                    yield np.array([ids[at : at + self.chunk]])


def _token(character: str, table: dict[str, int], unknown: int | None) -> list[int]:
    """Its token, or those of its bytes where these are the symbols, or that of what is not known."""
    if character in table:
        return [table[character]]
    single = [f"<{byte:02x}>" for byte in character.encode()]
    if all(name in table for name in single):
        return [table[name] for name in single]
    if unknown is None:
        raise UsageError(f"stream: the text must be of characters that the network knows, got {character!r}")
    return [unknown]


def _numbers(line: str, number: int, kind: type, width: int) -> list[Any]:
    """The steps of a line: numbers, or lists of `width` of them."""
    words = line.replace(",", " ").split()
    try:
        found = [kind(word) for word in words]
    except ValueError:
        wanted = "integers" if kind is int else "numbers"
        if line.startswith("RIFF"):
            raise UsageError("stream: the input is a wav; give it as a file whose name ends in .wav") from None
        raise UsageError(f"stream: line {number} must hold {wanted}, got {line.strip()[:40]!r}") from None
    if width == 1:
        return found
    if found and len(found) != width:
        raise UsageError(f"stream: line {number} must hold {width} numbers, one step, got {len(found)}")
    return [found] if found else []


def _outcome(names: list[str], stream: Any, scores: Any) -> dict[str, Any]:
    from .. import measure
    from ..deploy.operations import operations

    rates = dict(zip(names, stream.fire_rates()[0].tolist(), strict=True))
    steps = int(stream.steps[0])
    done, costs = operations(stream.folded, list(rates.values()), steps), measure.COSTS["float32"]
    return {
        "steps": steps,
        "prediction": int(scores.argmax()),
        "scores": [round(float(score), 6) for score in scores],
        "fire_rates": rates,
        "mean_fire_rate": sum(rates.values()) / len(rates),
        "energy_mj": 1e-9 * sum(count * getattr(costs, kind) for kind, count in done.items()),
    }


def _line(found: dict[str, Any]) -> str:
    best = found["prediction"]
    nanojoules = found["energy_mj"] * 1e6
    spent = f"{nanojoules:,.0f} nJ" if nanojoules < 1e6 else f"{nanojoules / 1e6:,.3f} mJ"
    return (
        f"step {found['steps']:,}: class {best} ({found['scores'][best]:+.3f}), "
        f"fire rate {100 * found['mean_fire_rate']:.1f} %, {spent}"
    )


class _Shown:
    """A live line in a terminal, otherwise a line now and then."""

    def __init__(self, silent: bool) -> None:
        self._silent = silent
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = time.monotonic() + (0 if self._live else QUIET)

    def perhaps(self, names: list[str], stream: Any, scores: Any) -> None:
        if self._silent or time.monotonic() < self._next:
            return
        line = _line(_outcome(names, stream, scores))
        if self._live:
            line = ERASE + line[: shutil.get_terminal_size().columns - 1]
        print(line, end="" if self._live else "\n", file=sys.stderr, flush=True)
        self._next = time.monotonic() + (LIVELY if self._live else QUIET)

    def close(self) -> None:
        if self._live and not self._silent:
            print(ERASE, end="", file=sys.stderr, flush=True)
