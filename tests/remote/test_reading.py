"""Remote files give what local ones do, bit for bit, in every process, by few requests."""

from __future__ import annotations

import datetime
import gzip
import logging
import os
import re
from typing import Any

import numpy as np
import pytest

from adapters import (
    Cache,
    Feature,
    ImageDecoder,
    RecordError,
    SafeSequence,
    open_records,
)
from adapters.errors import ClosedError
from adapters.images import kernel
from adapters.records import remotefile
from adapters.records.files import RecordFiles
from tests.forking import forks
from tests.plans import plan_of
from tests.remote.conftest import SIZE, payloads, serve, written
from tests.sources.example_files import encoded, file_of
from tests.sources.record_files import jpeg_file, raw_file

FORMATS = ("tfrecord", "recordio")


def batches(source: Any, size: int = 16) -> list[list[np.ndarray]]:
    """All batches of a shuffled epoch, as arrays, by way of ``fill`` or one by one."""
    plan = plan_of(source, size, shuffle=True)
    found = []
    for index in range(plan.num_batches):
        numbers = plan.order.batch(0, index)
        source.expect(numbers, elsewhere=False)
        source.bring(numbers)
        if source.leaves is None:
            found.append([source.sample(number) for number in numbers.tolist()])
            continue
        rows = [np.empty((len(numbers), *shape), dtype) for shape, dtype in source.leaves]
        assert source.fill(numbers, None, rows) == []
        found.append(rows)
    return found


@pytest.mark.parametrize(
    ("format", "indexed", "cached"),
    [
        ("tfrecord", True, False),
        ("tfrecord", False, True),
        ("recordio", True, True),
        ("recordio", False, False),
    ],
)
def test_records_are_those_of_the_local_file(server, tmp_path, format, indexed, cached):
    path = written(tmp_path, format)
    serve(server, tmp_path)
    if not indexed:
        del server.objects["train.idx"]
    cache = Cache(tmp_path / "cache") if cached else None
    with open_records(server.url(path.name), cache=cache) as source:
        expected = payloads()
        numbers = np.random.default_rng(1).permutation(SIZE).tolist()
        assert source.__getitems__(numbers) == [expected[number] for number in numbers]
        assert list(source) == expected
        assert source[-1] == expected[-1]
        assert source[3:9] == expected[3:9]


@pytest.mark.parametrize(
    ("gatherer", "cached"),
    [
        ("kernel", False),
        ("numpy", True),
        pytest.param("kernel", True, marks=pytest.mark.full),
        pytest.param("numpy", False, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize(
    ("format", "kind"),
    [
        *((format, kind) for format in FORMATS for kind in ("raw", "jpeg")),
        ("tfrecord", "features"),
        ("tfrecord", "image feature"),
        ("recordio", "header"),
    ],
)
def test_batches_are_those_of_the_local_file(
    server, tmp_path, monkeypatch, format, kind, gatherer, cached
):
    """Raw arrays and typed features are gathered, encoded images located: nothing is read early."""
    if gatherer == "numpy":
        monkeypatch.setattr(kernel, "load", lambda: None)
    elif kernel.load() is None:
        pytest.skip("the kernel wasn't built")
    decode: Any = "image"
    if kind == "raw":
        path = raw_file(tmp_path, format)
    elif kind == "jpeg":
        path, decode = jpeg_file(tmp_path, format), ImageDecoder(16, crop="center")
    elif kind == "image feature":
        path = jpeg_file(tmp_path, format)
        decode = {"image/encoded": ImageDecoder(16), "image/class/label": Feature("int64")}
    elif kind == "features":
        records = [encoded({"x": [0.5 * number] * 7, "y": [number % 3]}) for number in range(90)]
        path, decode = file_of(tmp_path, records), {"x": Feature("float32", (7,))}
    else:
        path = raw_file(tmp_path, format)
        size = len(open_records(path)[0]) - 24
        decode = {"data": Feature("uint8", (size,), stored="raw"), "label": Feature("float32")}
    serve(server, tmp_path)
    cache = Cache(tmp_path / "cache", 1 << 20) if cached else None
    local = open_records(path, decode=decode)
    remote = open_records(server.url(path.name), decode=decode, cache=cache)
    for _ in range(2):
        for mine, own in zip(batches(remote), batches(local), strict=True):
            for one, other in zip(mine, own, strict=True):
                np.testing.assert_array_equal(one, other)


def test_only_what_is_read_is_fetched(server, tmp_path):
    path = written(tmp_path, "tfrecord", payloads(1000))
    serve(server, tmp_path)
    whole = path.stat().st_size
    with open_records(server.url(path.name)) as source:
        server.counted.bytes = 0
        source.__getitems__([5, 500, 990])
        assert 0 < server.counted.bytes < whole // 20


def test_batch_is_fetched_in_merged_ranges(server, tmp_path):
    """Records that lie near each other are one request, those far away one each."""
    path = written(tmp_path, "tfrecord", [bytes([each]) * 100_000 for each in range(64)])
    serve(server, tmp_path)
    with open_records(server.url(path.name)) as source:
        server.counted.requests = 0
        source.bring(np.array([3, 4, 5, 40, 41]))
        assert server.counted.requests == 2


def test_opening_with_an_index_takes_few_requests(server, tmp_path):
    path = written(tmp_path, "tfrecord")
    serve(server, tmp_path)
    open_records(server.url(path.name)).close()
    # Its size; its begin, the index by both names, the last record.
    assert server.counted.requests <= 5


def test_file_without_an_index_is_read_once(server, tmp_path):
    path = written(tmp_path, "recordio")
    serve(server, tmp_path)
    del server.objects["train.idx"]
    cache = Cache(tmp_path / "cache")
    open_records(server.url(path.name), cache=cache).close()
    server.counted.bytes = 0
    with open_records(server.url(path.name), cache=cache) as source:
        assert len(source) == SIZE
        assert server.counted.bytes == 0
    with open_records(server.url(path.name)) as source:
        assert len(source) == SIZE
        assert server.counted.bytes < path.stat().st_size // 100


def test_stored_index_is_that_of_one_version(server, tmp_path):
    path = written(tmp_path, "recordio", [b"12345678"] * 6)
    serve(server, tmp_path)
    del server.objects["train.idx"]
    assert open_records(server.url(path.name))[:] == [b"12345678"] * 6
    others = [b"1234", b"123456789012", *[b"12345678"] * 4]
    server.objects["train.rec"] = written(tmp_path, "recordio", others).read_bytes()
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


def test_index_of_another_file_is_not_believed(server, tmp_path, caplog):
    path = written(tmp_path, "tfrecord")
    other = written(tmp_path, "tfrecord", payloads(20), "other")
    server.objects = {"a.tfrecord": path.read_bytes()}
    server.objects["a.idx"] = other.with_suffix(".idx").read_bytes()
    with caplog.at_level(logging.WARNING, "adapters"):
        assert open_records(server.url("a.tfrecord"))[:] == payloads()
    assert "is not used, as it doesn't fit" in caplog.text


def test_urls_may_be_escaped_or_of_files(server, tmp_path):
    path = written(tmp_path, "tfrecord", name="my file")
    serve(server, tmp_path)
    for url in (server.url("my%20file.tfrecord"), path.as_uri()):
        assert open_records(url)[:] == payloads()


def test_empty_object_has_no_records(server):
    server.objects["a.rec"] = b""
    assert len(open_records(server.url("a.rec"), format="recordio")) == 0


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


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("format", [*FORMATS, "compressed"])
def test_object_cut_short_has_its_whole_records(format, kept, server, tmp_path):
    path = written(tmp_path, "tfrecord" if format == "compressed" else format)
    content = path.read_bytes()
    content = gzip.compress(content)[:-9] if format == "compressed" else content[:-1]
    server.objects["a"] = content
    cache = Cache(tmp_path / "cache") if kept else None
    for _ in range(2):
        with open_records(server.url("a"), cache=cache) as source:
            assert len(source) == SIZE
            records = iter(source)
            assert [next(records) for _ in range(SIZE - 1)] == payloads()[:-1]
            with pytest.raises(RecordError, match=f"record {SIZE - 1}, byte"):
                next(records)


@pytest.mark.parametrize("where", ["front", "middle", "a bit"])
def test_records_behind_damage_are_found(where, server, tmp_path):
    path = written(tmp_path, "tfrecord")
    content = bytearray(path.read_bytes())
    number = 0 if where == "front" else 100
    at = sum(len(each) + 16 for each in payloads()[:number])
    if where == "a bit":
        content[at + 12] ^= 1
    else:
        content[at : at + 20] = bytes(20)
    server.objects["a.tfrecord"] = bytes(content)
    with open_records(server.url("a.tfrecord"), format="tfrecord") as source:
        expected = payloads()
        numbers = [each for each in range(SIZE) if each != number]
        assert source.__getitems__(numbers) == [expected[each] for each in numbers]
        url = re.escape(server.url("a.tfrecord"))
        with pytest.raises(RecordError, match=f"{url}, record {number}, byte {at}:"):
            source[number]
        with pytest.raises(RecordError, match=f"record {number}, byte {at}:"):
            batches(source)


def test_memory_is_bounded(server, tmp_path, monkeypatch):
    """What was fetched goes in halves; what somebody holds stays as it is."""
    monkeypatch.setattr(remotefile, "HALF_BYTES", 200_000)
    path = written(tmp_path, "tfrecord", payloads(600))
    serve(server, tmp_path)
    expected = payloads(600)
    with open_records(server.url(path.name)) as source:
        held = source._files.read(0)
        storage = source._files.shards[0].storage
        for number in range(0, 600, 5):
            assert source[number] == expected[number]
            regions = [each for each in (storage._region, storage._old) if each is not None]
            held_bytes = sum(int(each.here.sum()) * each.unit for each in regions)
            assert held_bytes < 500_000
        assert bytes(held) == expected[0]


def test_what_was_fetched_ahead_is_not_fetched_again(server, tmp_path):
    path = written(tmp_path, "tfrecord", [bytes([each]) * 200_000 for each in range(20)])
    serve(server, tmp_path)
    with open_records(server.url(path.name)) as source:
        server.counted.ranges.clear()
        numbers = np.arange(0, 20, 2)
        source.expect(numbers, elsewhere=False)
        source.bring(numbers)
        source.bring(numbers)
        firsts = [begin for _, begin, _ in server.counted.ranges]
        assert len(firsts) == len(set(firsts)) == len(numbers)


def test_local_file_is_read_through_a_cache(tmp_path):
    path = written(tmp_path, "recordio")
    cache = Cache(tmp_path / "cache")
    assert open_records(path, cache=cache)[:] == payloads()
    assert cache.used >= path.stat().st_size
    assert [kept.url for kept in cache.objects()] == [str(path)]


@pytest.mark.parametrize(
    ("workers", "processes", "cached"), [(0, False, True), (2, False, False), (1, True, True)]
)
def test_loader_batches_are_those_of_the_local_file(server, tmp_path, workers, processes, cached):
    path, decode = jpeg_file(tmp_path, "tfrecord", 40), ImageDecoder(16, crop="random", flip=True)
    serve(server, tmp_path)
    cache = tmp_path / "cache" if cached else None
    remote = open_records(server.url(path.name), decode=decode, cache=cache)
    given = {"batch_size": 8, "shuffle": True, "seed": 3}
    with (
        SafeSequence(open_records(path, decode=decode), workers=0, **given) as expected,
        SafeSequence(remote, workers=workers, use_multiprocessing=processes, **given) as found,
    ):
        for mine, own in zip(found, expected, strict=True):
            for one, other in zip(mine, own, strict=True):
                np.testing.assert_array_equal(one, other)
    remote.close()


def test_next_batches_are_fetched_ahead(server, tmp_path, monkeypatch):
    """Each batch of the window is announced when it is asked for, before a thread comes to it."""
    path = jpeg_file(tmp_path, "tfrecord", 40)
    serve(server, tmp_path)
    told = []
    expect = RecordFiles.expect

    def expected(self, numbers, elsewhere):
        told.append((len(numbers), elsewhere))
        return expect(self, numbers, elsewhere)

    monkeypatch.setattr(RecordFiles, "expect", expected)
    source = open_records(server.url(path.name), decode=ImageDecoder(16))
    with SafeSequence(source, batch_size=8, workers=1, max_queue_size=4) as sequence:
        assert len(list(sequence)) == 5
    # And those of the next epoch, as many as the window holds.
    assert told[:5] == [(8, False)] * 5
    source.close()


def in_child(source, numbers):
    """What a forked child says of records: how many are right, or the error."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            expected = payloads()
            found = source.__getitems__(numbers)
            told = str(sum(each == expected[number] for each, number in zip(found, numbers)))
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        told = file.read().decode()
    os.waitpid(child, 0)
    return told


@forks
def test_cached_records_are_read_after_a_fork(server, tmp_path):
    path = written(tmp_path, "tfrecord")
    serve(server, tmp_path)
    with open_records(server.url(path.name), cache=Cache(tmp_path / "cache")) as source:
        numbers = list(range(0, SIZE, 3))
        source.__getitems__(numbers)
        assert in_child(source, numbers) == str(len(numbers))


@forks
def test_forked_process_fetches_or_says_what_to_do(server, tmp_path):
    """obstore's threads don't survive a fork; fsspec's file system is taken, where there is one."""
    path = written(tmp_path, "tfrecord")
    serve(server, tmp_path)
    with open_records(server.url(path.name)) as source:
        source[0]
        told = in_child(source, [5, SIZE - 1])
        assert told == "2" or 'spawn"' in told
