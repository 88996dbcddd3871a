"""Threads that fetch: as many as there is work for, and none where the system has no room."""

from __future__ import annotations

import threading

import pytest

from adapters.remote import fetching

LIMIT_SECONDS = 20


@pytest.fixture
def threads(monkeypatch):
    """Those of a test, which all have ended after it."""
    found = fetching._Threads()
    monkeypatch.setattr(fetching, "_IDLE_SECONDS", 0.05)
    yield found
    for thread in threading.enumerate():
        if thread.name.startswith("adapters-fetching"):
            thread.join(LIMIT_SECONDS)


def piece(do):
    """A range of which the fetching is this."""
    return fetching.Piece(0, 1, lambda _: do())


def test_an_idle_thread_does_not_keep_others_from_starting(threads, monkeypatch):
    monkeypatch.setattr(fetching, "_IDLE_SECONDS", LIMIT_SECONDS)
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
    monkeypatch.setattr(fetching, "_IDLE_SECONDS", 0.05)
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
