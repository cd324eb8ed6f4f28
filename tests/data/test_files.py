"""Where raw files come from: found under any name and compression, downloaded and checked, refused in one sentence."""

import bz2
import concurrent.futures
import contextlib
import functools
import gzip
import hashlib
import http.server
import io
import lzma
import socket
import tarfile
import threading
import time
import zipfile

import pytest

from resofire.data import DataError, download, load
from resofire.data.files import RawFile, RawFiles, Remote, data_dir, find, identity, members, obtain, read

CONTENTS = bytes(range(256)) * 2000
LIMIT = len(CONTENTS)
EVERYTHING = {"": LIMIT}


def locate(file, folder=None, folders=("set",)):
    raw = RawFiles(folders, {"file": file})
    return find(raw, "file", folder) or obtain(raw, "file", folder)


def zipped(contents, name="file"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, contents)
    return out.getvalue()


PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zip": zipped}


@pytest.mark.parametrize("ending", PACKERS)
def test_found_and_read(tmp_path, monkeypatch, ending):
    file = RawFile(("first", "second"))
    for place in ("", "alias", "set"):
        folder = tmp_path / "mine" / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"second{ending}").write_bytes(PACKERS[ending](CONTENTS))
        path = locate(file, tmp_path / "mine", ("set", "alias"))
        assert path == folder / f"second{ending}"
        assert read(path, LIMIT) == CONTENTS
        with pytest.raises(DataError, match=r"must have at most 511999 bytes \(unpacked\), got more"):
            read(path, LIMIT - 1)
    monkeypatch.setenv("RESOFIRE_DATA", str(tmp_path / "mine"))
    assert locate(file, folders=("set", "alias")) == path


@pytest.mark.parametrize("ending", [ending for ending in PACKERS if ending])
def test_a_truncated_file_is_named(tmp_path, ending):
    file = tmp_path / f"file{ending}"
    file.write_bytes(PACKERS[ending](CONTENTS)[:-30])
    with pytest.raises(DataError, match=r"file\..* cannot be read, it is truncated or corrupt"):
        read(file, LIMIT)


def archive(kind):
    out = io.BytesIO()
    if kind == ".zip":
        return zipped(CONTENTS, "top/inner.bin")
    with tarfile.open(fileobj=out, mode={".tar": "w", ".tar.gz": "w:gz", ".tar.xz": "w:xz"}[kind]) as packed:
        info = tarfile.TarInfo("./top/inner.bin")
        info.size = len(CONTENTS)
        packed.addfile(info, io.BytesIO(CONTENTS))
    return out.getvalue()


@pytest.mark.parametrize("kind", [".tar", ".tar.gz", ".tar.xz", ".zip", "folder"])
def test_members_of_any_archive(tmp_path, kind):
    if kind == "folder":
        (tmp_path / "things" / "top").mkdir(parents=True)
        (tmp_path / "things" / "top" / "inner.bin").write_bytes(CONTENTS)
    else:
        (tmp_path / f"things{kind}").write_bytes(archive(kind))
    place = locate(RawFile(("things",), archive=True), tmp_path)
    assert list(members(place, EVERYTHING, kept=LIMIT)) == [("top/inner.bin", CONTENTS)]
    if kind != "folder":
        place.write_bytes(archive(kind)[: 300 if kind == ".tar" else -200])
        with pytest.raises(DataError, match=r"things\..* cannot be read, it is truncated or corrupt"):
            list(members(place, EVERYTHING, kept=LIMIT))


def test_an_archive_cannot_write_anywhere(tmp_path):
    file = tmp_path / "evil.tar"
    with tarfile.open(file, "w") as packed:
        info = tarfile.TarInfo("../../evil.txt")
        info.size = 4
        packed.addfile(info, io.BytesIO(b"evil"))
    before = sorted(tmp_path.parent.rglob("*"))
    assert [name for name, _ in members(file, EVERYTHING, kept=LIMIT)] == ["../../evil.txt"]
    assert sorted(tmp_path.parent.rglob("*")) == before


@pytest.mark.parametrize("kind", [".tar.gz", ".tar.xz"])
def test_the_checksum_of_a_compression_is_checked(tmp_path, kind):
    raw = archive(kind)
    (tmp_path / f"things{kind}").write_bytes(raw[:-12] + bytes(12))
    with pytest.raises(DataError, match="cannot be read, it is truncated or corrupt"):
        list(members(tmp_path / f"things{kind}", EVERYTHING, kept=LIMIT))


def test_what_is_no_archive_is_refused_in_one_line(tmp_path):
    (tmp_path / "things.tar.gz").write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match=r"things\.tar\.gz cannot be read, .* not a tar or zip archive") as refused:
        list(members(tmp_path / "things.tar.gz", EVERYTHING, kept=LIMIT))
    assert "\n" not in str(refused.value)


def test_a_link_to_nowhere_does_no_harm(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert identity(tmp_path)[1:3] == [1, 1]
    assert list(members(tmp_path, EVERYTHING, kept=LIMIT)) == [("file", b"x")]


def test_what_we_do_not_download_says_where_to_get_it_and_put_it(tmp_path):
    with pytest.raises(
        DataError,
        match=r"set: pairs\.tsv .* is missing: get it from the makers, put it into .*set or name its folder",
    ):
        locate(RawFile(("pairs.tsv",), source="the makers"), tmp_path)
    for name in ("speech", "retrieval"):
        with pytest.raises(DataError, match=r"is missing: get it from .*https://github\.com/"):
            load(name, tmp_path)
    with pytest.raises(DataError, match="--data-dir must be a folder, got"):
        data_dir(tmp_path / "nowhere")


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves CONTENTS, from the first byte requested, and records the requests."""

    asked: list[str | None]

    def do_GET(self):
        part = self.headers.get("Range")
        self.server.asked.append(part)
        first = int(part.removeprefix("bytes=").rstrip("-")) if part else 0
        if self.server.code is not None:
            self.send_error(self.server.code)
            return
        self.send_response(206 if part else 200)
        if self.server.length is not None:
            self.send_header("Content-Length", str(self.server.length - first))
        self.end_headers()
        self.wfile.write(CONTENTS[first : self.server.stop])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server)) as running:
        running.asked, running.code, running.length, running.stop = [], None, None, None
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def remote(server, contents=CONTENTS):
    return Remote(
        f"http://127.0.0.1:{server.server_port}/file.bin", len(CONTENTS), f"md5:{hashlib.md5(contents).hexdigest()}"
    )


@pytest.fixture
def file(server):
    return RawFile(("file.bin",), remote=remote(server))


@pytest.fixture
def part(tmp_path):
    """A download that was interrupted."""
    part = tmp_path / "cache" / "downloads" / "set" / "file.bin.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENTS[:1000])
    return part


def test_a_download_is_kept(server, file):
    path = locate(file)
    assert path.read_bytes() == CONTENTS
    assert locate(file) == path
    assert server.asked == [None]
    assert [each.name for each in path.parent.iterdir()] == ["file.bin"]


def test_a_download_is_resumed(server, file, part):
    assert locate(file).read_bytes() == CONTENTS
    assert server.asked == ["bytes=1000-"]


def test_a_link_in_place_of_a_download_is_not_written_through(server, file, part, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    part.unlink()
    part.symlink_to(victim)
    assert locate(file).read_bytes() == CONTENTS
    assert victim.read_text() == "precious"
    assert server.asked == [None]


@pytest.mark.parametrize("length", [None, len(CONTENTS)])
def test_a_download_that_breaks_off_is_resumed_the_next_time(server, file, length):
    server.stop, server.length = 2000, length
    with pytest.raises(DataError, match=r"it stopped after 2000 of 512000 bytes"):
        locate(file)
    server.stop = None
    assert locate(file).read_bytes() == CONTENTS
    assert server.asked == [None, "bytes=2000-"]


def test_a_slow_download_ends_and_is_resumed(server, file, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(download, "TOTAL", 0.0)
        with pytest.raises(DataError, match=r"\d+ of 512000 bytes in 0 minutes, try again to resume"):
            locate(file)
    assert locate(file).read_bytes() == CONTENTS
    assert server.asked[1] is not None


def test_another_file_is_not_downloaded_at_all(server, file, tmp_path):
    server.length = 600
    with pytest.raises(DataError, match=r"it must have 512000 bytes, got 600: another file"):
        locate(file)
    assert list((tmp_path / "cache" / "downloads" / "set").iterdir()) == []


def test_a_range_that_is_refused_is_not_requested_again(server, file, part):
    server.code = 416
    with pytest.raises(DataError, match="cannot be downloaded"):
        locate(file)
    assert not part.exists()


def test_two_downloads_at_once_do_not_mix(server, file):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: locate(file), range(4)))
    assert {path.read_bytes() for path in paths} == {CONTENTS}
    assert server.asked == [None]


def test_a_folder_that_cannot_be_written_is_one_sentence(file, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"cannot be written .* name another folder with RESOFIRE_CACHE"):
        locate(file)


def test_a_wrong_download_is_refused_and_nothing_stays(server, tmp_path):
    with pytest.raises(DataError, match=r"set: http.*file\.bin must have md5 .* got .* another file"):
        locate(RawFile(("file.bin",), remote=remote(server, b"other")))
    assert list((tmp_path / "cache" / "downloads" / "set").iterdir()) == []


def test_no_network_is_one_sentence():
    nowhere = Remote("http://127.0.0.1:9/file.bin", 10, "md5:0")
    with pytest.raises(DataError, match=r"set: http://127.* cannot be downloaded .* as file\.bin"):
        locate(RawFile(("file.bin",), remote=nowhere))


def answer(reply, pause=0.0):
    """A server that answers one request with these bytes, the last ones repeated; returns its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with listener, listener.accept()[0] as connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(reply)
            end = time.monotonic() + 30
            while pause and time.monotonic() < end:
                connection.sendall(b"x")
                time.sleep(pause)

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


REPLIES = [
    (b"HTTP/1.0 200 OK\r\nContent-Length: abc\r\n\r\nxyz", "it stopped after 3 of 10 bytes"),
    (b"HTTP/1.0 200 OK\r\nContent-Length: -5\r\n\r\nxyz", "it stopped after 3 of 10 bytes"),
    (b"HTTP/1.0 302 Found\r\nLocation: http://[\r\n\r\n", "cannot be downloaded"),
    (b"HTTP/1.0 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n", "cannot be downloaded"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "cannot be downloaded"),
    (b"nonsense\r\n\r\n", "cannot be downloaded"),
    (b"", "cannot be downloaded"),
]


def test_wrong_replies(subtests, tmp_path, monkeypatch):
    for number, (reply, message) in enumerate(REPLIES):
        with subtests.test(reply):
            monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / str(number)))
            wrong = Remote(f"http://127.0.0.1:{answer(reply)}/file.bin", 10, "sha256:0")
            with pytest.raises(DataError, match=message):
                locate(RawFile(("file.bin",), remote=wrong))


REPLY = b"HTTP/1.0 200 OK\r\n"


@pytest.mark.parametrize("reply", [REPLY + b"Name: ", REPLY + b"\r\n"], ids=["headers", "body"])
def test_a_dripping_server_ends_in_time(monkeypatch, reply):
    monkeypatch.setattr(download, "TOTAL", 0.5)
    dripping = Remote(f"http://127.0.0.1:{answer(reply, 0.05)}/file.bin", 10**6, "sha256:0")
    begun = time.monotonic()
    with pytest.raises(DataError, match="cannot be downloaded"):
        locate(RawFile(("file.bin",), remote=dripping))
    assert time.monotonic() - begun < 20


def test_all_downloads_are_https_with_sha256():
    from resofire.data import aan, cifar, ecg, imdb, mnist, speech

    files = [file for raw in (aan.RAW, cifar.RAW, ecg.RAW, imdb.RAW, mnist.MNIST, mnist.FASHION, speech.RAW)
             for file in raw.files.values() if file.remote is not None]  # fmt: skip
    assert len(files) == 12
    for file in files:
        assert file.remote.url.startswith("https://")
        assert len(file.remote.checksum.removeprefix("sha256:")) == 64
