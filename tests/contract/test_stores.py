"""URLs: every name and query asks for its own object; refusals and missing packages say so."""

from __future__ import annotations

import contextlib
import http.server
import importlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from adapters import RecordWriter, open_images, open_records

pytest.importorskip("obstore")


@pytest.fixture(scope="session", autouse=True)
def loop() -> None:
    """The thread of fsspec's own, which stays, where fsspec is installed."""
    with contextlib.suppress(ImportError):
        importlib.import_module("fsspec.asyn").get_loop()


class Server(http.server.ThreadingHTTPServer):
    """Has objects by the path that is asked for, with its escapes and its query; lists nothing."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}
        self.refusal = 403

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        body = self.server.objects.get(self.path)
        if "list-type" in self.path or self.command == "PROPFIND":
            self.answer(self.server.refusal, b"<Error><Code>AccessDenied</Code></Error>")
        elif body is None:
            self.answer(404)
        elif "Range" in self.headers and self.command == "GET":
            begin, _, end = self.headers["Range"].partition("=")[2].partition("-")
            first, last = int(begin), min(int(end), len(body) - 1)
            place = f"bytes {first}-{last}/{len(body)}"
            self.answer(206, body[first : last + 1], Content_Range=place, ETag='"1"')
        else:
            self.answer(200, body, ETag='"1"', Accept_Ranges="bytes")

    do_HEAD = do_PROPFIND = do_GET


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def content(folder: Path, payload: bytes) -> bytes:
    path = folder / "one.rec"
    with RecordWriter(path, format="recordio") as writer:
        writer.write(payload)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("a#1.rec", "/a%231.rec"),
        ("a%231.rec", "/a%231.rec"),
        ("b/#/c.rec", "/b/%23/c.rec"),
        ("d.rec?X-Sig=a%2Fb&e=1", "/d.rec?X-Sig=a%2Fb&e=1"),
        ("e#2.rec?X-Sig=1", "/e%232.rec?X-Sig=1"),
    ],
)
def test_a_name_asks_for_its_own_object(server, tmp_path, name, asked):
    if "?" in asked:
        pytest.importorskip("aiohttp")
    for shortened in (asked.partition("%23")[0], asked.partition("?")[0]):
        server.objects[shortened] = content(tmp_path, b"wrong")
    server.objects[asked] = content(tmp_path, b"right")
    with open_records(f"{server.url}/{name}") as records:
        assert records[:] == [b"right"]


MISSING = """
import sys
sys.modules.update({name: None for name in sys.argv[2:]})
from adapters import open_records
try:
    open_records(sys.argv[1])
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("url", "missing"),
    [
        ("http://h/a.rec?X-Sig=secret", ("aiohttp",)),
        ("http://h/a.rec?X-Sig=secret", ("aiohttp", "fsspec")),
        ("http://h/a.rec", ("obstore", "fsspec")),
        ("http://h/a.rec", ("obstore", "aiohttp")),
        ("s3://bucket/a.rec", ("obstore", "s3fs")),
        ("gs://bucket/a.rec", ("obstore", "fsspec")),
    ],
)
def test_a_missing_package_is_an_error_that_names_the_extra(url, missing):
    command = [sys.executable, "-c", MISSING, url, *missing]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pip install 'loader-adapters[remote]'" in done.stdout
    assert "secret" not in done.stdout


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("name", ["train-*.rec", "out/"])
@pytest.mark.parametrize("opened", [open_records, open_images])
@pytest.mark.parametrize("kind", ["s3", "web"])
def test_a_denied_listing_is_a_permission_error(server, monkeypatch, kind, opened, name, status):
    from adapters.remote.clients import forget

    server.refusal = status
    for variable, value in {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(variable, value)
    forget()
    root = "s3://bucket" if kind == "s3" else f"{server.url}/x"
    with pytest.raises(PermissionError, match="the store refuses") as caught:
        opened(f"{root}/{name}")
    assert name.rstrip("/") in str(caught.value.filename)
    forget()
