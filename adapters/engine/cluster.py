"""Workers of a Dask cluster: for a host that lacks CPUs.

    dispatcher --submit--> Lanes ---keys---> a worker, asked directly
               <--done---- its thread <---frames---'
                         or, where that can't be, Submission: tasks of Dask's, and their results

The client is the user's, and stays open. What has to do with Dask runs on its event loop; what
came is opened by the lane's thread, or by one of ours, as the loop has the network to serve.
Nothing here blocks but ``close``.

What is used of Dask is public, but for where it draws from and for the socket beneath a connection
(``frames``). It is imported when a cluster is used.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import queue
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from adapters.batch.plan import Assembled, Plan
from adapters.engine.arena import Arena
from adapters.engine.jobs import Done, Job, Pending
from adapters.engine.lanes import Lanes, Work
from adapters.engine.settings import CLUSTER, Settings
from adapters.engine.shipment import Made, Shipment
from adapters.engine.submission import ENDED, Submission
from adapters.engine.traffic import Traffic
from adapters.errors import WorkerError, note
from adapters.failure import Failure

log = logging.getLogger("adapters")

_PATIENCE_SECONDS = 10.0
# How long nothing may come before it is said that there are no workers.
_LONELY_SECONDS = 10.0
_NOT_PICKLED = (
    "source, transform and batch_transform must be picklable (by cloudpickle) to be sent to a "
    "cluster: make what can't be pickled when it is first used"
)

Task = Callable[[], None]


class Cluster:
    """A crew on other machines.

    Args:
        plan: What is computed; sent once.
        settings: With the client, and how many batches may be under way.
        lock: The dispatcher's; it is held whenever the state of the crew changes.

    Raises:
        RuntimeError: The client is of the process that this one was forked from.
        Exception: The plan can't be pickled.
    """

    name = CLUSTER
    # A task of Dask's costs 2 ms of scheduler, worker and client (two cores).
    group_seconds = 0.01
    window = None
    short = starting = False

    def __init__(self, plan: Plan, settings: Settings, lock: Any) -> None:
        self._client: Any = settings.cluster
        if not _runs_here(self._client):
            raise RuntimeError(_FORKED)
        dask: Any = importlib.import_module("distributed")
        _give_own_generator()
        self._plan, self._lock, self._most = plan, lock, settings.max_queue_size
        self.deaths: list[str] = []
        self.started = time.monotonic()
        self._running: set[asyncio.Task[None]] = set()
        """Jobs that are tasks; of the event loop."""
        self._jobs: dict[Job, Done] = {}
        self._closed = False
        self._arena = Arena()
        self.traffic = Traffic()
        workers, self.count = size_of(self._client)
        self.traffic.workers = self.count
        log.info("workers: %d %s, %d threads", workers, CLUSTER, self.count)
        self._heard = time.monotonic()
        about = self._client, dask
        self._submission = Submission(*about, self._pickled(), self.traffic)
        self._lanes = Lanes(
            *about, self._submission, lock, self.traffic, self._come, self._submit_task
        )
        self._arrived: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_open_all, args=(self._arrived,), name="adapters-cluster", daemon=True
        )
        self._thread.start()

    def _pickled(self) -> Shipment:
        try:
            return Shipment.of(self._plan)
        except Exception as error:
            note(error, _NOT_PICKLED)
            raise

    # --- the protocol: called with the dispatcher's lock held, but for ``close`` ---

    @property
    def ready(self) -> int:
        """Threads over there; also looks whether anything is still to be hoped for."""
        if self._jobs and self._client.status in ENDED:
            for job, done in list(self._jobs.items()):
                self._fail(job, done, WorkerError(_CLOSED))
        elif self._jobs and time.monotonic() > self._heard + _LONELY_SECONDS:
            self._heard = time.monotonic()
            self._client.loop.add_callback(self._look_for_workers)
        if self._jobs and self._client.status not in ENDED:
            self._lanes.look()
        return self.count

    def most_jobs(self, active: int) -> int:
        """All that may be under way: there are queues of our own, and of the cluster."""
        return self._most

    def submit(self, job: Job, done: Done) -> bool:
        """Send the job to the cluster.

        Raises:
            WorkerError: The client is closed.
        """
        if self._client.status in ENDED:
            raise WorkerError(_CLOSED)
        if not self._jobs:
            self._heard = time.monotonic()
        self._jobs[job] = done
        self._lanes.put(Work(job, list(job.batches)))
        return True

    def collect(self, pending: Pending) -> Assembled:
        """Batches are in their ``outcome``."""
        raise NotImplementedError

    def discard(self, pending: Pending) -> None:
        """Nothing outlives the batch's arrays."""

    def packed(self) -> None:
        """The plan is packed when it is sent."""

    def refresh(self, plan: None) -> None:
        """Send the plan again; jobs under way have it as it was."""
        self._client.loop.add_callback(self._submission.replace, self._pickled())
        self._lanes.retire()

    def restart(self) -> None:
        """Dask replaces workers."""

    def rest(self) -> None:
        """Others may use the cluster at any time."""

    def wake(self) -> None:
        """Nothing was given back."""

    def close(self, wait: bool) -> None:
        """Cancel what is under way; the client stays open."""
        with self._lock:
            self._closed = True
            self._jobs.clear()
            threads = [self._thread, *self._lanes.threads]
            self._lanes.close()
        self._arena.close()
        self._client.loop.add_callback(self._submission.close)
        self._arrived.put(None)
        for thread in threads if wait else ():
            if threading.get_ident() != thread.ident:
                thread.join(_PATIENCE_SECONDS)

    @property
    def finding(self) -> str:
        """What limits these workers, as far as that is known."""
        return self.traffic.finding

    def _submit_task(self, work: Work) -> None:
        """For work that no lane is there for."""
        self._client.loop.add_callback(self._begin, work)

    # --- on the client's event loop ---

    def _begin(self, work: Work) -> None:
        if not self._closed:
            task = asyncio.ensure_future(self._run(work))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self, work: Work) -> None:
        try:
            answers = await self._submission.made([pending.key for pending in work.batches])
        except BaseException as error:
            # Its frames, and those of what led to it, would keep the plan on the cluster.
            error.__context__ = None
            answers = [error.with_traceback(None)] * len(work.batches)
        if not self._closed:
            self._arrived.put(lambda: self._come(work, answers))

    async def _look_for_workers(self) -> None:
        if not await self._client.scheduler.ncores():
            log.warning("the Dask cluster has no workers: waiting for one to come")

    # --- in a lane's thread, or ours ---

    def _come(self, work: Work, answers: list[Any]) -> None:
        self._heard = time.monotonic()
        job = work.job
        for pending, answer in zip(work.batches, answers, strict=True):
            if isinstance(answer, Made):
                try:
                    pending.outcome = answer.opened(self._arena.empty)
                    job.seconds += answer.spent.seconds
                except BaseException as error:
                    pending.fail(error)
            else:
                pending.fail(answer.restore() if isinstance(answer, Failure) else answer)
        with self._lock:
            done = self._jobs.pop(job, None)
            if done is not None:
                done(job)

    def _fail(self, job: Job, done: Done, error: BaseException) -> None:
        del self._jobs[job]
        for pending in job.batches:
            pending.fail(error)
        done(job)


_CLOSED = (
    "the Dask client is closed: close the sequence before it, or give it a client that is open"
)


_FORKED = (
    "workers: the Dask client's event loop doesn't run in this process, which was forked from the "
    "client's: make a Client in this process, and give the sequence that one"
)


def _runs_here(client: Any) -> bool:
    """Whether a client's event loop has its thread in this process, as far as that can be told."""
    ident = getattr(getattr(client.loop, "asyncio_loop", None), "_thread_id", None)
    return ident is None or ident in {thread.ident for thread in threading.enumerate()}


def size_of(client: Any) -> tuple[int, int]:
    """Workers of a cluster, and their threads; 1 where none has come yet."""
    known = client.scheduler_info()
    # Some versions of Dask list five workers at the most, and have the sums beside them.
    listed = known["workers"].values()
    threads = sum(int(worker["nthreads"]) for worker in listed)
    workers = int(known.get("n_workers", len(listed)))
    return max(1, workers), max(1, int(known.get("total_threads", threads)))


def _give_own_generator() -> None:
    """Have Dask draw which worker it asks from numbers of its own, and not from Python's.

    Those are the user's, and would depend on when batches come.
    """
    for name in ("distributed.utils_comm", "distributed.comm.core"):
        module: Any = sys.modules.get(name)
        if getattr(module, "random", None) is random:
            module.random = random.Random()  # noqa: S311 - of no use to anybody.


def _open_all(arrived: queue.SimpleQueue[Task | None]) -> None:
    """What our thread does; it keeps no crew alive that nobody else does."""
    while (task := arrived.get()) is not None:
        try:
            task()
        except Exception:
            log.exception("a batch of a Dask cluster could not be delivered")
        del task
