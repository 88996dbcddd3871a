"""Executor on threads: for work that waits or that releases the GIL.

A thread can't be ended from outside. So the threads are daemons: one that hangs in user code is
waited for during a limited time on close, and doesn't keep the program from ending.
"""

from __future__ import annotations

import contextvars
import logging
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adapters.batch.plan import Plan
from adapters.engine.memory import Arena
from adapters.engine.tasks import Done, Executor, InterpreterEndsError, Task

log = logging.getLogger("adapters")

# Time that ``close`` waits for running tasks, usually and after Ctrl-C.
_PATIENCE_SECONDS = 10.0
_INTERRUPTED_PATIENCE_SECONDS = 1.0

THREADS = "adapters-worker_"
"""Start of the names of worker threads."""
_Call = Callable[[], None]
_program_ends = threading.Event()
_here = threading.local()
_not_awaited: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def works_for(plan: Plan) -> bool:
    """True if this is a worker thread that computes a batch of this very plan.

    The user's code may read another loader there, whose consumer this thread then is.
    """
    return getattr(_here, "plan", None) is plan


def note_program_end() -> None:
    """Record that the main thread has ended, by Ctrl-C or otherwise."""
    _program_ends.set()


class Threads(Executor):
    """Executor on threads, which share the plan; it needs none of the further arguments."""

    name = "threads"
    _threads: tuple[threading.Thread, ...] = ()
    group_seconds = 0.001  # Handing over a task takes about 30 us (two cores).

    def __init__(self, plan: Plan, count: int, *_: Any) -> None:
        super().__init__(count)
        self._plan = plan
        self._queue: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._arena = Arena()
        self._closed = False
        # All threads start here. TensorFlow requests batches from a thread of its own; a thread
        # started there would leave a dummy thread object in Python for TensorFlow's.
        self._threads = tuple(
            threading.Thread(
                # With the settings of this thread, such as the precision of ``decimal``.
                target=contextvars.copy_context().run,
                args=(_work, self._queue, np.geterr(), np.geterrcall()),
                name=f"{THREADS}{number}",
                daemon=True,
            )
            for number in range(count)
        )
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:
            self._end_threads()  # Those that have started.
            if threading.main_thread().is_alive():
                raise
            raise InterpreterEndsError("cannot start worker threads") from error

    def submit(self, task: Task, done: Done) -> bool:
        """Queue the task for a thread; False if the executor was closed meanwhile."""
        if self._closed:
            return False
        self._queue.put(lambda: self._run(task, done))
        return True

    def close(self, wait: bool) -> None:
        """Drop queued tasks; with ``wait``, wait a limited time for running ones."""
        self._closed = True
        self._arena.close()
        self._end_threads()
        # Not current_thread(), which would leave a dummy thread object for TensorFlow's thread.
        if wait and threading.get_ident() not in {thread.ident for thread in self._threads}:
            _not_awaited.difference_update(self._threads)
            _await(self._threads)

    def __del__(self) -> None:
        self._end_threads()  # Ctrl-C may come before the executor is stored.

    def _end_threads(self) -> None:
        _not_awaited.update(self._threads)
        for _ in self._threads:
            self._queue.put(None)

    def _run(self, task: Task, done: Done) -> None:
        started = time.perf_counter()
        _here.plan = self._plan
        for future in task.batches:
            if self._closed or not future.wanted:
                continue
            try:
                outcome = self._plan.batch(future.key, self._arena.empty)
                self._plan.wait_for(outcome)
                if future.convert is not None:
                    outcome = future.convert(outcome)
                future.outcome = outcome  # It may be taken at once.
            except BaseException as error:  # Raised where the batch is read.
                future.note_error(error)
        _here.plan = None  # A waiting thread doesn't keep the plan alive.
        task.seconds = time.perf_counter() - started
        done(task)


def close_dropped() -> None:
    """Wait for running tasks of executors that were closed without waiting.

    The interpreter ends daemon threads wherever they are, and one in C++ code, such as OpenCV's,
    would abort the program.
    """
    _await([thread for thread in _not_awaited if thread.is_alive()])


def _await(threads: Sequence[threading.Thread]) -> None:
    """Wait a limited time for threads to end."""
    # KeyboardInterrupt may be passing through here, or may have ended the program. In a notebook,
    # ``last_type`` is from an earlier cell.
    ended_by = getattr(sys, "last_type", None) if _program_ends.is_set() else None
    interrupted = KeyboardInterrupt in (sys.exc_info()[0], ended_by)
    patience = _INTERRUPTED_PATIENCE_SECONDS if interrupted else _PATIENCE_SECONDS
    deadline = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        log.warning(
            "a worker thread is still in the source or a transform after %g seconds, and is left "
            "there",
            patience,
        )


def _work(calls: queue.SimpleQueue[_Call | None], on_errors: Any, error_handler: Any) -> None:
    """Run calls; refers to the queue only, so it doesn't keep the executor alive.

    ``on_errors`` and ``error_handler`` are NumPy's, which a thread has of its own.
    """
    np.seterr(**on_errors)
    np.seterrcall(error_handler)
    while (call := calls.get()) is not None:
        try:
            call()
        except BaseException:
            log.exception("a worker thread could not deliver")
        del call
