"""Workers of a Dask cluster: for a host that lacks CPUs.

    dispatcher --submit--> Dask's event loop --task--> scheduler --> a worker: shipment.make
               <--done---- our thread <--what it made, from the worker itself--'

The client is the user's, and stays open. A job is a coroutine on the client's event loop, which
submits a task, waits for it and gathers it; what came is opened by a thread of ours, as the loop
has the network to serve. Dask does a task again whose worker has died, and gives up one that
workers died over again and again. Nothing here blocks but ``close``.

Everything of Dask's is public, but for where it draws from; it is imported when a cluster is used.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import logging
import queue
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from adapters.batch.plan import Assembled, Plan
from adapters.engine.arena import Arena
from adapters.engine.jobs import Done, Job, Pending
from adapters.engine.settings import Settings
from adapters.engine.shipment import Made, Shipment, Wanted, make
from adapters.engine.traffic import Traffic
from adapters.errors import WorkerError, note
from adapters.failure import Failure

log = logging.getLogger("adapters")

KIND = "workers of a Dask cluster"

# A plan up to there travels as a task, which Dask does again where it was lost; Dask warns of ones
# of 10 MB. A larger one is scattered.
_TASK_BYTES = 4 << 20
# How often a lost plan, or a cancelled task, is sent again.
_TRIES = 5
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
        Exception: The plan can't be pickled.
    """

    name = KIND
    # A task costs 2 ms of scheduler, worker and client (two cores).
    group_seconds = 0.01
    window = None
    short = starting = splits = False

    def __init__(self, plan: Plan, settings: Settings, lock: Any) -> None:
        self._client: Any = settings.cluster
        self._dask: Any = importlib.import_module("distributed")
        _give_own_generator()
        self._plan, self._lock, self._most = plan, lock, settings.max_queue_size
        self.deaths: list[str] = []
        self.started = time.monotonic()
        self._shipment = self._pickled()
        self._sent: asyncio.Task[Any] | None = None
        """Brings the shipment to the cluster; of the event loop."""
        self._running: set[asyncio.Task[None]] = set()
        """Jobs; of the event loop. None is cancelled: a gather that is takes others with it, as
        Dask has those that begin at the same time share one."""
        self._futures: set[Any] = set()
        """What they wait for; of the event loop."""
        self._jobs: dict[Job, Done] = {}
        self._prefix = f"adapters-batch-{uuid.uuid4().hex}"
        self._tasks = 0
        self._closed = False
        self._arena = Arena()
        self.traffic = Traffic()
        workers, self.count = size_of(self._client)
        self.traffic.workers = self.count
        log.info("workers: %d %s, %d threads", workers, KIND, self.count)
        self._heard = time.monotonic()
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
        if self._jobs and self._client.status in ("closed", "closing"):
            for job, done in list(self._jobs.items()):
                self._fail(job, done, WorkerError(_CLOSED))
        elif self._jobs and time.monotonic() > self._heard + _LONELY_SECONDS:
            self._heard = time.monotonic()
            self._client.loop.add_callback(self._look_for_workers)
        return self.count

    def most_jobs(self, active: int) -> int:
        """All that may be under way: the cluster has a queue of its own."""
        return self._most

    def stand_in(self, job: Job, done: Done) -> bool:
        """The cluster is there."""
        return False

    def submit(self, job: Job, done: Done) -> bool:
        """Send the job to the cluster.

        Raises:
            WorkerError: The client is closed.
        """
        if self._client.status in ("closed", "closing"):
            raise WorkerError(_CLOSED)
        if not self._jobs:
            self._heard = time.monotonic()
        self._jobs[job] = done
        batches = list(job.batches)
        self._client.loop.add_callback(self._begin, job, batches)
        return True

    def allocate(self, pending: Pending) -> None:
        """Nothing is computed in parts."""
        raise NotImplementedError

    def collect(self, pending: Pending) -> Assembled:
        """Batches are in their ``outcome``."""
        raise NotImplementedError

    def discard(self, pending: Pending) -> None:
        """Nothing outlives the batch's arrays."""

    def refresh(self) -> None:
        """Send the plan again; jobs under way have it as it was."""
        shipment = self._shipment = self._pickled()
        self._client.loop.add_callback(self._replace, shipment)

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
        self._arena.close()
        self._client.loop.add_callback(self._cancel)
        self._arrived.put(None)
        if wait and threading.get_ident() != self._thread.ident:
            self._thread.join(_PATIENCE_SECONDS)

    @property
    def finding(self) -> str:
        """What limits these workers, as far as that is known."""
        return self.traffic.finding

    # --- on the client's event loop ---

    def _begin(self, job: Job, batches: list[Pending]) -> None:
        if not self._closed:
            task = asyncio.ensure_future(self._run(job, batches))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self, job: Job, batches: list[Pending]) -> None:
        try:
            answers = await self._made(batches)
        except BaseException as error:
            # Its frames, and those of what led to it, would keep the plan on the cluster.
            error.__context__ = None
            answers = [error.with_traceback(None)] * len(batches)
        if self._closed:
            return
        self._heard = time.monotonic()
        self._arrived.put(lambda: self._take(job, batches, answers))

    async def _made(self, batches: list[Pending]) -> list[Any]:
        """What a worker answers to some batches; in the place of one that kills them, why."""
        keys = [pending.key for pending in batches]
        try:
            return await self._asked(keys)
        except self._dask.KilledWorker as error:
            if len(batches) > 1:  # One by one, so that the one to blame is alone.
                each = [self._made([pending]) for pending in batches]
                return [answer for answers in await asyncio.gather(*each) for answer in answers]
            where = getattr(error.last_worker, "address", "a worker")
            told = WorkerError(
                f"{where} of the Dask cluster died while computing batch {keys[0].index} of epoch "
                f"{keys[0].epoch}; tried {error.allowed_failures + 1} times. Look for a crash in "
                "the source or the transform (workers=0 runs it in this process), or for the "
                "workers' memory limit"
            )
            return [told]

    async def _asked(self, keys: list[Any]) -> list[Any]:
        for left in reversed(range(_TRIES)):
            sending = self._sent = self._sent or asyncio.ensure_future(self._send(self._shipment))
            future = self._submitted(await self._arrival(sending), keys)
            self._futures.add(future)
            try:
                async for _ in self._dask.as_completed([future], loop=self._client.loop):
                    pass
                with self.traffic.bringing():
                    answers: list[Any] = await self._client.gather(
                        future, direct=True, asynchronous=True
                    )
                self.traffic.note(answers)
                return answers
            except (concurrent.futures.CancelledError, asyncio.CancelledError):
                # The last worker that had the plan is gone, or somebody restarted the cluster.
                if self._closed or not left or self._client.status in ("closed", "closing"):
                    raise WorkerError(_FORGOTTEN) from None
                if self._sent is sending:
                    self._sent = None
            except Exception:
                if self._client.status in ("closed", "closing"):  # It has nothing to ask any more.
                    raise WorkerError(_FORGOTTEN) from None
                raise
            finally:
                self._futures.discard(future)
                future.release()
        raise AssertionError

    async def _arrival(self, sending: asyncio.Task[Any]) -> Any:
        """The plan, as the cluster has it."""
        try:
            return await asyncio.shield(sending)
        except BaseException:
            if self._sent is sending:
                self._sent = None
            raise

    def _submitted(self, shipment: Any, keys: list[Any]) -> Any:
        self._tasks += 1
        return self._client.submit(
            make,
            shipment,
            Wanted(keys),
            key=f"{self._prefix}-{self._tasks}",
            pure=False,
            priority=-self._tasks,
        )

    async def _send(self, shipment: Shipment) -> Any:
        if shipment.size_bytes <= _TASK_BYTES:
            return self._client.submit(_itself, shipment, pure=False)
        return await self._client.scatter(shipment, direct=True, hash=False, asynchronous=True)

    def _replace(self, shipment: Shipment) -> None:
        if shipment is self._shipment:
            self._sent = None

    def _cancel(self) -> None:
        for future in self._futures:
            future.release()
        if self._sent is not None:
            self._sent.add_done_callback(_release)
        self._sent = None

    async def _look_for_workers(self) -> None:
        if not await self._client.scheduler.ncores():
            log.warning("the Dask cluster has no workers: waiting for one to come")

    # --- in our thread ---

    def _take(self, job: Job, batches: list[Pending], answers: list[Any]) -> None:
        for pending, answer in zip(batches, answers, strict=True):
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
_FORGOTTEN = (
    "the Dask cluster has forgotten what it was given again and again: its scheduler has ended, or "
    "the client was closed"
)


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


def _release(sending: asyncio.Task[Any]) -> None:
    """Have the cluster forget a plan now, and not when the garbage collector comes by."""
    if not sending.cancelled() and sending.exception() is None:
        sending.result().release()


def _itself(shipment: Shipment) -> Shipment:
    return shipment


def _open_all(arrived: queue.SimpleQueue[Task | None]) -> None:
    """What our thread does; it keeps no crew alive that nobody else does."""
    while (task := arrived.get()) is not None:
        try:
            task()
        except Exception:
            log.exception("a batch of a Dask cluster could not be delivered")
        del task
