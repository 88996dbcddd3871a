"""What a web server can't or won't do, and which version its answers are of: told at once."""

from __future__ import annotations

from types import SimpleNamespace
from urllib.parse import unquote

import pytest

from adapters import Cache, RecordError, open_records
from adapters.cli.main import main
from adapters.remote import client_of, fsspec_client, obstore_client, retry
from adapters.remote.client import Refused
from tests.remote.conftest import SIZE, payloads, serve, written

# By obstore, and by fsspec, as signed URLs are.
BOTH = pytest.mark.parametrize("query", ["", "?sig=secret"], ids=["obstore", "fsspec"])


@pytest.fixture
def url(server, loop, tmp_path, monkeypatch):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "5")
    path = written(tmp_path, "recordio")
    serve(server, tmp_path)
    return server.url(path.name)


@BOTH
@pytest.mark.parametrize("told", ["etag", "etag, If-Match ignored", "date"])
def test_another_version_is_an_error_and_never_kept(server, url, tmp_path, query, told):
    """Also in the second after the last look, where bytes of two versions were mixed."""
    server.settings.without_etag = told == "date"
    server.settings.without_match = told != "etag"
    cache, expected = Cache(tmp_path / "cache"), server.objects["train.rec"]
    with open_records(url + query, cache=cache) as source:
        assert source[0] == payloads()[0]
        more = b"more" if told == "date" else b""
        server.objects["train.rec"] = expected[:8] + bytes(len(expected) - 8) + more
        with pytest.raises(RecordError, match="one that was changed since"):
            source[SIZE // 2]
    server.objects["train.rec"] = expected
    with open_records(url + query, cache=cache) as source:
        assert source[:] == payloads()


def test_a_store_that_sends_no_version_along_is_asked_after_each_range(bucket):
    files = fsspec_client.FileSystem("memory://")
    bucket.pipe_file("/a", b"one")
    head = files.head("a")
    assert files.get("a", 0, 1, head) == b"o"
    bucket.pipe_file("/a", b"two")
    with pytest.raises(fsspec_client.Changed):
        files.get("a", 1, 2, head)


@BOTH
def test_a_shorter_object_is_another_one(server, url, query):
    server.settings.without_etag = True
    client, key = client_of(url + query)
    head = client.head(key)
    server.objects["train.rec"] = b"short"
    with pytest.raises(fsspec_client.Changed):
        client.get(key, head.size - 10, head.size, head)


@BOTH
def test_a_server_without_ranges_is_named_at_once(server, url, query, capsys):
    server.settings.without_ranges = True
    with pytest.raises(ValueError, match=r"train.rec: the server gives no ranges.*copy it") as why:
        open_records(url + query)
    assert server.counted.requests < 10
    assert main(["verify", url + query]) == 1
    assert "gives no ranges of it" in capsys.readouterr().err
    assert "secret" not in str(why.value)


@BOTH
def test_another_range_is_no_answer(server, url, query, monkeypatch):
    """Whose bytes look right, where records are equally long."""
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.3")
    client, key = client_of(url + query)
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
@pytest.mark.parametrize(
    "status", ["400 Bad Request", "405 Method Not Allowed", "451 Unavailable", "501 No", "505 No"]
)
def test_what_no_other_try_mends_is_said_at_once(server, url, query, status):
    server.settings.status = status
    with pytest.raises(Refused, match=rf"train.rec: the server answers .*{status[:3]}"):
        open_records(url + query)
    assert server.counted.requests <= 2
    server.settings.status = "410 Gone"
    with pytest.raises(FileNotFoundError):
        open_records(url + query)


def test_a_server_that_takes_nothing_is_said_at_once(server, url, capsys):
    server.settings.status = "501 Not Implemented"
    client, key = client_of(url)
    with pytest.raises(Refused, match=r"train.idx: the server answers PUT by 501"):
        retry.persistently(lambda: client.put(key, b""), "train.idx")


@BOTH
@pytest.mark.parametrize("status", ["408 Late", "425 Early", "429 Many", "500 Oops", "503 Slow"])
def test_what_passes_is_no_refusal(server, url, query, status, monkeypatch):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.01")
    server.settings.status = status
    with pytest.raises(ConnectionError, match="no answer after 1 tries"):
        open_records(url + query)


def test_a_forked_process_knows_the_version_that_its_parent_saw(server, url, monkeypatch):
    """It asks by fsspec what was asked by obstore before, of a server that tells times alone."""
    server.settings.without_etag = True
    client, key = client_of(url)
    assert isinstance(client, obstore_client.Obstore)
    head = fsspec_client.FileSystem(url[: -len(key) - 1]).head(key)
    assert head == client.head(key)


@pytest.mark.parametrize("given", ["5s", "nan", "inf", "-1"])
def test_a_limit_must_be_a_number_of_seconds(monkeypatch, given):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, given)
    with pytest.raises(ValueError, match=rf"{retry.LIMIT_VARIABLE} must be .* got '{given}'"):
        retry.persistently(lambda: None, "a")


@BOTH
@pytest.mark.parametrize("user", ["me:very-secret", "m%40e:very%3Asecret"])
def test_a_user_and_a_password_are_sent(server, url, query, user):
    server.settings.credentials = unquote(user)
    with open_records(url.replace("//", f"//{user}@") + query) as source:
        assert source[7] == payloads()[7]
        assert "very" not in source._files.shards[0].storage.name
    with pytest.raises(PermissionError):
        open_records(url.replace("//", "//you:too@") + query)


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
        with obstore_client._Translated(store):
            asked = "Error performing PUT http://169.254.169.254/latest/api/token in 5s, "
            raise Unanswered(f"Generic S3 error: {asked}{answer}")

    with pytest.raises(ConnectionError) as caught:
        ask()
    assert isinstance(caught.value, Refused) == is_final
    assert ("no credentials were found" in str(caught.value)) == is_final
    with obstore_client._Translated(store):
        pass
    with pytest.raises(ConnectionError) as caught:  # They were found before.
        ask()
    assert "no credentials" not in str(caught.value)


def test_an_error_that_is_not_of_the_network_is_raised_at_once(monkeypatch):
    """Such as one of a program, which would be called a store that doesn't answer."""
    tries = []

    def wrong():
        tries.append(1)
        raise KeyError("a")

    with pytest.raises(KeyError):
        retry.persistently(wrong, "a")
    assert tries == [1]


def test_an_error_of_a_store_s_library_is_tried_again(monkeypatch):
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
