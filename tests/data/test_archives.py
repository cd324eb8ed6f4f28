"""Archives that claim too much: members of negative, huge or sparse size, bombs, long names; and forms of tar."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import h5py
import pytest

from resofire.data import DataError, from_path
from resofire.data.files import members, read_lines

WANTED = {r"\.bin$": 1000}


def header(name=b"a.bin", size=b"00000000003\0", kind=b"0"):
    block = bytearray(tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT))
    block[:100] = name.ljust(100, b"\0")
    block[124:136] = size.ljust(12, b"\0")
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def member(name=b"a.bin", data=b"abc", kind=b"0"):
    return header(name, b"%011o\0" % len(data), kind) + data + bytes(-len(data) % 512)


def record(key, value):
    body = f" {key}={value}\n"
    size = len(body) + 1
    while len(f"{size}{body}") != size:
        size = len(f"{size}{body}")
    return f"{size}{body}".encode()


END = bytes(1024)
NEGATIVE = b"\xff" * 10 + b"\xfe\x00"
GOOD = member()
WRONG = {
    "negative size": (GOOD + header(b"b.bin", NEGATIVE), "a number that is negative"),
    "negative size of a name": (GOOD + header(b"b", NEGATIVE, b"L"), "a number that is negative"),
    "negative octal size": (GOOD + header(b"b.bin", b"-0000001000\0"), "a number that is negative"),
    "negative size in a record": (
        GOOD + member(b"p", record("size", -512), b"x") + member(),
        "a size that is negative",
    ),
    "64 GB": (GOOD + header(b"b.bin", b"\x80" + (1 << 36).to_bytes(11, "big")), "b.bin must have at most 1000 bytes"),
    "64 GB that nobody needs": (GOOD + header(b"b.txt", b"\x80" + (1 << 36).to_bytes(11, "big")), "unpacks to more"),
    "a sparse file": (GOOD + header(b"b.bin", kind=b"S"), "a sparse file"),
    "a sparse file in a record": (GOOD + member(b"p", record("GNU.sparse.major", 1), b"x") + GOOD, "a sparse file"),
    "a name of 1 MB": (GOOD + header(b"b", b"%011o\0" % (1 << 20), b"L"), "a header has 1048576 bytes"),
    "a record without length": (GOOD + member(b"p", b"99 path=", b"x") + GOOD, "a record of another form"),
    "a wrong checksum": (GOOD + GOOD.replace(b"a.bin", b"b.bin"), "does not match its checksum"),
    "many files": (b"".join(member(b"%d.bin" % number, bytes(900)) for number in range(9)), "fewer bytes together"),
    "too much in all": (b"".join(member(b"%d.txt" % number, bytes(9000)) for number in range(9)), "unpacks to more"),
    "zeros behind the end": (GOOD + bytes(10**6), "unpacks to more"),
}


def test_wrong_archives(subtests, tmp_path):
    for name, (raw, message) in WRONG.items():
        for ending, packed in ((".tar", bytes), (".tar.gz", gzip.compress)):
            with subtests.test(name, ending=ending):
                (tmp_path / f"things{ending}").write_bytes(packed(raw + END))
                with pytest.raises(DataError, match=message) as refused:
                    list(members(tmp_path / f"things{ending}", WANTED, kept=8000, total=32_000))
                assert "\n" not in str(refused.value)


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, lzma.compress])
def test_only_what_is_needed_is_kept(tmp_path, pack):
    raw = member(b"huge.txt", bytes(1 << 24)) + member()
    (tmp_path / "things.tar").write_bytes(pack(raw + END))
    assert list(members(tmp_path / "things.tar", WANTED, kept=3, total=1 << 25)) == [("a.bin", b"abc")]
    with zipfile.ZipFile(tmp_path / "things.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("huge.txt", bytes(1 << 24))
        archive.writestr("a.bin", b"abc")
    assert list(members(tmp_path / "things.zip", WANTED, kept=3)) == [("a.bin", b"abc")]
    with pytest.raises(DataError, match=r"huge\.txt must have at most 9 bytes, got more"):
        list(members(tmp_path / "things.zip", {"": 9}, kept=100))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_all_forms_of_tar(tmp_path, form):
    names = ["short.bin", "folder/" * 20 + "long.bin", "ümlaut/" + "ö" * 30 + ".bin", "./dot.bin"]
    with tarfile.open(tmp_path / "things.tar", "w", format=form) as archive:
        for number, name in enumerate(names):
            for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.REGTYPE):
                info = tarfile.TarInfo(name if kind == tarfile.REGTYPE else f"{number}.bin")
                info.type, info.size, info.mtime = kind, number * 300 * (kind == tarfile.REGTYPE), 0.5
                archive.addfile(info, io.BytesIO(bytes(1000)))
    expected = [(name.removeprefix("./"), bytes(number * 300)) for number, name in enumerate(names)]
    assert list(members(tmp_path / "things.tar", WANTED, kept=3000, total=100_000)) == expected


def test_lines_are_bounded(tmp_path):
    (tmp_path / "lines.gz").write_bytes(gzip.compress(b"abc\r\nabcd\n\n" + bytes(1 << 20)))
    lines = read_lines(tmp_path / "lines.gz", 4)
    assert [next(lines), next(lines), next(lines)] == [b"abc", b"abcd", b""]
    with pytest.raises(DataError, match=r"lines\.gz, line 4, must have at most 4 bytes, got more"):
        next(lines)


def test_a_zip_with_a_member_without_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "things.zip", "w") as archive:
        archive.writestr("a.bin", b"abc")
        archive.writestr("x", b"abc")
    raw = (tmp_path / "things.zip").read_bytes()
    (tmp_path / "things.zip").write_bytes(raw.replace(b"x", b"\0"))
    assert list(members(tmp_path / "things.zip", WANTED, kept=3)) == [("a.bin", b"abc")]


def claims_too_much(file, name):
    header = str({"descr": "<f4", "fortran_order": False, "shape": (10**12, 2)}).encode()
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    if name == "own.npz":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("x.npy", array)
            archive.writestr("y.npy", array)
    elif name == "text.npz":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("x", b"no array")
            archive.writestr("y", b"no array")
    elif name == "own.h5":
        with h5py.File(file, "w") as stored:
            for each in ("spikes/times", "spikes/units", "labels"):
                stored.create_dataset(each, (10**9,), "f4", chunks=(1000,))
    else:
        file.mkdir()
        for each in ("cat", "dog"):
            (file / each).mkdir()
            (file / each / "a.npy").write_bytes(array)


@pytest.mark.parametrize("name", ["own.npz", "text.npz", "own.h5", "folder"])
def test_own_files_that_claim_too_much(tmp_path, name):
    claims_too_much(tmp_path / name, name)
    with pytest.raises(DataError, match="cannot be read"):
        from_path(tmp_path / name)


def test_one_event_does_not_fill_memory(tmp_path):
    with h5py.File(tmp_path / "own.h5", "w") as stored:
        for name, values in (("times", [0.0, 900.0]), ("units", [3, 99_999])):
            rows = stored.create_dataset(f"spikes/{name}", (2,), h5py.vlen_dtype("f4"))
            for row in (0, 1):
                rows[row] = values
        stored["labels"] = [0, 1]
    with pytest.raises(DataError, match=r"at most 67108864 steps x channels, got 90001 of 100000; use a larger bin"):
        from_path(tmp_path / "own.h5")
