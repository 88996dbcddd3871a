"""A plan on a cluster, and the batches that it makes there: what crosses the wire.

    trainer                                                  a worker of the cluster
    Shipment(plan) --- once, the cluster keeps it ------->   the plan, opened once
    Wanted(keys) ---------------------------------------->   plan.batch(key)
               <--- for each key, Made or a Failure ------

Both are a pickle and its arrays apart (protocol 5), which Dask sends as they lie in memory. Any
thread may call.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey
from adapters.batch.plan import Allocate, Assembled, Plan
from adapters.clock import Spent
from adapters.engine.parcel import import_before, pickled_apart
from adapters.errors import note
from adapters.failure import Failure
from adapters.structure import flatten, unflatten

_NOT_OPENED = (
    "a worker of the cluster could not open the source or a transform: what they are made of must "
    "be installed there, or be sent by Client.upload_file, and files be found under the same names"
)
_TURN = threading.RLock()
"""Of plans that no two threads may compute at once; for all, as they share the generators."""


class Shipment:
    """A plan, as it was when this was made.

    Args:
        content: Its pickle.
        buffers: The arrays of that.
        imports: What must be imported before it is opened.
    """

    def __init__(self, content: bytes, buffers: Sequence[Any], imports: tuple[str, ...]) -> None:
        self._content = content
        self._buffers = buffers
        self._imports = imports
        self._lock = threading.Lock()
        self._plan: Plan | None = None

    @classmethod
    def of(cls, plan: Plan) -> Shipment:
        """Take a plan apart; its arrays are not copied.

        Raises:
            Exception: It can't be pickled, not even by cloudpickle.
        """
        content, buffers, imports = pickled_apart(plan)
        return cls(content, buffers, imports)

    @property
    def size_bytes(self) -> int:
        """What is sent to each worker."""
        return len(self._content) + sum(memoryview(each).nbytes for each in self._buffers)

    def plan(self) -> Plan:
        """The plan, opened once in each process.

        Raises:
            Exception: It can't be opened here.
        """
        with self._lock:
            if self._plan is None:
                import_before(self._imports)
                try:
                    self._plan = pickle.loads(self._content, buffers=self._buffers)
                except Exception as error:
                    note(error, _NOT_OPENED)
                    raise
            return self._plan

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Shipment, (self._content, _apart(self._buffers, protocol), self._imports)

    def __sizeof__(self) -> int:
        return self.size_bytes  # Dask weighs what its workers keep.


@dataclass(frozen=True)
class Wanted:
    """Some batches. A class of its own, as Dask looks into lists and tuples."""

    keys: list[BatchKey]


class Made:
    """A batch on its way.

    Args:
        content: The pickle of its structure.
        buffers: The arrays of that.
        skipped: Samples that others have taken the place of.
        spent: What its computation took.
    """

    def __init__(self, content: bytes, buffers: Sequence[Any], skipped: int, spent: Spent) -> None:
        self._content = content
        self._buffers = buffers
        self._skipped = skipped
        self._owns = False
        self.spent = spent

    @classmethod
    def of(cls, assembled: Assembled, spent: Spent) -> Made:
        """Take a batch apart; its arrays are not copied.

        Raises:
            Exception: It holds something that can't be pickled.
        """
        leaves, skeleton = flatten(assembled.batch)
        # Pickle puts what isn't contiguous into the stream, byte by byte.
        leaves = [
            np.ascontiguousarray(leaf) if type(leaf) is np.ndarray and leaf.ndim else leaf
            for leaf in leaves
        ]
        for dumps in (pickle.dumps, cloudpickle.dumps):
            buffers: list[pickle.PickleBuffer] = []
            try:
                content = dumps((skeleton, leaves), protocol=5, buffer_callback=buffers.append)
            except Exception as error:
                obstacle = error
            else:
                return cls(content, buffers, assembled.skipped, spent)
        note(obstacle, "the batch holds something that can't be sent from a worker of a cluster")
        raise obstacle

    @property
    def size_bytes(self) -> int:
        """What is sent."""
        return len(self._content) + sum(memoryview(each).nbytes for each in self._buffers)

    def apart(self) -> tuple[tuple[Any, ...], list[memoryview]]:
        """What describes the batch, and its arrays, flat and not copied."""
        flat = [
            each.raw() if isinstance(each, pickle.PickleBuffer) else memoryview(each).cast("B")
            for each in self._buffers
        ]
        return (self._content, self._skipped, self.spent), flat

    @classmethod
    def joined(cls, described: tuple[Any, ...], buffers: Sequence[Any]) -> Made:
        """The same with its arrays elsewhere: in memory that is its own."""
        content, skipped, spent = described
        made = cls(content, buffers, skipped, spent)
        made._owns = True
        return made

    def opened(self, allocate: Allocate) -> Assembled:
        """The batch, in memory of its own, where frameworks take it without a copy."""
        buffers = list(self._buffers)
        if not self._owns:
            for number, raw in enumerate(self.apart()[1]):
                buffers[number] = allocate((raw.nbytes,), np.dtype(np.uint8))
                np.copyto(buffers[number], np.frombuffer(raw, np.uint8))
        skeleton, leaves = pickle.loads(self._content, buffers=buffers)
        return Assembled(unflatten(skeleton, leaves), self._skipped)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        buffers = _apart(self._buffers, protocol)
        return Made, (self._content, buffers, self._skipped, self.spent)

    def __sizeof__(self) -> int:
        return self.size_bytes


def _apart(buffers: Sequence[Any], protocol: int) -> list[Any]:
    """Arrays as pickle takes them.

    Dask has an older protocol with a scheduler that brings what a worker made, which can't hold
    them apart.
    """
    kind = pickle.PickleBuffer if protocol >= 5 else bytes
    return [kind(memoryview(each)) for each in buffers]


def make(
    shipment: Shipment, wanted: Wanted, allocate: Allocate = aligned_empty
) -> list[Made | Failure]:
    """The task: some batches, on a worker of the cluster. It may run twice, and anywhere."""
    return [_made(shipment, key, allocate) for key in wanted.keys]


def _made(shipment: Shipment, key: BatchKey, allocate: Allocate) -> Made | Failure:
    started = Spent.now()
    try:
        plan = shipment.plan()
        if plan.threads:
            assembled = plan.batch(key, allocate)
        else:
            with _TURN:
                assembled = plan.batch(key, allocate)
        plan.wait_for(assembled)
        return Made.of(assembled, started.until_now())
    except BaseException as error:  # Belongs to whoever asks for the batch.
        return Failure.of(error)
