"""Pathfinder: the bytes, the labels from the picture and the paddles, and the released folder."""

import hashlib
import io
import struct
import tarfile
import zlib
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from resofire.data import DataError, load, pathfinder, pathfinder_release

COUNTS = (40, 5, 5)


@pytest.fixture(scope="module")
def drawn():
    return pathfinder.traced(2000, 0, pathfinder.SETTINGS[32], workers=1)


@pytest.mark.parametrize(
    ("size", "count", "digest"),
    [
        (32, 200, "111359f91f75ee55b042a58b366d1b480889f0f30ffe106e584a3ad4ab981dcc"),
        (128, 10, "1606beab4ddd4dc1c9c6322edb47e5fa7244813b8bab28c3be7642464a05b078"),
    ],
)
def test_bytes(size, count, digest):
    """On any machine. Another sum here means another data set: then VERSION must change with it."""
    images, labels = pathfinder.generate(count, 0, size=size)
    assert images.shape == (count, size * size)
    assert images.dtype == labels.dtype == np.uint8
    assert hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() == digest


def test_an_image_depends_on_the_seed_and_its_number(drawn):
    images, labels, _ = drawn
    part, part_labels = pathfinder.generate(300, 0, first=700, workers=2)
    assert np.array_equal(part, images[700:1000])
    assert np.array_equal(part_labels, labels[700:1000])
    assert not np.array_equal(pathfinder.generate(1, 1)[0], images[:1])
    assert len(np.unique(images, axis=0)) == len(images)


def test_balance(drawn):
    _, labels, _ = drawn
    assert set(labels.tolist()) == {0, 1}
    assert abs(labels.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(labels))


def points(snake):
    """The line through a snake: its first tip, then the far end of each paddle."""
    return np.concatenate([snake[:1, 3:5], snake[:, 5:7]])


@pytest.mark.parametrize(("size", "longest"), [(32, 7), (128, 14)])
def test_labels_from_the_picture(size, longest):
    """Where the discs are, and which tips the generator's paddles join to each other, give the label."""
    images, labels, traces = pathfinder.traced(100 if size == 128 else 500, 3, pathfinder.SETTINGS[size])
    settings = pathfinder.SETTINGS[size]
    disc = pathfinder.tables(settings, settings.margins[0]).disc
    half, decided = len(disc) // 2, 0
    for image, label, snakes in zip(images.reshape(-1, size, size), labels, traces, strict=True):
        padded = np.pad(image, half)

        def marked(tip, padded=padded):
            inside = np.pad(np.ones((size, size), bool), half)
            at = tuple(slice(place, place + len(disc)) for place in tip)
            return bool((padded[at] >= disc * inside[at]).all())

        # Where each snake can be walked, as a part of the picture in one piece.
        parts = []
        for snake in snakes:
            line = points(snake)
            assert np.hypot(*np.diff(line, axis=0).T).max() <= longest
            canvas = np.zeros((4 * size, 4 * size), bool)
            for a, b in pairwise(line):
                y, x = np.round(np.linspace(4 * a, 4 * b, 120)).astype(int).T
                canvas[y, x] = True
            parts.append(ndimage.label(canvas, np.ones((3, 3)))[0])
            assert parts[-1].max() == 1
        # No place belongs to both: they do not cross.
        assert not (parts[0].astype(bool) & parts[1].astype(bool)).any()
        tips = [(s, end, points(snakes[s])[end]) for s in (0, 1) for end in (0, -1)]
        discs = [(s, end) for s, end, tip in tips if marked(tip)]
        if sorted(end for _, end in discs) == [-1, 0]:
            decided += 1
            assert label == (discs[0][0] == discs[1][0])
        assert {end for _, end in discs} == {-1, 0}
    assert decided > 0.8 * len(images)


def test_grey_levels(drawn):
    images, _, traces = drawn
    assert images.min() == 0
    assert images.max() == 255
    # Next to nothing but paddles and discs: most of a picture is black.
    assert 0.5 < (images == 0).mean() < 0.85
    tables = pathfinder.tables(pathfinder.SETTINGS[32], 1)
    assert (tables.targets.max(), tables.others.max(), tables.disc.max()) == (191, 255, 128)
    pictures = images.reshape(-1, 32, 32)
    # What lies at a disc's middle is at least as bright as it.
    for picture, snakes in zip(pictures[:200], traces[:200], strict=True):
        starts = [picture[tuple(snake[0, 3:5])] for snake in snakes]
        assert max(starts) >= tables.disc[len(tables.disc) // 2, len(tables.disc) // 2]
    # The frame stays free of target paddles.
    assert traces[..., 3:7].min() >= 1
    assert traces[..., 3:7].max() <= 30


def test_seeds(drawn):
    _, _, traces = drawn
    first, second = traces[:, 0, 0, 3:5], traces[:, 1, 0, 3:5]
    assert first.min() == 14
    assert first.max() == 17
    distance = np.hypot(*(second - first).T)
    assert distance == pytest.approx(7, abs=0.75)
    assert traces.shape[1:3] == (2, 14)


@pytest.mark.parametrize("size", [32, 128])
def test_task(size):
    tokens = pathfinder.pathfinder(size=size, counts=COUNTS)
    values = pathfinder.pathfinder(size=size, counts=COUNTS, kind="values")
    assert (tokens.name, tokens.classes, tokens.vocabulary) == ("pathfinder" if size == 32 else "pathx", 2, 256)
    assert (values.inputs, values.vocabulary) == (1, None)
    assert [len(tokens[name]) for name in ("train", "validation", "test")] == list(COUNTS)
    whole, labels = pathfinder.generate(sum(COUNTS), size=size)
    batch = next(tokens["validation"].batches(5))
    assert batch.x.tolist() == whole[40:45].tolist()
    assert batch.labels.tolist() == labels[40:45].tolist()
    assert batch.cu_seqlens is None
    x = next(values["validation"].batches(5)).x
    assert x.shape == (5, size * size, 1)
    assert np.allclose(x[..., 0].numpy(), whole[40:45] / 127.5 - 1, atol=1e-6)
    x = next(values["train"].batches(40)).x
    assert (x.min(), x.max()) == (-1, pytest.approx(1))


def test_easier_images_have_short_paths_in_training_only():
    plain, easy = (pathfinder.pathfinder(counts=(45, 5, 5), lengths=lengths) for lengths in (None, (12, 14)))
    for split in ("validation", "test"):
        assert np.array_equal(plain[split].stored, easy[split].stored)
        assert np.array_equal(plain[split].labels, easy[split].labels)
    # Fifteen images each of paths of 12, 13 and 14 paddles.
    assert np.array_equal(easy["train"].stored[30:], plain["train"].stored[30:45])
    assert not np.array_equal(easy["train"].stored[:30], plain["train"].stored[:30])
    images, _ = pathfinder.easier(200, 0, 32, (2, 14), None)
    lit = (images > 0).mean(1)
    assert lit[:15].mean() < lit[100:115].mean() < lit[-15:].mean()
    assert not (images[:15] == pathfinder.SETTINGS[32].distractor).any()


def png(array):
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


def release(folder, as_array):
    """A small one: ten images in each of two folders, in an order that text would sort otherwise."""
    images, labels = pathfinder.generate(20, 5)
    for number, folder_number in enumerate((2, 10)):
        rows = []
        (folder / "imgs" / str(folder_number)).mkdir(parents=True)
        (folder / "metadata").mkdir(exist_ok=True)
        for k in range(10):
            row = 10 * number + k
            rows.append([f"imgs/{folder_number}", f"sample_{k}.png", str(k), str(labels[row]), "1.0", "14"])
            (folder / rows[-1][0] / rows[-1][1]).write_bytes(png(images[row].reshape(32, 32)))
        file = folder / "metadata" / f"{folder_number}.npy"
        if as_array:
            np.save(file, np.array(rows))
        else:
            file.write_text("\n".join(" ".join(row) for row in rows) + "\n")
    return images, labels


@pytest.mark.parametrize(("sub", "as_array"), [(".", True), ("lra_release/lra_release/pathfinder32", False)])
def test_reads_the_release(tmp_path, sub, as_array):
    images, labels = release(tmp_path / sub / "curv_contour_length_14", as_array)
    task = load("pathfinder", tmp_path)
    assert [len(task[name]) for name in ("train", "validation", "test")] == [16, 2, 2]
    assert np.array_equal(np.concatenate([task[name].stored for name in task.splits]), images)
    assert np.array_equal(np.concatenate([task[name].labels for name in task.splits]), labels)


def test_reads_an_archive(tmp_path):
    images, _ = release(tmp_path / "there" / "pathfinder32" / "curv_contour_length_14", False)
    with tarfile.open(tmp_path / "lra_release.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "there" / "pathfinder32", "lra_release/pathfinder32")
    assert np.array_equal(load("pathfinder", tmp_path)["train"].stored, images[:16])


def test_leaves_the_empty_file_out_and_sees_it_mended(tmp_path, monkeypatch):
    monkeypatch.setattr(pathfinder_release, "EMPTY", "imgs/2/sample_3.png")
    folder = tmp_path / "curv_contour_length_14"
    images, _ = release(folder, False)
    file = folder / "imgs" / "2" / "sample_3.png"
    raw = file.read_bytes()
    file.write_bytes(b"")
    task = load("pathfinder", tmp_path)
    assert [len(task[name]) for name in ("train", "validation", "test")] == [17, 1, 1]
    assert np.array_equal(task["train"].stored, np.delete(images, 3, 0)[:17])
    file.write_bytes(raw)
    assert np.array_equal(load("pathfinder", tmp_path)["train"].stored, images[:16])


def broken(folder, how):
    image, metadata = folder / "imgs" / "2" / "sample_3.png", folder / "metadata" / "10.npy"
    if how == "truncated":
        image.write_bytes(image.read_bytes()[:100])
    elif how == "size":
        image.write_bytes(png(np.zeros((16, 16), np.uint8)))
    elif how == "empty":
        image.write_bytes(b"")
    elif how == "missing":
        image.unlink()
    elif how == "label":
        metadata.write_text("imgs/2 sample_1.png 1 7\n")
    elif how == "columns":
        metadata.write_text("imgs/2 sample_1.png 1\n")
    elif how == "array":
        metadata.write_bytes(b"\x93NUMPY\x01\x00")
    elif how == "bomb":
        # A grey image of 30,000 × 30,000 pixels, of which nothing follows.
        raw = image.read_bytes()
        chunk = b"IHDR" + struct.pack(">II", 30_000, 30_000) + raw[24:29]
        image.write_bytes(raw[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + raw[33:])
    elif how == "chunk":
        # Pillow raises SystemError for a tile that ends before it begins.
        raw = image.read_bytes()
        image.write_bytes(raw[:33] + b"\0\0\0\x0dfdAT\0\0\0\0" + raw[33:])
    elif how == "other":
        Image.new("L", (32, 32)).save(image, "BMP")
    elif how == "huge array":
        header = str({"descr": "<U9", "fortran_order": False, "shape": (10**12, 6)}).encode()
        metadata.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    elif how == "letters":
        raw = io.BytesIO()
        np.save(raw, np.array([["imgs/2", "sample_1.png", "1", "0"]]))
        metadata.write_bytes(raw.getvalue()[:-4] + b"\xff" * 4)
    elif how == "name":
        metadata.rename(metadata.with_name("²³.npy"))


BROKEN = [
    ("truncated", r"sample_3\.png cannot be read"),
    ("empty", r"sample_3\.png cannot be read"),
    ("size", r"sample_3\.png must have 32 × 32 pixels, got 16 × 16"),
    ("missing", r"sample_3\.png is missing"),
    ("label", r"10\.npy, row 1 must have the label 0 or 1 .* got 7"),
    ("columns", r"10\.npy, row 1 must have the label .* got 3 columns"),
    ("array", r"10\.npy cannot be read"),
    ("bomb", r"sample_3\.png must have 32 × 32 pixels, got 30000 × 30000"),
    ("chunk", r"sample_3\.png cannot be read"),
    ("other", r"sample_3\.png cannot be read, it is no PNG"),
    ("huge array", r"10\.npy cannot be read, .* needs 216000000000000 bytes"),
    ("letters", r"10\.npy cannot be read"),
    ("name", r"²³\.npy must be named by a number"),
]


def test_refuses_a_broken_release(subtests, tmp_path):
    for how, message in BROKEN:
        with subtests.test(how):
            folder = tmp_path / how / "curv_contour_length_14"
            release(folder, False)
            broken(folder, how)
            with pytest.raises(DataError, match=message):
                load("pathfinder", tmp_path / how)


WRONG_ARGUMENTS = [
    ({"size": 64}, "size must be one of 32, 128"),
    ({"kind": "grey"}, "kind must be one of tokens, values"),
    ({"counts": (1, 2)}, "counts must be three"),
    ({"lengths": (1, 3)}, "lengths must be two integers from 2 to 14, in order, got"),
    ({"lengths": (5, 4)}, "lengths must be two integers from 2 to 14, in order, got"),
    ({"lengths": (2.0, 3)}, "lengths must be two integers from 2 to 14, in order, got"),
    ({"lengths": 3}, "lengths must be two integers from 2 to 14, in order, got 3"),
]


def test_refuses_wrong_arguments(subtests):
    for wrong, message in WRONG_ARGUMENTS:
        with subtests.test(message), pytest.raises(ValueError, match=message):
            pathfinder.pathfinder(**wrong)
