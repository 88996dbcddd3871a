"""Dispatcher: decides which task runs when, and handles tasks that don't come back.

    ask --> ready tasks --start--> executor (threads, processes, Dask) --done--> wait

The lock guards the queue of ready tasks and the state of every ``Future``. It is held for
bookkeeping only, never while a batch is computed. Tasks are started from the consumer's thread, and
from any thread that reports a task done or a worker ready. Dead workers are replaced by the thread
that waits for a batch.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import math
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from adapters import user_code
from adapters.batch.plan import Assembled, Plan
from adapters.clock import Spent
from adapters.engine.tasks import DONE, QUEUED, Executor, Future, InterpreterEndsError, Task
from adapters.errors import ClosedError, WorkerError

log = logging.getLogger("adapters")

# A batch is given up when this many worker processes have died in it.
_TRIES = 3
# Lost batches are, when workers have been replaced this often without a finished task in between.
_RESTARTS = 6
_WAIT_SECONDS = 1.0
# Time for new processes to import what the plan needs, before a batch can be late.
_START_SECONDS = 60.0

_of_other_processes: list[Executor] = []


class Dispatcher:
    """Queue in front of an executor; only ``wait`` and ``stop`` wait for batches and workers.

    ``open_executor`` makes the executor, for the first batch and after a ``stop``; it gets the
    lock, and a callback for when workers have become ready or have died. ``active`` is the number
    of workers that may be busy.
    """

    def __init__(
        self,
        plan: Plan,
        open_executor: Callable[[Any, Callable[[], None]], Executor],
        active: Callable[[], int],
        queue_size: int,
    ) -> None:
        self._plan = plan
        self._open_executor = open_executor
        self._active = active
        self._queue_size = queue_size
        self.executor: Executor | None = None
        """None before the first batch, and after a ``stop``."""
        self._ending: dict[Executor, int] = {}
        """Executors to close, and the thread that does, unless Ctrl-C has interrupted it."""
        # Entered by itself: Ctrl-C can interrupt the condition's methods, which are Python code.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._ready: collections.deque[Task] = collections.deque()
        self._running: set[Task] = set()
        self._restarts = 0
        self._rests = False
        self.closed = False

    def open(self) -> Executor:
        """Start the workers if there are none."""
        with self._lock:
            if self.closed:
                raise ClosedError("the sequence or loader is closed: make a new one")
            self._close_executors(wait=False)
            if self.executor is None:
                self.executor = self._open_executor(self._lock, self._workers_changed)
            self._rests = False
            self.executor.wake()
            return self.executor

    def rest(self) -> None:
        """Let other loaders use the worker processes, once no task is left here."""
        with self._lock, self._or_anew():
            self._rests = True
            self._rest_if_idle()

    def _rest_if_idle(self) -> None:
        idle = not (self._ready or self._running)
        if self._rests and idle and self.executor is not None:
            self._rests = False
            self.executor.rest()

    def ask(self, future: Future, seconds: float) -> None:
        """Queue a batch, with those before it if a batch takes few seconds (0: unknown)."""
        with self._lock, self._or_anew():
            executor = future.executor = self.open()
            fair = self._queue_size // (2 * executor.count)
            most = min(fair, int(executor.group_seconds / seconds)) if seconds else 1
            last = self._ready[-1] if self._ready else None
            if last is not None and len(last.batches) < most:
                last.batches.append(future)
            else:
                self._ready.append(Task([future]))
            # Last, so that the reader computes a batch that couldn't be queued.
            future.become(QUEUED)

    def start_tasks(self) -> None:
        """Submit ready tasks to free workers."""
        with self._lock, self._or_anew():
            while self._ready and (executor := self.executor):
                if len(self._running) >= executor.most_tasks(self._active()):
                    break
                task = self._ready.popleft()
                for future in [each for each in task.batches if not each.wanted]:
                    self._close_batch(executor, task, future)
                    task.batches.remove(future)
                if not task.batches:
                    continue
                self._running.add(task)
                try:
                    if not executor.submit(task, self._done):
                        self._running.discard(task)
                        self._ready.appendleft(task)
                        break  # Until a worker's death is noticed.
                except Exception as error:
                    # The thread that waits for the batch may be another one.
                    for future in task.batches:
                        future.note_error(error.with_traceback(None))
                    self._done(task)

    @contextlib.contextmanager
    def _or_anew(self) -> Iterator[None]:
        """Replace the workers on Ctrl-C: their state is unknown then."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self.stop(for_good=False)
            raise

    def wait(self, future: Future, timeout_seconds: float = math.inf) -> Assembled:
        """Wait for a queued batch.

        Raises:
            Exception: The error from its computation.
            WorkerError: Several worker processes died in it.
            OSError: No process could be started to replace a dead one.
            ClosedError: It was closed or dropped meanwhile.
            multiprocessing.TimeoutError: It took longer than ``timeout_seconds``.
        """
        since = time.monotonic()
        with self._lock:
            while future.state is QUEUED and future.outcome is None:
                self._check_is_awaited(future)
                executor = future.executor
                if executor.lacks_workers:
                    self._recover(executor, future)
                else:
                    self._wait_for_change(min(_WAIT_SECONDS, timeout_seconds))
                now = time.monotonic()
                if not executor.ready and now < executor.started_at + _START_SECONDS:
                    since = now  # A batch can't be late before a worker is ready.
                if future.state is QUEUED and now - since > timeout_seconds:
                    raise multiprocessing.TimeoutError(
                        f"timeout: the workers have not made batch {future.key.index} in "
                        f"{timeout_seconds:g} seconds; give a longer one if the work is that slow, "
                        "or look for what hangs with no workers"
                    )
            future.raise_error()
            if future.outcome is None:
                self._check_is_awaited(future)
                future.outcome = future.executor.collect(future)
            return future.outcome

    def _wait_for_change(self, seconds: float) -> None:
        try:
            self._changed.wait(seconds)
        except BaseException:
            if not self._lock._is_owned():  # type: ignore[attr-defined]
                self._lock.acquire()  # Ctrl-C came just after the release, or before this.
            raise

    def _check_is_awaited(self, future: Future) -> None:
        """Raise an error if a batch was dropped, or its executor was stopped."""
        if future.abandoned or self.executor is None or future.executor is not self.executor:
            raise ClosedError("the sequence or loader was closed while a batch was awaited")

    def drop(self, futures: list[Future]) -> None:
        """Abandon these batches."""
        with self._lock:
            executor = self.executor
            for future in futures:
                future.abandoned = True
                # No worker writes there any more. An earlier executor has freed its memory.
                if future.state is DONE and executor is not None and executor is future.executor:
                    executor.discard(future)
            self._changed.notify_all()

    def stop(self, for_good: bool, wait: bool = True) -> None:
        """End the workers; if not for good, they start again when a batch is requested."""
        # The garbage collector may call this within a frame that holds the lock, which a worker
        # needs in order to end.
        may_wait = wait and not self._lock._is_owned()  # type: ignore[attr-defined]
        if self._plan.not_thread_safe and user_code.is_within():
            may_wait = False  # This thread is in user code, which a worker can't enter meanwhile.
        with self._lock:
            self.closed = self.closed or for_good
            self._forget_executor()
            self._changed.notify_all()
        self._close_executors(may_wait)

    def forget_workers(self) -> None:
        """Start over in a forked process, which has neither the workers nor the lock's holder."""
        # The workers belong to the parent; ending them here would end them there.
        self._forget_executor()
        _of_other_processes.extend(self._ending)
        self._ending = {}
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def _forget_executor(self) -> None:
        """Forget the executor and its tasks; it is still to be closed."""
        if self.executor is not None:
            self._ending[self.executor] = threading.get_ident()  # First: Ctrl-C may come now.
            self.executor = None
        self._ready.clear()
        self._running.clear()

    def _close_executors(self, wait: bool) -> None:
        """Close the executors that this thread has stopped, now or before Ctrl-C."""
        for executor, thread in list(self._ending.items()):
            if thread == threading.get_ident():
                executor.close(wait=wait)
                self._ending.pop(executor, None)

    # --- called by the executor, from any thread ---

    def _workers_changed(self) -> None:
        """Start tasks."""
        with self._lock:
            self.start_tasks()
            self._changed.notify_all()

    def _done(self, task: Task) -> None:
        """Record that a task is done."""
        with self._lock:
            executor = self.executor
            if executor is None or task not in self._running:  # Of an earlier executor.
                return
            self._running.remove(task)
            if task.lost:
                self._repeat(executor, task)
            else:
                self._restarts = 0
                for future in task.batches:
                    self._close_batch(executor, task, future)
            self.start_tasks()
            self._rest_if_idle()
            self._changed.notify_all()

    # --- with the lock held ---

    def _close_batch(self, executor: Executor, task: Task, future: Future) -> None:
        """Set the state of a batch whose task is done, or won't be done."""
        future.spent = Spent(task.seconds / len(task.batches))
        # Not awaited if it was given up, read before its thread reported it, or couldn't be queued.
        if not future.wanted or future.error is not None:
            executor.discard(future)
        if future.state is QUEUED:
            future.become(DONE)

    def _repeat(self, executor: Executor, task: Task) -> None:
        """Queue the batches of a dead worker's task again, before all others."""
        for future in reversed(task.batches):
            hopeless = len(future.killers) >= _TRIES or self._restarts >= _RESTARTS
            if hopeless and future.state is QUEUED:
                self._give_up(executor, future)
            if future.wanted:  # One batch per task: the next death is blamed on one of them.
                self._ready.appendleft(Task([future]))
            else:
                self._close_batch(executor, task, future)

    def _recover(self, executor: Executor, awaited: Future) -> None:
        """Replace dead workers."""
        try:
            executor.restart()
        except InterpreterEndsError:
            # The interpreter doesn't wait for daemon threads, which must stay quiet. Others compute
            # the batch.
            if threading.current_thread().daemon:
                self._wait_for_change(_WAIT_SECONDS)
            else:
                self.stop(for_good=False)
            return
        who = executor.deaths[-1] if executor.deaths else "a worker process died"
        log.warning("%s; starting another worker and computing lost batches again", who)
        if self._restarts >= _RESTARTS and not self._running:
            self._give_up(executor, awaited)  # Workers die before they get a task.
        self._restarts += 1
        self.start_tasks()

    def _give_up(self, executor: Executor, future: Future) -> None:
        who = (future.killers or executor.deaths or ["worker processes died"])[-1]
        if future.killers:
            when, times = "while computing", len(future.killers)
            cause = (
                "a crash in the source or the transform (workers=0 runs it in this process), or "
                "for a memory limit (fewer workers, smaller batches)"
            )
        else:
            when, times = "before it could compute", self._restarts + 1
            cause = "what it printed, or a system limit (ulimit -a)"
        future.error = WorkerError(
            f"{who} {when} batch {future.key.index} of epoch {future.key.epoch}; tried {times} "
            f"times. Look for {cause}"
        )
        future.become(DONE)
