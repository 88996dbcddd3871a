"""What lists and keeps objects: fsspec's memory, WebDAV; and packing into a store."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from adapters import open_images, open_records, pack
from adapters.remote import client_of, fsspec_client
from tests.remote.conftest import payloads, serve, written
from tests.sources.image_folders import jpeg

RAW = {"format": "tfrecord", "encoding": "raw", "seed": None}
ZEROS = np.zeros((40, 4, 4, 3), np.uint8)


@pytest.fixture
def files(bucket: Any) -> Any:
    """An empty file system."""
    return bucket


def test_glob_leaves_out_indexes(files, tmp_path):
    for name in ("train-0", "train-1"):
        path = written(tmp_path, "tfrecord", [name.encode()], name)
        files.pipe_file(f"/data/{path.name}", path.read_bytes())
        files.pipe_file(f"/data/{name}.idx", path.with_suffix(".idx").read_bytes())
    assert open_records("memory://data/train-*")[:] == [b"train-0", b"train-1"]


@pytest.mark.parametrize("url", ["memory://data/*.rec", "memory://data/none.rec"])
def test_missing_objects_are_named(files, url):
    with pytest.raises(FileNotFoundError, match=re.escape(url)):
        open_records(url)


@pytest.mark.parametrize("writes", [1, 2, 100])
def test_object_written_while_it_is_read(files, monkeypatch, writes):
    """Never the bytes of one version under the name of another."""
    files.pipe_file("/a", b"0")
    client, key = client_of("memory://a")
    cat_file, calls = type(files).cat_file, [0]

    def written_first(self: Any, *given: Any, **options: Any) -> bytes:
        calls[0] += 1
        if calls[0] <= writes:
            files.pipe_file("/a", b"%d" % calls[0])
        return cat_file(self, *given, **options)

    monkeypatch.setattr(type(files), "cat_file", written_first)
    if writes == 100:
        with pytest.raises(ConnectionError, match="written each time"):
            client.get_all(key)
        return
    assert client.get_all(key) == (b"%d" % writes, client.head(key))
    assert calls[0] == writes + 1


def test_pack_writes_the_manifest_last(files):
    images = np.arange(40 * 48, dtype=np.uint8).reshape(40, 4, 4, 3)
    manifest = pack((images, range(40)), "memory://data/train", shard_bytes=2000, **RAW)
    names = [path.rpartition("/")[2] for path in files.find("/data")]
    assert len(manifest.files) > 1
    records = {each.name for each in manifest.files}
    assert set(names) == {*records, *(name[:-8] + "idx" for name in records), "train.json"}
    # What was written last is the newest.
    assert max(files.store.values(), key=lambda each: each.created).path.endswith("train.json")
    with open_records("memory://data/train*.tfrecord", decode="image") as source:
        np.testing.assert_array_equal(np.stack([image for image, _ in source]), images)


def test_pack_removes_what_the_earlier_manifest_named(files):
    files.pipe_file("/data/train-other.tfrecord", b"somebody else's")
    pack((ZEROS, range(40)), "memory://data/train", shard_bytes=2000, **RAW)
    assert len(files.find("/data")) > 5
    pack((ZEROS[:3], range(3)), "memory://data/train", **RAW)
    names = {path.rpartition("/")[2] for path in files.find("/data")}
    shard = "train-00000-of-00001"
    assert names == {f"{shard}.tfrecord", f"{shard}.idx", "train.json", "train-other.tfrecord"}


def test_pack_says_what_cannot_be_removed(files, monkeypatch, caplog):
    pack((ZEROS, range(40)), "memory://data/train", shard_bytes=2000, **RAW)

    def refuse(*_):
        raise PermissionError("no")

    monkeypatch.setattr(type(files), "rm_file", refuse)
    pack((ZEROS[:3], range(3)), "memory://data/train", **RAW)
    assert "memory://data/train-00001-of-" in caplog.text
    assert "is of an earlier run, and can't be removed" in caplog.text


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("https://h/train?sig=secret", "out must be a URL without a query"),
        ("https://h/train#a", "out must be a URL without a query"),
        ("memory://data/", "out must end in a name"),
    ],
)
def test_pack_refuses_urls(files, out, said):
    with pytest.raises(ValueError, match=said) as raised:
        pack((ZEROS[:1], [0]), out, format="recordio")
    assert "secret" not in str(raised.value)


def test_object_named_like_a_glob(files, tmp_path):
    path = written(tmp_path, "tfrecord", [b"one"])
    files.pipe_file("/data/train[1].tfrecord", path.read_bytes())
    assert open_records("memory://data/train[1].tfrecord")[:] == [b"one"]


def test_unknown_scheme_names_the_command(files):
    with pytest.raises(ImportError, match=r"nor would obstore; .*pip install fsspec"):
        open_records("nobody-knows://a.rec")


@pytest.mark.parametrize("what", ["records", "images"])
def test_hanging_server_ends_within_the_limit(server, loop, monkeypatch, what):
    """By fsspec's client, whose own limits are minutes."""
    monkeypatch.setenv("ADAPTERS_REMOTE_SECONDS", "0.3")
    server.settings.hung = 1.0
    url = server.url("train.rec?sig=secret")
    with pytest.raises(ConnectionError, match=r"train.rec: no answer after 1 tries in") as raised:
        open_records(url) if what == "records" else open_images([url])[0]
    assert "secret" not in str(raised.value)


def test_hanging_server_is_asked_again(server, loop, tmp_path, monkeypatch):
    monkeypatch.setattr(fsspec_client, "_READ_SECONDS", 0.2)
    path = written(tmp_path, "tfrecord")
    server.objects[path.name] = path.read_bytes()
    server.settings.hung = 0.3
    assert open_records(server.url(path.name + "?sig=secret"))[:] == payloads()
    assert server.counted.faults


IMAGES = np.arange(4 * 48, dtype=np.uint8).reshape(4, 4, 4, 3)


def packed(format: str, count: int = 4, name: str = "train") -> list[str]:
    """The names of the files that were packed."""
    data = IMAGES[:count], range(count)
    options = {"encoding": "raw", "shard_bytes": 1, "seed": None}
    return [each.name for each in pack(data, f"memory://b/{name}", format=format, **options).files]


def names(bucket) -> set[str]:
    """Of all objects."""
    return {path.rpartition("/")[2] for path in bucket.find("/b")}


def test_pack_leaves_what_is_no_manifest(bucket):
    bucket.pipe_file("/b/train.json", b'{"labels": ["mine"]}')
    packed("recordio")
    assert bucket.cat("/b/train.json") == b'{"labels": ["mine"]}'
    packed("recordio", 1)
    indexed = {f"train-00000-of-00001.{each}" for each in ("rec", "idx")}
    assert names(bucket) == {"train.json", "train.rec.json", *indexed}
    bucket.pipe_file("/b/train.rec.json", b"mine")
    with pytest.raises(FileExistsError, match=r"memory://b/train\.rec\.json is something else"):
        packed("recordio")
    assert bucket.cat("/b/train.rec.json") == b"mine"
    bucket.pipe_file("/b/one.json", b"mine")
    assert packed("recordio", 1, "one.rec") == ["one.rec"]
    assert {"one.json", "one.rec", "one.idx", "one.rec.json"} < names(bucket)


@pytest.mark.parametrize("counts", [(4, 4), (4, 3)])
def test_pack_of_two_formats_under_one_name(bucket, counts):
    packed("recordio", 4)
    of_records = {name: bucket.cat(f"/b/{name}") for name in names(bucket)}
    for count in counts:
        files = packed("tfrecord", count)
        assert all(bucket.cat(f"/b/{name}") == data for name, data in of_records.items())
        with open_records("memory://b/train-*.tfrecord", decode="image") as source:
            np.testing.assert_array_equal(np.stack([each for each, _ in source]), IMAGES[:count])
    assert len(names(bucket)) == len(of_records) + 2 * len(files) + 1
    # Nor the other way round.
    of_tfrecord = {name: bucket.cat(f"/b/{name}") for name in names(bucket) - {*of_records}}
    packed("recordio", 2)
    assert all(bucket.cat(f"/b/{name}") == data for name, data in of_tfrecord.items())
    assert len(names(bucket)) == len(of_tfrecord) + 2 * 2 + 1


@pytest.mark.parametrize("lists", ["names", "etags"])
def test_webdav_images(server, lists):
    server.settings.lists = lists
    server.objects = {"p/ant/1.jpg": jpeg(1), "p/ant/2 x.jpg": jpeg(2)}
    with open_images(server.url("p/")) as source:
        assert source.classes == ["ant"]
        assert [source.read(number) for number in range(2)] == [jpeg(1), jpeg(2)]


def test_webdav_records(server, tmp_path):
    server.settings.lists = "names"
    path = written(tmp_path, "tfrecord", payloads(20))
    serve(server, tmp_path, "p/")
    with open_records(server.url(f"p/*{path.suffix}")) as source:
        assert source[:] == payloads(20)


@pytest.mark.parametrize(
    ("path", "other"),
    [("a%2Fb", "a/b"), ("p//c", "p/c"), ("d%3Fv=1", "d"), ("e%2Bf", "e+f"), ("g%20h", "g")],
)
def test_path_is_read_as_written(server, loop, path, other):
    server.objects = {path: b"right", other: b"wrong"}
    with open_images([(server.url(path), 0)], decode=bytes) as source:
        assert source[0] == (b"right", 0)
