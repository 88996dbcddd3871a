"""Worker threads: for work that waits or that releases the GIL.

Nobody can end a thread from outside. So the threads are daemons: one that hangs in the user's own
code is waited for a while when the crew closes, and doesn't keep the program from ending.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable

from adapters.batch.plan import Assembled, Plan
from adapters.engine.arena import Arena
from adapters.engine.jobs import Done, InterpreterEndsError, Job, Pending

log = logging.getLogger("adapters")

# How long ``close`` waits for what is running, and after Ctrl-C.
_PATIENCE_SECONDS = 10.0
_INTERRUPTED_PATIENCE_SECONDS = 1.0

Task = Callable[[], None]
_program_ends = threading.Event()


def program_ends() -> None:
    """The main thread has come to its end, by Ctrl-C or otherwise."""
    _program_ends.set()


class Threads:
    """A crew of threads.

    Args:
        plan: What is computed.
        count: Threads.
    """

    name = "threads"
    window = None
    group_seconds = 0.001  # Handing over a job takes about 30 us (two cores).
    short = starting = False

    def __init__(self, plan: Plan, count: int) -> None:
        self._plan = plan
        self.count = self.ready = count
        self.deaths: list[str] = []
        self.started = time.monotonic()
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._closed = False
        self._arena = Arena()
        # All of them start here and now. TensorFlow asks for batches from a thread of its own, and
        # if that started any, Python would keep a dummy thread for it.
        self._threads = [
            threading.Thread(
                target=_work, args=(self._tasks,), name=f"adapters-worker_{number}", daemon=True
            )
            for number in range(count)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:
            if threading.main_thread().is_alive():
                raise
            raise InterpreterEndsError("cannot start worker threads") from error

    def most_jobs(self, active: int) -> int:
        """One for each that shall be busy."""
        return active

    def submit(self, job: Job, done: Done) -> bool:
        """Have a thread do the job."""
        if self._closed:
            return False
        self._tasks.put(lambda: self._run(job, done))
        return True

    def collect(self, pending: Pending) -> Assembled:
        """The batch, where its thread has put it."""
        assert pending.outcome is not None
        return pending.outcome

    def discard(self, pending: Pending) -> None:
        """Nothing outlives the batch's arrays."""

    def packed(self) -> None:
        """Threads look at the source itself."""

    def refresh(self, plan: None) -> None:
        """Nothing is sent."""

    def restart(self) -> None:
        """Threads don't die."""

    def rest(self) -> None:
        """Nobody else could use them."""

    def wake(self) -> None:
        """They have not been away."""

    def close(self, wait: bool) -> None:
        """Let running jobs end, and drop the others; with ``wait``, wait for them for a while."""
        self._closed = True
        self._arena.close()
        with contextlib.suppress(queue.Empty):
            while True:
                self._tasks.get_nowait()
        for _ in self._threads:
            self._tasks.put(None)
        # Not current_thread(), which would leave a dummy behind for a thread of TensorFlow's.
        if not wait or threading.get_ident() in {thread.ident for thread in self._threads}:
            return
        # As it passes through here, or has ended the program. In a notebook, ``last_type`` is an
        # earlier cell's.
        ended_by = getattr(sys, "last_type", None) if _program_ends.is_set() else None
        interrupted = KeyboardInterrupt in (sys.exc_info()[0], ended_by)
        patience = _INTERRUPTED_PATIENCE_SECONDS if interrupted else _PATIENCE_SECONDS
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            log.warning(
                "a worker thread is still in the source or a transform after %g seconds, and is "
                "left there",
                patience,
            )

    def _run(self, job: Job, done: Done) -> None:
        started = time.perf_counter()
        for pending in job.batches:
            if not pending.wanted:
                continue
            try:
                outcome = self._plan.batch(pending.key, self._arena.empty)
                self._plan.wait_for(outcome)
                pending.outcome = outcome  # Only now, as it may be taken at once.
            except BaseException as error:  # Belongs to whoever asks for the batch.
                pending.fail(error)
        job.seconds = time.perf_counter() - started
        done(job)


def _work(tasks: queue.SimpleQueue[Task | None]) -> None:
    """What a thread does; it keeps no crew alive that nobody else does."""
    while (task := tasks.get()) is not None:
        try:
            task()
        except BaseException:
            log.exception("a worker thread could not deliver")
        del task
