"""Remote files give what local ones do, bit for bit, in every process, by few requests."""

from __future__ import annotations

import datetime
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import (
    Cache,
    ClosedError,
    Feature,
    ImageDecoder,
    RecordError,
    SafeSequence,
    open_records,
)
from adapters.images import kernel
from adapters.records import irheader, remotefile
from adapters.records.files import RecordFiles
from tests.forking import forks
from tests.plans import plan_of
from tests.remote.conftest import SIZE, assert_equal, payloads, serve, written
from tests.sources.example_files import encoded, file_of
from tests.sources.record_files import jpeg_file, raw_file, write


def batches(source: Any, size: int = 16) -> list[list[np.ndarray]]:
    """All batches of a shuffled epoch, as arrays, by way of ``fill`` or one by one."""
    plan = plan_of(source, size, shuffle=True)
    found = []
    for index in range(plan.num_batches):
        numbers = plan.order.batch(0, index)
        source.prefetch(numbers, elsewhere=False)
        source.fetch(numbers)
        if source.leaves is None:
            found.append([source.sample(number) for number in numbers.tolist()])
            continue
        rows = [np.empty((len(numbers), *shape), dtype) for shape, dtype in source.leaves]
        assert source.fill(numbers, None, rows) == []
        found.append(rows)
    return found


@pytest.mark.parametrize(
    ("format", "indexed", "cached"), [("tfrecord", False, True), ("recordio", True, False)]
)
def test_records_are_those_of_the_local_file(server, tmp_path, format, indexed, cached):
    path, expected = written(tmp_path, format, name="my file"), payloads()
    serve(server, tmp_path)
    if not indexed:
        del server.objects["my file.idx"]
    cache = Cache(tmp_path / "cache") if cached else None
    with open_records(server.url(f"my%20file{path.suffix}"), cache=cache) as source:
        # With an index: the size; the begin, the index by both names, the last record.
        assert server.counted.requests <= 5 or not indexed
        numbers = np.random.default_rng(1).permutation(SIZE).tolist()
        assert source.__getitems__(numbers) == [expected[number] for number in numbers]
        assert list(source) == expected
        assert (source[-1], source[3:9]) == (expected[-1], expected[3:9])
    assert open_records(path.as_uri())[:] == expected


FILES: dict[str, Callable[[Path], tuple[Path, Any]]] = {
    "raw tfrecord": lambda folder: (raw_file(folder, "tfrecord"), "image"),
    "raw recordio": lambda folder: (raw_file(folder, "recordio"), "image"),
    "jpeg tfrecord": lambda folder: (jpeg_file(folder, "tfrecord"), ImageDecoder(16)),
    "jpeg recordio": lambda folder: (jpeg_file(folder, "recordio"), ImageDecoder(16)),
    "image feature": lambda folder: (
        jpeg_file(folder, "tfrecord"),
        {"image/encoded": ImageDecoder(16), "image/class/label": Feature("int64")},
    ),
    "header": lambda folder: (
        write(folder / "a.rec", "recordio", [irheader.pack(n, n, b"%09d" % n) for n in range(90)]),
        {"data": Feature("uint8", (9,), stored="raw"), "label": Feature("float32")},
    ),
    "features": lambda folder: (
        file_of(folder, [encoded({"x": [0.5 * number] * 7}) for number in range(90)]),
        {"x": Feature("float32", (7,))},
    ),
}


@pytest.mark.parametrize(
    ("gatherer", "cached"), [("kernel", True), pytest.param("numpy", False, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("kind", FILES)
def test_batches_are_those_of_the_local_file(server, tmp_path, monkeypatch, kind, gatherer, cached):
    """Raw arrays and typed features are gathered, encoded images located: nothing is read early."""
    if gatherer == "numpy":
        monkeypatch.setattr(kernel, "load", lambda: None)
    elif kernel.load() is None:
        pytest.skip("the kernel wasn't built")
    path, decode = FILES[kind](tmp_path)
    serve(server, tmp_path)
    cache = Cache(tmp_path / "cache", 1 << 20) if cached else None
    local = open_records(path, decode=decode)
    remote = open_records(server.url(path.name), decode=decode, cache=cache)
    for _ in range(2):
        assert_equal(batches(remote), batches(local))


def test_only_what_is_read_is_fetched_and_once(server, tmp_path):
    """Records that lie near each other are one request, those far away one each."""
    path = written(tmp_path, "tfrecord", [bytes([each]) * 100_000 for each in range(64)])
    serve(server, tmp_path)
    with open_records(server.url(path.name)) as source:
        server.counted.ranges.clear()
        numbers = np.array([3, 4, 5, 40, 41])
        source.prefetch(numbers, elsewhere=False)
        source.fetch(numbers)
        source.fetch(numbers)
        sizes = [end - begin for _, begin, end in server.counted.ranges]
    assert len(sizes) == 2
    assert sum(sizes) < 6 * 100_000


@pytest.mark.parametrize("compressed", [False, True])
def test_source_is_closed_once_or_twice(compressed, server, tmp_path):
    content = written(tmp_path, "tfrecord").read_bytes()
    server.objects["a.tfrecord"] = gzip.compress(content) if compressed else content
    source = open_records(server.url("a.tfrecord"))
    part = source.select([1, 0])
    assert (source[:], part[:]) == (payloads(), payloads()[1::-1])
    source.close()
    source.close()
    part.close()
    with pytest.raises(ClosedError):
        source[0]


@pytest.mark.parametrize("cached", [False, True])
def test_file_without_an_index_is_read_once(cached, server, tmp_path):
    path = written(tmp_path, "recordio")
    server.objects = {path.name: path.read_bytes()}
    cache = Cache(tmp_path / "cache") if cached else None
    open_records(server.url(path.name), cache=cache).close()
    server.counted.bytes = 0
    with open_records(server.url(path.name), cache=cache) as source:
        assert len(source) == SIZE
        assert server.counted.bytes < path.stat().st_size // 100
    if cached:
        return
    # The index is that of one version.
    others = [b"1234", b"123456789012", *[b"12345678"] * 4]
    server.objects[path.name] = written(tmp_path, "recordio", others).read_bytes()
    assert open_records(server.url(path.name))[:] == others


def test_stored_index_of_the_same_size_and_time_is_not_used(bucket, tmp_path):
    for sizes in [(8, 16, 8, 8), (8, 8, 16, 8)]:
        records = [bytes([size]) * size for size in sizes]
        content = written(tmp_path, "recordio", records).read_bytes()
        bucket.pipe_file("/b/a.rec", content)
        bucket.store["/b/a.rec"].created = datetime.datetime(2026, 11, 28)
        assert open_records("memory://b/a.rec")[:] == records


def test_older_index_that_leaves_out_a_record_is_noticed(server, tmp_path):
    """Where two records are looked at, when the one before is read; no other request is made."""
    path = written(tmp_path, "recordio", [b"12345678"] * 6)
    serve(server, tmp_path)
    lines = server.objects["train.idx"].splitlines(keepends=True)
    server.objects["train.idx"] = b"".join(lines[:2] + lines[3:])
    with open_records(server.url(path.name)) as source:
        assert server.counted.requests <= 5
        assert source[0] == b"12345678"
        with pytest.raises(RecordError, match=r"record 1.*expected"):
            source[1]


@pytest.mark.parametrize(
    ("format", "cached"), [("tfrecord", False), ("recordio", True), ("compressed", True)]
)
def test_object_cut_short_has_its_whole_records(format, cached, server, tmp_path):
    path = written(tmp_path, "tfrecord" if format == "compressed" else format)
    content = path.read_bytes()
    server.objects["a"] = gzip.compress(content)[:-9] if format == "compressed" else content[:-1]
    cache = Cache(tmp_path / "cache") if cached else None
    for _ in range(2):
        with open_records(server.url("a"), cache=cache) as source:
            assert len(source) == SIZE
            assert source[: SIZE - 1] == payloads()[:-1]
            with pytest.raises(RecordError, match=f"record {SIZE - 1}, byte"):
                source[SIZE - 1]


@pytest.mark.parametrize(("number", "bits"), [(0, 160), (100, 160), (100, 1)])
def test_records_behind_damage_are_found(number, bits, server, tmp_path):
    expected = payloads()
    content = bytearray(written(tmp_path, "tfrecord").read_bytes())
    at = sum(len(each) + 16 for each in expected[:number])
    if bits == 1:
        content[at + 12] ^= 1
    else:
        content[at : at + 20] = bytes(20)
    server.objects["a.tfrecord"] = bytes(content)
    url = server.url("a.tfrecord")
    with open_records(url, format="tfrecord") as source:
        numbers = [each for each in range(SIZE) if each != number]
        assert source.__getitems__(numbers) == [expected[each] for each in numbers]
        for read in (lambda: source[number], lambda: batches(source)):
            with pytest.raises(RecordError, match=f"{url}, record {number}, byte {at}:"):
                read()


def test_memory_is_bounded(server, tmp_path, monkeypatch):
    """What was fetched goes in halves; what somebody holds stays as it is."""
    monkeypatch.setattr(remotefile, "HALF_BYTES", 200_000)
    path, expected = written(tmp_path, "tfrecord", payloads(600)), payloads(600)
    serve(server, tmp_path)
    with open_records(server.url(path.name)) as source:
        held = source._files.read(0)
        storage = source._files.shards[0].storage
        for number in range(0, 600, 5):
            assert source[number] == expected[number]
            regions = [each for each in (storage._region, storage._old) if each is not None]
            assert sum(int(each.here.sum()) * each.unit for each in regions) < 500_000
        assert bytes(held) == expected[0]


def test_next_batches_are_fetched_ahead(server, tmp_path, monkeypatch):
    """Each batch of the window is announced when it is asked for, before a thread comes to it."""
    path = jpeg_file(tmp_path, "tfrecord", 40)
    serve(server, tmp_path)
    told = []
    monkeypatch.setattr(RecordFiles, "prefetch", lambda self, numbers, _: told.append(len(numbers)))
    source = open_records(server.url(path.name), decode=ImageDecoder(16))
    with source, SafeSequence(source, batch_size=8, workers=1, max_queue_size=4) as sequence:
        assert len(list(sequence)) == 5
    # And those of the next epoch, as many as the window holds.
    assert told[:5] == [8] * 5


@forks
def test_forked_process_fetches_or_says_what_to_do(server, tmp_path):
    """What is cached is read; obstore's threads don't survive a fork, but fsspec's client may."""
    path, expected = written(tmp_path, "tfrecord"), payloads()
    serve(server, tmp_path)
    with open_records(server.url(path.name), cache=Cache(tmp_path / "cache")) as source:
        assert source[:100] == expected[:100]
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.write(writing, b"cached " if source[:100] == expected[:100] else b"wrong ")
            try:
                os.write(writing, b"right" if source[SIZE - 1] == expected[-1] else b"wrong")
            except BaseException as error:
                os.write(writing, str(error).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            told = file.read().decode()
        os.waitpid(child, 0)
    assert told == "cached right" or (told.startswith("cached ") and 'spawn"' in told)
