"""Worker processes: for work that holds the GIL.

Fresh processes from loky: they don't import ``__main__``, inherit neither locks nor devices, and a
dead one is noticed. The plan reaches them as a ``Parcel``, batches come back in ``Slots``, and
what passes through loky's queues fits into one pipe write, so that a worker that is killed can't
leave half a message behind.

One dead worker ends a loky pool, and the jobs of the others with it. ``restart`` makes a new pool;
a batch is to blame only if the process that had signed its slot is among the dead.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import loky

from adapters.assemble import Assembled, Plan
from adapters.engine.failure import Failure
from adapters.engine.jobs import Done, Job, Kind, Pending
from adapters.engine.parcel import Parcel
from adapters.engine.slots import Place, Slot, Slots, places_of
from adapters.engine.worker import (
    FinishTask,
    PartTask,
    PartWritten,
    Task,
    Time,
    WholeTask,
    Written,
    prepare,
    work,
)
from adapters.errors import note
from adapters.structure import unflatten

_NOT_PICKLED = (
    "source, transform and batch_transform must be picklable (by cloudpickle) to be sent to worker "
    "processes: make what can't be pickled when it is first used, or use threads "
    "(use_multiprocessing=False)"
)
# After that many answers of each process, and below that share of a CPU, work is taken to wait. The
# first answer of each may have taken the import of a framework, and is left out.
_LOOKS, _WAITS = 3, 0.5
NO_CHILDREN = (
    "a daemonic process may not start worker processes: use threads (use_multiprocessing=False), "
    "or start this process with daemon=False"
)


class Processes:
    """A crew of processes.

    Processes beyond the CPUs only help with work that waits; they are started when the first
    batches show that this is such.

    Args:
        plan: What is computed; sent once.
        count: Processes, at most.
        held: Slots that the user may hold; see ``Slots``.
        environment: Variables that the processes start with.

    Raises:
        RuntimeError: This process is a daemonic one.
        Exception: The plan can't be pickled.
    """

    name = "processes"

    def __init__(
        self, plan: Plan, count: int, held: int, environment: Mapping[str, str] | None = None
    ) -> None:
        if multiprocessing.current_process().daemon:
            raise RuntimeError(NO_CHILDREN)
        self._most = count
        self.count = min(count, int(loky.cpu_count()))
        self._taken: list[Time] = []
        self._plan = plan
        self._environment = dict(environment or {})
        try:
            self._parcel = Parcel(plan)
        except Exception as error:
            note(error, _NOT_PICKLED)
            raise
        self._slots = Slots(held)
        self._in_slots: dict[Pending, Slot] = {}
        self._results: dict[Pending, Slot] = {}
        self._deaths: dict[int, str] | None = None
        self._start()

    def _start(self) -> None:
        self._pool = loky.ProcessPoolExecutor(
            self._most,
            initializer=prepare,
            initargs=(os.getpid(),),
            env=self._environment,
        )
        self._pool._max_workers = self.count
        self._deaths = None
        self._members: dict[int, Any] = {}

    def refresh(self) -> None:
        """Send the plan again, after its source has changed."""
        old, self._parcel = self._parcel, Parcel(self._plan)
        old.close()

    def submit(self, job: Job, done: Done) -> None:
        """Send the job to the pool."""
        task = self._task(job)
        try:
            future = self._pool.submit(work, self._parcel.address, task)
        except BrokenProcessPool as error:
            error.with_traceback(None)
            self._lose(job)
            done(job)
            return
        if len(self._members) < self.count:
            self._members = dict(self._pool._processes)
        future.add_done_callback(functools.partial(self._finished, job, done))

    def allocate(self, pending: Pending) -> None:
        """Take a slot for the parts of a batch."""
        self._in_slots[pending] = self._slots.take()

    def collect(self, pending: Pending) -> Assembled:
        """Make arrays of what lies in the batch's slot."""
        slot = self._in_slots.pop(pending)
        result = self._results.pop(pending, None)
        if result is not None:
            self._slots.give_back(slot)
            slot = result
        written: Written | None = pending.memory
        if written is None:
            assert pending.layout is not None
            written = Written(
                pending.layout.skeleton,
                [*places_of(pending.samples, pending.layout.leaves)],
                pending.layout,
                pending.skipped,
                Time(),
            )
        places = [leaf for leaf in written.leaves if isinstance(leaf, Place)]
        arrays = iter(self._slots.deliver(slot, places))
        leaves = [next(arrays) if isinstance(leaf, Place) else leaf for leaf in written.leaves]
        return Assembled(unflatten(written.skeleton, leaves), written.layout, written.skipped)

    def discard(self, pending: Pending) -> None:
        """Take back the slots of a batch that nobody wants, once no worker writes there."""
        for slots in (self._in_slots, self._results):
            slot = slots.pop(pending, None)
            if slot is not None:
                self._slots.give_back(slot)

    def restart(self) -> None:
        """Replace the pool after one of its processes has died."""
        self._end_pool(wait=True)
        self._start()

    def close(self, wait: bool) -> None:
        """Kill the processes and free what they shared."""
        manager = getattr(self._pool, "_executor_manager_thread", None)
        own = manager is not None and manager.ident == threading.get_ident()
        self._end_pool(wait and not own)
        self._slots.close()
        self._parcel.close()

    def _end_pool(self, wait: bool) -> None:
        self._pool.shutdown(wait=wait, kill_workers=True)
        if wait:
            # Its parts refer to each other in a circle; the named semaphores among them would stay
            # in /dev/shm until the garbage collector comes by.
            vars(self._pool).clear()
        self._members = {}
        # Joins those that were dead before; Python keeps them, and their semaphores, until then.
        multiprocessing.active_children()

    def _task(self, job: Job) -> Task:
        if job.kind is Kind.WHOLE:
            for pending in job.batches:
                if pending not in self._in_slots:
                    self._in_slots[pending] = self._slots.take()
            return WholeTask([(p.epoch, p.index, self._in_slots[p].name) for p in job.batches])
        (pending,) = job.batches
        assert pending.layout is not None
        slot = self._in_slots[pending].name
        if job.kind is Kind.PART:
            return PartTask(
                pending.epoch,
                pending.index,
                slot,
                job.start,
                job.stop,
                job.number,
                pending.samples,
                pending.layout,
            )
        if pending not in self._results:
            self._results[pending] = self._slots.take()
        return FinishTask(
            pending.epoch,
            pending.index,
            slot,
            pending.samples,
            pending.layout,
            self._results[pending].name,
        )

    def _finished(self, job: Job, done: Done, future: Future[bytes]) -> None:
        """Runs in loky's manager thread."""
        # Not raised here: the traceback would keep loky's thread, and the semaphores that it has.
        error = future.exception()
        if isinstance(error, BrokenProcessPool):
            self._lose(job)
        elif error is not None:  # The pool was shut down.
            for pending in job.batches:
                pending.error = error
        else:
            try:
                self._take_answers(job, pickle.loads(future.result()))
            except BaseException as problem:  # An answer that does not unpickle.
                for pending in job.batches:
                    pending.error = problem
        done(job)

    def _take_answers(self, job: Job, answers: Any) -> None:
        if isinstance(answers, Place):
            slots = self._results if job.kind is Kind.FINISH else self._in_slots
            answers = pickle.loads(slots[job.batches[0]].read(answers))
        for pending, answer in zip(job.batches, answers):
            if isinstance(answer, Failure):
                pending.error = answer.restore()
                continue
            job.seconds += answer.time.seconds
            self._look_at(answer.time)
            if isinstance(answer, PartWritten):
                pending.layout_changed |= answer.skipped is None
                job.skipped = answer.skipped or 0
            else:
                pending.memory = answer

    def _look_at(self, taken: Time) -> None:
        """Have loky start the other processes with the next job, if they are any use."""
        if self.count == self._most or len(self._taken) >= _LOOKS * self.count:
            return
        self._taken.append(taken)
        if len(self._taken) == _LOOKS * self.count:
            usual = sorted(self._taken, key=lambda each: each.busy_seconds)[: -self.count]
            total = sum(taken.seconds for taken in usual)
            busy = sum(taken.busy_seconds for taken in usual)
            if busy < _WAITS * total:
                self.count = self._pool._max_workers = self._most

    def _lose(self, job: Job) -> None:
        if self._deaths is None:
            # The first to be told is told before loky kills the rest of the pool.
            self._deaths = {
                pid: _cause(process.exitcode)
                for pid, process in self._members.items()
                if process.exitcode is not None
            }
        job.lost = True
        for pending in job.batches:
            slot = self._in_slots.get(pending)
            if slot is None:
                continue
            pids = slot.workers()
            pid = int(pids[job.number % len(pids)])
            if pid in self._deaths:
                pending.killers.append(f"worker process {pid} {self._deaths[pid]}")


def _cause(exitcode: int) -> str:
    if exitcode >= 0:
        return f"exited with code {exitcode}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-exitcode).name} (signal {-exitcode})"
    return f"was killed by signal {-exitcode}"
