"""Stores that refuse, cut, hang, change and vanish: every byte right, or an error in time."""

from __future__ import annotations

import logging
import pickle
import time

import numpy as np
import pytest

from adapters import RecordError, open_records
from adapters.batch.replacement import Replacements
from adapters.records import remotefile
from adapters.remote import clients, obstore_client, retry
from tests.remote.conftest import SIZE, payloads, serve, written


@pytest.fixture
def quick(monkeypatch):
    """Short waits, so that a test of faults takes seconds."""
    monkeypatch.setattr(obstore_client, "READ_SECONDS", 0.5)
    monkeypatch.setattr(retry, "_FIRST_WAIT_SECONDS", 0.01)
    clients.forget()


@pytest.fixture
def url(server, tmp_path, quick):
    path = written(tmp_path, "tfrecord")
    serve(server, tmp_path)
    return server.url(path.name)


@pytest.mark.parametrize(
    "faults",
    [{"refused": 0.3}, {"cut": 0.3}, {"hung": 0.35}],
    ids=lambda faults: next(iter(faults)),
)
def test_what_passes_is_tried_again(server, url, faults):
    source = open_records(url)
    for name, value in faults.items():
        setattr(server.settings, name, value)
    expected = payloads()
    for begin in range(0, SIZE, 30):
        numbers = list(range(begin, begin + 30, 3))
        source._files.shards[0].storage.close()
        assert source.__getitems__(numbers) == [expected[number] for number in numbers]
    assert server.counted.faults > 0


@pytest.mark.full
@pytest.mark.timeout(400)
def test_ten_thousand_requests_with_faults(server, tmp_path, quick, monkeypatch):
    """10% are answered 503, 10% are cut, 1% hang: every byte is right."""
    monkeypatch.setattr(remotefile, "GAP_BYTES", 0)
    records = [each.to_bytes(4, "little") * 1024 for each in range(2000)]
    path = written(tmp_path, "tfrecord", records)
    serve(server, tmp_path)
    with open_records(server.url(path.name)) as source:
        server.settings.refused = server.settings.cut = 0.1
        server.settings.hung = 0.01
        rng, server.counted.requests = np.random.default_rng(0), 0
        while server.counted.requests < 10_000:
            source._files.shards[0].storage.close()
            numbers = rng.permutation(2000)[:500]
            found = source.__getitems__(numbers.tolist())
            assert found == [records[number] for number in numbers]
    assert server.counted.faults > 1500


def test_a_store_that_vanished_is_an_error_in_time(server, url, monkeypatch):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.5")
    source = open_records(url)
    server.close()
    started = time.monotonic()
    with pytest.raises(ConnectionError, match=r"no answer after \d+ tries in .*limit 0.5 s"):
        source[SIZE // 2]
    assert time.monotonic() - started < 10


def test_a_store_that_only_refuses_is_an_error_in_time(server, url, monkeypatch):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.3")
    source = open_records(url)
    server.settings.down = True
    with pytest.raises(ConnectionError, match=r"http://127.0.0.1:\d+/train.tfrecord: no answer"):
        source.bring(np.arange(0, SIZE, 7))


def test_skipping_does_not_ask_a_dead_store_for_each_neighbour(server, url, monkeypatch):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.2")
    source, asked = open_records(url), []
    server.settings.down = True

    def sample(number):
        asked.append(number)
        return source[number]

    with pytest.raises(ConnectionError) as raised:
        source[SIZE // 2]
    found = Replacements("skip", SIZE, "batch 0", sample)
    with pytest.raises(ConnectionError, match="no answer"):
        found.of(raised.value, SIZE // 2)
    assert asked == []
    with pytest.raises(ConnectionError, match="no answer"):
        found.of(ValueError("another's"), SIZE // 2)
    assert asked == [SIZE // 2 + 1]


@pytest.mark.parametrize("without_etag", [False, True])
def test_an_object_that_changed_is_an_error(server, url, without_etag):
    server.settings.without_etag = without_etag
    source = open_records(url)
    server.objects["train.tfrecord"] += b"more"
    with pytest.raises(RecordError, match=r"one that was changed since.*open it again"):
        source[SIZE // 2]


def test_a_source_in_another_process_has_the_version_of_this_one(server, url):
    source = pickle.loads(pickle.dumps(open_records(url)))
    assert source[7] == payloads()[7]
    server.objects["train.tfrecord"] = bytes(server.objects["train.tfrecord"][:-4]) + b"1234"
    with pytest.raises(RecordError, match="changed since"):
        source[SIZE // 2]


def test_a_missing_object_is_named(server, quick):
    with pytest.raises(FileNotFoundError, match=r"No such object: 'http://127.0.0.1:\d+/none.rec'"):
        open_records(server.url("none.rec"))


def test_a_web_server_that_does_not_list_is_said(server, quick, monkeypatch):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.1")
    with pytest.raises((ValueError, ConnectionError, FileNotFoundError), match=r"127\.0\.0\.1"):
        open_records(server.url("train-*.rec"))


def test_no_secret_is_logged_or_shown(server, tmp_path, quick, monkeypatch, caplog):
    monkeypatch.setenv(retry.LIMIT_VARIABLE, "0.1")
    path = written(tmp_path, "tfrecord")
    serve(server, tmp_path)
    server.settings.down = True
    secret = server.url(path.name).replace("http://", "http://me:very-secret@")
    with caplog.at_level(logging.DEBUG), pytest.raises(ConnectionError) as raised:
        open_records(secret)
    assert "very-secret" not in caplog.text + str(raised.value) + repr(raised.value)
