"""Executor on a Dask cluster, for a host that lacks CPUs: each batch is a Dask task.

    dispatcher --submit--> the client's event loop --task--> scheduler --> a worker: make_batch
               <--done---- our thread <--- Made, or a Failure, from the worker that has it

Dask recomputes the batches of a dead worker, and gives a task up after several workers died in it.
The plan is sent once for each version of its source, and each worker opens it once.

The client belongs to the user and stays open. All calls to Dask run on its event loop. Batches are
unpickled in a thread of ours, because that loop serves the network. Only ``close`` blocks. Dask is
imported when a cluster is used.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import logging
import pickle
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

import cloudpickle
import numpy as np

from adapters.alignment import aligned_empty
from adapters.batch.plan import Allocate, Assembled, BatchKey, Plan
from adapters.clock import Spent
from adapters.engine.executors import CLUSTER, Settings
from adapters.engine.memory import Arena
from adapters.engine.serialization import import_before, pickled_apart
from adapters.engine.tasks import Done, Executor, Task
from adapters.errors import WorkerError, note, noted
from adapters.failure import Failure
from adapters.structure import flatten, unflatten

log = logging.getLogger("adapters")

# Time to fetch a batch from its worker, which may be frozen or behind a firewall. The scheduler
# fetches it, and later ones of this worker, after that.
_FETCH_SECONDS = 20.0
# A plan up to this size is sent as a task, which Dask runs again if its worker dies; Dask warns of
# tasks of 10 MB. A larger one is scattered.
_TASK_BYTES = 4 << 20
# How often a lost plan, or a cancelled task, is sent.
_TRIES = 5

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


# --- what crosses the wire ---


class Pickled:
    """A pickle with separate arrays, which Dask sends without a copy.

    Args:
        content: The pickle.
        buffers: Its arrays, as bytes or memory views.
        imports: Modules to import before it is opened.
    """

    def __init__(
        self, content: bytes, buffers: Sequence[Any], imports: tuple[str, ...] = ()
    ) -> None:
        self.content = content
        self.buffers = [memoryview(each) for each in buffers]
        self._imports = imports
        self._lock = threading.Lock()
        self._plan: Plan | None = None

    def __sizeof__(self) -> int:
        """Size of the data to send, which Dask asks for."""
        return len(self.content) + sum(each.nbytes for each in self.buffers)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        kind = pickle.PickleBuffer if protocol >= 5 else bytes  # Dask copies tasks by protocol 4.
        return Pickled, (self.content, list(map(kind, self.buffers)), self._imports)

    def plan(self) -> Plan:
        """Return the plan, which is opened once in each process; for any thread."""
        with self._lock:
            if self._plan is None:
                import_before(self._imports)
                with noted(_NOT_OPENED):
                    self._plan, *_ = pickle.loads(self.content, buffers=self.buffers)
            return self._plan

    def batch(self, allocate: Allocate) -> tuple[Assembled, Spent]:
        """Open a batch in new memory that frameworks use without a copy."""
        buffers = []
        for view in self.buffers:
            buffers.append(allocate((view.nbytes,), np.dtype(np.uint8)))
            np.copyto(buffers[-1], np.frombuffer(view, np.uint8))
        treedef, leaves, skipped, spent = pickle.loads(self.content, buffers=buffers)
        return Assembled(unflatten(treedef, leaves), skipped), spent


def pickled_plan(plan: Plan) -> Pickled:
    """Pickle a plan; its arrays are not copied."""
    with noted(_NOT_PICKLED):
        return Pickled(*pickled_apart(plan))


def pickled_batch(assembled: Assembled, spent: Spent) -> Pickled:
    """Pickle a batch and the time of its computation; its arrays are not copied."""
    leaves, treedef = flatten(assembled.batch)
    # Pickle would copy non-contiguous arrays into the stream.
    leaves = [
        np.ascontiguousarray(leaf) if type(leaf) is np.ndarray and leaf.ndim else leaf
        for leaf in leaves
    ]
    buffers: list[pickle.PickleBuffer] = []
    content = treedef, leaves, assembled.skipped, spent
    with noted("the batch holds something that can't be sent from a worker of a cluster"):
        pickled = cloudpickle.dumps(content, protocol=5, buffer_callback=buffers.append)
    return Pickled(pickled, [each.raw() for each in buffers])


def make_batch(serialized: Pickled, key: bytes) -> Pickled | Failure:
    """Compute a batch on a worker of the cluster: the task, which may run twice, anywhere.

    Args:
        serialized: The plan.
        key: The pickled ``BatchKey``; pickled because Dask traverses tuples.
    """
    try:
        plan = serialized.plan()
        started = Spent.now()
        with nullcontext() if plan.threads else _one_at_a_time:
            assembled = plan.batch(pickle.loads(key), aligned_empty)
        plan.wait_for(assembled)
        return pickled_batch(assembled, started.until_now())
    except BaseException as error:  # Raised where the batch is read.
        return Failure.of(error)


# --- in this process ---


class Cluster(Executor):
    """Executor on a Dask cluster.

    ``count`` and ``changed`` are not used: Dask has its own workers, and replaces them.

    Raises:
        RuntimeError: The client belongs to the process that this one was forked from.
        Exception: The plan can't be pickled.
    """

    # It keeps to one batch per task, so that Dask knows in which batch workers die.
    name = CLUSTER

    def __init__(self, plan: Plan, count: int, settings: Settings, lock: Any, changed: Any) -> None:
        self._client: Any = settings.cluster
        if not _runs_here(self._client):
            raise RuntimeError(_FORKED)
        self._dask: Any = importlib.import_module("distributed")
        self._serialized = pickled_plan(plan)
        threads = self._client.nthreads()
        super().__init__(max(1, sum(threads.values())))  # There may be no worker yet.
        log.info("workers: %d %s, %d threads", len(threads), CLUSTER, self.count)
        if not threads:
            log.warning("the Dask cluster has no workers: waiting for one to come")
        self._plan, self._lock = plan, lock
        self.window: int = settings.max_queue_size
        self._tasks: dict[Task, Done] = {}
        self._closed = False
        self._arena = Arena()
        self._opener = concurrent.futures.ThreadPoolExecutor(1, "adapters-dask")
        # Used on the event loop only:
        self._futures: set[Any] = set()
        self._sending: asyncio.Task[Any] | None = None
        self._out_of_reach: set[str] = set()
        self._sent = 0

    # --- the ``Executor`` protocol: called with the dispatcher's lock held, except ``close`` ---

    @property
    def ready(self) -> int:
        """Number of the cluster's threads; also fails the tasks if the client is closed."""
        if self._is_cut_off:
            for task in list(self._tasks):
                self._deliver(task, WorkerError(_CLOSED))
        return self.count

    def most_tasks(self, active: int) -> int:
        """Return the window: the scheduler has a queue of its own."""
        return self.window

    def submit(self, task: Task, done: Done) -> bool:
        """Send the task to the cluster; ``ready`` fails it if the client is closed."""
        self._tasks[task] = done
        self._client.loop.add_callback(self._run, task)
        return True

    def refresh(self) -> None:
        """Send the plan as it is now; tasks under way use the earlier one."""
        self._client.loop.add_callback(self._replace, pickled_plan(self._plan))

    def close(self, wait: bool) -> None:
        """Cancel tasks under way; the client stays open."""
        with self._lock:
            self._closed = True
            self._tasks.clear()
        self._arena.close()
        self._client.loop.add_callback(self._forget)
        self._opener.shutdown(wait, cancel_futures=True)

    # --- on the client's event loop ---

    @property
    def _is_cut_off(self) -> bool:
        """True if no more requests are possible."""
        return self._closed or self._client.status in ("closed", "closing")

    async def _run(self, task: Task) -> None:
        try:
            answer: Any = await self._answer(task.batches[0].key)
        except BaseException as error:
            # The frames of the error and its context would keep the plan on the cluster.
            error.__context__ = None
            answer = error.with_traceback(None)
        with suppress(RuntimeError):  # The executor was closed meanwhile.
            self._opener.submit(self._deliver, task, answer)

    async def _answer(self, key: BatchKey) -> Pickled | Failure:
        """Request a batch until there is an answer.

        Raises:
            WorkerError: The batch kills workers; or the cluster, or the client, is gone.
            Exception: Another error from Dask.
        """
        pickled = cloudpickle.dumps(key)
        for _ in range(_TRIES):
            if self._is_cut_off:
                break
            sending = self._sending = self._sending or asyncio.ensure_future(self._send())
            try:
                return await self._made(await asyncio.shield(sending), pickled)
            except (concurrent.futures.CancelledError, asyncio.CancelledError):
                pass  # The last worker with the plan is gone, or the cluster was restarted.
            except self._dask.KilledWorker as error:
                raise WorkerError(
                    f"{getattr(error.last_worker, 'address', 'a worker')} of the Dask cluster died "
                    f"while computing batch {key.index} of epoch {key.epoch}; tried "
                    f"{error.allowed_failures + 1} times. Look for a crash in the source or the "
                    "transform (workers=0 runs it in this process), or for the workers' memory "
                    "limit"
                ) from None
            except Exception as error:
                if not self._is_cut_off:
                    self._send_again(sending)
                    # Several batches may wait for the same plan.
                    if _NOT_RUN not in getattr(error, "__notes__", ()):
                        note(error, _NOT_RUN)
                    raise
            self._send_again(sending)
        raise WorkerError(_FORGOTTEN)

    async def _made(self, plan: Any, key: bytes) -> Pickled | Failure:
        self._sent += 1
        future = self._client.submit(make_batch, plan, key, pure=False, priority=-self._sent)
        self._futures.add(future)
        try:
            await future.exception()  # Waits for the task.
            answer: Pickled | Failure = await self._result(future)
            return answer
        finally:
            self._futures.discard(future)
            future.release()

    async def _result(self, future: Any) -> Any:
        """Result of a task, from the worker that has it if that can be reached.

        ``Client.gather`` isn't used: it picks the worker with Python's global generator, whose
        draws belong to the user.
        """
        key, known = future.key, {}
        if future.status == "finished":
            known = await self._client.scheduler.who_has(keys=[key])
        for address in set(known.get(key, ())) - self._out_of_reach:
            fetching = self._dask.worker.get_data_from_worker(self._client.rpc, [key], address)
            try:
                answer = await asyncio.wait_for(fetching, _FETCH_SECONDS)
            except (OSError, asyncio.TimeoutError) as error:
                self._out_of_reach.add(address)
                log.info("%s of the Dask cluster can't be reached: %r", address, error)
            else:  # A busy worker sends nothing.
                if key in answer.get("data", {}):
                    return answer["data"][key]
        # Through the scheduler; Dask recomputes what was lost with a worker.
        return await self._client.gather(future, direct=False, asynchronous=True)

    async def _send(self) -> Any:
        """Send the plan to the cluster; returns its future."""
        serialized = self._serialized
        if sys.getsizeof(serialized) <= _TASK_BYTES:
            return self._client.submit(lambda plan: plan, serialized, pure=False)
        options = {"hash": False, "asynchronous": True}
        try:
            return await self._client.scatter(serialized, direct=True, **options)
        except OSError:  # The workers can't be reached from here.
            return await self._client.scatter(serialized, direct=False, **options)

    def _send_again(self, sent: asyncio.Task[Any]) -> None:
        if self._sending is sent:
            self._sending = None

    def _replace(self, serialized: Pickled) -> None:
        self._serialized, self._sending = serialized, None

    async def _forget(self) -> None:
        """Release all data on the cluster now, not when the garbage collector runs."""
        for future in self._futures:
            future.release()
        sending, self._sending = self._sending, None
        if sending is not None:
            with suppress(Exception, asyncio.CancelledError):
                (await sending).release()

    # --- in our own thread ---

    def _deliver(self, task: Task, answer: Any) -> None:
        (future,) = task.batches
        try:
            if isinstance(answer, Pickled):
                future.outcome, spent = answer.batch(self._arena.empty)
                task.seconds = spent.seconds
            else:
                future.note_error(answer.restore() if isinstance(answer, Failure) else answer)
        except BaseException as error:
            future.note_error(error)
        with self._lock:
            done = self._tasks.pop(task, None)
            if done is not None:
                done(task)


def _runs_here(client: Any) -> bool:
    """True if the client's event loop runs in this process, or if that is unknown."""
    ident = getattr(getattr(client.loop, "asyncio_loop", None), "_thread_id", None)
    return ident is None or ident in {thread.ident for thread in threading.enumerate()}
