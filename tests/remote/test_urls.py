"""Which names are URLs, which object and version they name, what of them is shown, and globs."""

from __future__ import annotations

import datetime
import errno
import logging
import os
from functools import partial

import pytest

from adapters import Cache, RecordWriter, open_records
from adapters.records.remotefile import RemoteFile
from adapters.remote import Head, client_of, clients, fsspec_client, obstore_client, retry, urls
from adapters.remote.cache import identity_of
from adapters.remote.urls import as_path, beside, clean, folder_of, has_magic, is_url, matching
from tests.remote.conftest import payloads, written


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (is_url, "/data/train.rec", False),
        (is_url, "C://train.rec", False),
        (is_url, "file:///data/train.rec", False),
        # Secrets are not shown.
        (clean, "https://me:secret@host:80/a/b.rec?X-Sig=secret#x", "https://host:80/a/b.rec"),
        (clean, "https://h/c#/1.npy?sig=secret#x", "https://h/c#/1.npy"),
        (clean, "s3://key:secret@bucket/a.rec", "s3://bucket/a.rec"),
        (clean, "s3://bucket/a?b#c.rec", "s3://bucket/a?b#c.rec"),
        (clean, "abfss://container@account/a.rec", "abfss://container@account/a.rec"),
        (clean, "/data/a?b.rec", "/data/a?b.rec"),
        (clean, "zip://a.rec::https://me:secret@h/b.zip?s=secret", "zip://a.rec::https://h/b.zip"),
        (as_path, "file:///data/my%20file.rec", "/data/my file.rec"),
        (as_path, "file://localhost/run#1/x-?.rec", "/run#1/x-?.rec"),
        (has_magic, "https://h/a.rec?sig=*", False),
        (urls.folder_url, "https://h/a/t.csv?x=y/z", "https://h/a/"),
        (
            partial(beside, suffix=".idx", replace=True),
            "https://h/a.rec?s=1",
            "https://h/a.idx?s=1",
        ),
    ],
)
def test_parts_of_names(function, given, expected):
    assert function(given) == expected


NO_DISK = "must be on a disk of this machine, got 's3://b/x'"
NO_HOST = "must name a bucket or a host, as .*, got"


@pytest.mark.parametrize(
    ("function", "url", "said"),
    [
        (as_path, "file://elsewhere/data.rec", "file:///path"),
        (partial(RecordWriter, format="recordio"), "s3://b/x", NO_DISK),
        (Cache, "s3://b/x", NO_DISK),
        *((client_of, url, NO_HOST) for url in ("s3://", "s3:///train.rec", "GS://", "http://")),
        (client_of, "https:///a.rec", NO_HOST),
        (client_of, "zip://a.rec::b.zip", "^zip://a.rec::b.zip: a URL must name one"),
        (client_of, "az://c/x", "^az://c/x: the store can't be opened: .*Account must be"),
    ],
)
def test_url_is_refused(function, url, said):
    with pytest.raises(ValueError, match=said):
        function(url)


def test_file_url_is_a_place_to_write_to(tmp_path):
    with RecordWriter(f"file://{tmp_path}/x.rec", format="recordio") as writer:
        writer.write(b"x")
    assert (tmp_path / "x.rec").exists()
    assert Cache(f"file://{tmp_path}").folder == str(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("t/a-?.rec", ["t/a-1.rec", "t/a-2.rec"]),
        ("t/*", ["t/a-1.rec", "t/a-2.rec", "t/b.rec"]),
        ("t/**", ["t/a-1.rec", "t/a-2.rec", "t/b.rec", "t/u/a-3.rec"]),
        ("**/a-*.rec", ["t/a-1.rec", "t/a-2.rec", "t/u/a-3.rec"]),
        ("t/[!a]*.rec", ["t/b.rec"]),
    ],
)
def test_star_stays_within_a_folder(pattern, found):
    keys = ["t/a-1.rec", "t/a-2.rec", "t/b.rec", "t/u/a-3.rec", "v/a"]
    assert list(matching(pattern, iter(keys))) == found
    assert folder_of("a/b/c-*/d.rec") == "a/b"
    with pytest.raises(ValueError, match=r"a glob must have .* got 'x\[z-a\].rec'"):
        matching("x[z-a].rec", iter([]))


@pytest.mark.parametrize(
    ("urls", "is_etag", "count"),
    [
        (["https://h/get?id=one", "https://h/get?id=two"], False, 2),
        (["https://h/get?id=one", "https://h/get?id=two"], True, 1),
        # Servers make ETags of time and size, which many pictures have in common.
        (["https://h/img#1.npy", "https://h/img#2.npy"], True, 2),
    ],
)
def test_query_and_hash_tell_objects_apart(tmp_path, urls, is_etag, count):
    cache, head = Cache(tmp_path), Head(100, '"1-64"', 0, is_etag)
    assert len({cache.segment(url, head, 0) for url in urls}) == count
    assert len({identity_of(url, head) for url in urls}) == count
    assert {kept.url.partition("?")[0] for kept in cache.objects()} <= {"https://h/get", *urls}
    assert not any("?" in kept.url for kept in cache.objects())


def test_what_has_no_version_is_not_kept(tmp_path, caplog):
    cache = Cache(tmp_path)
    for name in ("a", "b"):
        file = RemoteFile(f"https://h/{name}?sig=secret", cache, Head(5, "", 0))
        assert file.cache is None
    assert caplog.text.count("no version of it") == 1
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("etag", "expected", "is_etag"),
    [("0x8D", '"0x8D"', True), ('"abc"', '"abc"', True), ('W/"abc"', 'W/"abc"', False)],
)
def test_listed_etag_is_that_of_the_answer(etag, expected, is_etag):
    meta = {"size": 5, "last_modified": datetime.datetime.now(), "e_tag": etag}
    assert obstore_client._head(meta)[1::2] == (expected, is_etag)
    assert fsspec_client._head({"size": 5, "ETag": etag}).version == expected


def test_date_is_a_version():
    for name in ("Last-Modified", "modify", "modificationTime", "last_write_time", "mtime"):
        assert fsspec_client._head({"size": 5, name: "Mon, 23 Nov 2026"}).version
    assert not fsspec_client._head({"size": 5}).version
    epoch = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)
    assert obstore_client._head({"size": 5, "last_modified": epoch, "e_tag": None}).version == ""


def test_relative_path_is_that_of_its_folder(tmp_path, monkeypatch):
    cache, expected = Cache(tmp_path / "cache"), {"a": payloads(40), "b": payloads(40)[::-1]}
    found = {}
    for name, records in expected.items():
        (tmp_path / name).mkdir()
        os.utime(written(tmp_path / name, "recordio", records), ns=(1, 1))
        monkeypatch.chdir(tmp_path / name)
        found[name] = open_records("train.rec", cache=cache)
    monkeypatch.chdir(tmp_path)
    assert {name: source[:] for name, source in found.items()} == expected


@pytest.mark.timeout(20)
def test_what_is_no_file_is_an_error_at_once(tmp_path):
    os.mkfifo(tmp_path / "a.rec")
    with pytest.raises(IsADirectoryError, match=r"a\.rec is not a file"):
        open_records(tmp_path / "a.rec", cache=tmp_path / "cache")
    with pytest.raises(IsADirectoryError):
        retry.persistently(lambda: clients.LocalFiles().get(str(tmp_path), 0, 1, None), "a")


def test_object_of_unknown_size_is_an_error(bucket, monkeypatch):
    monkeypatch.setattr(type(bucket), "info", lambda *_, **__: {"size": None, "name": "a.rec"})
    with pytest.raises(ConnectionError, match=r"memory://a\.rec: the store doesn't say how long"):
        open_records("memory://a.rec")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (PermissionError, "403, message='No', url='https://me:secret@h/a.rec?X-Sig=secret&b=1'"),
        (OSError, "Max retries exceeded with url: /a.rec?X-Sig=secret (Caused by ...)"),
        (OSError, "x" * 270 + " URL('https://h/a.rec?X-Sig=secret')"),
    ],
)
def test_no_signature_is_shown(monkeypatch, caplog, text, kind):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.02")
    monkeypatch.setattr(retry, "_FIRST_WAIT_SECONDS", 0.01)

    def fail():
        raise kind(errno.EIO, text)

    with caplog.at_level(logging.DEBUG, "adapters"), pytest.raises(OSError) as raised:
        retry.persistently(fail, "https://h/a.rec")
    assert "secret" not in str(raised.value) + caplog.text
