"""Executor on a Dask cluster, for a host that lacks CPUs: each batch is a Dask task.

    a thread --key--> the client's event loop --task--> scheduler --> a worker: make_batch
             <---- Pickled, or a Failure, from the worker that has it

Dask recomputes the batches of a dead worker, and gives a task up after several workers died in it.
The plan is sent once for each version of its source, and each worker opens it once.

The client belongs to the user and stays open. All calls to Dask run on its event loop. Batches are
unpickled in threads of ours, because that loop serves the network. Dask is imported when a cluster
is used.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib
import logging
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any, TypeVar

import cloudpickle
import numpy as np

from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey
from adapters.batch.plan import Allocate, Assembled, Plan
from adapters.clock import Spent
from adapters.engine.executors import CLUSTER, Settings
from adapters.engine.serialization import import_before, pickled_apart
from adapters.engine.threads import Threads
from adapters.errors import WorkerError, note
from adapters.failure import Failure
from adapters.structure import flatten, unflatten

log = logging.getLogger("adapters")

# Interval at which a thread that waits for a batch looks if the client was closed.
_WAIT_SECONDS = 1.0
# Time without an answer after which the scheduler is asked whether it has workers.
_LONELY_SECONDS = 10.0
# Interval of checks whether a worker that doesn't answer has been given up.
_LOOK_SECONDS = 2.0
# A plan up to this size is sent as a task, which Dask runs again if its worker dies; Dask warns of
# tasks of 10 MB. A larger one is scattered.
_TASK_BYTES = 4 << 20
# How often a lost plan, or a cancelled task, is sent.
_TRIES = 5
# Batches before the limiting factor is reported.
_ENOUGH = 8
_CLOSED_STATUS = "closed", "closing"

_NOT_PICKLED = (
    "source, transform and batch_transform must be picklable (by cloudpickle) to be sent to a "
    "cluster: make what can't be pickled when it is first used"
)
_NOT_OPENED = (
    "a worker of the cluster could not open the source or a transform: what they are made of must "
    "be installed there, or be sent by Client.upload_file, and files be found under the same names"
)
_NOT_RUN = (
    "the Dask cluster could not run the task: its scheduler and its workers need loader-adapters, "
    "cloudpickle and NumPy, in versions like those of this process"
)
_CLOSED = (
    "the Dask client is closed: close the sequence before it, or give it a client that is open"
)
_FORGOTTEN = (
    "the Dask cluster has forgotten what it was given again and again: its scheduler has ended, "
    "the client was closed, or worker after worker died that had the source"
)
_FORKED = (
    "workers: the Dask client's event loop doesn't run in this process, which was forked from the "
    "client's: make a Client in this process, and give the sequence that one"
)

# Held by plans that only one thread may compute; shared, as they share Python's global generators.
_one_at_a_time = threading.RLock()

T = TypeVar("T")


# --- what crosses the wire ---


class Pickled:
    """A pickle with separate arrays, which Dask sends without a copy.

    Args:
        content: The pickle.
        buffers: Its arrays.
    """

    def __init__(self, content: bytes, buffers: Iterable[pickle.PickleBuffer]) -> None:
        self.content = content
        self.buffers = [np.frombuffer(each.raw(), np.uint8) for each in buffers]

    def __sizeof__(self) -> int:  # Dask measures the data its workers store.
        return len(self.content) + sum(each.nbytes for each in self.buffers)


def pickled_plan(plan: Plan) -> Pickled:
    """Serialize a plan; its arrays are not copied.

    Raises:
        Exception: The plan can't be pickled, not even by cloudpickle.
    """
    try:
        content, buffers, imports = pickled_apart(plan)
    except Exception as error:
        note(error, _NOT_PICKLED)
        raise
    return Pickled(pickle.dumps((imports, content)), buffers)


_opened: weakref.WeakKeyDictionary[Pickled, Plan] = weakref.WeakKeyDictionary()
_opening = threading.RLock()


def opened_plan(serialized: Pickled) -> Plan:
    """Return the plan, which a process opens once; may be called from any thread.

    Raises:
        Exception: The plan can't be opened here.
    """
    with _opening:
        if serialized not in _opened:
            imports, content = pickle.loads(serialized.content)
            import_before(imports)
            try:
                _opened[serialized] = pickle.loads(content, buffers=serialized.buffers)
            except Exception as error:
                note(error, _NOT_OPENED)
                raise
        return _opened[serialized]


def pickled_batch(assembled: Assembled, spent: Spent) -> Pickled:
    """Serialize a batch and the time of its computation; its arrays are not copied.

    Raises:
        Exception: The batch contains something that can't be pickled.
    """
    leaves, skeleton = flatten(assembled.batch)
    # Pickle would copy non-contiguous arrays into the stream.
    leaves = [
        np.ascontiguousarray(leaf) if type(leaf) is np.ndarray and leaf.ndim else leaf
        for leaf in leaves
    ]
    buffers: list[pickle.PickleBuffer] = []
    content = skeleton, leaves, assembled.skipped, spent
    try:
        pickled = cloudpickle.dumps(content, protocol=5, buffer_callback=buffers.append)
    except Exception as error:
        note(error, "the batch holds something that can't be sent from a worker of a cluster")
        raise
    return Pickled(pickled, buffers)


def opened_batch(made: Pickled, allocate: Allocate) -> tuple[Assembled, Spent]:
    """Unpickle a batch into new memory that frameworks use without a copy."""
    buffers = []
    for received in made.buffers:
        buffers.append(allocate(received.shape, received.dtype))
        buffers[-1][...] = received
    skeleton, leaves, skipped, spent = pickle.loads(made.content, buffers=buffers)
    return Assembled(unflatten(skeleton, leaves), skipped), spent


def make_batch(serialized: Pickled, key: bytes) -> Pickled | Failure:
    """Compute a batch on a worker of the cluster: the task, which may run twice, anywhere.

    Args:
        serialized: The plan.
        key: The pickled ``BatchKey``; pickled because Dask traverses tuples.
    """
    try:
        plan = opened_plan(serialized)
        with contextlib.nullcontext() if plan.threads else _one_at_a_time:
            started = Spent.now()
            assembled = plan.batch(pickle.loads(key), aligned_empty)
        plan.wait_for(assembled)
        return pickled_batch(assembled, started.until_now())
    except BaseException as error:  # Raised where the batch is read.
        return Failure.of(error)


def itself(value: T) -> T:
    """Return the argument: the task that sends the cluster a plan."""
    return value


# --- in this process ---


class Cluster(Threads):
    """Executor on a Dask cluster. A thread waits for each batch under way, and unpickles it.

    ``count`` and ``changed`` are not used: Dask has its own workers, and replaces them.

    Raises:
        RuntimeError: The client belongs to the process that this one was forked from.
        Exception: The plan can't be pickled.
    """

    name = CLUSTER
    group_seconds = 0.0  # One batch per task, so that Dask knows in which batch workers die.

    def __init__(self, plan: Plan, count: int, settings: Settings, lock: Any, changed: Any) -> None:
        self._client: Any = settings.cluster
        if not _runs_here(self._client):
            raise RuntimeError(_FORKED)
        self._dask: Any = importlib.import_module("distributed")
        self._serialized = pickled_plan(plan)
        self._closed = False
        threads = self._client.nthreads()
        self._workers = max(1, sum(threads.values()))  # There may be none yet.
        log.info("workers: %d %s, %d threads", len(threads), CLUSTER, self._workers)
        self._latest = time.monotonic()
        self._lock = lock
        self._batches = self._bytes = 0
        self._made_seconds = 0.0
        """Computation time, summed over all workers."""
        # Used on the event loop only:
        self._futures: set[Any] = set()
        self._sending: asyncio.Task[Any] | None = None
        self._out_of_reach: set[str] = set()
        self._tasks_sent = self._fetching = 0
        self._fetched_seconds = self._since = 0.0
        """Time during which at least one batch was fetched."""
        super().__init__(plan, settings.max_queue_size)
        self.window = settings.max_queue_size

    def most_jobs(self, active: int) -> int:
        """Return the number of threads: the scheduler has a queue of its own."""
        return self.count

    def refresh(self) -> None:
        """Send the plan as it is now; jobs under way use the earlier one."""
        self._client.loop.add_callback(self._replace, pickled_plan(self._plan))

    def close(self, wait: bool) -> None:
        """Cancel jobs under way; the client stays open."""
        self._closed = True
        self._client.loop.add_callback(self._forget)
        super().close(wait)

    @property
    def finding(self) -> str:
        """Limiting factor of these workers; empty until enough batches have come."""
        if self._batches < _ENOUGH or not self._fetched_seconds:
            return ""
        made, brought = self._made_seconds / self._batches, self._fetched_seconds / self._batches
        limit = "the network" if brought > made / self._workers else "the work"
        return (
            f"a batch of {self._bytes / self._batches / 1e6:.3g} MB takes {1000 * made:.3g} ms to "
            f"make there and {1000 * brought:.3g} ms to bring here: {limit} is the limit"
        )

    def _compute(self, key: BatchKey) -> Assembled:
        if self._client.status in _CLOSED_STATUS:
            raise WorkerError(_CLOSED)
        loop = self._client.loop.asyncio_loop
        answering = asyncio.run_coroutine_threadsafe(self._answer(key), loop)
        while not concurrent.futures.wait([answering], _WAIT_SECONDS).done:
            if self._client.status in _CLOSED_STATUS:
                raise WorkerError(_CLOSED)
            if time.monotonic() > self._latest + _LONELY_SECONDS:
                self._latest = time.monotonic()
                self._client.loop.add_callback(self._look_for_workers)
        self._latest = time.monotonic()
        if (error := answering.exception()) is not None:
            # The frames of the error and its context would keep the plan on the cluster.
            error.__context__ = None
            raise error.with_traceback(None)
        answer = answering.result()
        if isinstance(answer, Failure):
            raise answer.restore()
        outcome, spent = opened_batch(answer, self._arena.empty)
        with self._lock:
            self._batches += 1
            self._bytes += sys.getsizeof(answer)
            self._made_seconds += spent.own_seconds
        return outcome

    # --- on the client's event loop ---

    async def _answer(self, key: BatchKey) -> Pickled | Failure:
        """Request a batch until there is an answer.

        Raises:
            WorkerError: The batch kills workers; or the cluster, or the client, is gone.
            Exception: Another error from Dask.
        """
        pickled = cloudpickle.dumps(key)
        for _ in range(_TRIES):
            sending = self._sending = self._sending or asyncio.ensure_future(self._send())
            try:
                return await self._made(await asyncio.shield(sending), pickled)
            except (concurrent.futures.CancelledError, asyncio.CancelledError):
                # The last worker with the plan is gone, or the cluster was restarted.
                if self._closed or self._client.status in _CLOSED_STATUS:
                    break
                if self._sending is sending:
                    self._sending = None
            except self._dask.KilledWorker as error:
                raise WorkerError(
                    f"{getattr(error.last_worker, 'address', 'a worker')} of the Dask cluster died "
                    f"while computing batch {key.index} of epoch {key.epoch}; tried "
                    f"{error.allowed_failures + 1} times. Look for a crash in the source or the "
                    "transform (workers=0 runs it in this process), or for the workers' memory "
                    "limit"
                ) from None
            except Exception as error:
                if self._client.status in _CLOSED_STATUS:  # No more requests are possible.
                    break
                if self._sending is sending and sending.done():
                    self._sending = None
                if _NOT_RUN not in getattr(
                    error, "__notes__", ()
                ):  # Several batches may wait for the same plan.
                    note(error, _NOT_RUN)
                raise
        raise WorkerError(_FORGOTTEN)

    async def _made(self, plan: Any, key: bytes) -> Pickled | Failure:
        self._tasks_sent += 1
        future = self._client.submit(make_batch, plan, key, pure=False, priority=-self._tasks_sent)
        self._futures.add(future)
        try:
            # The waiting isn't cancelled: Dask shares it between those who gather together.
            async for _ in self._dask.as_completed([future], loop=self._client.loop):
                pass
            if not self._fetching:
                self._since = time.perf_counter()
            self._fetching += 1
            try:
                answer: Pickled | Failure = await self._result(future)
            finally:
                self._fetching -= 1
                if not self._fetching:
                    self._fetched_seconds += time.perf_counter() - self._since
            return answer
        finally:
            self._futures.discard(future)
            future.release()

    async def _result(self, future: Any) -> Any:
        """Result of a task, from the worker that has it if that can be reached.

        ``Client.gather`` isn't used: it picks the worker with Python's global generator, whose
        draws belong to the user.
        """
        if future.status == "finished":
            known = await self._client.scheduler.who_has(keys=[future.key])
            for address in known.get(future.key, ()):
                if address in self._out_of_reach:
                    continue
                try:
                    found = await self._fetched(future.key, address)
                except OSError as error:
                    self._out_of_reach.add(address)
                    log.info("%s of the Dask cluster can't be reached: %s", address, error)
                else:
                    if future.key in found:
                        return found[future.key]
        # Through the scheduler; Dask recomputes what was lost with a worker.
        return await self._client.gather(future, direct=False, asynchronous=True)

    async def _fetched(self, key: Any, address: str) -> dict[Any, Any]:
        """Fetch a key's data from a worker; nothing if it is busy, or is given up meanwhile."""
        fetching = asyncio.ensure_future(
            self._dask.worker.get_data_from_worker(self._client.rpc, [key], address)
        )
        # A frozen worker never answers, and its connection stays open.
        while not (await asyncio.wait({fetching}, timeout=_LOOK_SECONDS))[0]:
            known = await self._client.scheduler.who_has(keys=[key])
            if address not in known.get(key, ()):
                fetching.cancel()
                return {}
        answer: dict[str, Any] = await fetching
        return dict(answer.get("data", {}))

    async def _send(self) -> Any:
        """Send the plan to the cluster; returns its future."""
        serialized = self._serialized
        if sys.getsizeof(serialized) <= _TASK_BYTES:
            return self._client.submit(itself, serialized, pure=False)
        options = {"hash": False, "asynchronous": True}
        try:
            return await self._client.scatter(serialized, direct=True, **options)
        except OSError:  # The workers can't be reached from here.
            return await self._client.scatter(serialized, direct=False, **options)

    def _replace(self, serialized: Pickled) -> None:
        self._serialized, self._sending = serialized, None

    def _forget(self) -> None:
        """Release all data on the cluster now, not when the garbage collector runs."""
        for future in self._futures:
            future.release()
        if self._sending is not None:
            self._sending.add_done_callback(_release)
        self._sending = None

    async def _look_for_workers(self) -> None:
        if not await self._client.nthreads():
            log.warning("the Dask cluster has no workers: waiting for one to come")


def _runs_here(client: Any) -> bool:
    """True if the client's event loop runs in this process, or if that is unknown."""
    ident = getattr(getattr(client.loop, "asyncio_loop", None), "_thread_id", None)
    return ident is None or ident in {thread.ident for thread in threading.enumerate()}


def _release(sending: asyncio.Task[Any]) -> None:
    if not sending.cancelled() and sending.exception() is None:
        sending.result().release()
