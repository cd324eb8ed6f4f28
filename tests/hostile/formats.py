"""The formats of raw files of data sets, and of the cache. Sets are made small by their constants."""

import gzip
import io
import pickle
import struct
import tarfile
import tempfile
import wave
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np

from resofire import data
from resofire.data import DataError, cifar, ecg, imdb, listops, mnist, pathfinder_release, speech
from resofire.data.store import cache_dir, prepared
from resofire.data.task import Task, make_splits

from . import mutations as m
from .report import SCENARIOS
from .worker import Target

ERRORS = (DataError,)


def shrink(module: object, **constants: object) -> None:
    """Make a set small, for the rest of this process."""
    for name, value in constants.items():
        if not hasattr(module, name):
            raise AttributeError(f"{module} has no {name}")
        setattr(module, name, value)


shrink(cifar, BATCH=2, VALIDATION=2)
shrink(imdb, COUNT=20, VALIDATION=4, FREQUENCY=1, FILMS_VALIDATION=2)
shrink(speech, TAKES=4, TEST=1, VALIDATION=1)
shrink(mnist, SIZES={"train": 12, "t10k": 4}, VALIDATION=3)
shrink(ecg, SIZES={"train": 4, "test": 2}, VALIDATION=1)


def tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, raw in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return out.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in files.items():
            archive.writestr(name, raw)
    return out.getvalue()


def use(task: Task) -> None:
    """Take a batch of each split, as training would."""
    for split in task.splits.values():
        for _, batch in zip(range(2), split.batches(3, seed=0), strict=False):
            batch.x.sum()


def loads(name: str, **settings: object):
    return lambda root: use(data.load(name, root / "data", **settings))


def images(pickled: bool) -> dict[str, bytes]:
    draw, files = np.random.RandomState(0), {}
    for name in (*cifar.TRAIN, cifar.TEST):
        pixels, labels = draw.randint(0, 256, (cifar.BATCH, 3072)).astype(np.uint8), [1, 2]
        if pickled:
            batch = {b"data": pixels // 2, b"labels": labels, b"filenames": [b"a", b"b"], b"batch_label": b"x"}
            files[f"cifar-10-batches-py/{name}"] = pickle.dumps(batch, 2)
        else:
            records = np.concatenate([np.array(labels, np.uint8)[:, None], pixels], 1)
            files[f"cifar-10-batches-bin/{name}.bin"] = records.tobytes()
    return files


def reviews() -> dict[str, bytes]:
    files = {"aclImdb/README": b"of no use"}
    for part in ("train", "test"):
        for sentiment in imdb.SENTIMENTS:
            urls = "".join(f"http://www.imdb.com/title/tt{part}{n // 2}/usercomments\n" for n in range(imdb.COUNT))
            urls = urls.replace("train", "10").replace("test", "20")
            files[f"aclImdb/{part}/urls_{sentiment}.txt"] = urls.encode()
            for n in range(imdb.COUNT):
                files[f"aclImdb/{part}/{sentiment}/{n}_7.txt"] = f"A {sentiment} film, {part} {n} é<br />".encode()
    return files


def wav() -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(range(40)))
    return out.getvalue()


def recordings() -> dict[str, bytes]:
    return {
        f"fsdd/recordings/{digit}_{who}_{take}.wav": wav()
        for who in ("ann", "bob") for digit in range(10) for take in range(speech.TAKES)
    }  # fmt: skip


def digits() -> dict[str, bytes]:
    files = {}
    for part, count in mnist.SIZES.items():
        pixels = np.random.RandomState(0).randint(0, 256, (count, 784)).astype(np.uint8).tobytes()
        labels = bytes((*mnist.FIRST["mnist"], 1, 2)[:count])
        files[f"data/mnist/{part}-images-idx3-ubyte.gz"] = gzip.compress(
            struct.pack(">4I", 2051, count, 28, 28) + pixels
        )
        files[f"data/mnist/{part}-labels-idx1-ubyte.gz"] = gzip.compress(struct.pack(">2I", 2049, count) + labels)
    return files


def heartbeats(compressed: bool) -> dict[str, bytes]:
    from scipy.io import savemat

    files = {}
    for name, count in ecg.SIZES.items():
        out, draw = io.BytesIO(), np.random.RandomState(count)
        x = draw.randint(-1, 2, (count, ecg.STEPS, 4)).astype(np.int8)
        y = np.eye(6, dtype=np.uint8)[draw.randint(0, 6, (count, ecg.STEPS))]
        savemat(out, {"x": x, "y": y, "t": np.arange(5.0)}, do_compression=compressed)
        files[f"data/ecg/QTDB_{name}.mat"] = out.getvalue()
    return files


def paths(as_array: bool) -> dict[str, bytes]:
    from PIL import Image

    files = {}
    for folder in (0, 1):
        rows = []
        for k in range(6):
            out = io.BytesIO()
            Image.fromarray(np.full((32, 32), 40 * k, np.uint8)).save(out, "PNG")
            files[f"imgs/{folder}/sample_{k}.png"] = out.getvalue()
            rows.append([f"imgs/{folder}", f"sample_{k}.png", str(k), str(k % 2), "1.0", "14"])
        out = io.BytesIO()
        np.save(out, np.array(rows))
        text = "\n".join(" ".join(row) for row in rows) + "\n"
        files[f"metadata/{folder}.npy"] = out.getvalue() if as_array else text.encode()
    return files


def beneath(folder: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/{path}": raw for path, raw in files.items()}


def pairs() -> dict[str, bytes]:
    rows = "1\tA\tB\tabc ab\tba é\n0.0\tC\tD\ta quote\tb\n1\tE\tF\té\taaaa\n"
    return {f"data/retrieval/new_aan_pairs.{name}.tsv": rows.encode() for name in ("train", "eval", "test")}


def expressions() -> dict[str, bytes]:
    rows = [
        "( ( ( [MIN 4 ) 2 ) ] )\t2",
        "( ( ( ( [MED 4 ) 2 ) 9 ) ] )\t4",
        "( ( ( [SM ( ( ( [MAX 4 ) 2 ) ] ) ) 9 ) ] )\t3",
    ]
    text = "\n".join(("Source\tTarget", *rows, "")).encode()
    return {f"data/listops/{name}": text for name in listops.RAW.files}


def cached_task(root: Path) -> Task:
    def make():
        parts = {}
        for split in ("train", "validation", "test"):
            parts[f"{split}_x"] = np.arange(60, dtype=np.uint8).reshape(30, 2)
            parts[f"{split}_labels"], parts[f"{split}_bounds"] = np.array([0, 1, 0]), np.array([0, 10, 20, 30])
        return parts, {"symbols": ["a", "b"]}

    arrays, facts = prepared("set", {"version": 1}, make)
    assert len(facts["symbols"]) == 2
    return Task("set", "values", 2, make_splits(arrays, "values"), inputs=2)


def cache() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", RESOFIRE_CACHE=folder):
        cached_task(Path(folder))
        return {
            f"cache/{file.relative_to(cache_dir()).as_posix()}": file.read_bytes()
            for file in cache_dir().glob("set-*/*") if file.is_file()
        }  # fmt: skip


BYTES, ZIPPED = m.any_bytes, m.inside_gzip
LEVEL = pathfinder_release.LEVEL
SIZES = (3, 3, 3)
TARGETS = [
    Target(
        "image-tgz",
        lambda: {"data/cifar10/cifar-10-binary.tar.gz": gzip.compress(tar(images(False)))},
        {"data/*": m.either(BYTES, ZIPPED(BYTES), ZIPPED(m.inside_tar(BYTES)), ZIPPED(m.inside_tar(BYTES)))},
        loads("image"),
        ERRORS,
    ),
    Target(
        "scifar-pickles-zip",
        lambda: {"data/cifar10/cifar-10-python.zip": zipped(images(True))},
        {"data/*": m.either(BYTES, m.inside_zip(m.pickled), m.inside_zip(m.pickled))},
        loads("scifar"),
        ERRORS,
    ),
    Target(
        "text-tgz",
        lambda: {"data/imdb/aclImdb_v1.tar.gz": gzip.compress(tar(reviews()))},
        {"data/*": m.either(BYTES, ZIPPED(BYTES), ZIPPED(m.inside_tar(m.either(BYTES, m.lines))))},
        loads("text"),
        ERRORS,
    ),
    Target(
        "text-lra-xz",
        lambda: {"data/imdb/aclImdb_v1.tar.xz": m.lzma.compress(tar(reviews()))},
        {"data/*": m.either(BYTES, m.inside_xz(m.inside_tar(BYTES)))},
        loads("text-lra"),
        ERRORS,
    ),
    Target(
        "films-tar",
        lambda: {"data/imdb/aclImdb_v1.tar": tar(reviews())},
        {"data/*": m.either(BYTES, m.inside_tar(BYTES), m.inside_tar(m.lines))},
        loads("films"),
        ERRORS,
    ),
    Target(
        "speech-tar",
        lambda: {"data/fsdd/free-spoken-digit-dataset.tar": tar(recordings())},
        {"data/*": m.either(BYTES, m.inside_tar(BYTES))},
        loads("speech"),
        ERRORS,
    ),
    Target("wav", lambda: {"data/a.wav": wav()}, {"data/*": BYTES},
           lambda root: speech.read_wav("a.wav", (root / "data/a.wav").read_bytes()), ERRORS),
    Target("mnist-gz", digits, {"data/*": m.either(BYTES, ZIPPED(BYTES))}, loads("smnist"), ERRORS),
    Target("ecg-mat", lambda: heartbeats(False), {"data/*": m.either(BYTES, m.mat, m.mat)}, loads("ecg"), ERRORS),
    Target("ecg-mat-packed", lambda: heartbeats(True), {"data/*": m.either(BYTES, m.mat, m.mat)}, loads("ecg"), ERRORS),
    Target(
        "pathfinder-folder",
        lambda: beneath(f"data/{LEVEL}", paths(True)),
        {"data/*.png": m.either(BYTES, m.png, m.png), "data/*/metadata/*": m.either(BYTES, m.npy)},
        loads("pathfinder"),
        ERRORS,
    ),
    Target(
        "pathfinder-tar",
        lambda: {"data/lra_release.tar": tar(beneath(f"lra_release/pathfinder32/{LEVEL}", paths(False)))},
        {"data/*": m.either(BYTES, m.inside_tar(m.either(BYTES, m.lines)))},
        loads("pathfinder"),
        ERRORS,
    ),
    Target("retrieval-tsv", pairs, {"data/*": m.either(BYTES, m.lines)}, loads("retrieval", sizes=SIZES), ERRORS),
    Target("listops-tsv", expressions, {"data/*": m.either(BYTES, m.lines)}, loads("listops", sizes=SIZES), ERRORS),
    Target(
        "cache",
        cache,
        {"cache/*.npy": m.either(BYTES, m.npy), "cache/*.json": m.either(BYTES, m.json_values, m.json_values)},
        lambda root: use(cached_task(root)),
        ERRORS,
    ),
]  # fmt: skip
SCENARIOS += [target.scenario() for target in TARGETS]
