"""Which object it is: by URL, query, version and place; what is said where nobody knows."""

from __future__ import annotations

import datetime
import errno
import logging
import os
import time

import numpy as np
import pytest

from adapters import Cache, open_records
from adapters.records.remotefile import RemoteFile
from adapters.remote import Head, clients, fsspec_client, obstore_client, retry
from adapters.remote.wholes import identity_of
from tests.remote.conftest import payloads, written
from tests.sources.record_files import raw_file


@pytest.mark.parametrize(("is_etag", "folders"), [(False, 2), (True, 1)])
def test_a_query_tells_objects_apart_where_no_etag_does(tmp_path, is_etag, folders):
    head = Head(100, "1", 0, is_etag)
    cached = [
        Cache(tmp_path).object_of(f"https://h/get?id={each}", head) for each in ("one", "two")
    ]
    assert len({each._folder for each in cached}) == folders
    for each in cached:
        each.segment(0)
    assert {kept.url for kept in Cache(tmp_path).objects()} == {"https://h/get"}


def test_a_hash_in_a_path_tells_objects_apart(tmp_path):
    """Servers make ETags of time and size, which many pictures have in common."""
    head, urls = Head(100, '"1-64"', 0, True), ["https://h/img#1.npy", "https://h/img#2.npy"]
    assert len({Cache(tmp_path).object_of(url, head)._folder for url in urls}) == 2
    assert len({identity_of(url, head) for url in urls}) == 2


def test_files_of_one_name_give_their_own_samples(tmp_path):
    paths = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths.append(raw_file(tmp_path / name, "tfrecord"))
    images = [image for image, _ in open_records(paths[1], decode="image")]
    # The second has its records in another order, so that its places are others.
    source = open_records([paths[0], paths[1]], decode="image")
    first, second = source._files.shards
    second.storage.name = first.storage.name
    second.offsets = second.offsets[::-1].copy()
    second.sizes = None if second.sizes is None else second.sizes[::-1].copy()
    numbers = np.arange(len(first), len(first) + len(second))
    rows = [np.empty((len(numbers), *shape), dtype) for shape, dtype in source.leaves]
    assert source.fill(np.arange(len(first)), None, [row.copy() for row in rows]) == []
    assert source.fill(numbers, None, rows) == []
    np.testing.assert_array_equal(rows[0], np.stack(images[::-1]))


def test_what_has_no_version_is_not_kept(tmp_path, caplog):
    cache = Cache(tmp_path)
    for name in ("a", "b"):
        file = RemoteFile(f"https://h/{name}?sig=secret", cache, Head(5, "", 0))
        assert not file.has_cache
    assert caplog.text.count("no version of it") == 1
    assert "secret" not in caplog.text


def test_a_store_that_tells_neither_etag_nor_date_tells_no_version():
    epoch = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)
    assert obstore_client._head({"size": 5, "last_modified": epoch, "e_tag": None}).version == ""


@pytest.mark.parametrize(
    "name", ["Last-Modified", "modify", "modificationTime", "last_write_time", "mtime"]
)
def test_a_date_is_a_version(name):
    assert fsspec_client._head({"size": 5, name: "Mon, 23 Nov 2026"}).version
    assert not fsspec_client._head({"size": 5}).version


@pytest.mark.parametrize(
    ("etag", "expected", "is_etag"),
    [("0x8D", '"0x8D"', True), ('"abc"', '"abc"', True), ('W/"abc"', 'W/"abc"', False)],
)
def test_a_listed_etag_is_that_of_the_answer(etag, expected, is_etag):
    meta = {"size": 5, "last_modified": datetime.datetime.now(), "e_tag": etag}
    assert obstore_client._head(meta)[1::2] == (expected, is_etag)
    assert fsspec_client._head({"size": 5, "ETag": etag}).version == expected


def test_a_relative_path_is_that_of_the_folder_it_was_opened_in(tmp_path, monkeypatch):
    cache = Cache(tmp_path / "cache")
    expected = {"a": payloads(40), "b": payloads(40)[::-1]}
    for name, records in expected.items():
        (tmp_path / name).mkdir()
        path = written(tmp_path / name, "recordio", records)
        os.utime(path, ns=(1, 1))
    found = {}
    for name in expected:
        monkeypatch.chdir(tmp_path / name)
        found[name] = open_records("train.rec", cache=cache)
    monkeypatch.chdir(tmp_path)
    assert {name: source[:] for name, source in found.items()} == expected


def test_what_is_no_file_is_an_error_at_once(tmp_path):
    os.mkfifo(tmp_path / "a.rec")
    started = time.monotonic()
    with pytest.raises(IsADirectoryError, match=r"a\.rec is not a file"):
        open_records(tmp_path / "a.rec", cache=tmp_path / "cache")
    assert time.monotonic() - started < 10


def test_a_file_that_became_a_folder_is_an_error_at_once(tmp_path):
    with pytest.raises(IsADirectoryError):
        retry.persistently(lambda: clients.LocalFiles().get_all(str(tmp_path)), "a")


@pytest.fixture
def files():
    pytest.importorskip("fsspec", reason="the fallback is fsspec's")
    return fsspec_client.FileSystem("memory://")


def test_an_object_of_unknown_size_is_an_error(files, monkeypatch):
    monkeypatch.setattr(files._files, "info", lambda path: {"size": None, "name": path})
    with pytest.raises(ValueError, match=r"memory:///?a\.rec: the store doesn't say how long"):
        files.head("a.rec")


@pytest.mark.parametrize(
    ("status", "expected"),
    [(404, FileNotFoundError), (401, PermissionError), (403, PermissionError)]
    + [(500, ConnectionError), (503, ConnectionError)],
)
@pytest.mark.parametrize("how", ["head", "get"])
def test_the_answers_of_a_web_server_are_told_apart(files, monkeypatch, status, expected, how):
    aiohttp = pytest.importorskip("aiohttp", reason="fsspec asks web servers by it")

    def refuse(*_, **__):
        info = aiohttp.RequestInfo("https://h/a?sig=secret", "GET", {}, "https://h/a?sig=secret")
        error = aiohttp.ClientResponseError(info, (), status=status, message="no")
        if how == "get":
            raise error
        raise FileNotFoundError("https://h/a?sig=secret") from error

    monkeypatch.setattr(files._files, "info", refuse)
    monkeypatch.setattr(files._files, "cat_file", refuse)
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.01")
    ask = {"head": lambda: files.head("a"), "get": lambda: files.get("a", 0, 1, None)}[how]
    with pytest.raises(expected) as raised:
        retry.persistently(ask, "https://h/a")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "403, message='Forbidden', url='https://me:secret@h/a.rec?X-Sig=secret&b=1'",
        "Max retries exceeded with url: /a.rec?X-Sig=secret (Caused by ...)",
        "x" * 270 + " URL('https://h/a.rec?X-Sig=secret')",
    ],
)
@pytest.mark.parametrize("kind", [OSError, PermissionError])
def test_no_signature_is_shown(monkeypatch, caplog, text, kind):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.2")
    monkeypatch.setattr(retry, "_FIRST_WAIT_SECONDS", 0.01)

    def fail():
        raise kind(errno.EIO, text)

    with caplog.at_level(logging.DEBUG, "adapters"), pytest.raises(OSError) as raised:
        retry.persistently(fail, "https://h/a.rec")
    assert "secret" not in str(raised.value) + caplog.text
