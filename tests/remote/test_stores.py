"""What lists and keeps objects: fsspec's memory, WebDAV; and packing into a store."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from adapters import open_images, open_records, pack
from adapters.remote import client_of
from tests.remote.conftest import payloads, serve, written
from tests.sources.image_folders import jpeg


def test_glob_leaves_out_indexes(bucket, server, tmp_path):
    for name in ("train-0", "train-1", "train1", "train[1]"):
        path = written(tmp_path, "tfrecord", [name.encode()], name)
        bucket.pipe_file(f"/data/{path.name}", path.read_bytes())
        bucket.pipe_file(f"/data/{name}.idx", path.with_suffix(".idx").read_bytes())
    assert open_records("memory://data/train-*")[:] == [b"train-0", b"train-1"]
    serve(server, tmp_path)  # Lists nothing.
    for url in ("memory://data/train[1].tfrecord", server.url("train[1].tfrecord")):
        assert open_records(url)[:] == [b"train[1]"]


@pytest.mark.parametrize("url", ["memory://data/*.rec", "memory://data/none.rec"])
def test_missing_objects_are_named(bucket, url):
    with pytest.raises(FileNotFoundError, match=re.escape(url)):
        open_records(url)


@pytest.mark.parametrize("writes", [1, 2, 100])
def test_object_written_while_it_is_read(bucket, monkeypatch, writes):
    """Never the bytes of one version under the name of another."""
    bucket.pipe_file("/a", b"0")
    client, key = client_of("memory://a")
    cat_file, calls = type(bucket).cat_file, itertools.count(1)

    def written_first(self: Any, *given: Any, **options: Any) -> bytes:
        if (call := next(calls)) <= writes:
            bucket.pipe_file("/a", b"%d" % call)
        return cat_file(self, *given, **options)

    monkeypatch.setattr(type(bucket), "cat_file", written_first)
    if writes == 100:
        with pytest.raises(ConnectionError, match="written each time"):
            client.get_all(key)
        return
    assert client.get_all(key) == (b"%d" % writes, client.head(key))
    assert next(calls) == writes + 2


IMAGES = np.arange(10 * 48, dtype=np.uint8).reshape(10, 4, 4, 3)


def packed(format: str, count: int, name: str = "train") -> list[str]:
    """The names of the files that were packed, one for each image."""
    data = IMAGES[:count], range(count)
    options = {"encoding": "raw", "shard_bytes": 1, "seed": None}
    return [each.name for each in pack(data, f"memory://b/{name}", format=format, **options).files]


def names(bucket: Any) -> set[str]:
    return {path.rpartition("/")[2] for path in bucket.find("/b")}


def test_pack_writes_the_manifest_last(bucket):
    records = packed("tfrecord", 10)
    indexes = {name.replace(".tfrecord", ".idx") for name in records}
    assert names(bucket) == {*records, *indexes, "train.json"}
    # What was written last is the newest.
    assert max(bucket.store.values(), key=lambda each: each.created).path.endswith("train.json")
    with open_records("memory://b/train*.tfrecord", decode="image") as source:
        np.testing.assert_array_equal(np.stack([image for image, _ in source]), IMAGES)


def test_pack_removes_what_the_earlier_manifest_named(bucket):
    bucket.pipe_file("/b/train-other.tfrecord", b"somebody else's")
    packed("tfrecord", 4)
    packed("tfrecord", 1)
    shard = "train-00000-of-00001"
    expected = {f"{shard}.tfrecord", f"{shard}.idx", "train.json", "train-other.tfrecord"}
    assert names(bucket) == expected


def test_pack_says_what_cannot_be_removed(bucket, monkeypatch, caplog):
    def refuse(*_):
        raise PermissionError("no")

    packed("tfrecord", 4)
    monkeypatch.setattr(type(bucket), "rm_file", refuse)
    packed("tfrecord", 1)
    assert "memory://b/train-00001-of-" in caplog.text
    assert "is of an earlier run, and can't be removed" in caplog.text


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("https://h/train?sig=secret", "out must be a URL without a query"),
        ("https://h/train#a", "out must be a URL without a query"),
        ("memory://data/", "out must end in a name"),
    ],
)
def test_pack_refuses_urls(out, said):
    with pytest.raises(ValueError, match=said) as raised:
        pack((IMAGES[:1], [0]), out, format="recordio")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("what", ["records", "images"])
def test_hanging_server_ends_within_the_limit(server, loop, monkeypatch, what):
    """By fsspec's client, whose own limits are minutes."""
    monkeypatch.setenv("ADAPTERS_REMOTE_SECONDS", "0.3")
    server.settings.hung = 1.0
    url = server.url("train.rec?sig=secret")
    with pytest.raises(ConnectionError, match=r"train.rec: no answer after 1 tries in") as raised:
        open_records(url) if what == "records" else open_images([url])[0]
    assert "secret" not in str(raised.value)


def test_pack_leaves_what_is_no_manifest(bucket):
    bucket.pipe_file("/b/train.json", b'{"labels": ["mine"]}')
    packed("recordio", 4)
    assert bucket.cat("/b/train.json") == b'{"labels": ["mine"]}'
    packed("recordio", 1)
    indexed = {f"train-00000-of-00001.{each}" for each in ("rec", "idx")}
    assert names(bucket) == {"train.json", "train.rec.json", *indexed}
    bucket.pipe_file("/b/train.rec.json", b"mine")
    with pytest.raises(FileExistsError, match=r"memory://b/train\.rec\.json is something else"):
        packed("recordio", 4)
    assert bucket.cat("/b/train.rec.json") == b"mine"
    bucket.pipe_file("/b/one.json", b"mine")
    assert packed("recordio", 1, "one.rec") == ["one.rec"]
    assert {"one.json", "one.rec", "one.idx", "one.rec.json"} < names(bucket)


def test_pack_of_two_formats_under_one_name(bucket):
    """Neither removes what is the other's."""
    found: dict[str, dict[str, bytes]] = {"recordio": {}, "tfrecord": {}}
    for format, other, count in [
        ("recordio", "tfrecord", 4),
        ("tfrecord", "recordio", 4),
        ("tfrecord", "recordio", 3),
        ("recordio", "tfrecord", 2),
    ]:
        packed(format, count)
        others = found[other]
        assert {name: bucket.cat(f"/b/{name}") for name in others} == others
        own = names(bucket) - {*others}
        assert len(own) == 2 * count + 1
        found[format] = {name: bucket.cat(f"/b/{name}") for name in own}
    for ending, count in (("rec", 2), ("tfrecord", 3)):
        with open_records(f"memory://b/train-*.{ending}", decode="image") as source:
            np.testing.assert_array_equal(np.stack([each for each, _ in source]), IMAGES[:count])


@pytest.mark.parametrize("lists", ["names", "etags"])
def test_webdav(server, tmp_path, lists):
    server.settings.lists = lists
    server.objects = {"p/ant/1.jpg": jpeg(1), "p/ant/2 x.jpg": jpeg(2)}
    with open_images(server.url("p/")) as source:
        assert source.classes == ["ant"]
        assert [source.read(number) for number in range(2)] == [jpeg(1), jpeg(2)]
    written(tmp_path, "tfrecord", payloads(20))
    serve(server, tmp_path, "q/")
    with open_records(server.url("q/*.tfrecord")) as records:
        assert records[:] == payloads(20)


@pytest.mark.parametrize(
    ("path", "other"),
    [("a%2Fb", "a/b"), ("p//c", "p/c"), ("d%3Fv=1", "d"), ("e%2Bf", "e+f"), ("g%20h", "g")],
)
def test_path_is_read_as_written(server, loop, path, other):
    server.objects = {path: b"right", other: b"wrong"}
    with open_images([(server.url(path), 0)], decode=bytes) as source:
        assert source[0] == (b"right", 0)
