"""The live page: what it answers, whom it refuses, and how it follows a run."""

import http.client
import json
import shutil
import threading
import time

import pytest
from hostile_run import config, task

from resofire import cli, train
from resofire.report import Request
from resofire.report.live import Live, Server
from resofire.train.progress import silent


@pytest.fixture
def serve():
    """A function that serves a run folder and returns the server."""
    servers = []

    def start(folder):
        server = Server(Live(folder, Request(count=4)))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            for each in value if isinstance(value, list) else [value]:
                connection.putheader(name.replace("_", "-"), each)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def test_the_page_and_its_data(serve, run):
    server = serve(run)
    status, html, headers = ask(server, "/")
    assert status == 200
    assert b'data-live="data.json"' in html
    assert b"connect-src 'self'" in html.replace(b"&#39;", b"'")
    assert headers["X-Frame-Options"] == "DENY"
    status, content, headers = ask(server, "/data.json")
    assert json.loads(content)["folder"] == str(run)
    assert ask(server, "/data.json", If_None_Match=headers["ETag"])[:2] == (304, b"")
    assert ask(server, "/data.json", method="HEAD")[:2] == (200, b"")


def test_it_listens_on_loopback_only(serve, run):
    assert serve(run).server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", ["127.0.0.1:{port}", "evil.example"]],
)
def test_requests_for_other_hosts_are_refused(serve, run, host):
    server = serve(run)
    hosts = [each.format(port=server.server_port) for each in (host if isinstance(host, list) else [host])]
    for path in ("/", "/data.json"):
        status, content, _ = ask(server, path, Host=hosts)
        assert (status, content) == (403, b"The request is for another host.\n")
    assert ask(server, "/data.json", Host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/run.json", "/../run.json", "/%2e%2e/etc/passwd", "//etc/passwd", "/data.json/..", "/data.json?x", "/.", "*",
     "file:///etc/passwd"],
)  # fmt: skip
def test_no_file_can_be_read(serve, run, path):
    status, content, _ = ask(serve(run), path)
    assert (status, content) == (404, b"There is nothing here.\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_is_read_only(serve, run, method):
    before = sorted((file, file.stat().st_mtime_ns) for file in run.rglob("*"))
    server = serve(run)
    assert ask(server, "/", method=method)[0] == 501
    server.live.refresh()
    assert sorted((file, file.stat().st_mtime_ns) for file in run.rglob("*")) == before


def test_it_follows_a_run_from_before_its_first_step_to_after_its_end(tmp_path):
    """Refreshed in the middle of a training, by its own callback."""
    folder, lives, seen = tmp_path / "run", [], []

    class Look(train.Callback):
        def on_start(self, run):
            lives.append(Live(folder, Request(count=4)))

        def on_step(self, run, figures):
            lives[0].refresh()
            seen.append(json.loads(lives[0].snapshot.content))

    with silent():
        train.train(config(steps=12), task(), folder, callbacks=[Look()])
    assert "missing" in seen[0]["answers"]
    assert seen[0]["curves"]["splits"] == {}
    middle = next(each for each in seen if "missing" not in each["answers"])
    assert middle["finished"] is False
    assert middle["data"]["split"] == "validation"
    assert max(middle["curves"]["splits"]["validation"]["step"]) == 4
    live = lives[0]
    live.refresh()
    last = json.loads(live.snapshot.content)
    assert last["finished"] is True
    assert last["data"]["split"] == "test"
    assert last["curves"]["splits"]["validation"]["step"] == [4, 8, 12]
    assert live.refresh() is False
    # The page outlives the folder.
    shutil.rmtree(folder)
    stop = threading.Event()
    follower = threading.Thread(target=live.follow, args=(stop, 0.01))
    follower.start()
    time.sleep(0.2)
    stop.set()
    follower.join(10)
    after = json.loads(live.snapshot.content)
    assert after["curves"] == last["curves"]
    assert "is not a run folder" in after["status"]


def test_the_network_is_not_read_again_at_once(copied, monkeypatch):
    (copied / "result.json").unlink()
    live, read = Live(copied, Request(count=2)), []
    monkeypatch.setattr(
        "resofire.report.live.network_data", lambda *given: read.append(time.sleep(0.05)) or live._network
    )
    live.refresh()
    for _ in range(3):
        (copied / "model.safetensors").touch()
        live.refresh()
    assert len(read) == 1


def test_several_viewers(serve, run):
    server, answers = serve(run), []
    viewers = [threading.Thread(target=lambda: answers.append(ask(server, "/data.json")[0])) for _ in range(8)]
    # One more that never finishes its request.
    idle = http.client.HTTPConnection("127.0.0.1", server.server_port)
    idle.connect()
    for viewer in viewers:
        viewer.start()
    for viewer in viewers:
        viewer.join(30)
    idle.close()
    assert answers == [200] * 8


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "watch: RUN is missing: a run folder; see resofire watch --help"),
        (["digits", "--port", "70000"], "watch: --port must be from 0 to 65535, got 70000"),
        (["digits", "--count", "0"], "watch: --count must be a positive integer, got 0"),
    ],
)
def test_usage_errors_are_one_sentence(words, sentence, capsys):
    assert cli.main(["watch", *words]) == 2
    assert capsys.readouterr().err == f"resofire: {sentence}\n"


def test_a_port_in_use_is_refused(serve, run, capsys):
    port = serve(run).server_port
    assert cli.main(["watch", str(run), "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"resofire: watch: --port {port} cannot be used: Address already in use\n"
