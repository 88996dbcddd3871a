"""What serves batches on a worker of a Dask cluster, straight to the process that trains.

    a trainer's Lane                                     a worker
    man(shipment, token) ---- as a task of Dask's ---->  Outpost, as long as its result is wanted
    {"op": ASKS, token} ---- connection of Dask's ---->  asks(): number, keys; number, keys ...
    {"op": ANSWERS, token} -- a second one ----------->  answers(): "ready", then frames
    hold(token) ------------- as a task of Dask's ---->  the worker isn't idle, and isn't removed

One thread computes for each of the worker's threads, and one sends. All of them end with the
connection that asks; what is asked and not yet begun is dropped then. This module is imported by
workers only once a trainer wants it; handlers run on the worker's event loop and never block.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import pickle
import queue
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any

from adapters.engine import frames
from adapters.engine.arena import Arena
from adapters.engine.shipment import Made, Shipment, Wanted, make
from adapters.failure import Failure

ASKS, ANSWERS = "adapters_asks", "adapters_answers"
READY, UNABLE = "ready", "unable"

# Dask has glibc give anything larger back to the system at once, which zeroes it the next time.
_LEAST_BYTES = 128 << 10

_posts: weakref.WeakValueDictionary[str, Outpost] = weakref.WeakValueDictionary()
"""Dask holds them, as results of tasks, for as long as the trainer wants them or lives."""


class Outpost:
    """Who computes for one trainer.

    Args:
        shipment: The plan.
        threads: How many compute.
    """

    def __init__(self, shipment: Shipment, threads: int) -> None:
        self._shipment = shipment
        self._threads = threads
        self._asked: queue.SimpleQueue[tuple[int, int, bytes] | None] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[tuple[int, list[Made | Failure]] | None] = queue.SimpleQueue()
        self.ended = threading.Event()
        self.when_over: Callable[[], object] = bool
        """Called by the thread that sends, which has no more use of its socket."""
        self._owned: socket.socket | None = None
        self._arena = Arena(_LEAST_BYTES)
        self._context = contextvars.copy_context()
        """Of the task: there, ``distributed.get_worker`` finds the worker."""

    def start(self, owned: socket.socket) -> None:
        """Begin to compute and to send."""
        self._owned = owned
        self._begin(lambda: self._send(owned))
        for _ in range(self._threads):
            self._begin(self._compute)

    def _begin(self, run: Callable[[], None]) -> None:
        within = self._context.copy().run  # Each thread needs one of its own.
        threading.Thread(target=within, args=(run,), name="adapters-outpost", daemon=True).start()

    def ask(self, number: int, count: int, keys: bytes) -> None:
        """Queue so many batches, of pickled keys, which are sent together."""
        self._asked.put((number, count, keys))

    def end(self) -> None:
        """Have the threads end; any number of times."""
        self.ended.set()
        self._arena.close()
        for _ in range(self._threads):
            self._asked.put(None)
        self._made.put(None)
        if self._owned is not None:
            frames.hang_up(self._owned)

    def __reduce__(self) -> Any:
        return str, ("of a worker that retired",)  # Dask moves results to others.

    def _compute(self) -> None:
        while (asked := self._asked.get()) is not None and not self.ended.is_set():
            number, count, keys = asked
            try:
                answers = make(self._shipment, Wanted(pickle.loads(keys)), self._arena.empty)
            except BaseException as error:  # The keys are of something that isn't here.
                answers = [Failure.of(error)] * count
            self._made.put((number, answers))
            del answers

    def _send(self, owned: socket.socket) -> None:
        try:
            while (made := self._made.get()) is not None and not self.ended.is_set():
                frames.send(owned, *made)
                del made
        except OSError:
            pass  # The other end is gone.
        finally:
            self.end()
            with contextlib.suppress(RuntimeError):  # The event loop is closed.
                self.when_over()


def man(shipment: Shipment, token: str) -> Outpost:
    """The task that opens an outpost on the worker that it runs on."""
    worker: Any = importlib.import_module("distributed").get_worker()
    worker.handlers.setdefault(ASKS, asks)
    worker.handlers.setdefault(ANSWERS, answers)
    post = _posts[token] = Outpost(shipment, worker.state.nthreads)
    return post


def hold(token: str) -> None:
    """The task that shows to Dask that the worker is at work, and takes no thread of it."""
    distributed: Any = importlib.import_module("distributed")
    if (post := _posts.get(token)) is not None:
        distributed.secede()
        post.ended.wait()


async def asks(comm: Any, token: str) -> Any:
    """Take what a trainer asks for, until it hangs up."""
    post = _posts.get(token)
    try:
        with contextlib.suppress(OSError):
            while post is not None:
                asked = await comm.read()
                post.ask(asked["number"], asked["count"], asked["keys"])
    finally:
        if post is not None:
            post.end()
        comm.abort()
    return _no_reply()


async def answers(comm: Any, token: str) -> Any:
    """Give a connection to the outpost, to send on."""
    post = _posts.get(token)
    if post is None or not frames.can_be_taken_over(comm):
        await comm.write(UNABLE)
        return _no_reply()
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    post.when_over = lambda: loop.call_soon_threadsafe(over.set)
    try:
        await comm.write(READY)
        post.start(frames.taken_over(comm))
        await over.wait()
    except asyncio.CancelledError:  # The worker is closed.
        post.end()
        await over.wait()
        raise
    finally:
        # Never before: TLS would write into whatever has the descriptor next.
        comm.abort()
    return _no_reply()


def _no_reply() -> Any:
    return importlib.import_module("distributed.core").Status.dont_reply
