"""A web server that lists its files by PROPFIND, with times and no ETags, which GET has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from adapters import open_images, open_records
from adapters.remote import clients
from tests.remote.conftest import payloads, written
from tests.sources.image_folders import jpeg

FILES = {"/p/ant/1.jpg": jpeg(1), "/p/ant/2 x.jpg": jpeg(2)}
FOLDERS = ["/p/", "/p/ant/"]
TIME = formatdate(10**9, usegmt=True)


class Listing(BaseHTTPRequestHandler):
    """Gives ``files``."""

    files: dict[str, bytes] = FILES
    listed_etag = ""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_PROPFIND(self) -> None:
        """All files and folders, whatever is asked for."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        responses = "".join(map(self.response, [*FOLDERS, *self.files]))
        text = f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{responses}</D:multistatus>'
        self.answer(207, text.encode(), {"Content-Type": "application/xml"})

    def response(self, path: str) -> str:
        """What there is to say of one of them."""
        about = "<D:resourcetype><D:collection/></D:resourcetype>"
        if path in self.files:
            about = f"<D:getcontentlength>{len(self.files[path])}</D:getcontentlength>"
            about += f"<D:resourcetype/>{self.listed_etag}"
        return (
            f"<D:response><D:href>{path.replace(' ', '%20')}</D:href><D:propstat><D:prop>"
            f"<D:getlastmodified>{TIME}</D:getlastmodified>{about}</D:prop>"
            "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )

    def do_GET(self) -> None:
        """A file, or some bytes of it."""
        data = self.files.get(self.path.replace("%20", " "))
        if data is None:
            self.answer(404, b"", {})
            return
        given = {"ETag": '"abc"', "Last-Modified": TIME}
        asked = self.headers.get("Range")
        if asked is None:
            self.answer(200, data, given)
            return
        first, last = map(int, asked.removeprefix("bytes=").split("-"))
        place = f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}"
        self.answer(206, data[first : last + 1], {**given, "Content-Range": place})

    do_HEAD = do_GET

    def answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        """Send it."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@pytest.fixture
def serving(request: pytest.FixtureRequest) -> Iterator[tuple[type[Listing], str]]:
    """The server, which gives what ``files`` has, and its URL."""
    kind = type("Own", (Listing,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield kind, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            clients.forget()


@pytest.mark.parametrize("listed_etag", ["", '<D:getetag>"abc"</D:getetag>'])
def test_images_of_a_server_that_lists_times(serving, monkeypatch, listed_etag):
    kind, url = serving
    monkeypatch.setattr(kind, "listed_etag", listed_etag)
    with open_images(f"{url}/p/") as source:
        assert source.classes == ["ant"]
        assert [source.read(number) for number in range(len(source))] == [*FILES.values()]


def test_records_of_a_server_that_lists_times(serving, monkeypatch, tmp_path: Path):
    kind, url = serving
    path = written(tmp_path, "tfrecord", payloads(20))
    files = {f"/p/{each.name}": each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    monkeypatch.setattr(kind, "files", files)
    with open_records(f"{url}/p/*{path.suffix}") as source:
        assert source[:] == payloads(20)


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("/a%2Fb", "/a/b"),
        ("/p//c", "/p/c"),
        ("/d%3Fv=1", "/d"),
        ("/e%2Bf", "/e+f"),
        ("/g%20h", "/g"),
    ],
)
def test_the_object_of_this_path_is_read_and_no_other(serving, loop, monkeypatch, path, other):
    kind, url = serving
    monkeypatch.setattr(kind, "files", {path.replace("%20", " "): b"right", other: b"wrong"})
    with open_images([(url + path, 0)], decode=bytes) as source:
        assert source[0] == (b"right", 0)
