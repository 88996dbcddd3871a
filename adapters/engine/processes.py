"""Executor on worker processes: for work that holds the GIL.

    submit --request--> worker process --answer--> a thread per worker --> done

The processes are leased from the pool, see ``pool``. The plan is sent to them as a
``SerializedPlan``; batches come back in ``Slots``. A worker that dies loses its own jobs and no
others. A batch is blamed for a death only if the dead process has signed its slot.

Methods are called with the dispatcher's lock held, except ``refresh`` and ``close``. The threads
take it whenever they change the executor's state.
"""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from adapters.batch.plan import Assembled, Plan
from adapters.clock import Spent
from adapters.cpus import usable_cpus
from adapters.engine.executors import Settings
from adapters.engine.jobs import Done, Executor, InterpreterEndsError, Job, Pending
from adapters.engine.memory import ArrayInSlot, Slot, Slots, room_for
from adapters.engine.pool import shared_pool
from adapters.engine.process import Worker, origin
from adapters.engine.serialization import SerializedPlan, not_picklable
from adapters.engine.threads import THREADS
from adapters.engine.worker import Written
from adapters.errors import NotPicklableError
from adapters.failure import Failure
from adapters.structure import unflatten

log = logging.getLogger("adapters")

# Work counts as waiting if it uses less than this share of a CPU, judged after this many answers of
# each process. The first answer of each is left out, as it may include a framework's import.
_LOOKS, _WAITS = 3, 0.5
# Jobs per worker if they are short, up to this time: it gets the next one before it is done.
# Handing over a job takes 0.2 ms (two cores).
_JOBS_AHEAD = 2
_SHORT_SECONDS = 0.02
# Intervals at which a thread that waits for its worker to open the plan, or to do a job, looks if
# the executor has given it back.
_LOOK_SECONDS, _LATE_SECONDS = 0.05, 0.25
NO_CHILDREN = (
    "a daemonic process may not start worker processes: use threads (use_multiprocessing=False), "
    "or start this process with daemon=False"
)


class _Task(NamedTuple):
    """A job that a worker does."""

    job: Job
    done: Done
    plan: SerializedPlan
    """Kept until the answer, as the executor may have another one by then."""


class Processes(Executor):
    """Executor on worker processes.

    More processes than CPUs only help with work that waits. They are started when the first batches
    show that it does.

    Args:
        plan: The plan to compute; sent once.
        count: Maximum number of processes.
        settings: The user's settings.
        lock: The dispatcher's lock.
        changed: Called, from any thread, when a worker has become ready or has died.

    Raises:
        RuntimeError: This process is a daemonic one.
        OSError: No process could be started.
        NotPicklableError: The plan can't be pickled.
    """

    name = "processes"
    # Handing over a job takes 0.5 ms of the trainer's interpreter (two cores).
    group_seconds = 0.008

    def __init__(
        self,
        plan: Plan,
        count: int,
        settings: Settings,
        lock: Any,
        changed: Callable[[], None],
    ) -> None:
        if multiprocessing.current_process().daemon:
            raise RuntimeError(NO_CHILDREN)
        super().__init__(min(count, usable_cpus()))
        self._most, self._settings = count, settings
        self.window, most_held = room_for(settings.window(count), count)
        self._taken: list[Spent] = []
        self._plan, self._lock, self._changed = plan, lock, changed
        self._serialized: SerializedPlan
        self.refresh()
        self._origin = origin()
        self._slots = Slots(most_held)
        self._in_slots: dict[Pending, Slot] = {}
        self._lease = object()
        """Identity of the present lease."""
        self._workers: dict[Worker, queue.SimpleQueue[bool]] = {}
        """Leased workers; their threads get True for each job, and False in the end."""
        self._able: set[Worker] = set()
        """Those that have opened the plan."""
        self._job_seconds = 0.0
        """Time of the latest job."""
        self._closed = self.resting = self._was_ready = False
        self._pool = shared_pool()
        self._pool.register(1)
        try:
            self._lease_missing()
        except BaseException:
            self.close(wait=False)
            raise

    # --- workers ---

    @property
    def ready(self) -> int:
        """Number of workers that have the plan and accept jobs."""
        return len(self._able)

    @property
    def starting(self) -> bool:
        """True if no worker has been ready yet."""
        return not self._was_ready

    @property
    def lacks_workers(self) -> bool:
        """True if workers have died and not been replaced."""
        return not (self._closed or self.resting) and len(self._workers) < self.count

    def rest(self) -> None:
        """Let others use the workers while there are no jobs; the workers keep the plan."""
        if not self._closed:
            self.resting = True
            self._release()

    def wake(self) -> None:
        """Lease workers again after ``rest``."""
        self.resting = False
        self.restart()

    def restart(self) -> None:
        """Replace dead workers."""
        self.started_at = time.monotonic()
        self._lease_missing()

    def refresh(self) -> None:
        """Serialize the plan as it is now, for the next jobs.

        Raises:
            NotPicklableError: The plan can't be pickled.
        """
        try:
            self._serialized = SerializedPlan(self._plan, self._settings.environment)
        except Exception as error:
            raise NotPicklableError(not_picklable(error)) from error

    def close(self, wait: bool) -> None:
        """Give the workers back, and free the memory; a worker still maps what it writes to."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._release()
            while self._in_slots:
                self._in_slots.popitem()[1].close()
            self._slots.close()
            self._serialized.close()
        self._pool.register(-1)
        self._pool.forget_closed_plans()

    def _lease_missing(self) -> None:
        missing, plan = self.count - len(self._workers), self._serialized.address
        leased = self._pool.lease(
            self._lease, missing, plan.plan_number, self._origin, self._forks_allowed
        )
        self._workers |= {worker: queue.SimpleQueue() for worker in leased}
        for worker in leased:
            if plan.plan_number in worker.opened_plans and not worker.unanswered:
                self._able.add(worker)
            else:
                worker.unanswered.append(None)
                worker.request(plan)
        self._was_ready = self._was_ready or self.ready > 0
        for worker in leased:
            arguments = worker, self._lease, self._workers[worker], worker not in self._able
            thread = threading.Thread(
                target=self._serve, args=arguments, name="adapters-process", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                for without in leased[leased.index(worker) :]:
                    del self._workers[without]
                    self._pool.bury(without)
                self._release()
                if threading.main_thread().is_alive():
                    raise
                raise InterpreterEndsError("cannot start worker processes") from error

    def _release(self) -> None:
        """Give back workers without jobs now; the others are given back by their threads."""
        lease, self._lease = self._lease, object()
        for worker, wakes in self._workers.items():
            wakes.put(False)
            if worker.unanswered:
                self._pool.drain(worker)
            else:
                self._pool.give_back(worker, lease)
        self._workers.clear()
        self._able.clear()

    def _forks_allowed(self) -> bool:
        """True if a process may be a fork made in the calling thread.

        A fork copies the calling thread only. The main thread may have called a library that other
        threads must not call during a fork; worker threads call users' code.
        """
        may_fork = self._settings.may_fork
        if may_fork is None or threading.get_ident() != threading.main_thread().ident:
            return False
        working = any(thread.name.startswith(THREADS) for thread in threading.enumerate())
        return not working and may_fork()

    # --- jobs ---

    def submit(self, job: Job, done: Done) -> None:
        """Send the job to the worker with the fewest jobs.

        Raises:
            OSError: There are no more descriptors for slots.
        """
        for pending in job.batches:
            if pending not in self._in_slots:
                self._in_slots[pending] = self._slots.take()
        task = [(pending.key, self._in_slots[pending].name) for pending in job.batches]
        content = pickle.dumps(task, 5)
        able = (worker for worker in self._workers if worker in self._able)
        worker = min(able, key=lambda each: len(each.unanswered))
        worker.unanswered.append(_Task(job, done, self._serialized))
        worker.request(self._serialized.address, content)
        self._workers[worker].put(True)

    def most_jobs(self, active: int) -> int:
        """Maximum number of submitted jobs.

        A process gets its next job before it is done if all processes are ready and jobs are short:
        behind a long job, it would wait while another process is free.
        """
        brief = 0.0 < self._job_seconds < _SHORT_SECONDS
        ahead = brief and active >= self.count and self.ready == self.count
        return min(active, self.ready) * (_JOBS_AHEAD if ahead else 1)

    def collect(self, pending: Pending) -> Assembled:
        """Make arrays of the data in the batch's slot."""
        written: Written = pending.memory
        places = [leaf for leaf in written.leaves if isinstance(leaf, ArrayInSlot)]
        # If there is no descriptor or memory for that, the batch can be collected later.
        arrays = iter(self._slots.deliver(self._in_slots[pending], places))
        del self._in_slots[pending]
        leaves = [
            next(arrays) if isinstance(leaf, ArrayInSlot) else leaf for leaf in written.leaves
        ]
        return Assembled(unflatten(written.skeleton, leaves), written.skipped)

    def discard(self, pending: Pending) -> None:
        """Take back the slot of an abandoned batch, once no worker writes to it."""
        slot = self._in_slots.pop(pending, None)
        if slot is not None:
            self._slots.give_back(slot)

    # --- in the thread of a worker ---

    def _serve(
        self, worker: Worker, lease: object, wakes: queue.SimpleQueue[bool], opens: bool
    ) -> None:
        """Receive a worker's answers, until it is given back or dies.

        As soon as all are answered, it may be given back, and serve another executor.
        """
        try:
            if opens and not self._opened(worker, lease):
                return
            while wakes.get():
                while (answered := worker.receive(_LATE_SECONDS)) is None:
                    if worker.draining and time.monotonic() > worker.deadline:
                        raise EOFError
                self._answered(*answered)
        except (EOFError, OSError):
            self._died(worker)
        except BaseException:
            log.exception("a worker process could not be attended to")
            self._died(worker)
        finally:
            self._pool.give_back(worker, lease)

    def _opened(self, worker: Worker, lease: object) -> bool:
        """Wait until a worker has opened the plan; False if it isn't needed any more."""
        for _ in range(len(worker.unanswered)):  # An earlier lease may have left requests.
            while worker.receive(_LOOK_SECONDS) is None:
                if lease is not self._lease:
                    return False
        with self._lock:
            if lease is not self._lease:
                return False
            if not worker.used:
                self._pool.start_seconds = time.time() - worker.started_at
            worker.used = self._was_ready = True
            self._able.add(worker)
        self._changed()
        return True

    def _answered(self, task: _Task, answer: bytes) -> None:
        """Note that a worker has done a job."""
        if self._closed:
            return  # Without the lock: its holder may be waiting for the worker to become idle.
        answers = [_unpickled(each) for each in pickle.loads(answer)]
        job = task.job
        with self._lock:
            for pending, written in zip(job.batches, answers):
                if isinstance(written, BaseException):
                    pending.note_error(written)
                    continue
                job.seconds += written.spent.seconds
                pending.memory = written
                self._look_at(written.spent)
            self._job_seconds = job.seconds
            task.done(job)

    def _died(self, worker: Worker) -> None:
        """Note that a worker has died; its jobs must be done again."""
        death = f"worker process {worker.pid} {self._pool.bury(worker)}"
        with self._lock:
            if worker not in self._workers:  # It was draining.
                return
            del self._workers[worker]
            self._able.discard(worker)
            self.deaths.append(death)
            for task in filter(None, worker.unanswered):
                for pending in task.job.batches:
                    slot = self._in_slots.get(pending)
                    if slot is not None and slot.signer_pid == worker.pid:
                        pending.killers.append(death)
                task.job.lost = True
                task.done(task.job)
        self._changed()

    def _look_at(self, spent: Spent) -> None:
        """Lease the other processes, if they would help."""
        looked = len(self._taken) >= _LOOKS * self.count
        if self._closed or self.count == self._most or looked or spent.noisy:
            return
        self._taken.append(spent)
        if len(self._taken) < _LOOKS * self.count:
            return
        usual = sorted(self._taken, key=lambda each: each.busy_seconds)[: -self.count]
        total = sum(spent.own_seconds for spent in usual)
        if sum(spent.busy_seconds for spent in usual) < _WAITS * total:
            self.count = self._most
            try:
                self._lease_missing()
            except OSError as error:
                log.warning("no more worker processes could be started: %s", error)
                self.count = self._most = len(self._workers)


def _unpickled(answer: bytes) -> Written | BaseException:
    try:
        written: Written | Failure = pickle.loads(answer)
    except BaseException as error:  # Raised where the batch is read.
        return error
    return written.restore() if isinstance(written, Failure) else written
