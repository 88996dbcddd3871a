"""Stores that refuse, cut, hang, change and vanish: every byte right, or an error in time."""

from __future__ import annotations

import logging
import pickle
import threading
from types import SimpleNamespace
from unittest.mock import Mock
from urllib.parse import unquote

import numpy as np
import pytest

from adapters import Cache, RecordError, SafeSequence, open_records
from adapters.cli.main import main
from adapters.records import remotefile
from adapters.remote import client_of, clients, fetch, fsspec_client, obstore_client, retry
from adapters.remote.client import Refused
from tests.remote.conftest import COUNT, SIZE, opened, payloads, read, serve, written
from tests.remote.rangeserver import Settings


@pytest.fixture
def quick(monkeypatch):
    """Short waits, so that a test of faults takes seconds."""
    monkeypatch.setattr(obstore_client, "READ_SECONDS", 0.2)
    monkeypatch.setattr(retry, "_FIRST_WAIT_SECONDS", 0.01)
    clients.forget()


@pytest.fixture
def url(server, tmp_path, quick):
    path = written(tmp_path, "tfrecord")
    serve(server, tmp_path)
    return server.url(path.name)


@pytest.mark.parametrize("fault", ["refused", "cut", "hung"])
def test_passing_faults_are_tried_again(server, what, urls, quick, expected, fault):
    with opened(what, urls) as source:
        setattr(server.settings, fault, 0.3)
        for begin in range(0, 200, 20):
            numbers = range(begin, begin + 20, 3)
            assert read(source, numbers) == [expected[number] for number in numbers]
    assert server.counted.faults > 0


def test_threads_that_cannot_start_are_done_without(what, urls, expected, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(fetch, "_threads", fetch._Threads())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with opened(what, urls) as source:
        assert read(source) == expected


@pytest.mark.parametrize("how", ["vanished", "refuses"])
def test_dead_store_is_an_error_in_time(server, what, urls, quick, monkeypatch, how):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.5")
    source = opened(what, urls)
    if how == "vanished":
        server.close()
    else:
        server.settings.down = True
    said = r"http://127.0.0.1:\d+/.*: no answer after \d+ tries in \d\.\d s .*limit 0.5 s"
    with pytest.raises(ConnectionError, match=said):
        read(source, [COUNT // 2])


@pytest.mark.parametrize(("damaged", "asked"), [(-1, [0]), (0, [0, 1])])
def test_skip_does_not_ask_a_dead_store_again(server, url, monkeypatch, damaged, asked):
    """For another sample in the place of one that can't be read."""
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.2")
    records, found = open_records(url), []

    class Source:
        def __len__(self):
            return SIZE

        def __getitem__(self, number):
            found.append(number)
            if number == damaged:
                raise ValueError(number)
            return len(records[number])

    with SafeSequence(Source(), 20, on_error="skip", workers=0) as sequence:
        found.clear()
        server.settings.down = True
        with pytest.raises(ConnectionError, match="no answer"):
            _ = sequence[0]
    assert found == asked


@pytest.mark.parametrize("without_etag", [False, True])
def test_changed_object_is_an_error(server, what, urls, quick, without_etag):
    server.settings.without_etag = without_etag
    source = pickle.loads(pickle.dumps(opened(what, urls)))
    if what == "images":
        read(source, [COUNT // 2])  # Whose version is known from now on.
    for name in server.objects:
        server.objects[name] += b"more"
    with pytest.raises(RecordError, match=r"one that was changed since.*open .* again"):
        read(source, [COUNT // 2])


# By obstore, and by fsspec, as signed URLs are.
BOTH = pytest.mark.parametrize("query", ["", "?sig=secret"], ids=["obstore", "fsspec"])


@pytest.fixture
def record_url(server, loop, tmp_path, monkeypatch):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "5")
    path = written(tmp_path, "recordio")
    serve(server, tmp_path)
    return server.url(path.name)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", "etag"),
        ("", "date"),
        ("?sig=secret", "etag"),
        ("", "etag, If-Match ignored"),
        ("?sig=secret", "etag, If-Match ignored"),
    ],
)
def test_another_version_is_an_error_and_never_kept(server, record_url, tmp_path, query, told):
    """Also in the second after the last look, where bytes of two versions were mixed."""
    server.settings.without_etag = told == "date"
    server.settings.without_match = told != "etag"
    cache, expected = Cache(tmp_path / "cache"), server.objects["train.rec"]
    with open_records(record_url + query, cache=cache) as source:
        assert source[0] == payloads()[0]
        more = b"more" if told == "date" else b""
        server.objects["train.rec"] = expected[:8] + bytes(len(expected) - 8) + more
        with pytest.raises(RecordError, match="one that was changed since"):
            source[SIZE // 2]
    server.objects["train.rec"] = expected
    with open_records(record_url + query, cache=cache) as source:
        assert source[:] == payloads()


def test_version_is_the_same_by_both_clients(server, record_url):
    """It asks by fsspec what was asked by obstore before, of a server that tells times alone."""
    server.settings.without_etag = True
    client, key = client_of(record_url)
    assert isinstance(client, obstore_client.Obstore)
    head = fsspec_client.FileSystem(record_url[: -len(key) - 1]).head(key)
    assert head == client.head(key)


def test_store_without_versions_is_asked_after_each_range(bucket, monkeypatch):
    files = fsspec_client.FileSystem("memory://")
    bucket.pipe_file("/a", b"one")
    head = files.head("a")
    assert files.get("a", 0, 1, head) == b"o"
    bucket.pipe_file("/a", b"two")
    with pytest.raises(fsspec_client.Changed):
        files.get("a", 1, 2, head)
    # Nor does it take more than it asked for as a range.
    monkeypatch.setattr(files._files, "cat_file", lambda path, **_: b"0123456789")
    with pytest.raises(ValueError, match=r"memory:///?a: the server gives no ranges"):
        files.get("a", 2, 4, None)


@BOTH
def test_shorter_object_is_another_one(server, record_url, query):
    server.settings.without_etag = True
    client, key = client_of(record_url + query)
    head = client.head(key)
    server.objects["train.rec"] = b"short"
    with pytest.raises(fsspec_client.Changed):
        client.get(key, head.size - 10, head.size, head)


@BOTH
def test_server_without_ranges_is_named_at_once(server, record_url, query, capsys):
    server.settings.without_ranges = True
    with pytest.raises(ValueError, match=r"train.rec: the server gives no ranges.*copy it") as why:
        open_records(record_url + query)
    assert server.counted.requests < 10
    assert main(["verify", record_url + query]) == 1
    assert "gives no ranges of it" in capsys.readouterr().err
    assert "secret" not in str(why.value)


def test_unknown_length_is_said_at_once(server, record_url):
    server.settings.without_length = True
    with pytest.raises(Refused, match=r"train\.rec: the store doesn't say how long it is"):
        open_records(record_url)


@BOTH
def test_another_range_is_no_answer(server, record_url, query, monkeypatch):
    """Whose bytes look right, where records are equally long."""
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.3")
    client, key = client_of(record_url + query)
    head = client.head(key)
    server.settings.other_ranges = True
    assert bytes(client.get(key, 0, 10, head)) == server.objects["train.rec"][:10]
    with pytest.raises(ConnectionError):
        client.get(key, 100, 110, head)


@BOTH
@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        ("400 Bad Request", Refused, "train.rec: the server answers .*400"),
        ("451 Unavailable", Refused, "train.rec: the server answers .*451"),
        ("501 No", Refused, "train.rec: the server answers .*501"),
        ("410 Gone", FileNotFoundError, "train.rec"),
        ("408 Late", ConnectionError, "no answer after 1 tries"),
        ("429 Many", ConnectionError, "no answer after 1 tries"),
        ("500 Oops", ConnectionError, "no answer after 1 tries"),
    ],
)
def test_permanent_error_is_said_at_once(
    server, record_url, query, status, error, said, monkeypatch
):
    """Others are tried again, as long as there is time."""
    if error is ConnectionError:
        monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.01")
    server.settings.status = status
    with pytest.raises(error, match=said):
        open_records(record_url + query)
    assert server.counted.requests <= 2 or error is ConnectionError


@pytest.mark.parametrize("given", ["5s", "nan", "inf", "-1"])
def test_limit_must_be_a_number_of_seconds(monkeypatch, given):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, given)
    with pytest.raises(ValueError, match=rf"{retry.LIMIT_VARIABLE} must be .* got '{given}'"):
        retry.persistently(lambda: None, "a")


@BOTH
@pytest.mark.parametrize("user", ["me:very-secret", "m%40e:very%3Asecret"])
def test_user_and_password_are_sent(server, record_url, query, user, monkeypatch, caplog):
    """And neither shown nor logged."""
    caplog.set_level(logging.DEBUG, "adapters" if query else None)  # fsspec's own logs tell URLs.
    server.settings.credentials = unquote(user)
    url = record_url.replace("//", f"//{user}@") + query
    with open_records(url) as source:
        assert source[7] == payloads()[7]
        assert "very" not in source._files.shards[0].storage.name
    with pytest.raises(PermissionError):
        open_records(record_url.replace("//", "//you:too@") + query)
    server.settings = Settings(status="403 Forbidden")
    with pytest.raises(PermissionError):
        open_records(record_url + query)
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.1")
    server.settings = Settings(down=True)
    with pytest.raises(ConnectionError) as raised:
        open_records(url)
    assert "very" not in caplog.text + str(raised.value) + repr(raised.value)


class Unanswered(Exception):
    """As obstore's own."""

    __module__ = "obstore.exceptions"


TIMED_OUT = "after 0 retries - HTTP error: operation timed out"
HAS_NONE = "status code: 404 Not Found: "


@pytest.mark.parametrize(
    ("vendor", "answer", "is_final"),
    [
        ("Dell Inc.", TIMED_OUT, True),
        ("Amazon EC2", HAS_NONE, True),
        ("Amazon EC2", TIMED_OUT, False),
        ("Amazon EC2", "status code: 503 Service Unavailable: ", False),
        (None, TIMED_OUT, False),
    ],
)
def test_missing_credentials_are_told_at_once(vendor, answer, is_final, tmp_path, monkeypatch):
    """obstore asks the machine for its role then, which on most machines nobody answers."""
    monkeypatch.setattr(obstore_client, "_VENDOR", tmp_path / "vendor")
    if vendor is not None:
        (tmp_path / "vendor").write_text(vendor)
    store, url = SimpleNamespace(has_answered=False), "http://169.254.169.254/latest/api/token"
    for found_before in (False, True):
        with pytest.raises(ConnectionError) as caught, obstore_client._translated(store):
            raise Unanswered(f"Generic S3 error: Error performing PUT {url} in 5s, {answer}")
        told = is_final and not found_before
        assert ("no credentials were found" in str(caught.value)) == told
        assert isinstance(caught.value, Refused) == is_final or found_before
        with obstore_client._translated(store):
            pass


class LibraryError(Exception):
    """Of a store's own library."""


@pytest.mark.parametrize(
    ("error", "told", "is_tried_again"),
    [
        (LibraryError("down"), r"no answer after .*LibraryError: down", True),
        (KeyError("a program's"), "a program's", False),
    ],
)
def test_error_of_a_stores_library_is_tried_again(bucket, monkeypatch, error, told, is_tried_again):
    """That of a program isn't, which would be called a store that doesn't answer."""
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.01")
    monkeypatch.setattr(type(bucket), "cat_file", Mock(side_effect=error))
    files = fsspec_client.FileSystem("memory://")
    with pytest.raises(ConnectionError if is_tried_again else KeyError, match=told):
        retry.persistently(lambda: files.get("a", 0, 1, None), "a")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ConnectionError])
def test_interrupt_does_not_wait_for_what_hangs(server, monkeypatch, kind):
    """And what was interrupted is fetched when it is wanted again."""
    data = np.random.default_rng(0).bytes(1 << 20)
    server.objects["a"] = data
    file = remotefile.RemoteFile(server.url("a"))
    got, ended, hung = file._got, threading.Event(), []

    def hanging(begin, end):
        if begin == 0:
            raise kind
        if not ended.wait(20):
            hung.append(begin)
        return got(begin, end)

    begins, sizes = np.array([0, 1 << 19]), np.array([10, 10])
    with monkeypatch.context() as patch:
        patch.setattr(file, "_got", hanging)
        patch.setattr(remotefile, "start", lambda pieces: fetch.start(pieces[1:]))
        with pytest.raises(kind):
            file.fetched_view(begins, sizes)
        ended.set()
    assert not hung
    view = file.fetched_view(begins, sizes)
    assert [bytes(view[at : at + 10]) for at in begins] == [data[at : at + 10] for at in begins]
