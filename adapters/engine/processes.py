"""Executor on worker processes: for work that holds the GIL.

The processes are leased from the pool, see ``pool``. The plan is sent to them as a
``SerializedPlan``, which each opens before it gets a task; batches come back in ``Slots``. A worker
that dies loses its own tasks and no others. Its oldest task is blamed for the death.

Methods are called with the dispatcher's lock held, except ``close`` and those that the pool calls,
which take it.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from adapters.batch.plan import Assembled, Plan
from adapters.clock import Spent
from adapters.cpus import usable_cpus
from adapters.engine import workermain as remote
from adapters.engine.executors import Settings
from adapters.engine.memory import Slot, Slots, room_for
from adapters.engine.pool import SentMessage, Worker, shared_pool
from adapters.engine.serialization import SerializedPlan, has_changed, not_picklable
from adapters.engine.tasks import Done, Executor, Future, Task
from adapters.engine.threads import THREADS
from adapters.errors import NotPicklableError
from adapters.failure import Failure
from adapters.structure import unflatten

log = logging.getLogger("adapters")

# Work counts as waiting if it uses less than this share of a CPU, judged after this many answers of
# each process. As many of the busiest as there are processes are left out, as the first ones may
# include imports.
_LOOKS, _WAITS = 3, 0.5
# Tasks per worker if they are short, up to this time: it gets the next one before it is done.
# Handing over a task takes 0.2 ms (two cores).
_TASKS_AHEAD = 2
_SHORT_SECONDS = 0.02
_IMPORTED = (
    "a worker process that imports the data set's module would start workers itself: put the code "
    'that trains under if __name__ == "__main__":, or the data set into a module of its own'
)


class Processes(Executor):
    """Executor on worker processes; its arguments are those of ``EXECUTORS``.

    More processes than CPUs only help with work that waits. They are started when the first batches
    show that it does, and at once by later executors of the same plan.

    Raises:
        RuntimeError: This is a worker process.
        OSError: No process could be started.
        NotPicklableError: The plan can't be pickled.
    """

    name = "processes"
    # Handing over a task takes 0.5 ms of the trainer's interpreter (two cores).
    group_seconds = 0.008

    def __init__(
        self, plan: Plan, count: int, settings: Settings, lock: Any, changed: Callable[[], None]
    ) -> None:
        if remote.opens_plan:
            raise RuntimeError(_IMPORTED)
        super().__init__(count if plan.mostly_waits else min(count, usable_cpus()))
        self.window, held = room_for(settings.window(count), count)
        self._most, self._may_fork = count, settings.may_fork
        self._taken: list[Spent] = []
        self._plan, self._lock, self._changed = plan, lock, changed
        self._environment = dict(settings.environment)
        self._serialized = self._packed()
        self._slots = Slots(held)
        self._in_slots: dict[Future, Slot] = {}
        self._workers: list[Worker] = []
        """Leased workers."""
        self._task_seconds = 0.0
        """Time of the latest task."""
        self._done: Done
        self._closed = self._resting = False
        self.starting = True
        self._pool = shared_pool()
        try:
            self._lease()
        except BaseException:
            self.close(wait=False)
            raise

    # --- workers ---

    @property
    def ready(self) -> int:
        """Number of workers that have the plan."""
        return len(self._able)

    @property
    def _able(self) -> list[Worker]:
        return [worker for worker in self._workers if self._has_plan(worker)]

    @property
    def lacks_workers(self) -> bool:
        """True if workers have died and not been replaced."""
        return len(self._workers) < self.count

    def rest(self) -> None:
        """Let others use the workers while there are no tasks; the workers keep the plan."""
        self._resting, self._workers = True, []
        self._pool.give_back(self)

    def wake(self) -> None:
        """Lease workers again after ``rest``, and for those that died before any was ready."""
        if self._resting or (self.starting and self.lacks_workers):
            self._resting = False
            self.restart()

    def _has_plan(self, worker: Worker) -> bool:
        return self._serialized.name in worker.opened_plans

    def _lease(self) -> None:
        missing = self.count - len(self._workers)
        leased = self._pool.lease(self, missing, self._serialized.name)
        self._workers += leased
        for worker in leased:
            self._send_plan(worker)
        self.starting = self.starting and not self.ready

    def _send_plan(self, worker: Worker) -> None:
        if not self._has_plan(worker):
            opening = SentMessage(None, self._serialized.name)
            surroundings = list(sys.path), os.readlink("/proc/self/cwd"), self._environment
            worker.send(opening, remote.open_plan, self._serialized.name, *surroundings)

    @property
    def is_outdated(self) -> bool:
        """True if the plan has changed since it was sent."""
        return has_changed(self._plan, self._serialized.fingerprint)

    def refresh(self) -> None:
        """Send the plan again, after its source has changed; tasks under way use the earlier one.

        Raises:
            NotPicklableError: The plan can't be pickled.
        """
        plan = self._packed()  # Without the lock: answers don't wait while arrays are copied.
        with self._lock:
            if self._closed:
                return
            self._serialized.close()
            self._serialized = plan
            for worker in self._workers:
                self._send_plan(worker)

    def _packed(self) -> SerializedPlan:
        try:
            return SerializedPlan(self._plan)
        except Exception as error:
            raise NotPicklableError(not_picklable(error)) from error

    # --- tasks ---

    def submit(self, task: Task, done: Done) -> bool:
        """Send the task to the worker with the fewest tasks.

        Returns:
            False if no worker accepts it; those are about to be found dead.

        Raises:
            OSError: There are no more descriptors for slots.
        """
        for future in task.batches:
            if future not in self._in_slots:
                self._in_slots[future] = self._slots.take()
        places = [(future.key, self._in_slots[future].name) for future in task.batches]
        self._done = done
        sent = SentMessage(task, self._serialized.name)
        workers = sorted(self._able, key=lambda each: len(each.unanswered))
        # Up to the first worker that accepts it.
        return any(
            worker.send(sent, remote.work, self._serialized.name, places) for worker in workers
        )

    def most_tasks(self, active: int) -> int:
        """Maximum number of submitted tasks: one for each process that is ready, or two.

        A process gets its next task before it is done if all processes are ready and tasks are
        short: behind a long task, it would wait while another process is free.
        """
        ready = self.ready
        ahead = 0.0 < self._task_seconds < _SHORT_SECONDS and ready == self.count
        return ready * (_TASKS_AHEAD if ahead else 1)

    def collect(self, future: Future) -> Assembled:
        """Make arrays of the data in the batch's slot."""
        written: remote.Written = future.memory
        slot = self._in_slots.pop(future)  # First, so that Ctrl-C can't give it back twice.
        try:
            leaves = self._slots.deliver(slot, written.leaves)
        except Exception:  # There is no descriptor or memory: it can be collected later.
            self._in_slots[future] = slot
            raise
        return Assembled(unflatten(written.treedef, leaves), written.skipped)

    def discard(self, future: Future) -> None:
        """Take back the slot of an abandoned batch, once no worker writes to it."""
        slot = self._in_slots.pop(future, None)
        if slot is not None:
            self._slots.give_back(slot)

    def restart(self) -> None:
        """Replace dead workers."""
        self.started_at = time.monotonic()
        self._lease()

    def close(self, wait: bool) -> None:
        """Give the workers back, and free the shared memory that no array refers to.

        A worker that still writes to a slot has a mapping of its own.
        """
        with self._lock:
            self._closed, self._workers = True, []
        self._pool.give_back(self, for_good=True)
        self._serialized.close()
        while self._in_slots:
            self._in_slots.popitem()[1].close()
        self._slots.close()

    # --- called by the pool, from its thread ---

    def answered(self, sent: SentMessage, answer: Any) -> None:
        """Note that a worker has opened a plan, or done a task."""
        if sent.task is None:
            with self._lock:
                self.starting = self.starting and not self.ready
            self._changed()
            return
        if self._closed:
            return  # Without the lock: its holder may be waiting for the worker to become idle.
        try:
            answers, problem = list(map(pickle.loads, answer)), None
        except BaseException as error:  # An answer that does not unpickle.
            answers, problem = [], error
        with self._lock:
            if self._closed:  # Meanwhile.
                return  # type: ignore[unreachable]
            if problem is not None:
                for future in sent.task.batches:
                    future.note_error(problem)
            self._take_answers(sent.task, answers)
            self._task_seconds = sent.task.seconds
            self._done(sent.task)

    def died(self, worker: Worker, unanswered: list[SentMessage]) -> None:
        """Note that a worker has died; its tasks must be done again."""
        with self._lock:
            if worker in self._workers:
                self._workers.remove(worker)
            if self._closed:
                return
            self.deaths.append(f"worker process {worker.pid} {worker.cause}")
            lost = [sent for sent in unanswered if sent.task is not None]
            for future in lost[0].task.batches if lost else ():
                future.killers.append(self.deaths[-1])
            for sent in reversed(lost):  # Each goes to the front of the queue.
                sent.task.lost = True
                self._done(sent.task)
        self._changed()

    def may_fork(self) -> bool:
        """True if a process may be a fork made in the calling thread.

        A fork copies the calling thread only. The main thread may have called a library that other
        threads must not call during a fork; worker threads call users' code.
        """
        if self._may_fork is None or threading.get_ident() != threading.main_thread().ident:
            return False
        working = any(thread.name.startswith(THREADS) for thread in threading.enumerate())
        return not working and self._may_fork()

    def _take_answers(self, task: Task, answers: Any) -> None:
        for future, answer in zip(task.batches, answers):
            if isinstance(answer, Failure):
                future.note_error(answer.restore())
                continue
            task.seconds += answer.spent.seconds
            self._look_at(answer.spent)
            future.memory = answer

    def _look_at(self, spent: Spent) -> None:
        """Lease the other processes, if they would help."""
        looked = len(self._taken) >= _LOOKS * self.count
        if self.count == self._most or looked or spent.noisy:
            return
        self._taken.append(spent)
        if len(self._taken) == _LOOKS * self.count:
            usual = sorted(self._taken, key=lambda each: each.busy_seconds)[: -self.count]
            total = sum(spent.own_seconds for spent in usual)
            busy = sum(spent.busy_seconds for spent in usual)
            if busy >= _WAITS * total:
                return
            self.count = self._most
            self._plan.mostly_waits = True
            try:
                self._lease()
            except (OSError, RuntimeError) as error:
                log.warning("no more worker processes could be started: %s", error)
                self.count = self._most = len(self._workers)
