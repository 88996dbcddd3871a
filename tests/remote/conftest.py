"""A range server for each test, and record files that it serves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import open_images, open_records
from adapters.records import region, remotefile
from adapters.remote import clients, fetch
from adapters.sources import objectreader
from tests.remote.rangeserver import RangeServer
from tests.sources.image_folders import varied
from tests.sources.record_files import SUFFIXES, write

pytest.importorskip("obstore", reason="remote files are read by obstore: the extra remote")

SIZE, COUNT = 300, 200


class Poisoned(region.MemoryRegion):
    """Memory in which what wasn't fetched is no zeros, so that reading it shows."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.put(0, b"\xa5" * size)


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't there yet holds garbage."""
    monkeypatch.setattr(remotefile, "MemoryRegion", Poisoned)


def _await_what_is_fetched() -> None:
    """What a source that failed had asked for ahead; a server that hangs isn't waited for long."""
    threads, deadline = fetch._threads, time.monotonic() + 1

    def busy() -> bool:
        return bool(threads._ready) or threads._count > threads._idle

    while busy() and time.monotonic() < deadline:
        time.sleep(0.005)


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with RangeServer() as serving:
        yield serving
        for reading in [*objectreader._readers]:
            reading.close()  # What is fetched ahead would ask on when the server is gone.
        _await_what_is_fetched()
    clients.forget()


@pytest.fixture(scope="session")
def loop() -> None:
    """fsspec's own thread, which stays."""
    pytest.importorskip("aiohttp", reason="fsspec asks web servers by aiohttp")
    pytest.importorskip("fsspec.asyn", reason="the fallback is fsspec's").get_loop()


def payloads(count: int = SIZE, most: int = 3000) -> list[bytes]:
    rng = np.random.default_rng(3)
    return [rng.bytes(int(rng.integers(1, most))) for _ in range(count)]


def written(folder: Path, format: str, records: Any = None, name: str = "train") -> Path:
    path = folder / (name + SUFFIXES[format])
    return write(path, format, payloads() if records is None else records)


def serve(server: RangeServer, folder: Path, prefix: str = "") -> None:
    for path in folder.iterdir():
        if path.is_file():
            server.objects[prefix + path.name] = path.read_bytes()


@pytest.fixture
def bucket() -> Any:
    """An empty store in memory, which lists what it has."""
    fsspec = pytest.importorskip("fsspec", reason="the store of these tests is fsspec's memory")
    found = fsspec.filesystem("memory")
    found.store.clear()
    yield found
    found.store.clear()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return varied(tmp_path / "photos", 24)


@pytest.fixture
def expected() -> list[bytes]:
    return payloads(COUNT, 20_000)


@pytest.fixture(params=["records", "images"])
def what(request: Any) -> str:
    """What is read: pages of a record file, or whole files."""
    return str(request.param)


def publish(server: RangeServer, folder: Path, what: str, contents: list[bytes]) -> list[str]:
    if what == "images":
        server.objects |= {f"a/{number}.jpg": data for number, data in enumerate(contents)}
        return [server.url(f"a/{number}.jpg") for number in range(len(contents))]
    (folder / "files").mkdir(exist_ok=True)
    path = written(folder / "files", "tfrecord", contents)
    serve(server, folder / "files")
    return [server.url(path.name)]


@pytest.fixture
def urls(server: RangeServer, tmp_path: Path, what: str, expected: list[bytes]) -> list[str]:
    return publish(server, tmp_path, what, expected)


def opened(what: str, urls: list[str], **options: Any) -> Any:
    return {"records": open_records, "images": open_images}[what](urls, **options)


def read(source: Any, numbers: Any = None) -> list[bytes]:
    numbers = np.arange(len(source)) if numbers is None else np.asarray(numbers)
    source.fetch(numbers)
    return [source.read(number) for number in numbers.tolist()]


def assert_equal(found: Any, expected: Any) -> None:
    for mine, own in zip(found, expected, strict=True):
        for one, other in zip(mine, own, strict=True):
            np.testing.assert_array_equal(one, other)
