"""Workers of a Dask cluster that are asked directly, past scheduler and results.

    Cluster --put--> Lanes --give--> a Lane: keys on a connection of Dask's, by the event loop
              taken <-- frames.receive, by the lane's thread, straight into the batch's memory

A lane leads to one worker, which computes with as many threads as Dask has it do, and has as much
again under way. Lanes open in the background: until the first one does, and where none can, batches
are results of tasks; so are those of a lane that breaks, as its worker may have died over them.
Who is there, the scheduler says: it hears of workers that are silent. It doesn't hear of what waits
for a lane, which is declared to it.
What changes the state of ``Lanes`` holds the dispatcher's lock, and never blocks.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import pickle
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from adapters.engine import frames, outpost
from adapters.engine.arena import Arena
from adapters.engine.declared import TASK_SECONDS, DeclaredWork
from adapters.engine.jobs import Job, Pending
from adapters.engine.submission import Submission
from adapters.engine.traffic import Traffic

log = logging.getLogger("adapters")

# How often it is looked whether workers have come, or left.
_LOOK_SECONDS = 2.0
# Until then, batches wait for the first lane.
_OPEN_SECONDS = 5.0
_CONNECT_SECONDS = 10.0
# When one is tried again that couldn't be asked directly.
_AGAIN_SECONDS = 120.0
_PATIENCE_SECONDS = 10.0
_SCHEMES = "tcp://", "tls://"


class Work(NamedTuple):
    """A job, and the batches that it had when it was given."""

    job: Job
    batches: list[Pending]


class Lane:
    """The way to one worker.

    Args:
        address: The worker's.
        threads: With which it computes.
        plans: How often the plan had been replaced.
    """

    def __init__(self, address: str, threads: int, plans: int) -> None:
        self.address = address
        self.threads = threads
        self.plans = plans
        self.token = uuid.uuid4().hex
        self.works: dict[int, Work] = {}
        """What is under way, by number."""
        self.retired = False
        self.owned: socket.socket | None = None
        self.thread: threading.Thread | None = None
        self.opening: asyncio.Task[None] | None = None
        self.comms: list[Any] = []
        self.futures: list[Any] = []

    @property
    def free(self) -> float:
        """How much of its room is left."""
        return 1 - len(self.works) / (2 * self.threads)

    def close(self) -> None:
        """Hang up; from any thread, and any number of times."""
        if self.owned is not None:
            frames.hang_up(self.owned)

    def forget(self) -> None:
        """Let go of everything that it has of Dask's, on the event loop."""
        for comm in self.comms:
            comm.abort()
        for future in self.futures:
            future.release()


class Lanes:
    """All lanes of a crew.

    Args:
        client: Of the cluster.
        dask: The module ``distributed``.
        submission: Sends the plan.
        lock: The dispatcher's.
        traffic: Where what comes is counted.
        taken: Called with what came, in the lane's thread.
        otherwise: Called with work that no lane is there for, with the lock held.
    """

    def __init__(
        self,
        client: Any,
        dask: Any,
        submission: Submission,
        lock: Any,
        traffic: Traffic,
        taken: Callable[[Work, list[Any]], None],
        otherwise: Callable[[Work], None],
    ) -> None:
        self._client, self._dask, self._submission = client, dask, submission
        self._lock, self._traffic = lock, traffic
        self._taken = weakref.WeakMethod(taken)
        self._otherwise = weakref.WeakMethod(otherwise)
        self._arena = Arena()
        self._lanes: list[Lane] = []
        self._retired: list[Lane] = []
        self._opening: dict[str, Lane] = {}
        """Of the event loop."""
        self._doubtful: dict[str, float] = {}
        """Workers whose lane nothing waits for, and when to try again; of the event loop."""
        self._declaration = DeclaredWork(client)
        self._declared = False
        self._waiting: collections.deque[Work] = collections.deque()
        self._numbers = 0
        self._plans = 0
        self._looked = 0.0
        self._settled = self._told = self._closed = False

    # --- with the lock held ---

    def put(self, work: Work) -> None:
        """Have a worker do something, as soon as one has room."""
        self.look()
        if self._lanes or not self._settled:
            self._waiting.append(work)
            self._distribute()
        else:
            self._do_otherwise([work])

    def look(self) -> None:
        """See from time to time who has come, and who has left; for whoever gives or waits."""
        if time.monotonic() > self._looked + _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._client.loop.add_callback(self._look)

    def retire(self) -> None:
        """Take no lane that is open for what comes from here on: it has an old plan."""
        self._retired += self._lanes
        for lane in self._lanes:
            lane.retired = True
            if not lane.works:
                lane.close()
        self._lanes.clear()
        self._plans += 1
        self._settled, self._looked = False, time.monotonic()
        self._client.loop.add_callback(self._renew)

    def close(self) -> None:
        """Hang up everywhere."""
        self._closed = True
        self._waiting.clear()
        self._arena.close()
        for lane in [*self._lanes, *self._retired]:
            lane.works.clear()
            lane.close()
        self._client.loop.add_callback(self._stop_opening)
        self._client.loop.add_callback(self._declaration.declare, 0.0)

    @property
    def threads(self) -> list[threading.Thread]:
        """Of lanes that are open."""
        lanes = [*self._lanes, *self._retired]
        return [lane.thread for lane in lanes if lane.thread is not None]

    def _distribute(self) -> None:
        while self._waiting and self._lanes:
            lane = max(self._lanes, key=lambda lane: lane.free)
            if lane.free <= 0:
                break
            work = self._waiting.popleft()
            self._numbers += 1
            lane.works[self._numbers] = work
            keys = pickle.dumps([pending.key for pending in work.batches])
            self._client.loop.add_callback(self._ask, lane, self._numbers, len(work.batches), keys)
        if self._declared and not self._waiting:
            self._declared = False
            self._client.loop.add_callback(self._declaration.declare, 0.0)

    @property
    def _unseen_seconds(self) -> float:
        """What there is to do, if that is more than the lanes have room for."""
        if not self._waiting:
            return 0.0
        works = [*self._waiting, *(work for lane in self._lanes for work in lane.works.values())]
        seconds = self._traffic.batch_seconds or TASK_SECONDS
        return seconds * sum(len(work.batches) for work in works)

    def _do_otherwise(self, works: list[Work]) -> None:
        if (otherwise := self._otherwise()) is not None and not self._closed:
            for work in works:
                otherwise(work)

    def _settle(self) -> None:
        """No lane is to be waited for."""
        self._settled = True
        if not self._lanes:
            works = list(self._waiting)
            self._waiting.clear()
            self._do_otherwise(works)
        self._distribute()

    def _lose(self, lane: Lane) -> None:
        """A lane has ended."""
        works = list(lane.works.values())
        lane.works.clear()
        for lanes in (self._lanes, self._retired):
            if lane in lanes:
                lanes.remove(lane)
        self._client.loop.add_callback(lane.forget)
        if self._closed:
            return
        if not lane.retired:
            log.warning(
                "the connection to %s of the Dask cluster has ended; computing %d lost jobs again",
                lane.address,
                len(works),
            )
        self._do_otherwise(works)
        if not self._lanes and self._settled:
            self._settle()

    def _receive(self, lane: Lane, number: int, answers: list[Any]) -> None:
        with self._lock:
            work = lane.works.pop(number, None)
            if lane.retired and not lane.works:
                lane.close()
            self._distribute()
        if work is not None and (taken := self._taken()) is not None:
            taken(work, answers)

    # --- on the client's event loop ---

    async def _ask(self, lane: Lane, number: int, count: int, keys: bytes) -> None:
        with suppress(OSError):  # The lane's thread sees it, too.
            await lane.comms[0].write({"number": number, "count": count, "keys": keys})
            return
        lane.close()

    async def _look(self) -> None:
        """Open lanes to workers that have none, and close those of workers that have left."""
        plans = self._plans
        counts: dict[str, int] = {}
        try:
            counts = await asyncio.wait_for(self._client.scheduler.ncores(), _PATIENCE_SECONDS)
            self._close_lanes_but(set(counts))
            if tasks := self._begin_opening(counts):
                await asyncio.wait(tasks, timeout=_OPEN_SECONDS)
        except Exception as error:
            log.debug("lanes to a Dask cluster: %s", error)
        with self._lock:
            if self._plans != plans or self._closed:
                return  # Another look settles it.
            for address in self._opening:
                self._doubtful.setdefault(address, 0.0)
            self._settle()
            untold = bool(counts) and not (self._lanes or self._told)
            self._told = self._told or untold
            unseen = self._unseen_seconds
            self._declared = unseen > 0
        self._declaration.declare(unseen)
        if untold:
            log.info("batches come as results of Dask's tasks: no worker could be asked directly")

    def _close_lanes_but(self, addresses: set[str]) -> None:
        for address in set(self._opening) - addresses:
            self._opening.pop(address).forget()
        for address in set(self._doubtful) - addresses:
            del self._doubtful[address]
        with self._lock:
            for lane in [*self._lanes, *self._retired]:
                if lane.address not in addresses:
                    lane.close()

    def _begin_opening(self, counts: dict[str, int]) -> list[asyncio.Task[None]]:
        """Begin to open what isn't there; returns what is to be waited for."""
        with self._lock:
            there = {lane.address for lane in self._lanes}.union(self._opening)
            if self._closed:
                return []
        for address in set(counts) - there:
            if self._doubtful.get(address, 0.0) <= time.monotonic():
                lane = self._opening[address] = Lane(address, counts[address], self._plans)
                lane.opening = asyncio.ensure_future(self._open(lane))
        lanes = [lane for lane in self._opening.values() if lane.address not in self._doubtful]
        return [lane.opening for lane in lanes if lane.opening is not None]

    async def _renew(self) -> None:
        self._stop_opening()
        await self._look()

    async def _open(self, lane: Lane) -> None:
        try:
            opened = lane.address.startswith(_SCHEMES) and await self._connected(lane)
        except (Exception, asyncio.CancelledError) as error:
            log.debug("%s of the Dask cluster can't be asked directly: %r", lane.address, error)
            opened = False
        current = self._opening.get(lane.address) is lane
        if current:
            del self._opening[lane.address]
            self._doubtful.pop(lane.address, None)
            if not opened:
                self._doubtful[lane.address] = time.monotonic() + _AGAIN_SECONDS
        with self._lock:
            opened = opened and current and lane.plans == self._plans and not self._closed
            if opened:
                self._lanes.append(lane)
                lane.thread = threading.Thread(
                    target=_read_all,
                    args=(weakref.ref(self), lane, self._arena, self._traffic),
                    name="adapters-lane",
                    daemon=True,
                )
                lane.thread.start()
                self._distribute()
        if not opened:
            lane.forget()

    async def _connected(self, lane: Lane) -> bool:
        pinned = {"workers": [lane.address], "allow_other_workers": False, "pure": False}
        shipment = await self._submission.shipped()
        manned = self._client.submit(outpost.man, shipment, lane.token, priority=1, **pinned)
        lane.futures.append(manned)
        await self._submission.finished(manned)
        if manned.status != "finished":
            return False
        for op in (outpost.ASKS, outpost.ANSWERS):
            comm = await self._dask.comm.connect(
                lane.address, timeout=_CONNECT_SECONDS, **self._client.connection_args
            )
            lane.comms.append(comm)
            await comm.write({"op": op, "token": lane.token, "reply": False})
        if await comm.read() != outpost.READY or not frames.can_be_taken_over(comm):
            return False
        lane.owned = frames.taken_over(comm)
        lane.futures.append(self._client.submit(outpost.hold, lane.token, **pinned))
        return True

    def _stop_opening(self) -> None:
        for lane in self._opening.values():
            lane.forget()
        self._opening.clear()


def _read_all(of: weakref.ref[Lanes], lane: Lane, arena: Arena, traffic: Traffic) -> None:
    """What a lane's thread does; it keeps no crew alive that nobody else does."""
    while lane.owned is not None:
        begun = False

        def begin() -> None:
            nonlocal begun
            begun = True
            traffic.begin()

        try:
            number, answers = frames.receive(lane.owned, arena.empty, begin)
        except Exception as error:
            if not isinstance(error, (OSError, EOFError)):
                log.exception("a worker of a Dask cluster sent what can't be read")
            break
        finally:
            if begun:
                traffic.end()
        traffic.note(answers)
        if (lanes := of()) is not None:
            lanes._receive(lane, number, answers)
        del lanes, answers
    lane.close()
    if (lanes := of()) is not None:
        with lanes._lock:
            lanes._lose(lane)
