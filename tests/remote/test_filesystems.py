"""What fsspec knows: the wide fallback, here its file system in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from adapters import RecordError, open_images, open_records, pack
from adapters.remote import client_of, fsspec_client, obstore_client
from tests.remote.conftest import payloads, written

fsspec = pytest.importorskip("fsspec", reason="the fallback is fsspec's")


@pytest.fixture
def files() -> Iterator[Any]:
    """An empty file system."""
    found = fsspec.filesystem("memory")
    found.store.clear()
    yield found
    found.store.clear()


def test_a_glob_finds_objects_and_leaves_out_indexes(files, tmp_path):
    for name in ("train-0", "train-1"):
        path = written(tmp_path, "tfrecord", [name.encode()], name)
        files.pipe_file(f"/data/{path.name}", path.read_bytes())
        files.pipe_file(f"/data/{name}.idx", path.with_suffix(".idx").read_bytes())
    assert open_records("memory://data/train-*")[:] == [b"train-0", b"train-1"]


def test_nothing_found_says_what_was_asked_for(files):
    with pytest.raises(FileNotFoundError, match=r"no object matches 'memory://data/\*.rec'"):
        open_records("memory://data/*.rec")


def test_a_missing_object_is_named(files):
    with pytest.raises(FileNotFoundError, match=r"memory://data/none.rec"):
        open_records("memory://data/none.rec")


def test_another_version_is_an_error(files, tmp_path):
    path = written(tmp_path, "tfrecord")
    files.pipe_file("/a.tfrecord", path.read_bytes())
    source = open_records("memory://a.tfrecord")
    files.pipe_file("/a.tfrecord", path.read_bytes()[::-1])
    source._files.shards[0].storage.close()
    with pytest.raises(RecordError, match="changed since"):
        source[len(payloads()) // 2]


@pytest.mark.parametrize("writes", [1, 2, 100])
def test_an_object_that_is_written_while_it_is_read_is_read_again(files, monkeypatch, writes):
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


def test_packing_puts_files_indexes_and_at_last_the_manifest(files):
    images = np.arange(40 * 48, dtype=np.uint8).reshape(40, 4, 4, 3)
    options = {"format": "tfrecord", "encoding": "raw", "shard_bytes": 2000, "seed": None}
    manifest = pack((images, range(40)), "memory://data/train", **options)
    names = [path.rpartition("/")[2] for path in files.find("/data")]
    assert len(manifest.files) > 1
    records = {each.name for each in manifest.files}
    assert set(names) == {*records, *(name[:-8] + "idx" for name in records), "train.json"}
    # What was written last is the newest.
    assert max(files.store.values(), key=lambda each: each.created).path.endswith("train.json")
    with open_records("memory://data/train*.tfrecord", decode="image") as source:
        np.testing.assert_array_equal(np.stack([image for image, _ in source]), images)


def test_packing_anew_removes_what_the_earlier_manifest_named(files):
    images = np.zeros((40, 4, 4, 3), np.uint8)
    options = {"format": "tfrecord", "encoding": "raw", "seed": None}
    files.pipe_file("/data/train-other.tfrecord", b"somebody else's")
    pack((images, range(40)), "memory://data/train", shard_bytes=2000, **options)
    assert len(files.find("/data")) > 5
    pack((images[:3], range(3)), "memory://data/train", **options)
    names = {path.rpartition("/")[2] for path in files.find("/data")}
    shard = "train-00000-of-00001"
    assert names == {f"{shard}.tfrecord", f"{shard}.idx", "train.json", "train-other.tfrecord"}


def test_what_cannot_be_removed_is_said(files, monkeypatch, caplog):
    images = np.zeros((40, 4, 4, 3), np.uint8)
    options = {"format": "tfrecord", "encoding": "raw", "seed": None}
    pack((images, range(40)), "memory://data/train", shard_bytes=2000, **options)

    def refuse(path):
        raise PermissionError("no")

    monkeypatch.setattr(type(files), "rm_file", lambda self, path: refuse(path))
    pack((images[:3], range(3)), "memory://data/train", **options)
    assert "memory://data/train-00001-of-" in caplog.text
    assert "is of an earlier run, and can't be removed" in caplog.text


@pytest.mark.parametrize("end", ["?sig=secret", "#a"])
def test_packing_for_a_web_url_with_a_query_is_refused(end):
    with pytest.raises(ValueError, match="out must be a URL without a query") as raised:
        pack((np.zeros((1, 2, 2, 3), np.uint8), [0]), "https://h/train" + end, format="recordio")
    assert "secret" not in str(raised.value)


def test_an_object_may_be_called_as_globs_are(files, tmp_path):
    path = written(tmp_path, "tfrecord", [b"one"])
    files.pipe_file("/data/train[1].tfrecord", path.read_bytes())
    assert open_records("memory://data/train[1].tfrecord")[:] == [b"one"]


def test_packing_for_no_name_is_refused(files):
    with pytest.raises(ValueError, match="out must end in a name"):
        pack((np.zeros((1, 2, 2, 3), np.uint8), [0]), "memory://data/", format="recordio")


def test_an_unknown_kind_names_the_command():
    with pytest.raises(ImportError, match=r"nor would obstore; .*pip install fsspec"):
        open_records("nobody-knows://a.rec")


def test_without_obstore_and_fsspec_the_command_is_named(monkeypatch):
    monkeypatch.setattr(obstore_client, "find_spec", lambda name: None)
    monkeypatch.setattr(fsspec_client, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'loader-adapters\[remote\]'"):
        open_records("s3://nobody-has-it/a.rec")
    with pytest.raises(ImportError, match=r"pip install 'loader-adapters\[remote\]'") as raised:
        open_records("http://nobody-has-it/a.rec?sig=secret")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("what", ["records", "images"])
def test_a_web_server_that_hangs_ends_within_the_limit(server, loop, monkeypatch, what):
    """By fsspec's client, whose own limits are minutes."""
    monkeypatch.setenv("ADAPTERS_REMOTE_SECONDS", "1")
    server.settings.hung = 1.0
    url = server.url("train.rec?sig=secret")
    begun = time.monotonic()
    with pytest.raises(ConnectionError, match=r"train.rec: no answer after 1 tries in 1") as raised:
        open_records(url) if what == "records" else open_images([url])[0]
    assert time.monotonic() - begun < 5
    assert "secret" not in str(raised.value)


def test_a_web_server_that_hangs_now_and_then_is_asked_again(server, loop, tmp_path, monkeypatch):
    monkeypatch.setattr(fsspec_client, "_READ_SECONDS", 0.2)
    path = written(tmp_path, "tfrecord")
    server.objects[path.name] = path.read_bytes()
    server.settings.hung = 0.3
    assert open_records(server.url(path.name + "?sig=secret"))[:] == payloads()
    assert server.counted.faults
