"""Stores that refuse, cut, hang, change and vanish: every byte right, or an error in time."""

from __future__ import annotations

import logging
import pickle
import threading
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pytest

from adapters import Cache, RecordError, open_records
from adapters.batch.key import BatchKey
from adapters.batch.replacement import Replacements
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


def test_skip_does_not_ask_a_dead_store_again(server, url, monkeypatch):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.2")
    source, asked = open_records(url), []
    server.settings.down = True

    def sample(number):
        asked.append(number)
        return source[number]

    with pytest.raises(ConnectionError) as raised:
        source[SIZE // 2]
    found = Replacements("skip", SIZE, BatchKey(0, 0), sample)
    with pytest.raises(ConnectionError, match="no answer"):
        found.of(raised.value, SIZE // 2)
    assert asked == []
    with pytest.raises(ConnectionError, match="no answer"):
        found.of(ValueError("another's"), SIZE // 2)
    assert asked == [SIZE // 2 + 1]


@pytest.mark.parametrize("without_etag", [False, True])
def test_changed_object_is_an_error(server, what, urls, quick, without_etag):
    server.settings.without_etag = without_etag
    source = opened(what, urls)
    if what == "images":
        read(source, [COUNT // 2])  # Whose version is known from now on.
    for name in server.objects:
        server.objects[name] += b"more"
    with pytest.raises(RecordError, match=r"one that was changed since.*open .* again"):
        read(source, [COUNT // 2])


def test_pickled_source_has_its_version(server, url):
    source = pickle.loads(pickle.dumps(open_records(url)))
    assert source[7] == payloads()[7]
    server.objects["train.tfrecord"] = bytes(server.objects["train.tfrecord"][:-4]) + b"1234"
    with pytest.raises(RecordError, match="changed since"):
        source[SIZE // 2]


def test_no_secret_is_logged_or_shown(server, tmp_path, quick, monkeypatch, caplog):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.1")
    path = written(tmp_path, "tfrecord")
    serve(server, tmp_path)
    server.settings.down = True
    secret = server.url(path.name).replace("http://", "http://me:very-secret@")
    with caplog.at_level(logging.DEBUG), pytest.raises(ConnectionError) as raised:
        open_records(secret)
    assert "very-secret" not in caplog.text + str(raised.value) + repr(raised.value)


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
        ("", "etag, If-Match ignored"),
        ("", "date"),
        ("?sig=secret", "etag"),
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


def test_store_without_versions_is_asked_after_each_range(bucket):
    files = fsspec_client.FileSystem("memory://")
    bucket.pipe_file("/a", b"one")
    head = files.head("a")
    assert files.get("a", 0, 1, head) == b"o"
    bucket.pipe_file("/a", b"two")
    with pytest.raises(fsspec_client.Changed):
        files.get("a", 1, 2, head)


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


def test_more_than_was_asked_for_is_no_range(bucket, monkeypatch):
    bucket.pipe_file("/a", b"0123456789")
    files = fsspec_client.FileSystem("memory://")
    monkeypatch.setattr(files._files, "cat_file", lambda path, **_: b"0123456789")
    with pytest.raises(ValueError, match=r"memory:///?a: the server gives no ranges"):
        files.get("a", 2, 4, None)


@BOTH
@pytest.mark.parametrize("status", ["400 Bad Request", "451 Unavailable", "501 No"])
def test_permanent_error_is_said_at_once(server, record_url, query, status):
    server.settings.status = status
    with pytest.raises(Refused, match=rf"train.rec: the server answers .*{status[:3]}"):
        open_records(record_url + query)
    assert server.counted.requests <= 2
    server.settings.status = "410 Gone"
    with pytest.raises(FileNotFoundError):
        open_records(record_url + query)


@BOTH
@pytest.mark.parametrize("status", ["408 Late", "429 Many", "500 Oops"])
def test_passing_error_is_tried_again(server, record_url, query, status, monkeypatch):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.01")
    server.settings.status = status
    with pytest.raises(ConnectionError, match="no answer after 1 tries"):
        open_records(record_url + query)


def test_version_is_the_same_by_both_clients(server, record_url, monkeypatch):
    """It asks by fsspec what was asked by obstore before, of a server that tells times alone."""
    server.settings.without_etag = True
    client, key = client_of(record_url)
    assert isinstance(client, obstore_client.Obstore)
    head = fsspec_client.FileSystem(record_url[: -len(key) - 1]).head(key)
    assert head == client.head(key)


@pytest.mark.parametrize("given", ["5s", "nan", "inf", "-1"])
def test_limit_must_be_a_number_of_seconds(monkeypatch, given):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, given)
    with pytest.raises(ValueError, match=rf"{retry.LIMIT_VARIABLE} must be .* got '{given}'"):
        retry.persistently(lambda: None, "a")


@BOTH
@pytest.mark.parametrize("user", ["me:very-secret", "m%40e:very%3Asecret"])
def test_user_and_password_are_sent(server, record_url, query, user):
    server.settings.credentials = unquote(user)
    with open_records(record_url.replace("//", f"//{user}@") + query) as source:
        assert source[7] == payloads()[7]
        assert "very" not in source._files.shards[0].storage.name
    with pytest.raises(PermissionError):
        open_records(record_url.replace("//", "//you:too@") + query)
    server.settings = Settings(status="403 Forbidden")
    with pytest.raises(PermissionError):
        open_records(record_url + query)


class Unanswered(Exception):
    """As obstore's own."""

    __module__ = "obstore.exceptions"


TIMED_OUT = "after 0 retries - HTTP error: operation timed out"
HAS_NONE = "status code: 404 Not Found: "
IS_BUSY = "status code: 503 Service Unavailable: "


@pytest.mark.parametrize(
    ("vendor", "answer", "is_final"),
    [
        ("Dell Inc.", TIMED_OUT, True),
        ("Dell Inc.", HAS_NONE, True),
        ("Amazon EC2", HAS_NONE, True),
        ("Amazon EC2", TIMED_OUT, False),
        ("Amazon EC2", IS_BUSY, False),
        (None, TIMED_OUT, False),
    ],
)
def test_missing_credentials_are_told_at_once(vendor, answer, is_final, tmp_path, monkeypatch):
    """obstore asks the machine for its role then, which on most machines nobody answers."""
    monkeypatch.setattr(obstore_client, "_VENDOR", tmp_path / "vendor")
    if vendor is not None:
        (tmp_path / "vendor").write_text(vendor)
    store = SimpleNamespace(has_answered=False)

    def ask() -> None:
        with obstore_client._translated(store):
            asked = "Error performing PUT http://169.254.169.254/latest/api/token in 5s, "
            raise Unanswered(f"Generic S3 error: {asked}{answer}")

    with pytest.raises(ConnectionError) as caught:
        ask()
    assert isinstance(caught.value, Refused) == is_final
    assert ("no credentials were found" in str(caught.value)) == is_final
    with obstore_client._translated(store):
        pass
    with pytest.raises(ConnectionError) as caught:  # They were found before.
        ask()
    assert "no credentials" not in str(caught.value)


def test_error_of_a_program_is_raised_at_once(monkeypatch):
    """Such as one of a program, which would be called a store that doesn't answer."""
    tries = []

    def wrong():
        tries.append(1)
        raise KeyError("a")

    with pytest.raises(KeyError):
        retry.persistently(wrong, "a")
    assert tries == [1]


def test_error_of_a_stores_library_is_tried_again(monkeypatch):
    pytest.importorskip("fsspec", reason="the fallback is fsspec's")
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.01")
    files = fsspec_client.FileSystem("memory://")

    class LibraryError(Exception):
        pass

    def fail(*_, **__):
        raise LibraryError("down")

    monkeypatch.setattr(files._files, "cat_file", fail)
    with pytest.raises(ConnectionError, match=r"no answer after .*LibraryError: down"):
        retry.persistently(lambda: files.get("a", 0, 1, None), "a")


LIMIT_SECONDS = 20


@pytest.fixture
def threads(monkeypatch):
    """Those of a test, which all have ended after it."""
    found = fetch._Threads()
    monkeypatch.setattr(fetch, "_IDLE_SECONDS", 0.05)
    yield found
    for thread in threading.enumerate():
        if thread.name.startswith("adapters-fetching"):
            thread.join(LIMIT_SECONDS)


def piece(do):
    """A range of which the fetching is this."""
    return fetch.Piece(0, 1, lambda _: do())


def test_thread_that_cannot_start_is_done_without(threads, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        done = []
        waited = piece(lambda: done.append(1))
        threads.submit([waited], expected=False)
    waited.wait()
    assert done == [1]
    assert threads._count == 0


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupt_is_raised_where_it_came(kind):
    def interrupted():
        raise kind

    interrupted_piece = piece(interrupted)
    with pytest.raises(kind):
        interrupted_piece.wait()
    interrupted_piece.wait()  # As another thread does, which then fetches it itself.
    assert interrupted_piece.error is None


def test_interrupt_begins_nothing_more(monkeypatch):
    monkeypatch.setattr(fetch, "start", lambda pieces: None)
    done = []

    def do(number):
        if number == 1:
            raise KeyboardInterrupt
        done.append(number)

    with pytest.raises(KeyboardInterrupt):
        fetch.side_by_side(do, [0, 1, 2])
    assert done == [0]


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
        if not ended.wait(LIMIT_SECONDS):
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
    assert bytes(view[:10]) == data[:10]
    assert bytes(view[1 << 19 : (1 << 19) + 10]) == data[1 << 19 : (1 << 19) + 10]
