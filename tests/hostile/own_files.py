"""The formats of users' own data, which `data.from_path` reads."""

import gzip
import io

import numpy as np

from resofire import data
from resofire.data import DataError

from . import mutations as m
from .formats import use, wav
from .report import SCENARIOS
from .worker import Target


def reads(path: str, **settings: object):
    return lambda root: use(data.from_path(root / "data" / path, test=0.3, validation=0.3, **settings))


def wide() -> bytes:
    rows = [f"{'run' if n % 2 else 'walk'}\t{n}.5\t-{n}\t{n}e-3" for n in range(12)]
    return "\n".join(("label\ta\tb\tc", *rows, "")).encode()


def long() -> bytes:
    rows = [f"{n},{n % 2},{step}.25,{n}" for n in range(12) for step in range(3)]
    return "\n".join(("id,label,a,b", *rows, "")).encode()


def ts() -> bytes:
    rows = [f"{n},{n + 1},3:1,?,{n}:{'a' if n % 2 else 'b'}" for n in range(12)]
    return "\n".join(("@problemName x", "@classLabel true a b", "@data", *rows, "")).encode()


def npz() -> bytes:
    out, draw = io.BytesIO(), np.random.RandomState(0)
    np.savez(out, x=draw.randn(12, 5, 2).astype(np.float32), y=np.arange(12) % 2)
    return out.getvalue()


def events() -> bytes:
    import h5py

    out, draw = io.BytesIO(), np.random.RandomState(0)
    with h5py.File(out, "w") as file:
        for name, kind in (("times", np.float32), ("units", np.int32)):
            stored = file.create_dataset(f"spikes/{name}", (12,), h5py.vlen_dtype(kind))
            for n in range(12):
                stored[n] = np.sort(draw.rand(6)).astype(kind) if name == "times" else draw.randint(0, 5, 6)
        file["labels"] = np.arange(12) % 2
    return out.getvalue()


def folder() -> dict[str, bytes]:
    out = io.BytesIO()
    np.save(out, np.arange(20, dtype=np.float32))
    return {
        f"data/own/{name}/{n}{ending}": raw
        for name in ("cat", "dog") for n in range(3)
        for ending, raw in ((".wav", wav()), (".npy", out.getvalue()), (".csv", b"1\n2\n3\n"))
    }  # fmt: skip


BYTES, TEXT = m.any_bytes, m.either(m.any_bytes, m.lines)
ERRORS = (DataError,)
TARGETS = [
    Target("own-tsv", lambda: {"data/own.tsv": wide()}, {"data/*": TEXT}, reads("own.tsv"), ERRORS),
    Target(
        "own-csv-gz",
        lambda: {"data/own.csv.gz": gzip.compress(long())},
        {"data/*": m.either(BYTES, m.inside_gzip(TEXT))},
        reads("own.csv.gz", id="id", label="label"),
        ERRORS,
    ),
    Target("own-ts", lambda: {"data/own.ts": ts()}, {"data/*": TEXT}, reads("own.ts", missing="zero"), ERRORS),
    Target(
        "own-npz",
        lambda: {"data/own.npz": npz()},
        {"data/*": m.either(BYTES, m.inside_zip(m.either(BYTES, m.npy)))},
        reads("own.npz"),
        ERRORS,
    ),
    Target("own-h5", lambda: {"data/own.h5": events()}, {"data/*": BYTES}, reads("own.h5"), ERRORS),
    Target(
        "own-folder",
        folder,
        {"data/*.wav": BYTES, "data/*.npy": m.either(BYTES, m.npy), "data/*.csv": TEXT},
        reads("own"),
        ERRORS,
    ),
]
SCENARIOS += [target.scenario() for target in TARGETS]
