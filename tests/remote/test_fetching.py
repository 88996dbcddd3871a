"""Threads that fetch: as many as there is work for, and none where the system has no room."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from adapters.records import remotefile
from adapters.remote import fetch

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


def test_an_idle_thread_does_not_keep_others_from_starting(threads, monkeypatch):
    monkeypatch.setattr(fetch, "_IDLE_SECONDS", LIMIT_SECONDS)
    first = piece(lambda: None)
    threads.submit([first], expected=False)
    first.wait()
    for _ in range(2000):
        with threads._lock:
            if threads._idle == 1:
                break
        threading.Event().wait(0.005)
    together = threading.Barrier(5)
    pieces = [piece(lambda: together.wait(LIMIT_SECONDS)) for _ in range(5)]
    threads.submit(pieces, expected=False)
    for each in pieces:
        assert each._done.wait(LIMIT_SECONDS)
        assert each.error is None
    monkeypatch.setattr(fetch, "_IDLE_SECONDS", 0.05)
    with threads._lock:
        threads._lock.notify_all()


def test_a_thread_that_cannot_start_is_done_without(threads, monkeypatch):
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
def test_an_interrupt_is_raised_where_it_came_and_nowhere_else(kind):
    def interrupted():
        raise kind

    interrupted_piece = piece(interrupted)
    with pytest.raises(kind):
        interrupted_piece.wait()
    interrupted_piece.wait()  # As another thread does, which then fetches it itself.
    assert interrupted_piece.error is None


def test_an_interrupt_begins_nothing_more(monkeypatch):
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
def test_an_interrupt_or_error_does_not_wait_for_what_hangs(server, monkeypatch, kind):
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
