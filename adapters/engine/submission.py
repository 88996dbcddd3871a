"""Batches as results of Dask's tasks: the way that always goes.

    _run --submit--> scheduler --> a worker: shipment.make --gather--> what it made

Dask does a task again whose worker has died, and gives up one that workers died over again and
again. Everything here runs on the client's event loop, and nothing blocks. All of Dask's that is
used is public.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import uuid
from typing import Any

from adapters.batch.key import BatchKey
from adapters.engine.shipment import Shipment, Wanted, make
from adapters.engine.traffic import Traffic
from adapters.errors import WorkerError

# A plan up to there travels as a task, which Dask does again where it was lost; Dask warns of ones
# of 10 MB. A larger one is scattered.
_TASK_BYTES = 4 << 20
# How often a lost plan, or a cancelled task, is sent again.
_TRIES = 5
_FORGOTTEN = (
    "the Dask cluster has forgotten what it was given again and again: its scheduler has ended, or "
    "the client was closed"
)
ENDED = "closed", "closing"
"""What the status of a client is in the end."""


class Submission:
    """A client's tasks.

    Args:
        client: Whose they are.
        dask: The module ``distributed``.
        shipment: The plan.
        traffic: Where what comes is counted.
    """

    def __init__(self, client: Any, dask: Any, shipment: Shipment, traffic: Traffic) -> None:
        self._client = client
        self._dask = dask
        self._shipment = shipment
        self._traffic = traffic
        self._sent: asyncio.Task[Any] | None = None
        """Brings the shipment to the cluster."""
        self._futures: set[Any] = set()
        """What is waited for. None of those who wait is cancelled: a gather that is takes others
        with it, as Dask has those that begin at the same time share one."""
        self._prefix = f"adapters-batch-{uuid.uuid4().hex}"
        self._tasks = 0
        self._closed = False

    async def made(self, keys: list[BatchKey]) -> list[Any]:
        """What a worker answers to some batches; in the place of one that kills them, why.

        Raises:
            WorkerError: The cluster, or the client, is gone.
            Exception: What Dask has to say.
        """
        try:
            return await self._asked(keys)
        except self._dask.KilledWorker as error:
            if len(keys) > 1:  # One by one, so that the one to blame is alone.
                each = [self.made([key]) for key in keys]
                return [answer for answers in await asyncio.gather(*each) for answer in answers]
            where = getattr(error.last_worker, "address", "a worker")
            told = WorkerError(
                f"{where} of the Dask cluster died while computing batch {keys[0].index} of epoch "
                f"{keys[0].epoch}; tried {error.allowed_failures + 1} times. Look for a crash in "
                "the source or the transform (workers=0 runs it in this process), or for the "
                "workers' memory limit"
            )
            return [told]

    async def shipped(self) -> Any:
        """The plan, as the cluster has it: a future."""
        sending = self._sent = self._sent or asyncio.ensure_future(self._send(self._shipment))
        return await self._arrival(sending)

    async def finished(self, future: Any) -> None:
        """Wait for a task; its future is released when this is closed."""
        self._futures.add(future)
        try:
            async for _ in self._dask.as_completed([future], loop=self._client.loop):
                pass
        finally:
            self._futures.discard(future)

    def replace(self, shipment: Shipment) -> None:
        """Send another plan from here on."""
        self._shipment, self._sent = shipment, None

    def close(self) -> None:
        """Have the cluster forget everything."""
        self._closed = True
        for future in self._futures:
            future.release()
        if self._sent is not None:
            self._sent.add_done_callback(_release)
        self._sent = None

    async def _asked(self, keys: list[BatchKey]) -> list[Any]:
        for left in reversed(range(_TRIES)):
            sending = self._sent = self._sent or asyncio.ensure_future(self._send(self._shipment))
            future = self._submitted(await self._arrival(sending), keys)
            try:
                await self.finished(future)
                with self._traffic.bringing():
                    answers: list[Any] = await self._client.gather(
                        future, direct=True, asynchronous=True
                    )
                self._traffic.note(answers)
                return answers
            except (concurrent.futures.CancelledError, asyncio.CancelledError):
                # The last worker that had the plan is gone, or somebody restarted the cluster.
                if self._closed or not left or self._client.status in ENDED:
                    raise WorkerError(_FORGOTTEN) from None
                if self._sent is sending:
                    self._sent = None
            except Exception:
                if self._client.status in ENDED:  # It has nothing to ask any more.
                    raise WorkerError(_FORGOTTEN) from None
                raise
            finally:
                future.release()
        raise AssertionError

    async def _arrival(self, sending: asyncio.Task[Any]) -> Any:
        try:
            return await asyncio.shield(sending)
        except BaseException:
            if self._sent is sending:
                self._sent = None
            raise

    def _submitted(self, shipment: Any, keys: list[BatchKey]) -> Any:
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


def _release(sending: asyncio.Task[Any]) -> None:
    """Have the cluster forget a plan now, and not when the garbage collector comes by."""
    if not sending.cancelled() and sending.exception() is None:
        sending.result().release()


def _itself(shipment: Shipment) -> Shipment:
    return shipment
