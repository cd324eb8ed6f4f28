"""Tasks of files: every kind of file gives the same task as the arrays in it, and every mistake names its place."""

import codecs
import gzip
import io
import re
import wave

import h5py
import numpy as np
import pytest

from resofire.data import DataError, from_arrays, from_path

X = np.random.RandomState(0).randn(12, 5).round(3)
LABELS = ["b", "a", "10"] * 4
NUMBERS = ["2", "10", "2.0"] * 4


def table(separator=",", labels=LABELS, end="\n", decimal=".", x=X):
    lines = [
        separator.join([label, *(f"{v:g}".replace(".", decimal) for v in row)])
        for label, row in zip(labels, x, strict=True)
    ]
    return end.join(lines) + end


def wav(samples, width=2, channels=1, rate=8000):
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        scaled = np.round(np.asarray(samples) * 2 ** (8 * width - 1)).astype("<i8")
        octets = scaled.reshape(-1, 1).view(np.uint8).reshape(-1, 8)[:, :width]
        file.writeframes(((scaled + 128).astype(np.uint8) if width == 1 else octets).tobytes())
    return stream.getvalue()


def sequences(task, split="train"):
    batches = [task[split].batch(np.array([number])) for number in range(len(task[split]))]
    return [batch.x[0].numpy() for batch in batches], [task.class_names[batch.labels.item()] for batch in batches]


TABLES = {
    "comma.csv": table(), "tab.tsv": table("\t"), "semicolon.csv": table(";"), "bar.txt": table("|"), "space.txt": table(" "),
    "comma and space.csv": table(", "), "decimal comma.csv": table(";", decimal=","), "crlf.csv": table(end="\r\n"),
    "cr.csv": table(end="\r"), "bom.csv": codecs.BOM_UTF8 + table().encode(), "utf-16.csv": table().encode("utf-16"),
    "quoted.csv": re.sub("^(.*?),", r'"\1",', table(), flags=re.M), "blank.csv": "\n# made by hand\n\n" + table() + "\n",
    "packed.csv.gz": gzip.compress(table().encode()), "trailing.csv": table().replace("\n", ",\n"),
    "header.csv": "class,a,b,c,d,e\n" + table(),
}  # fmt: skip


def test_tables(tmp_path, subtests):
    expected = from_arrays(X, LABELS, validation=0)
    for name, content in TABLES.items():
        with subtests.test(name):
            file = tmp_path / name
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
            task = from_path(file, validation=0)
            assert (task.name, task.class_names, task.inputs) == (name.split(".")[0], ("10", "a", "b"), 1)
            np.testing.assert_allclose(task["train"].stored, expected["train"].stored)
            assert task["train"].labels.tolist() == expected["train"].labels.tolist()
    # Numbers are classes of their own, however they are written; the label may be anywhere, the lengths may differ.
    (tmp_path / "last.csv").write_text("v,w,state\n1,2,2\n3,,10\n5,6,2.0\n7,8,10\n")
    task = from_path(tmp_path / "last.csv", label="state", validation=0)
    assert (task.class_names, task["train"].lengths.tolist()) == (("2", "10"), [2, 1, 2, 2])
    assert from_path(tmp_path / "last.csv", label=-1, validation=0).class_names == ("2", "10")
    assert from_path(tmp_path / "last.csv", label="3", validation=0).class_names == ("2", "10")


def test_long_tables(tmp_path):
    file = tmp_path / "long.csv"
    file.write_text(
        "series,t,label,v\n" + "".join(f"s{n},{t},{n % 2},{X[n, t]}\n" for n in range(8) for t in range(1 + n % 4))
    )
    task = from_path(file, id="series", validation=0)
    assert (task.inputs, task["train"].lengths.tolist(), task.class_names) == (2, [1, 2, 3, 4] * 2, ("0", "1"))
    file.write_text(file.read_text() + "s7,9,0,1.5\n")
    with pytest.raises(
        DataError, match=rf"{file}, line 22 must have the label '1' of its series 's7', got '0'; per_step="
    ):
        from_path(file, id="series")
    steps = from_path(file, id=1, label=3, per_step=True, validation=0)
    assert (steps.per_step, steps["train"].labels.tolist()[-5:]) == (True, [1, 1, 1, 1, 0])


def test_ts(tmp_path):
    (tmp_path / "a.ts").write_text(
        "# note\n@problemName a\n@univariate false\n@classLabel true x y\n@data\n1,2,3:4,?,6:x\n1,2:3,4:y\n"
    )
    task = from_path(tmp_path / "a.ts", missing="interpolate", validation=0)
    assert (task.inputs, task.missing, task.class_names) == (2, 1, ("x", "y"))
    assert sequences(task)[0][0].tolist() == [[1, 4], [2, 5], [3, 6]]


def test_npz(tmp_path):
    file = tmp_path / "a.npz"
    np.savez(
        file, x_train=X[..., None].repeat(2, 2), y_train=LABELS, x_test=X[:3, :, None].repeat(2, 2), y_test=LABELS[:3]
    )
    task = from_path(file, validation=0)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 12, "test": 3}
    np.savez(file, X=X, labels=np.arange(60).reshape(12, 5) % 3)
    assert from_path(file, test=0.25).per_step


def test_folders(tmp_path, subtests):
    files = {
        "wav": [wav(X[n] / 4) for n in range(8)],
        "txt": [" ".join(map(str, X[n] / 4)).encode() for n in range(8)],
        "csv": ["\n".join(["value", *map(str, X[n] / 4)]).encode() for n in range(8)],
        "npy": [],
    }
    for n in range(8):
        stream = io.BytesIO()
        np.save(stream, X[n] / 4)
        files["npy"].append(stream.getvalue())
    for kind, contents in files.items():
        with subtests.test(kind):
            for n, content in enumerate(contents):
                place = tmp_path / kind / ("train" if n < 6 else "test") / ("left", "right")[n % 2]
                place.mkdir(parents=True, exist_ok=True)
                (place / f"{n}.{kind}").write_bytes(content)
                (place / ".DS_Store").touch()
            task = from_path(tmp_path / kind, validation=0)
            assert (task.name, task.class_names, len(task["train"]), len(task["test"])) == (
                kind,
                ("left", "right"),
                6,
                2,
            )
            np.testing.assert_allclose(sequences(task, "test")[0][0][:, 0], X[6] / 4, atol=2**-15)
            framed = from_path(tmp_path / kind, validation=0, frame=2)
            assert (framed.inputs, framed["train"].lengths.tolist()) == (2, [2] * 6)


def test_wavs_of_all_widths(tmp_path, subtests):
    for width in (1, 2, 3, 4):
        with subtests.test(width=width):
            for name in ("a", "b"):
                (tmp_path / f"{width}" / name).mkdir(parents=True)
                (tmp_path / f"{width}" / name / "1.wav").write_bytes(wav(X[:2].T / 4, width, 2))
            stored = from_path(tmp_path / f"{width}", validation=0)["train"].stored
            np.testing.assert_allclose(stored[0], X[:2].T / 4, atol=2.0 ** -(8 * width - 1) + 1e-6)


def events(file, times, units, labels, names=None):
    with h5py.File(file, "w") as stored:
        for name, values, kind in (("times", times, np.float32), ("units", units, np.uint16)):
            created = stored.create_dataset(f"spikes/{name}", (len(values),), dtype=h5py.vlen_dtype(kind))
            for number, row in enumerate(values):
                created[number] = np.array(row, kind)
        stored["labels"] = labels
        if names is not None:
            stored["extra/keys"] = names


def test_events(tmp_path):
    times, units = [[0.0, 0.001, 0.031], [0.005], [0.02, 0.02], []], [[0, 1, 5], [3], [2, 2], []]
    events(tmp_path / "train.h5", times, units, [0, 1, 0, 1], [b"zero", b"one"])
    events(tmp_path / "test.h5", times[:1], [[0, 1, 7]], [0], [b"zero", b"one"])
    task = from_path(tmp_path / "train.h5", test=tmp_path / "test.h5", pool=2, validation=0)
    assert (task.inputs, task.class_names, task["train"].stored.dtype) == (4, ("one", "zero"), np.uint8)
    assert task["train"].lengths.tolist() == [4, 1, 3, 1]
    assert sequences(task)[0][0].tolist() == [[2, 0, 0, 0], [0] * 4, [0] * 4, [0, 0, 1, 0]]
    assert sequences(task)[0][2].tolist() == [[0] * 4, [0] * 4, [0, 2, 0, 0]]


# Name of a file, its content, settings, and the sentence; {file} stands for its path.
WRONG = [
    ("a.csv", "", {}, "{file} must hold lines of a table, got none"),
    ("a.csv", "a,1,2\nb,1,x\na,1,2\n", {}, "{file}, line 2, column 3 must be a number, got 'x'; labels are read from column 1, label chooses another"),
    ("a.csv", "a,1,2\n,1,3\n", {}, "{file}, line 2 must have a label in column 1, got an empty cell"),
    ("a.csv", "a,1,2\nb,1,\nb,,4\n", {}, "x must be finite in float32, {file}, line 3, column 2 is nan; the setting missing fills such values"),
    ("a.csv", "a,1,2\nb,1,1e300\n", {}, "x must be finite in float32, {file}, line 2, column 3 is 1e+300"),
    ("a.csv", "a\nb\nc\n", {}, "{file}, line 1 must have a label and values, got one column; name the separator"),
    ("a.csv", "a/1/2\nb/3/4\n", {}, "{file}, line 1 must have a label and values, got one column"),
    ("a.csv", "a,1,2\na,1,3\n", {}, "y must have at least two classes, got 'a'"),
    ("a.csv", "a,1,2\n", {}, "y must have at least two classes, got 'a'"),
    ("a.csv", "l,v,w\na,1,2\nb,1,2,3\n", {}, "{file}, line 3 must fit its header, got 4 columns, the header 3"),
    ("a.csv", "l,v\na,1\nb,2\n", {"label": "k"}, "label must be a column of {file} (l, v), got 'k'"),
    ("a.csv", "a,1\nb,2\n", {"label": 3}, "label must be a column from 1 to 2 of {file}, got 3"),
    ("a.csv", "l,l,v\na,1,2\nb,1,2\n", {"label": "l"}, "{file}, line 1 must name the column 'l' once, got it twice"),
    ("a.csv", "i,l,v\n1,a,2\n2,b\n", {"id": "i"}, "{file}, line 3 must have 3 columns, got 2"),
    ("a.csv", "i,l,v\n1,a,2\n1,a,nan\n2,b,1\n", {"id": "i", "padded": False}, "{file}, line 3, column 3 is nan"),
    ("a.csv", "i,l\n1,a\n2,b\n", {"id": "i"}, "{file} must have columns of values besides id and label, got none"),
    ("a.csv", b"a,1\n\xff\xfeb,2\n", {}, "{file}, line 2 must be UTF-8 text, got other bytes"),
    ("a.csv", b"a,1\nb,\x00\n", {}, "{file}, line 2 must be text, got a zero byte"),
    ("a.csv", "a,1\nb,2\n", {"separator": ";;"}, "separator must be one character, got ';;'"),
    ("a.csv", "a,1\nb,2\n", {"validation": 0.5}, "validation=0.5 needs a class with two sequences, got 2 sequences in 2"),
    ("a.csv", "a,1\nb,2\n", {"test": "gone.csv"}, "test must be a file or folder, got gone.csv, which does not exist"),
    ("a.csv.gz", b"\x1f\x8bno", {}, "{file} cannot be read"),
    ("a.ts", "1,2:x\n", {}, "{file}, line 1 must be a setting or @data, got '1,2:x'"),
    ("a.ts", "@data\n1,z:x\n", {}, "{file}, line 2, value 2 of dimension 1 must be a number, got 'z'"),
    ("a.ts", "@data\n1,2:3:x\n", {}, "{file}, line 2 must have equally many values everywhere, got 1 in dimension 2"),
    ("a.ts", "@timeStamps true\n@data\n(1,2):x\n", {}, "{file} must have values without time stamps"),
    ("a.npz", b"PK\x03\x04no", {}, "{file} must be an npz of plain arrays, it cannot be read"),
    ("a.h5", b"no", {}, "{file} must be an HDF5 file of events, it cannot be read"),
    ("a.xlsx", b"no", {}, "{file} must be a folder or a file of type .csv, .tsv, .txt, .ts, .h5, .hdf5, .npz, got .xlsx"),
    ("a.csv", "a,1\nb,2\n", {"frame": 0}, "frame must be a positive integer, got 0"),
    ("a.csv", "a,1\nb,2\n", {"frame": 2, "validation": 0}, "frame must be at most the 1 steps of {file}, line 1, got 2"),
    ("d/a/1.wav", b"RIFFno", {}, "{file} must be a wav with PCM samples, it cannot be read"),
    ("d/a/2.wav", b"x", {}, "{file} must be a wav with PCM samples, it cannot be read: it ends too early"),
    ("d/a/1.npy", b"no", {}, "{file} must be an array, it cannot be read"),
    ("d/a/1.txt", "1 2\n3\n", {}, "{file}, line 2 must have 2 columns, got 1"),
    ("d/a/1.mp3", b"no", {}, "{folder} must hold files of type .wav, .npy, .csv, .tsv, .txt, got none"),
    ("d/1.wav", b"no", {}, "{folder} must hold a folder for each class, got none"),
]  # fmt: skip


def test_one_sentence_that_names_the_place(tmp_path, subtests, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, (name, content, settings, message) in enumerate(WRONG):
        with subtests.test(message):
            file = tmp_path / str(number) / name
            file.parent.mkdir(parents=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
            path = tmp_path / str(number) / "d" if name.startswith("d/") else file
            expected = message.format(file=file, folder=file.parent)
            with pytest.raises(DataError, match=re.escape(expected)) as refused:
                from_path(path, **{"validation": 0, **settings})
            assert str(refused.value).count("from_path: ") + ("cannot be read" in message) >= 1
            assert "\n" not in str(refused.value)


def test_rates_of_sound_and_arrays_in_npz(tmp_path):
    for name, rate in (("a", 8000), ("b", 16000)):
        (tmp_path / "wavs" / name).mkdir(parents=True)
        (tmp_path / "wavs" / name / "1.wav").write_bytes(wav(X[0] / 4, rate=rate))
    with pytest.raises(DataError, match=r"b/1.wav must have 8000 samples a second like .*a/1.wav, got 16000"):
        from_path(tmp_path / "wavs")
    np.savez(tmp_path / "a.npz", u=X)
    with pytest.raises(DataError, match=r"a.npz must hold arrays x and y \(or x_train, y_train\), got u"):
        from_path(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", x=np.array([[1, 2], [3]], object), y=LABELS[:2])
    with pytest.raises(DataError, match=r"a.npz must be an npz of plain arrays, it cannot be read"):
        from_path(tmp_path / "a.npz")


def test_where_a_task_came_from(tmp_path):
    (tmp_path / "a.csv").write_text(table())
    (tmp_path / "b.csv").write_text(table())
    task = from_path(tmp_path / "a.csv", test=str(tmp_path / "b.csv"), label=1)
    assert task.source["path"] == str(tmp_path / "a.csv")
    assert task.source["settings"]["test"] == str(tmp_path / "b.csv")
    assert [*task.source["checksum"]] == [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    again = from_path(task.source["path"], **task.source["settings"])
    assert again.source == task.source
    np.testing.assert_array_equal(again["train"].stored, task["train"].stored)
