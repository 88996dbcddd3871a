"""A web server of our own that gives ranges of objects, as slow and as faulty as it is told to be.

One thread of asyncio; on loopback only. Each connection has a latency before each
answer and a bandwidth of its own. Faults come by a seeded generator: answers 503, bodies cut in the
middle, connections that hang. It sends ETags, and minds ``If-Match``. PUT stores an object.

    with RangeServer({"train.rec": data}, latency_seconds=0.03) as server:
        open_records(server.url("train.rec"))
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import random
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

_CHUNK_BYTES = 64 << 10
_DATE = "Mon, 23 Nov 2026 12:00:00 GMT"
_XML = "Content-Type: application/xml"


@dataclass
class Settings:
    """How slow, and how faulty; may be changed at any time."""

    latency_seconds: float = 0.0
    bytes_per_second: float = 0.0
    """Of each connection; 0 for as fast as it goes."""
    refused: float = 0.0
    """Share of answers that are 503."""
    cut: float = 0.0
    """Share of bodies that end in the middle."""
    hung: float = 0.0
    """Share of requests that are never answered."""
    without_etag: bool = False
    without_length: bool = False
    without_ranges: bool = False
    """Give the whole object, whatever range is asked for."""
    other_ranges: bool = False
    """Give as many bytes from the beginning, and say so."""
    without_match: bool = False
    """Don't mind ``If-Match``."""
    credentials: str = ""
    """``user:password`` that are needed."""
    status: str = ""
    """Answer this to everything."""
    lists: str = ""
    """List all objects by WebDAV, without ETags ("names") or with them ("etags")."""
    down: bool = False
    """Answer 503 to everything."""


@dataclass
class Counted:
    requests: int = 0
    bytes: int = 0
    faults: int = 0
    at_once: int = 0
    """Most requests that waited for their answers at the same time."""
    ranges: list[tuple[str, int, int]] = field(default_factory=list)


class RangeServer:
    """Serves ``objects`` from memory, in a thread, until ``close``; ``seed`` is of the faults."""

    def __init__(
        self, objects: dict[str, Any] | None = None, seed: int = 0, **settings: Any
    ) -> None:
        self.objects: dict[str, Any] = dict(objects or {})
        self.settings = Settings(**settings)
        self.counted = Counted()
        self._chance = random.Random(seed)
        self._waiting = 0
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._end: asyncio.Event | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._run, name="range-server", daemon=True)
        self._thread.start()
        if not self._ready.wait(20):
            raise TimeoutError("the range server didn't start within 20 s")

    def url(self, name: str = "") -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    def close(self) -> None:
        if self._thread.is_alive():
            assert self._end is not None
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(20)

    def __enter__(self) -> RangeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._answered(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether another may follow."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        lines = (line.partition(":") for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in lines}
        name, settings = target.lstrip("/"), self.settings
        name = name if name in self.objects else name.partition("?")[0]
        name = name if name in self.objects else unquote(name)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.counted.requests += 1
        if settings.latency_seconds:
            self._waiting += 1
            self.counted.at_once = max(self.counted.at_once, self._waiting)
            await asyncio.sleep(settings.latency_seconds)
            self._waiting -= 1
        chance = self._chance.random()
        if settings.down or chance < settings.refused:
            self.counted.faults += 1
            return await self._said(writer, "503 Slow Down")
        basic = base64.b64encode(settings.credentials.encode()).decode()
        if settings.credentials and headers.get("authorization") != f"Basic {basic}":
            return await self._said(writer, "401 Unauthorized")
        if settings.status:
            return await self._said(writer, settings.status)
        chance -= settings.refused
        if chance < settings.hung:
            self.counted.faults += 1
            await asyncio.sleep(3600)
        is_cut = chance - settings.hung < settings.cut
        if method == "PUT":
            self.objects[name] = body
            return await self._said(writer, "201 Created", f'ETag: "{etag_of(body)}"')
        if method == "PROPFIND" and settings.lists:
            return await self._said(writer, "207 Multi-Status", _XML, self._listing())
        if name not in self.objects:
            return await self._said(writer, "404 Not Found")
        return await self._gave(writer, method, name, headers, is_cut)

    async def _gave(
        self,
        writer: asyncio.StreamWriter,
        method: str,
        name: str,
        headers: dict[str, str],
        is_cut: bool,
    ) -> bool:
        data = self.objects[name]
        etag, settings = f'"{etag_of(data)}"', self.settings
        minds = not (settings.without_etag or settings.without_match)
        if headers.get("if-match", etag) != etag and minds:
            return await self._said(writer, "412 Precondition Failed")
        begin, end, status = 0, len(data), "200 OK"
        lines = [f"Last-Modified: {_DATE}", "Accept-Ranges: bytes"]
        if not settings.without_etag:
            lines.append(f"ETag: {etag}")
        if (wanted := headers.get("range")) is not None and not settings.without_ranges:
            first, _, last = wanted.partition("=")[2].partition("-")
            begin, end = int(first), min(len(data), int(last) + 1 if last else len(data))
            if begin >= len(data):
                return await self._said(writer, "416 Range Not Satisfiable")
            if settings.other_ranges:
                begin, end = 0, end - begin
            status = "206 Partial Content"
            lines.append(f"Content-Range: bytes {begin}-{end - 1}/{len(data)}")
        if not settings.without_length:
            lines.append(f"Content-Length: {end - begin}")
        writer.write("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1"))
        if method == "HEAD":
            await writer.drain()
            return True
        self.counted.ranges.append((name, begin, end))
        self.counted.bytes += end - begin
        if is_cut and end - begin > 1:
            self.counted.faults += 1
            writer.write(data[begin : begin + (end - begin) // 2])
            await writer.drain()
            return False
        await self._sent(writer, memoryview(data)[begin:end])
        return True

    def _listing(self) -> bytes:
        """What there is, whatever is asked for."""
        folders = {
            name[: at + 1] for name in self.objects for at, each in enumerate(name) if each == "/"
        }
        text = '<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">'
        for name in [*sorted(folders), *self.objects]:
            about = "<D:resourcetype><D:collection/></D:resourcetype>"
            if name in self.objects:
                data = self.objects[name]
                about = f"<D:getcontentlength>{len(data)}</D:getcontentlength><D:resourcetype/>"
                if self.settings.lists == "etags":
                    about += f'<D:getetag>"{etag_of(data)}"</D:getetag>'
            text += (
                f"<D:response><D:href>/{quote(name)}</D:href><D:propstat><D:prop>{about}"
                f"<D:getlastmodified>{_DATE}</D:getlastmodified></D:prop>"
                "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
            )
        return f"{text}</D:multistatus>".encode()

    async def _sent(self, writer: asyncio.StreamWriter, data: memoryview) -> None:
        rate = self.settings.bytes_per_second
        if not rate:
            writer.write(data)
            await writer.drain()
            return
        started = self._loop.time()
        for at in range(0, len(data), _CHUNK_BYTES):
            writer.write(data[at : at + _CHUNK_BYTES])
            await writer.drain()
            due = started + min(at + _CHUNK_BYTES, len(data)) / rate
            if (ahead := due - self._loop.time()) > 0.001:
                await asyncio.sleep(ahead)

    async def _said(
        self, writer: asyncio.StreamWriter, status: str, line: str = "", body: bytes = b""
    ) -> bool:
        length = f"Content-Length: {len(body)}"
        lines = [f"HTTP/1.1 {status}", length, *([line] if line else []), "", ""]
        writer.write("\r\n".join(lines).encode("latin-1") + body)
        await writer.drain()
        return True


# Of large objects, which are kept: a new one may lie where another has lain.
_etags: dict[int, tuple[Any, str]] = {}
_MOST_ETAGS = 16


def etag_of(data: Any) -> str:
    """Of an object's content; of a large one it is computed once."""
    if len(data) <= 1 << 20:
        return hashlib.sha256(data).hexdigest()[:16]
    known = _etags.get(id(data))
    if known is None:
        for old in [*_etags][: max(0, len(_etags) + 1 - _MOST_ETAGS)]:
            _etags.pop(old, None)
        known = _etags[id(data)] = data, hashlib.sha256(data).hexdigest()[:16]
    return known[1]
